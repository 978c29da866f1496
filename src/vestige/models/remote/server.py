"""A server with OpenAI's protocol, and the file of its answers.

The key comes from the environment. It goes only to the HTTP client; texts and key go only to the
named host. No message quotes the server, which may repeat texts or the key.
"""

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from vestige.errors import ModelError
from vestige.models.remote.client import Client
from vestige.models.remote.openai import Question, Reply, read_answer, request_body, shown_token
from vestige.models.remote.options import EndpointAddress, RemoteOptions
from vestige.models.remote.retry import BadReply, Failed, Limits, Refused
from vestige.monitor import SILENT, Monitor
from vestige.store import Store

TIMEOUT = 60.0
"""Seconds of a call, unless the options say otherwise."""
MOST_BYTES = 2**26
"""Most bytes of an answer."""
LONGEST_WAIT = 600.0
"""Longest pause in seconds that a server can ask for."""


class Endpoint(Client[Question, Reply]):
    """A served model and the file of its answers, which is created if missing.

    Raises:
        ModelError: the client is not installed, or the file belongs to another endpoint.
        RunError: the file cannot be read or written, or its totals are damaged.
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
        options = options or RemoteOptions()
        timeout = options.timeout or TIMEOUT
        server = _Server(address, os.environ.get(options.key_env, ""), timeout)
        store = Store(path, monitor=monitor, essential=_Server.totals_key)
        store.setdefault(
            _Server.totals_key, {"calls": 0, "tokens": 0, "failed_calls": 0, "seconds": 0.0}
        )
        super().__init__(
            server,
            store,
            Limits(
                attempts=options.attempts,
                timeout=timeout,
                at_once=1,
                calls=options.budget,
                tokens=options.token_budget,
                concurrency=options.concurrency,
                calls_per_minute=options.calls_per_minute,
            ),
            sleep=sleep,
        )
        self.address, self._close = address, (server.close, store.close)
        for name, value in (("address", str(address)), ("format", "1")):
            if self.about.setdefault(name, value) != value:
                raise ModelError(
                    f"the cached answers come from another endpoint than {address}",
                    remedy="Pass another directory (`out`).",
                )

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.save()
        for close in self._close:
            close()


class _OtherHost(Exception):
    pass


class _Server:
    """The transport: an OpenAI client for a served model."""

    totals_key, has_control = "spent", True
    permanent: tuple[type[BaseException], ...] = (Refused, ModelError)

    def __init__(self, address: EndpointAddress, key: str, timeout: float) -> None:
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ImportError:
            raise ModelError(
                f"{address} needs the package openai",
                remedy="Install it: pip install 'vestige[endpoint]'.",
            ) from None
        self.address, self.name, self._key = address, str(address), key
        self.counts: Counter[str] = Counter()
        client: Any = OpenAI(
            base_url=address.url,
            api_key=key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=DefaultHttpxClient(event_hooks={"response": [_stay_on_host]}),
        )
        self._client, self.close = client, client.close

    def batches(self, questions: Sequence[Question], together: int) -> list[tuple[Question, ...]]:
        """Completions that differ only in their prompts share a call."""
        groups: dict[Question, list[Question]] = {}
        for question in questions:
            key = question if question.kind == "chat" else replace(question, prompt="")
            groups.setdefault(key, []).append(question)
        return [
            tuple(group[first : first + together])
            for group in groups.values()
            for first in range(0, len(group), together)
        ]

    def tokens(self, batch: Sequence[Question]) -> tuple[int, int]:
        return sum(question.tokens for question in batch), sum(
            question.most_tokens for question in batch
        )

    def send(self, batch: tuple[Question, ...]) -> tuple[list[Reply], int | None, str]:
        try:
            return read_answer(self._content(batch), batch)
        except (Failed, Refused):
            raise
        except Exception as error:
            raise self._translated(error) from None

    def answers(self, reply: Any, batch: tuple[Question, ...], last: int) -> list[Reply]:
        return list(reply)

    def key(self, question: Question) -> str:
        return json.dumps(vars(question), sort_keys=True)

    def question(self, key: str) -> Question:
        return Question(**json.loads(key))

    def stored(self, answer: Reply) -> str:
        rows = [
            [token.text, None if math.isnan(token.log_prob) else token.log_prob, token.likeliest]
            for token in answer.tokens
        ]
        return json.dumps([answer.text, rows])

    def restored(self, stored: str) -> Reply:
        text, tokens = json.loads(stored)
        return Reply(text, tuple(shown_token(*token) for token in tokens))

    def alike(self, before: Reply, now: Reply) -> bool:
        return before.alike(now)

    def _content(self, questions: Sequence[Question]) -> bytes:
        chat = questions[0].kind == "chat"
        interface = self._client.chat.completions if chat else self._client.completions
        body = request_body(questions, self.address.model)
        with interface.with_streaming_response.create(**body) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise BadReply(f"the answer is longer than {MOST_BYTES:,} bytes")
        if self._key and _contains_key(bytes(content), self._key):
            raise BadReply("the answer contains the key")
        return bytes(content)

    def _translated(self, error: Exception) -> Exception:
        status = getattr(error, "status_code", None)
        if isinstance(error, _OtherHost) or isinstance(error.__cause__, _OtherHost):
            return ModelError(
                f"{self.address} redirects to another host; no texts are sent there",
                remedy="Pass the address of that server if you trust it.",
            )
        if status in (401, 403):
            return ModelError(
                f"{self.address} rejects the key (status {status})",
                remedy="Put the key in OPENAI_API_KEY, or in the variable that `key_env` names.",
            )
        if status in (400, 404, 405, 413, 422, 501):
            return Refused(f"status {status}")
        if status is None:
            return Failed(type(error).__name__)
        headers = getattr(getattr(error, "response", None), "headers", {})
        kind = BadReply if status >= 500 else Failed
        return kind(f"status {status}", _seconds(headers.get("retry-after")))


def _stay_on_host(response: Any) -> None:
    """Refuse redirects to another host, which would receive texts and key."""
    if not response.has_redirect_location:
        return
    url = response.request.url
    target = url.join(response.headers["location"])
    if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
        raise _OtherHost


def _contains_key(content: bytes, key: str) -> bool:
    """Whether an answer contains the key, plain or with JSON escapes."""
    if key.encode() in content:
        return True
    try:
        decoded = json.dumps(json.loads(content), ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    return key in decoded or json.dumps(key, ensure_ascii=False)[1:-1] in decoded


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date."""
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
