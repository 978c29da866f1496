"""A server that speaks OpenAI's protocol: asked once, within a budget, whatever goes wrong.

What fails for a while (429, 5xx, a lost connection, an answer cut short, too slow, of another shape
or of another model) is tried again after a pause that grows, or that the server names. What cannot
become well (a key that is not taken, a model that is not there) ends at once. A control question
says now and then whether the model behind the name is still the same; what was answered since it
last was is forgotten where it is not.

The key is read from the environment, handed to the client and to nobody else.
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain

import tenacity

from vestige.errors import ModelError
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.endpoint_client import Refused, client_of, describe, holds, judged, told_to_wait
from vestige.models.endpoint_limits import EndpointLimits, at_most, reckon
from vestige.models.endpoint_store import EndpointStore
from vestige.models.endpoint_wire import (
    Answer,
    BadReply,
    Question,
    Reply,
    body_of,
    read_answer,
)
from vestige.models.service import within

CHECK_EVERY = 500
"""Questions between two control questions."""
TOLERANCE = 0.25
"""Difference of a log-probability that rounding does not explain: half precision moves 0.02."""
LARGEST = 2**26
"""Bytes of an answer."""


class Endpoint:
    """A served model that is asked questions, each once.

    Args:
        address: where it is.
        store: keeps the answers.
        limits: of what it is asked.
        key_env: environment variable that holds the key; a server of one's own takes any.
        sleep: waits so many seconds.

    Raises:
        ModelError: the client is not installed, or the store is another endpoint's.

    Attributes:
        last_error: what a call failed by last.
        budget_spent: a question was left because of the budget.
    """

    def __init__(
        self,
        address: EndpointAddress,
        store: EndpointStore,
        *,
        limits: EndpointLimits | None = None,
        key_env: str = "OPENAI_API_KEY",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address, self.store = address, store
        self.limits = limits or EndpointLimits()
        self._key = os.environ.get(key_env, "")
        self._client = client_of(address, self._key, self.limits.retry.timeout)
        self._lock, self._sleep = threading.Lock(), sleep
        self._next, self._since_check = 0.0, math.inf
        self._failed_in_a_row = 0
        self.last_error: BaseException | None = None
        self.budget_spent = False
        for name, value in (("address", str(address)), ("format", "1")):
            if store.about(name) not in (None, value):
                raise ModelError(
                    f"the cached answers come from another endpoint than {address}",
                    remedy="Pass another directory (`out`).",
                )
            store.note(name, value)

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of connections and of the store."""
        self._client.close()
        self.store.close()

    def ask(self, questions: Sequence[Question]) -> list[Reply | None]:
        """The reply to each question; None where there is none, since the budget is spent or every
        attempt failed.

        Raises:
            ModelError: the server takes no question at all, is another model than before, or keeps
                failing; what was answered is kept.
        """
        found = {question: self.store.reply(question) for question in dict.fromkeys(questions)}
        missing = [question for question, reply in found.items() if reply is None]
        for part in _parts(missing, CHECK_EVERY):
            if self._since_check + len(part) > CHECK_EVERY:
                self.confirm()
            self._since_check += len(part)
            groups = _alike(part, self.limits.together)
            # The first answer says which model it is: it has no other beside it.
            alone = 1 if self.store.about("model") is None else 0
            pool = ThreadPoolExecutor(self.limits.concurrency)
            try:
                for group, replies in chain(
                    [self._kept(each) for each in groups[:alone]],
                    pool.map(self._kept, groups[alone:]),
                ):
                    found |= dict(zip(group, replies, strict=True))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return [found[question] for question in questions]

    def attempt(self, question: Question, *more: Question) -> tuple[Reply, ...]:
        """Replies of one call, neither looked up nor kept.

        Raises:
            Refused: the server takes no such question.
            ModelError: see `ask`; or no attempt succeeded.
        """
        answer = self._tried((question, *more))
        if answer is None:
            raise self.failed()
        return answer.replies

    def control(self, question: Question, reply: Reply) -> None:
        """Take a question and its reply to recognise the model by."""
        if self.store.about("control") is None:
            self.store.note("control", question.key)
            self.store.note("controlled", reply.to_json())
        self._since_check = 0

    def confirm(self) -> None:
        """Ask the control question: what was answered since the last one counts only now.

        Raises:
            ModelError: another model answers.
        """
        asked, before = self.store.about("control"), self.store.about("controlled")
        if asked is None or before is None:
            return
        (now,) = self.attempt(Question(**json.loads(asked)))
        same = alike(Reply.from_json(before), now)
        taken = self.store.judge(same)
        if not same:
            raise ModelError(
                f"{self.address} now has another model: {taken} answers since the change were "
                "discarded",
                remedy=(
                    "Ask its owner which model it is. Run the command again when the first model "
                    "is back, or start again with another `out`."
                ),
            )
        self._since_check = 0

    @property
    def unfit(self) -> bool:
        """Whether what came last was an answer, but none to what was asked."""
        status = getattr(self.last_error, "status_code", 0)
        return isinstance(self.last_error, BadReply) or status >= 500

    def failed(self) -> ModelError:
        """The error of an endpoint that keeps failing."""
        why = "the budget is used up" if self.budget_spent else describe(self.last_error)
        return ModelError(
            f"{self.address} returns no answer: {why}",
            remedy=(
                "Test the server, or raise `attempts`, `timeout` or the budget. Rerun the "
                "command: Vestige caches answers."
            ),
        )

    def _kept(
        self, group: tuple[Question, ...]
    ) -> tuple[tuple[Question, ...], Sequence[Reply | None]]:
        if self._failed_in_a_row >= self.limits.retry.give_up_after:
            raise self.failed()
        try:
            answer = self._tried(group)
        except Refused as error:
            self.last_error = error
            return group, [None] * len(group)
        if answer is None:
            return group, [None] * len(group)
        self.store.keep(group, answer.replies)
        return group, answer.replies

    def _tried(self, group: tuple[Question, ...]) -> Answer | None:
        retry = self.limits.retry

        def wait(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            told = told_to_wait(error)
            if told is not None:
                self._hold(told)  # whoever is next would be turned away, too
            return retry.wait(state) if told is None else told

        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(retry.attempts),
            wait=wait,
            retry=tenacity.retry_if_not_exception_type(
                (_Spent, Refused, ModelError, KeyboardInterrupt)
            ),
            sleep=self._sleep,
            retry_error_callback=lambda _: None,
        )
        answer: Answer | None = None
        with suppress(_Spent):
            answer = attempts(self._call, group)
            with self._lock:
                self._failed_in_a_row = 0 if answer is not None else self._failed_in_a_row + 1
        return answer

    def _call(self, group: tuple[Question, ...]) -> Answer:
        """One call, which is counted before it is made."""
        most = sum(map(at_most, group))
        self._afford(most)
        self._pace()
        began, answered, tokens = time.perf_counter(), False, sum(map(reckon, group))
        try:
            answer = read_answer(within(self.limits.retry.timeout, self._send, group), group)
            tokens = tokens if answer.tokens is None else answer.tokens
            self._require_name(answer.model)
            answered = True
            return answer
        except BaseException as error:
            self.last_error = error
            raise judged(error, self.address) from None
        finally:
            seconds = time.perf_counter() - began
            self.store.ended(answered=answered, tokens=tokens - most, seconds=seconds)

    def _afford(self, tokens: int) -> None:
        with self._lock:
            calls, spent = self.store.spent()
            most_calls, most_tokens = self.limits.calls, self.limits.tokens
            short = most_calls is not None and calls + 1 > most_calls
            if short or (most_tokens is not None and spent + tokens > most_tokens):
                self.budget_spent = True
                raise _Spent
            self.store.sending(tokens)

    def _send(self, group: tuple[Question, ...]) -> bytes:
        body = body_of(group, self.address.model)
        chat = group[0].kind == "chat"
        there = self._client.chat.completions if chat else self._client.completions
        with there.with_streaming_response.create(**body) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > LARGEST:
                    raise BadReply(f"the answer is longer than {LARGEST:,} bytes")
        if self._key and holds(bytes(content), self._key):
            raise BadReply("the answer contains the key")
        return bytes(content)

    def _require_name(self, model: str) -> None:
        with self._lock:
            first = self.store.about("model")
            if first is None:
                self.store.note("model", model)
            elif model != first:
                raise BadReply("the answer is of another model")

    def _pace(self) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            rate = self.limits.calls_per_minute
            self._next = at if rate is None else at + 60 / rate
        if at > now:
            self._sleep(at - now)

    def _hold(self, seconds: float) -> None:
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


class _Spent(Exception):
    """The budget does not allow another call."""


def alike(before: Reply, now: Reply) -> bool:
    """Whether two replies to one question are of one model, rounding aside."""
    if not before.tokens or not now.tokens:
        return before.text == now.text
    old, new = dict(before.tokens[-1].likeliest), dict(now.tokens[-1].likeliest)
    if not old or not new:
        return old == new
    lowest = max(min(old.values()), min(new.values()))
    # A token that one list lacks may stand just below its end.
    return all(
        abs(old.get(token, lowest) - new.get(token, lowest)) <= TOLERANCE for token in {*old, *new}
    )


def _parts(questions: Sequence[Question], size: int) -> Iterator[list[Question]]:
    for first in range(0, len(questions), size):
        yield list(questions[first : first + size])


def _alike(questions: Sequence[Question], together: int) -> list[tuple[Question, ...]]:
    """Groups that one call can ask: completions that differ in their prompts only."""
    groups: dict[object, list[Question]] = {}
    for question in questions:
        chat = question.kind == "chat"
        same = (
            question if chat else (question.shown, question.length, question.greedy, question.echo)
        )
        groups.setdefault(same, []).append(question)
    return [tuple(part) for group in groups.values() for part in _parts(group, together)]
