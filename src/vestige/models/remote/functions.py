"""A function as a model that lists ranked words: bounded in queries, attempts and time.

Each context is sent once; a failed call is repeated a bounded number of times, after pauses that
grow; the budget is never exceeded. What has no answer is counted, and never guessed.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from vestige import _validate
from vestige.errors import ModelError
from vestige.models.top_k import Answer, Context

LONGEST = 1024
"""Characters of a word: anything longer is no word, and would fill the disk."""

Ask = Callable[[Sequence[Context]], Sequence[Sequence[str] | None]]
"""From contexts to the most probable words of each, in order, or None where it refuses."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often, after which pauses and for how long the same contexts are sent.

    Attributes:
        at_once: contexts in one call.
        attempts: most calls for the same contexts.
        pause: seconds before the second attempt.
        growth: factor of the pause for each later one.
        longest_pause: bound of every pause, in seconds.
        timeout: seconds after which a call has failed; None waits forever. Such a call cannot be
            stopped: its thread ends when it ends.
        give_up_after: groups of contexts in a row that fail in all attempts; then no more are sent.
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
class QueryStatistics:
    """Statistics of queries.

    Attributes:
        contexts: requested, repetitions counted.
        cached: answered from the cache.
        queries: contexts sent, every attempt counted: what a service bills and a budget bounds.
        calls: of the function.
        retries: calls after the first for the same contexts.
        failures: calls that raised an error or took too long.
        timeouts: calls that took too long.
        refused: contexts that the function declined.
        unanswered: contexts sent that failed in every attempt.
        unasked: contexts never sent, after the budget was spent or too many had failed.
        short_lists: answers of fewer than k words.
        long_lists: answers of more, which were cut.
        duplicates: repeated words, which were removed.
        unknown_words: listed words that the audited texts lack; they keep their ranks.
        seconds: in calls and pauses.
        budget: queries allowed; None: any number.
        budget_spent: whether a context was left because of the budget.
        gave_up: whether too many contexts in a row had failed.
    """

    contexts: int = 0
    cached: int = 0
    queries: int = 0
    calls: int = 0
    retries: int = 0
    failures: int = 0
    timeouts: int = 0
    refused: int = 0
    unanswered: int = 0
    unasked: int = 0
    short_lists: int = 0
    long_lists: int = 0
    duplicates: int = 0
    unknown_words: int = 0
    seconds: float = 0.0
    budget: int | None = None
    budget_spent: bool = False
    gave_up: bool = False

    def after(self, earlier: "QueryStatistics") -> "QueryStatistics":
        """Totals of earlier sessions and this one; other values are this one's."""
        total = {name: getattr(self, name) + getattr(earlier, name) for name in _TOTALS}
        return replace(self, **total)

    def summary(self) -> dict[str, int | float | bool | None]:
        """The row of a table."""
        return asdict(self)


_TOTALS = (
    *("queries", "calls", "retries", "failures", "timeouts", "refused", "unanswered"),
    *("short_lists", "long_lists", "duplicates", "unknown_words", "seconds"),
)


@runtime_checkable
class SessionCache(Protocol):
    """A cache that keeps the statistics of all sessions; `before`: of those before this one."""

    before: QueryStatistics

    def sending(self, queries: int) -> None:
        """Record a call before it is made: a killed one counts for the budget."""

    def note(self, statistics: QueryStatistics) -> None:
        """Record the statistics of all sessions."""


class ServiceModel:
    """A function as a `TopK`, with a budget, a cache and retries.

    Args:
        ask: the function.
        k: most words of a list.
        budget: queries allowed in all sessions, every attempt counted; None: any number.
        cache: of one function and one k; by default in memory. A `SessionCache` keeps the
            statistics, too.
        known: words of the audited texts; None: unknown words are not counted.
        retry: when and how often a failed call is repeated.
        sleep: waits so many seconds.

    Attributes:
        last_error: of the last failed call; it may quote the texts.

    Example:
        >>> model = ServiceModel(lambda contexts: [["the", "a"]] * len(contexts), k=2, budget=1)
        >>> model.likeliest([Context(("to",)), Context(("to",)), Context(("be",))])
        [('the', 'a'), ('the', 'a'), None]
        >>> model.statistics.queries, model.statistics.cached, model.statistics.unasked
        (1, 1, 1)
    """

    def __init__(
        self,
        ask: Ask,
        *,
        k: int,
        budget: int | None = None,
        cache: MutableMapping[Context, tuple[str, ...]] | None = None,
        known: Container[str] | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not callable(ask):
            raise ValueError(f"ask must be callable, got {type(ask).__name__}")
        _validate.at_least(1, k=k)
        _validate.at_least(0, budget=0 if budget is None else budget)
        self._ask, self.k, self._budget = ask, k, budget
        self._cache: MutableMapping[Context, tuple[str, ...]] = {} if cache is None else cache
        given: Any = cache
        self._sessions: SessionCache | None = given if isinstance(given, SessionCache) else None
        self._before = self._sessions.before if self._sessions is not None else QueryStatistics()
        self._known, self._retry, self._sleep = known, retry or RetryPolicy(), sleep
        self._counts: Counter[str] = Counter()
        self._seconds, self._failed_in_a_row = 0.0, 0
        self._budget_spent = False
        self.last_error: BaseException | None = None

    @property
    def statistics(self) -> QueryStatistics:
        """Statistics so far; totals include the sessions before."""
        return QueryStatistics(
            **self._counts,
            seconds=self._seconds,
            budget=self._budget,
            budget_spent=self._budget_spent,
            gave_up=self._gave_up,
        ).after(self._before)

    def likeliest(self, contexts: Sequence[Context]) -> list[Answer]:
        """The most probable words after each context; None where there is no answer.

        Raises:
            ModelError: the answers are no lists of words, one for each context; those before the
                one that is named are cached.
        """
        if odd := [type(each).__name__ for each in contexts if not isinstance(each, Context)]:
            raise ValueError(f"contexts must be Context objects, got {odd[0]}")
        answers: dict[Context, Answer] = {}
        missing = []
        for context in dict.fromkeys(contexts):
            found = self._cache.get(context)
            answers[context] = None if found is None else tuple(found)
            if found is None:
                missing.append(context)
        calls = self._counts["calls"]
        answers |= self._fresh(missing)
        answered = sum(answers[context] is not None for context in contexts)
        fresh = sum(answers[context] is not None for context in missing)
        self._counts.update(contexts=len(contexts), cached=answered - fresh)
        if self._sessions is not None and self._counts["calls"] > calls:
            self._sessions.note(self.statistics)
        return [answers[context] for context in contexts]

    @property
    def _gave_up(self) -> bool:
        return self._failed_in_a_row >= self._retry.give_up_after

    def _left(self) -> int:
        if self._budget is None:
            return sys.maxsize
        return max(0, self._budget - self._before.queries - self._counts["queries"])

    def _fresh(self, missing: list[Context]) -> dict[Context, Answer]:
        """Answers of the function, some contexts at a time, while the budget lasts."""
        answers: dict[Context, Answer] = {}
        while missing:
            group = missing[: min(self._retry.at_once, self._left())]
            if self._gave_up or not group:
                self._budget_spent |= not self._gave_up
                self._counts["unasked"] += len(missing)
                break
            missing = missing[len(group) :]
            answers.update(zip(group, self._answered(group), strict=True))
        return answers

    def _answered(self, group: list[Context]) -> list[Answer]:
        began = time.perf_counter()
        try:
            given = self._tried(group)
        finally:
            self._seconds += time.perf_counter() - began
        self._failed_in_a_row = 0 if given is not None else self._failed_in_a_row + 1
        if given is None:
            self._counts["unanswered"] += len(group)
            return [None] * len(group)
        answers: list[Answer] = []
        last = self._counts["queries"]
        first = last - len(group) + 1
        listed = _lists(given, len(group), f"answers to queries {first} to {last}")
        for number, context in enumerate(group):
            answer = self._cleaned(listed[number], f"the answer to query {first + number}")
            if answer is not None:
                self._cache[context] = answer
            answers.append(answer)
        return answers

    def _tried(self, group: list[Context]) -> Any:
        """The function's answers; None if every attempt failed."""
        for pause in self._retry.pauses():
            try:
                return self._call(group)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a user's function may raise anything, exits too
                self.last_error = error
                self._counts.update(failures=1, timeouts=isinstance(error, TooSlow))
            if pause is None:
                break
            if self._left() < len(group):
                self._budget_spent = True
                break
            self._counts.update(retries=1)
            self._sleep(pause)
        return None

    def _call(self, group: list[Context]) -> Any:
        """One call, which is counted before it is made."""
        self._counts.update(calls=1, queries=len(group))
        if self._sessions is not None:
            self._sessions.sending(len(group))
        own = tuple(Context(context.words, context.source) for context in group)
        given = within(self._retry.timeout, self._ask, own)
        return () if given is None else given

    def _cleaned(self, answer: Any, query: str) -> Answer:
        """At most k different words; what was wrong is counted."""
        if answer is None:
            self._counts["refused"] += 1
            return None
        words, seen = _words(answer, self.k, query)
        if self._known is not None:
            self._counts["unknown_words"] += sum(word not in self._known for word in words)
        self._counts.update(
            duplicates=seen - len(words),
            long_lists=len(answer) > seen,
            short_lists=len(words) < self.k,
        )
        return words


class TooSlow(Exception):
    """A call took longer than the timeout."""


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


def _lists(given: Any, expected: int, queries: str) -> list[Any]:
    """As many answers as contexts, of a container that may be the user's own."""
    if isinstance(given, str | bytes | dict) or not hasattr(given, "__len__"):
        raise _malformed(f"{type(given).__name__} instead of a list of answers", queries)
    try:
        there, answers = len(given), list(islice(iter(given), expected + 1))
    except Exception as error:
        raise _malformed(f"a list that raises {type(error).__name__}", queries) from error
    if len(answers) != expected:
        raise _malformed(f"{there} answers for {expected} contexts", queries)
    return answers


def _words(answer: Any, most: int, query: str) -> tuple[tuple[str, ...], int]:
    """The first different words of an answer, and how many were looked at for them."""
    if not isinstance(answer, list | tuple):
        raise _malformed(f"{type(answer).__name__} instead of a list of words", query)
    words: dict[str, None] = {}
    seen, room = 0, LONGEST + 64 * most  # no language's words are 64 characters long on average
    for word in answer:
        if len(words) == most:
            break
        if not isinstance(word, str):
            raise _malformed(f"{type(word).__name__} instead of a word", query)
        if len(word) > LONGEST:
            raise _malformed(f"a word of {len(word):,} characters, above {LONGEST:,}", query)
        plain, seen = sys.intern(str.__str__(word)), seen + 1
        room -= 0 if plain in words else len(plain)
        if room < 0:
            raise _malformed(f"words of more than {64 * most:,} characters in all", query)
        words[plain] = None
    return tuple(words), seen


def _malformed(what: str, query: str) -> ModelError:
    return ModelError(
        f"the callable returned {what}, for {query}",
        remedy=(
            "For every context it must return a list of strings, most probable first, or None. "
            "Fix it and rerun the command: Vestige caches answers."
        ),
    )
