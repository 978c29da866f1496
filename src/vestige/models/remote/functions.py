"""A function as a model that lists ranked words, limited in queries, attempts and time."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Any

from vestige import _validate
from vestige.errors import ModelError
from vestige.models.remote.client import Client
from vestige.models.remote.retry import Limits, RetryPolicy
from vestige.models.top_k import Answer, Context
from vestige.store import Store

LONGEST = 1024
"""Most characters of a word: longer ones could fill the disk."""
ACCOUNT = "account"
"""Name of the totals of all sessions in a store."""

Ask = Callable[[Sequence[Context]], Sequence[Sequence[str] | None]]
"""From contexts to the most probable words of each, in order; None: refused."""


@dataclass(frozen=True, kw_only=True)
class QueryStatistics:
    """Statistics of queries; `queries` to `seconds` cover all sessions.

    Attributes:
        contexts: requested, with repetitions.
        cached: answered from the cache.
        unasked: contexts never sent, after the budget was spent or too many had failed.
        queries: contexts sent, in every attempt: a service bills them and a budget bounds them.
        failures: calls that raised an error or took too long; `timeouts` are the slow ones.
        refused: contexts that the function declined.
        unanswered: contexts sent that failed in every attempt.
        short_lists, long_lists: answers of fewer than k words, and of more, which were cut.
        duplicates: repeated words, which were removed.
        unknown_words: listed words that the audited texts lack; they keep their ranks.
        seconds: in calls.
        budget: queries allowed; None: no limit.
        budget_spent: whether the budget left a context unsent.
        gave_up: whether too many contexts in a row had failed.
    """

    contexts: int = 0
    cached: int = 0
    unasked: int = 0
    queries: int = 0
    calls: int = 0
    retries: int = 0
    failures: int = 0
    timeouts: int = 0
    refused: int = 0
    unanswered: int = 0
    short_lists: int = 0
    long_lists: int = 0
    duplicates: int = 0
    unknown_words: int = 0
    seconds: float = 0.0
    budget: int | None = None
    budget_spent: bool = False
    gave_up: bool = False

    def summary(self) -> dict[str, int | float | bool | None]:
        """The statistics as one row of a table."""
        return asdict(self)


class ServiceModel:
    """A function as a `TopK`, with a budget, a cache and retries.

    Args:
        ask: the function.
        k: most words of a list.
        budget: queries allowed in all sessions, in every attempt; None: no limit.
        cache: of one function and one k; by default in memory.
        known: words of the audited texts; None: unknown words are not counted.
        retry: how often and when a failed call is repeated.
        store: keeps answers and statistics of all sessions, without `cache`.
        sleep: waits for a number of seconds.

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
        store: Store | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not callable(ask):
            raise ValueError(f"ask must be callable, got {type(ask).__name__}")
        _validate.at_least(1, k=k)
        _validate.at_least(0, budget=0 if budget is None else budget)
        self.k, self._budget = k, budget
        self._client: Client[Context, tuple[str, ...]] = Client(
            _Function(ask, k, known),
            Store() if store is None else store,
            Limits(**vars(retry or RetryPolicy()), queries=budget),
            answers={} if cache is None and store is None else cache,
            sleep=sleep,
        )

    @property
    def last_error(self) -> BaseException | None:
        """Of the last failed call; it may quote the texts."""
        return self._client.last_error

    @property
    def statistics(self) -> QueryStatistics:
        """Statistics so far; totals include the sessions before."""
        client, names = self._client, {field.name for field in fields(QueryStatistics)}
        totals: dict[str, Any] = {**client.totals, **client.session}
        totals["failures"] = totals.get("failed_calls", 0)
        totals |= {"budget": self._budget, "budget_spent": client.budget_spent}
        totals["gave_up"] = client.gave_up
        return QueryStatistics(**{name: totals[name] for name in names & set(totals)})

    def likeliest(self, contexts: Sequence[Context]) -> list[Answer]:
        """The most probable words after each context; None: no answer.

        Raises:
            ModelError: the result is not one list of words per context; earlier answers are
                cached.
        """
        if invalid := [
            type(context).__name__ for context in contexts if not isinstance(context, Context)
        ]:
            raise ValueError(f"contexts must be Context objects, got {invalid[0]}")
        return [None if words is None else tuple(words) for words in self._client.ask(contexts)]


class _Function:
    """The transport: lists of at most k different words; defects of answers are counted."""

    name, totals_key, has_control = "the callable", ACCOUNT, False
    permanent: tuple[type[BaseException], ...] = ()

    def __init__(self, ask: Ask, k: int, known: Container[str] | None) -> None:
        self._ask, self._k, self._known = ask, k, known
        self.counts: Counter[str] = Counter()

    def batches(self, questions: Sequence[Context], together: int) -> list[tuple[Context, ...]]:
        return [tuple(questions[i : i + together]) for i in range(0, len(questions), together)]

    def tokens(self, batch: Sequence[Context]) -> tuple[int, int]:
        return 0, 0

    def send(self, batch: tuple[Context, ...]) -> tuple[Any, None, None]:
        return (
            self._ask(tuple(Context(context.words, context.source) for context in batch)),
            None,
            None,
        )

    def answers(self, reply: Any, batch: tuple[Context, ...], last: int) -> Iterator[Answer]:
        first_query = last - len(batch) + 1
        lists = _lists(reply, len(batch), f"answers to queries {first_query} to {last}")
        for query, answer in enumerate(lists, start=first_query):
            yield self._cleaned(answer, f"the answer to query {query}")

    def _cleaned(self, answer: Any, query: str) -> Answer:
        if answer is None:
            self.counts["refused"] += 1
            return None
        words, read = _words(answer, self._k, query)
        if self._known is not None:
            self.counts["unknown_words"] += sum(word not in self._known for word in words)
        self.counts.update(
            duplicates=read - len(words),
            long_lists=len(answer) > read,
            short_lists=len(words) < self._k,
        )
        return words

    def key(self, question: Context) -> str:
        return json.dumps([question.words, question.source])

    def question(self, key: str) -> Context:
        return Context(*json.loads(key))

    def stored(self, answer: tuple[str, ...]) -> list[str]:
        return list(answer)

    def restored(self, stored: Sequence[str]) -> tuple[str, ...]:
        return tuple(stored)

    def alike(self, before: tuple[str, ...], now: tuple[str, ...]) -> bool:
        return before == now


def _lists(result: Any, expected: int, queries: str) -> list[Any]:
    """One answer per context, from a container that may be a class of the user."""
    result = () if result is None else result
    if isinstance(result, str | bytes | dict) or not hasattr(result, "__len__"):
        raise _malformed(f"{type(result).__name__} instead of a list of answers", queries)
    try:
        length, answers = len(result), list(islice(iter(result), expected + 1))
    except Exception as error:
        raise _malformed(f"a list that raises {type(error).__name__}", queries) from error
    if len(answers) != expected:
        raise _malformed(f"{length} answers for {expected} contexts", queries)
    return answers


def _words(answer: Any, most: int, query: str) -> tuple[tuple[str, ...], int]:
    """The first different words of an answer, and how many words were read for them."""
    if not isinstance(answer, list | tuple):
        raise _malformed(f"{type(answer).__name__} instead of a list of words", query)
    words: dict[str, None] = {}
    # No language has words of 64 characters on average.
    read, free_characters = 0, LONGEST + 64 * most
    for word in answer:
        if len(words) == most:
            break
        if not isinstance(word, str):
            raise _malformed(f"{type(word).__name__} instead of a word", query)
        if len(word) > LONGEST:
            raise _malformed(f"a word of {len(word):,} characters, above {LONGEST:,}", query)
        text, read = sys.intern(str.__str__(word)), read + 1
        free_characters -= 0 if text in words else len(text)
        if free_characters < 0:
            raise _malformed(f"words of more than {64 * most:,} characters in all", query)
        words[text] = None
    return tuple(words), read


def _malformed(what: str, query: str) -> ModelError:
    return ModelError(
        f"the callable returned {what}, for {query}",
        remedy=(
            "For every context it must return a list of strings, most probable first, or None. "
            "Fix it and rerun the command: Vestige caches answers."
        ),
    )
