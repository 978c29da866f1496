"""The client of a served model: questions are sent once and within a budget, whatever goes wrong.

What fails for a while (429, 5xx, a lost connection, an answer that is cut short, slow, malformed or
of another model) is tried again after a pause that grows, or that the server asks for. Permanent
errors (a rejected key, an unknown model) fail immediately. A control question checks now and then
that the model behind the name is the same; otherwise the answers since the last check are deleted.

A call is counted before it is sent, so that a killed one counts against the budget. The file holds
the queried texts and never the key, which comes from the environment and goes to the HTTP client
only. No message quotes the server, which may repeat texts or the key.
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path
from typing import Any

from vestige.errors import ModelError
from vestige.models.remote.functions import RetryPolicy, TooSlow, within
from vestige.models.remote.openai import (
    Answer,
    BadReply,
    Failed,
    Question,
    Refused,
    Reply,
    body_of,
    calls_of,
    read_answer,
)
from vestige.models.remote.options import EndpointAddress, RemoteOptions
from vestige.monitor import SILENT, Monitor
from vestige.store import Store

CHECK_EVERY = 500
"""Questions between two control questions."""
TIMEOUT = 60.0
"""Seconds of a call, unless the options say otherwise."""
LARGEST = 2**26  # bytes of an answer
LONGEST_WAIT = 600.0
"""Seconds that a server may ask us to wait for."""
_SPENT = "spent"


class Endpoint:
    """A served model that is asked questions, each once.

    Args:
        address: of the model.
        path: file of its answers, made if it is missing.
        options: budgets, speed and key.
        monitor: gets a line if answers are damaged; they are queried again.
        sleep: waits so many seconds.

    Raises:
        ModelError: the client is not installed, or the file is of another endpoint.
        RunError: the file cannot be read or written, or its account is damaged.

    Attributes:
        about: what is noted about the server, by name.
        together: questions in a call, if the server takes several.
        last_error: of the last failed call.
        budget_spent: whether a question was left because of the budget.
    """

    def __init__(
        self,
        address: EndpointAddress,
        path: Path,
        options: RemoteOptions | None = None,
        *,
        monitor: Monitor = SILENT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address, self.options, self.together = address, options or RemoteOptions(), 1
        self._retry = RetryPolicy(attempts=self.options.attempts)
        key = os.environ.get(self.options.key_env, "")
        self._server = _Server(address, key, self.options.timeout or TIMEOUT)
        self._store = Store(path, monitor=monitor, essential=_SPENT)
        self._store.setdefault(_SPENT, {"calls": 0, "tokens": 0, "failed_calls": 0, "seconds": 0.0})
        self._replies, self._provisional = self._store.part("answer/"), self._store.part("new/")
        self.about = self._store.part("about/")
        self._lock, self._sleep = threading.Lock(), sleep
        self._next_call, self._since_check, self._failed_in_a_row = 0.0, math.inf, 0
        self.last_error: Exception | None = None
        self.budget_spent = False
        for name, value in (("address", str(address)), ("format", "1")):
            if self.about.setdefault(name, value) != value:
                raise ModelError(
                    f"the cached answers come from another endpoint than {address}",
                    remedy="Pass another directory (`out`).",
                )

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        """Close connections and the file."""
        self._server.close()
        self._store.close()

    def statistics(self) -> dict[str, float]:
        """Calls, tokens, failed calls and seconds of all sessions."""
        return dict(self._store[_SPENT])

    def ask(self, questions: Sequence[Question]) -> list[Reply | None]:
        """The reply to each question; None if the budget is spent or every attempt failed.

        Raises:
            ModelError: the server takes no question, is another model than before, or keeps
                failing; its answers are cached.
        """
        found: dict[Question, Reply | None] = dict.fromkeys(questions)
        for question in found:
            stored = self._replies.get(question.key) or self._provisional.get(question.key)
            found[question] = None if stored is None else Reply.from_json(stored)
        missing = [question for question, reply in found.items() if reply is None]
        for begin in range(0, len(missing), CHECK_EVERY):
            part = missing[begin : begin + CHECK_EVERY]
            if self._since_check + len(part) > CHECK_EVERY:
                self.confirm()
            self._since_check += len(part)
            groups = calls_of(part, self.together)
            # The first answer names the model, so no other call is under way.
            alone = 0 if "model" in self.about else 1
            pool = ThreadPoolExecutor(self.options.concurrency)
            try:
                first = [self._answered(group) for group in groups[:alone]]
                for replies in chain(first, pool.map(self._answered, groups[alone:])):
                    found |= replies
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return [found[question] for question in questions]

    def attempt(self, *questions: Question) -> tuple[Reply, ...]:
        """Replies of one call, neither looked up nor stored.

        Raises:
            Refused: the server does not accept such a question.
            ModelError: see `ask`; or no attempt succeeded.
        """
        answer = self._tried(questions)
        if answer is None:
            raise self.failed()
        return answer.replies

    def control(self, question: Question, reply: Reply) -> None:
        """Recognise the model by a question and its reply, unless there is one already."""
        if "control" not in self.about:
            self.about["control"], self.about["controlled"] = question.key, reply.to_json()
        self._since_check = 0

    def confirm(self) -> None:
        """Ask the control question: answers since the last one count only now.

        Raises:
            ModelError: another model answers.
        """
        question, before = self.about.get("control"), self.about.get("controlled")
        if question is None or before is None:
            return
        (now,) = self.attempt(Question(**json.loads(question)))
        same = Reply.from_json(before).alike(now)
        with self._store.transaction():
            number = len(self._provisional)
            if same:
                self._replies.update(self._provisional)
            self._provisional.clear()
        if not same:
            raise ModelError(
                f"{self.address} now has another model: {number} answers since the change were "
                "discarded",
                remedy=(
                    "Ask its owner which model it is. Run the command again when the first model "
                    "is back, or start again with another `out`."
                ),
            )
        self._since_check = 0

    def failed(self) -> ModelError:
        """The error of an endpoint that keeps failing."""
        if isinstance(self.last_error, ModelError):
            return self.last_error
        why = "the budget is used up" if self.budget_spent else self.last_error
        return ModelError(
            f"{self.address} returns no answer: {why}",
            remedy=(
                "Test the server, or raise `attempts`, `timeout` or the budget. Rerun the "
                "command: Vestige caches answers."
            ),
        )

    def _answered(self, group: tuple[Question, ...]) -> dict[Question, Reply]:
        """Replies to questions of one call, stored; none if it failed."""
        if self._failed_in_a_row >= self._retry.give_up_after:
            raise self.failed()
        try:
            answer = self._tried(group)
        except Refused:
            return {}
        replies = {} if answer is None else dict(zip(group, answer.replies, strict=True))
        with self._store.transaction():
            self._provisional.update({one.key: reply.to_json() for one, reply in replies.items()})
        return replies

    def _tried(self, group: tuple[Question, ...]) -> Answer | None:
        """The answer to one call; None if every attempt failed or the budget is spent."""
        most = sum(question.most_tokens for question in group)
        for pause in self._retry.pauses():
            if not self._affordable(most):
                return None
            try:
                answer = self._call(group, most)
            except Failed as error:
                if error.wait is not None:  # other calls would be rejected, too
                    with self._lock:
                        self._next_call = max(self._next_call, time.monotonic() + error.wait)
                if pause is not None:
                    self._sleep(pause if error.wait is None else error.wait)
            else:
                self._failed_in_a_row = 0
                return answer
        with self._lock:
            self._failed_in_a_row += 1
        return None

    def _affordable(self, most: int) -> bool:
        """Whether the budget allows a call of so many tokens, which then counts as a failed one."""
        with self._lock:
            spent = self._store[_SPENT]
            for name, new, budget in (
                ("calls", 1, self.options.budget),
                ("tokens", most, self.options.token_budget),
            ):
                if budget is not None and spent[name] + new > budget:
                    self.budget_spent = True
                    return False
            self._spend(calls=1, failed_calls=1, tokens=most)
        return True

    def _call(self, group: tuple[Question, ...], most: int) -> Answer:
        self._pace()
        tokens = sum(question.tokens for question in group)
        began, answered = time.perf_counter(), False
        try:
            answer = self._server.send(group)
            tokens = tokens if answer.tokens is None else answer.tokens
            with self._lock:
                if answer.model != self.about.setdefault("model", answer.model):
                    raise BadReply("the answer is of another model")
            answered = True
            return answer
        except Exception as error:
            self.last_error = error
            raise
        finally:
            seconds = time.perf_counter() - began
            self._spend(failed_calls=-int(answered), tokens=tokens - most, seconds=seconds)

    def _spend(self, **numbers: float) -> None:
        with self._store.transaction():
            spent = self._store[_SPENT]
            self._store[_SPENT] = spent | {k: spent[k] + number for k, number in numbers.items()}

    def _pace(self) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next_call)
            rate = self.options.calls_per_minute
            self._next_call = at if rate is None else at + 60 / rate
        if at > now:
            self._sleep(at - now)


class _OtherHost(Exception):
    pass


class _Server:
    """The client of a served model, which sends texts and key to its host only.

    Args:
        address: of the model.
        key: passed to the client and to nobody else.
        timeout: seconds of a call.

    Raises:
        ModelError: the client is not installed.
    """

    def __init__(self, address: EndpointAddress, key: str, timeout: float) -> None:
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ImportError:
            raise ModelError(
                f"{address} needs the package openai",
                remedy="Install it: pip install 'vestige[endpoint]'.",
            ) from None
        self._address, self._key, self._timeout = address, key, timeout
        client: Any = OpenAI(
            base_url=address.url,
            api_key=key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=DefaultHttpxClient(event_hooks={"response": [_stay_on_host]}),
        )
        self._client, self.close = client, client.close

    def send(self, questions: Sequence[Question]) -> Answer:
        """Replies to questions that differ in their prompts only.

        Raises:
            Failed: the call may be tried again.
            Refused: the server does not accept such questions.
            ModelError: no call can succeed.
        """
        try:
            return read_answer(within(self._timeout, self._content, questions), questions)
        except (Failed, Refused):
            raise
        except Exception as error:
            raise self._meaning(error) from None

    def _content(self, questions: Sequence[Question]) -> bytes:
        chat = questions[0].kind == "chat"
        interface = self._client.chat.completions if chat else self._client.completions
        body = body_of(questions, self._address.model)
        with interface.with_streaming_response.create(**body) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > LARGEST:
                    raise BadReply(f"the answer is longer than {LARGEST:,} bytes")
        if self._key and _contains(bytes(content), self._key):
            raise BadReply("the answer contains the key")
        return bytes(content)

    def _meaning(self, error: Exception) -> Exception:
        status = getattr(error, "status_code", None)
        if isinstance(error, _OtherHost) or isinstance(error.__cause__, _OtherHost):
            return ModelError(
                f"{self._address} redirects to another host; no texts are sent there",
                remedy="Pass the address of that server if you trust it.",
            )
        if status in (401, 403):
            return ModelError(
                f"{self._address} rejects the key (status {status})",
                remedy="Put the key in OPENAI_API_KEY, or in the variable that `key_env` names.",
            )
        if status in (400, 404, 405, 413, 422, 501):
            return Refused(f"status {status}")
        if isinstance(error, TooSlow):
            return Failed(str(error))
        if status is None:
            return Failed(type(error).__name__)
        headers = getattr(getattr(error, "response", None), "headers", {})
        kind = BadReply if status >= 500 else Failed
        return kind(f"status {status}", _seconds(headers.get("retry-after")))


def _stay_on_host(response: Any) -> None:
    """Refuse redirects to another host, which would send texts and key there."""
    if not response.has_redirect_location:
        return
    here = response.request.url
    there = here.join(response.headers["location"])
    if (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port):
        raise _OtherHost


def _contains(content: bytes, key: str) -> bool:
    """Whether an answer has the key, as it is or behind JSON's escapes."""
    if key.encode() in content:
        return True
    try:
        decoded = json.dumps(json.loads(content), ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    return key in decoded or json.dumps(key, ensure_ascii=False)[1:-1] in decoded


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a header Retry-After, a number or a date."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else None
