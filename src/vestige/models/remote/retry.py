"""Errors of calls, and how often, after which pauses and for how long a call is made."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vestige import _validate

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second attempt, and at most; each pause is twice as long as the one before."""


class Refused(Exception):
    """The model does not accept such a question; the message is the status."""


class Failed(Exception):
    """A call failed and may be tried again, after `wait` seconds if a server says so."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class BadReply(Failed):
    """The server sent a reply that does not answer the question."""


class TooSlow(Failed):
    """A call took longer than the timeout."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often, after which pauses and for how long the same questions are sent.

    Attributes:
        at_once: contexts in one call of a function.
        attempts: most calls for the same questions.
        timeout: seconds after which a call has failed; None: no limit. Such a call cannot be
            stopped: its thread ends when the call returns.
        give_up_after: consecutive groups of questions that fail in all attempts; then no more are
            sent.
    """

    at_once: int = 16
    attempts: int = 4
    timeout: float | None = None
    give_up_after: int = 3

    def __post_init__(self) -> None:
        _validate.at_least(1, at_once=self.at_once, attempts=self.attempts)
        _validate.at_least(1, give_up_after=self.give_up_after)
        if self.timeout is not None:
            _validate.positive(timeout=self.timeout)
            _validate.finite(timeout=self.timeout)

    def pauses(self) -> Iterator[float | None]:
        """For each attempt, the seconds to wait if it fails; None after the last."""
        pause = FIRST_PAUSE
        for _ in range(self.attempts - 1):
            yield pause
            pause = min(2 * pause, LONGEST_PAUSE)
        yield None


@dataclass(frozen=True, kw_only=True)
class Limits(RetryPolicy):
    """Budgets of all sessions, failed attempts included, and speed; None: any number."""

    calls: int | None = None
    queries: int | None = None
    tokens: int | None = None
    calls_per_minute: float | None = None
    concurrency: int = 1


def call_with_timeout(timeout: float | None, function: Callable[[Any], Any], argument: Any) -> Any:
    """The result of a function; TooSlow after `timeout` seconds, and its thread is abandoned."""
    if timeout is None:
        return function(argument)
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((function(argument), None))
        except BaseException as error:
            outcome.append((None, error))

    # At exit a pool waits for the slow call; a daemon thread does not.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(timeout)
    if not outcome:
        raise TooSlow(f"no answer within {timeout} s")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
