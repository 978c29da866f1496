"""How is someone else's model asked, when it fails, is slow, says little and costs money?

Any Python callable from contexts to lists of words stands behind the face of `TopK`. Each context
is asked once and remembered; a call that fails is tried again, a bounded number of times, after
pauses that grow; what is sent never exceeds the budget. What stays unanswered is an outcome, and
the account says how much that was.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from vestige import _validate
from vestige.errors import ModelError
from vestige.models.top_k import Answer, Context

LONGEST = 1024
"""Characters that a word may have: what is longer is no word, and would fill the disk."""

Ask = Callable[[Sequence[Context]], Sequence[Sequence[str] | None]]
"""Contexts in; for each the likeliest words, the likeliest first, or None where it refuses."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a failing or slow callable is borne.

    Attributes:
        at_once: contexts in one call.
        attempts: calls for the same contexts at most.
        pause: seconds before the second attempt.
        growth: what the pause is multiplied by for each later one.
        longest_pause: seconds that no pause exceeds.
        timeout: seconds after which a call counts as failed; None waits for ever. A call that is
            given up cannot be stopped: its thread ends when it ends.
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
        _validate.at_least(
            1,
            at_once=self.at_once,
            attempts=self.attempts,
            growth=self.growth,
            give_up_after=self.give_up_after,
        )
        _validate.at_least(0, pause=self.pause, longest_pause=self.longest_pause)
        _validate.finite(pause=self.pause, growth=self.growth, longest_pause=self.longest_pause)
        if self.timeout is not None:
            _validate.positive(timeout=self.timeout)
            _validate.finite(timeout=self.timeout)

    def before(self, attempt: int) -> float:
        """Seconds to wait before an attempt; 1 is the second."""
        return min(self.longest_pause, self.pause * self.growth ** min(attempt - 1, 1000))


@dataclass(frozen=True, kw_only=True)
class QueryAccount:
    """What asking came to.

    Attributes:
        contexts: asked of us, repetitions counted.
        cached: answered from memory.
        queries: contexts sent, every attempt counted: what a service bills and a budget bounds.
        calls: of the callable.
        retries: calls after the first for the same contexts.
        failures: calls that raised an error or took too long.
        timeouts: calls that took too long.
        refused: contexts that the callable would not answer.
        unanswered: contexts sent that failed in every attempt that there was.
        unasked: contexts never sent, since the budget was spent or we had given up.
        short_lists: answers of fewer than k words.
        long_lists: answers of more, which were cut.
        duplicates: words that stood in their list before and were taken out.
        unknown_words: words in answers that the asker does not know; they keep their places.
        seconds: in calls and pauses.
        budget: queries allowed; None: any number.
        budget_spent: a context was left because of the budget.
        gave_up: too many contexts in a row had failed.
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

    def summary(self) -> dict[str, int | float | bool | None]:
        """The row of a table."""
        return asdict(self)


class ServiceModel:
    """Any callable as a `TopK` that counts, remembers, tries again and stops in time.

    Args:
        ask: the callable.
        k: how many words it lists at most.
        budget: queries allowed, every attempt counted; None: any number.
        cache: remembers answers; by default in memory. It belongs to one callable and one k.
        known: the words that the asker knows, such as a set; None: does not matter.
        patience: with a callable that fails or is slow.
        sleep: waits so many seconds.

    Attributes:
        last_error: what the callable raised last; it may quote the texts.

    Example:
        >>> model = ServiceModel(lambda contexts: [["the", "a"]] * len(contexts), k=2, budget=1)
        >>> model.likeliest([Context(("to",)), Context(("to",)), Context(("be",))])
        [('the', 'a'), ('the', 'a'), None]
        >>> model.account.queries, model.account.cached, model.account.unasked
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
        patience: Patience | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not callable(ask):
            raise ValueError(f"ask must be callable, got {type(ask).__name__}")
        _validate.at_least(1, k=k)
        _validate.at_least(0, budget=0 if budget is None else budget)
        self._ask, self.k, self._budget = ask, k, budget
        self._cache: MutableMapping[Context, tuple[str, ...]] = {} if cache is None else cache
        self._known, self._patience, self._sleep = known, patience or Patience(), sleep
        self._counts: Counter[str] = Counter()
        self._seconds, self._failed_in_a_row = 0.0, 0
        self._budget_spent = False
        self.last_error: BaseException | None = None

    @property
    def account(self) -> QueryAccount:
        """What asking has come to so far."""
        return QueryAccount(
            **self._counts,
            seconds=self._seconds,
            budget=self._budget,
            budget_spent=self._budget_spent,
            gave_up=self._gave_up,
        )

    def likeliest(self, contexts: Sequence[Context]) -> list[Answer]:
        """The likeliest words after each context; None where there is no answer.

        Raises:
            ModelError: the callable's answers are no lists of words, one for each context; the
                answers before the one that is named are kept.
        """
        for context in contexts:
            if not isinstance(context, Context):
                raise ValueError(f"contexts must be Context objects, got {type(context).__name__}")
        answers: dict[Context, Answer] = {}
        missing = []
        for context in dict.fromkeys(contexts):
            found = self._cache.get(context)
            answers[context] = None if found is None else tuple(found)
            if found is None:
                missing.append(context)
        new = list(missing)
        while missing:
            group = missing[: min(self._patience.at_once, self._left())]
            if self._gave_up or not group:
                self._budget_spent |= not self._gave_up
                self._counts["unasked"] += len(missing)
                break
            missing = missing[len(group) :]
            answers.update(zip(group, self._answered(group), strict=True))
        answered = sum(answers[context] is not None for context in contexts)
        fresh = sum(answers[context] is not None for context in new)
        self._counts.update(contexts=len(contexts), cached=answered - fresh)
        return [answers[context] for context in contexts]

    @property
    def _gave_up(self) -> bool:
        return self._failed_in_a_row >= self._patience.give_up_after

    def _left(self) -> int:
        if self._budget is None:
            return sys.maxsize
        return self._budget - self._counts["queries"]

    def _answered(self, group: list[Context]) -> list[Answer]:
        began = time.perf_counter()
        try:
            given = self._tried(group)
        finally:
            self._seconds += time.perf_counter() - began
        if given is None:
            self._failed_in_a_row += 1
            self._counts["unanswered"] += len(group)
            return [None] * len(group)
        self._failed_in_a_row = 0
        answers: list[Answer] = []
        last = self._counts["queries"]
        first = last - len(group) + 1
        said = _lists(given, len(group), f"answers to queries {first} to {last}")
        for number, context in enumerate(group):
            answer = self._cleaned(said[number], f"the answer to query {first + number}")
            if answer is not None:
                self._cache[context] = answer
            answers.append(answer)
        return answers

    def _tried(self, group: list[Context]) -> Any:
        """What the callable gave at last; None where every attempt failed."""
        for attempt in range(self._patience.attempts):
            if attempt:
                if self._left() < len(group):
                    self._budget_spent = True
                    return None
                self._counts["retries"] += 1
                self._sleep(self._patience.before(attempt))
            self._counts.update(calls=1, queries=len(group))
            own = tuple(Context(context.words, context.source) for context in group)
            try:
                given = _within(self._patience.timeout, self._ask, own)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever a stranger's callable may raise, exits too
                self.last_error = error
                self._counts.update(failures=1, timeouts=isinstance(error, _TooSlow))
            else:
                return () if given is None else given
        return None

    def _cleaned(self, answer: Any, query: str) -> Answer:
        """At most k different words, and what was wrong on the account."""
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


class _TooSlow(Exception):
    """A call took longer than the timeout."""


def _within(timeout: float | None, ask: Ask, group: tuple[Context, ...]) -> Any:
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
        raise _TooSlow(f"no answer within {timeout} s")
    given, error = outcome[0]
    if error is not None:
        raise error
    return given


def _lists(given: Any, expected: int, queries: str) -> list[Any]:
    """As many answers as contexts, of a container that may be a stranger's, too."""
    if isinstance(given, str | bytes | dict) or not hasattr(given, "__len__"):
        raise _malformed(f"{type(given).__name__} in place of a list of answers", queries)
    try:
        there, answers = len(given), list(islice(iter(given), expected + 1))
    except Exception as error:
        raise _malformed(f"a list that raises {type(error).__name__}", queries) from error
    if len(answers) != expected:
        raise _malformed(f"{there} answers to {expected} contexts", queries)
    return answers


def _words(answer: Any, most: int, query: str) -> tuple[tuple[str, ...], int]:
    """The first different words of an answer, and how many were looked at for them."""
    if not isinstance(answer, list | tuple):
        raise _malformed(f"{type(answer).__name__} in place of a list of words", query)
    words: dict[str, None] = {}
    seen, room = 0, LONGEST + 64 * most  # no language's words are 64 characters long on average
    for word in answer:
        if len(words) == most:
            break
        if not isinstance(word, str):
            raise _malformed(f"{type(word).__name__} in place of a word", query)
        if len(word) > LONGEST:
            raise _malformed(f"a word of {len(word):,} characters, above {LONGEST:,}", query)
        plain, seen = sys.intern(str.__str__(word)), seen + 1
        room -= 0 if plain in words else len(plain)
        if room < 0:
            raise _malformed(f"words of more than {64 * most:,} characters together", query)
        words[plain] = None
    return tuple(words), seen


def _malformed(what: str, query: str) -> ModelError:
    return ModelError(
        f"the callable gave {what}, as {query}",
        remedy="For every context it must give one list of strings, the likeliest first, or None. "
        "Mend it and give the same command again: what was answered before is kept.",
    )
