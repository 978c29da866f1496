"""Attempts and their errors: how often, after which pauses and for how long a call is made."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vestige import _validate


class Refused(Exception):
    """The model does not accept such a question; its status."""


class Failed(Exception):
    """A call failed and may be tried again, after `wait` seconds if a server says so."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class BadReply(Failed):
    """The server answered, but not the question."""


class TooSlow(Failed):
    """A call took longer than the timeout."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often, after which pauses and for how long the same questions are sent.

    Attributes:
        at_once: contexts in one call of a function.
        attempts: most calls for the same questions.
        pause: seconds before the second attempt, each later one times `growth` as long, at most
            `longest_pause`.
        timeout: seconds after which a call has failed; None waits forever. Such a call cannot be
            stopped: its thread ends when it ends.
        give_up_after: groups of questions in a row that fail in all attempts; no more are sent.
    """

    at_once: int = 16
    attempts: int = 4
    pause: float = 1.0
    growth: float = 2.0
    longest_pause: float = 60.0
    timeout: float | None = None
    give_up_after: int = 3

    def __post_init__(self) -> None:
        numbers = ("at_once", "attempts", "growth", "give_up_after")
        _validate.at_least(1, **{name: getattr(self, name) for name in numbers})
        _validate.at_least(0, pause=self.pause, longest_pause=self.longest_pause)
        _validate.finite(pause=self.pause, growth=self.growth, longest_pause=self.longest_pause)
        if self.timeout is not None:
            _validate.positive(timeout=self.timeout)
            _validate.finite(timeout=self.timeout)

    def pauses(self) -> Iterator[float | None]:
        """For each attempt, the seconds to wait if it fails; None after the last."""
        pause = self.pause
        for _ in range(self.attempts - 1):
            yield min(pause, self.longest_pause)
            pause *= self.growth
        yield None


@dataclass(frozen=True, kw_only=True)
class Limits(RetryPolicy):
    """Budgets of all sessions, failed attempts included, and speed; None: any number."""

    calls: int | None = None
    queries: int | None = None
    tokens: int | None = None
    calls_per_minute: float | None = None
    concurrency: int = 1


def within(timeout: float | None, ask: Callable[[Any], Any], group: Any) -> Any:
    """The result of a function, or TooSlow after so many seconds; its thread is abandoned."""
    if timeout is None:
        return ask(group)
    outcome: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((ask(group), None))
        except BaseException as error:
            outcome.append((None, error))

    # A pool would wait for the slow call when the program ends; a daemon does not.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout)
    if not outcome:
        raise TooSlow(f"no answer within {timeout} s")
    given, error = outcome[0]
    if error is not None:
        raise error
    return given
