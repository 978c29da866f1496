"""Models behind a callable: caching, budgets, retries and invalid answers, and their statistics."""

import json
import math
import time

import pytest

from vestige.errors import ModelError
from vestige.models.remote.functions import ServiceModel
from vestige.models.remote.retry import RetryPolicy
from vestige.models.top_k import Context, likeliest_ranks

WORDS = ["the", "a", "of", "and", "to"]
DOWN = ConnectionError("no connection")


def contexts(n, begin=0):
    return [Context((str(i),)) for i in range(begin, begin + n)]


def answer(queries):
    return [WORDS for _ in queries]


class Failing:
    """A callable that raises for the calls with these numbers, from 0, or `always`."""

    def __init__(self, *numbers, always=False, error=DOWN):
        self.numbers, self.always, self.error, self.sizes = numbers, always, error, []

    def __call__(self, queries):
        self.sizes.append(len(queries))
        if self.always or len(self.sizes) - 1 in self.numbers:
            raise self.error
        return answer(queries)


def service(function, *, k=5, budget=None, known=None, cache=None, sleep=[].append, **policy):
    """A model behind a function; pauses are recorded, not made."""
    options = {"budget": budget, "known": known, "cache": cache, "sleep": sleep}
    return ServiceModel(function, k=k, retry=RetryPolicy(**policy), **options)


def statistics(model, *names):
    return tuple(getattr(model.statistics, name) for name in names)


def test_each_context_is_sent_once_and_cached():
    function = Failing()
    model = service(function)
    first, second = contexts(2)
    assert model.likeliest([first, second, first]) == [tuple(WORDS)] * 3
    assert model.likeliest([second, *contexts(1, 7)]) == [tuple(WORDS)] * 2
    assert function.sizes == [2, 1]
    assert statistics(model, "contexts", "cached", "queries", "calls") == (5, 2, 3, 2)
    cache = {Context(("0",)): ["known"]}  # as read from a file
    model = service(answer, cache=cache)
    assert model.likeliest(contexts(2)) == [("known",), tuple(WORDS)]
    assert cache[Context(("1",))] == tuple(WORDS)
    assert model.statistics.queries == 1


@pytest.mark.parametrize("budget", [0, 1, 3, 4, 10, 11])
def test_a_budget_is_never_exceeded(budget):
    model = service(answer, budget=budget, at_once=3)
    ranks = likeliest_ranks(model, contexts(10), ["of"] * 10)
    sent = min(budget, 10)
    assert ranks.tolist() == [3] * sent + [0] * (10 - sent)
    assert statistics(model, "queries", "unasked", "budget_spent") == (sent, 10 - sent, budget < 10)
    summary = json.loads(json.dumps(model.statistics.summary(), allow_nan=False))
    assert (summary["queries"], summary["budget_spent"]) == (sent, budget < 10)


def test_retries_count_against_the_budget():
    function = Failing(always=True)
    model = service(function, budget=10, at_once=4, attempts=9)
    assert model.likeliest(contexts(4)) == [None] * 4
    assert function.sizes == [4, 4]
    assert statistics(model, "queries", "budget_spent", "unanswered") == (8, True, 4)


def test_pauses_double_up_to_60_seconds():
    pauses = []
    model = service(Failing(*range(8)), sleep=pauses.append, attempts=9)
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert statistics(model, "calls", "retries", "failures", "unanswered") == (9, 8, 8, 0)
    assert list(RetryPolicy(attempts=10_000).pauses())[-2:] == [60, None]


def test_a_callable_that_never_answers_is_given_up():
    function = Failing(always=True)
    model = service(function, at_once=2, attempts=3, give_up_after=2)
    assert model.likeliest(contexts(9)) == [None] * 9
    assert model.likeliest(contexts(1, 50)) == [None]
    assert len(function.sizes) == 6
    names = ("unanswered", "unasked", "gave_up", "budget_spent")
    assert statistics(model, *names) == (4, 6, True, False)
    assert isinstance(model.last_error, ConnectionError)
    model = service(Failing(0), attempts=1)  # one failure does not end queries
    assert model.likeliest(contexts(1)) == [None]
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert not model.statistics.gave_up


def test_slow_calls_time_out_and_faster_errors_are_kept():
    calls = []

    def slow_at_first(queries):
        calls.append(queries)
        time.sleep(0.5 if len(calls) == 1 else 0)
        return answer(queries)

    model = service(slow_at_first, timeout=0.1)
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert statistics(model, "timeouts", "failures", "retries") == (1, 1, 1)
    assert 0.1 <= model.statistics.seconds < 0.5
    model = service(Failing(always=True), timeout=5, attempts=1)
    assert model.likeliest(contexts(1)) == [None]
    assert isinstance(model.last_error, ConnectionError)
    assert model.statistics.timeouts == 0


class Unusual(BaseException):
    """A raised object that is not an Exception."""


@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize("error", [SystemExit(0), SystemExit("bye"), Unusual(), GeneratorExit()])
def test_a_callable_that_exits_has_failed(error, timeout):
    function = Failing(always=True, error=error)
    model = service(function, attempts=2, give_up_after=1, timeout=timeout)
    assert model.likeliest(contexts(1)) == [None]
    assert statistics(model, "failures", "gave_up") == (2, True)
    assert model.last_error is error


def test_endless_recursion_has_failed_and_an_interruption_is_raised():
    def recurse(queries):
        return recurse(queries)

    model = service(recurse, attempts=1, give_up_after=1)
    assert model.likeliest(contexts(1)) == [None]
    assert isinstance(model.last_error, RecursionError)
    with pytest.raises(KeyboardInterrupt):
        service(Failing(always=True, error=KeyboardInterrupt())).likeliest(contexts(1))


def test_a_callable_cannot_change_the_queries():
    def change(queries):
        for context in queries:
            object.__setattr__(context, "words", ("other",))
        return [["a"]] * len(queries)

    cache, queries = {}, contexts(3)
    ServiceModel(change, k=1, cache=cache).likeliest(queries)
    assert list(cache) == contexts(3) == queries


def test_long_words_are_refused_and_earlier_answers_are_cached():
    lists, cache = [["a"], ["b", "x" * 5_000_000], ["c"]], {}
    model = ServiceModel(lambda queries: lists, k=2, cache=cache)
    with pytest.raises(ModelError, match=r"a word of 5,000,000 characters.* answer to query 2\b"):
        model.likeliest(contexts(3))
    assert list(cache.values()) == [("a",)]
    model = ServiceModel(lambda queries: [[f"{n:01000}" for n in range(100)]], k=100)
    with pytest.raises(ModelError, match="more than 6,400 characters in all"):
        model.likeliest(contexts(1))


def test_invalid_lists_are_corrected_and_counted():
    lists = [["a"], ["a", "b", "c", "d"], ["a", "a", "b"], [], None, ("a", "b")]
    model = service(lambda queries: lists, k=2)
    corrected = [("a",), ("a", "b"), ("a", "b"), (), None, ("a", "b")]
    assert model.likeliest(contexts(6)) == corrected
    names = ("short_lists", "long_lists", "duplicates", "refused")
    assert statistics(model, *names) == (2, 1, 1, 1)
    words = [f"w{n}" for n in range(1_000_000)]
    words[3] = 7  # words after the first k are not read
    model = service(lambda queries: [words], k=3)
    assert model.likeliest(contexts(1)) == [("w0", "w1", "w2")]
    assert model.statistics.long_lists == 1
    model = service(lambda queries: [["zyx", "of", "wvu"]], k=2, known={"of", "the"})
    assert likeliest_ranks(model, contexts(1), ["of"]).tolist() == [
        2
    ]  # unknown words keep their rank
    assert model.statistics.unknown_words == 1


class Hostile(list):
    def __iter__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (None, "0 answers for 2"),
        ("the cat", "str instead of a list of answers"),
        (3, "int instead of a list of answers"),
        ({"a": 1, "b": 2}, "dict instead of a list of answers"),
        ((answer for answer in [["a"], ["b"]]), "generator instead of a list of answers"),
        ([["a"]], "1 answers for 2 contexts"),
        ([["a"]] * 3, "3 answers for 2 contexts"),
        (["the", "a"], "str instead of a list of words"),
        ([["a"], [("a", 0.5)]], "tuple instead of a word"),
        ([["a"], {"b"}], "set instead of a list of words"),
        ([["a"], [float("nan")]], "float instead of a word, for the answer to query 2"),
        (Hostile([["a"], ["b"]]), "a list that raises RuntimeError, for answers to queries 1 to 2"),
    ],
)
def test_answers_that_are_not_lists_of_words_are_described(answers, message):
    model = ServiceModel(lambda queries: answers, k=2)
    with pytest.raises(ModelError, match=message):
        model.likeliest(contexts(2))
    assert model.statistics.calls == 1  # permanent: no retry


@pytest.mark.parametrize(
    ("build", "name", "value"),
    [
        *((ServiceModel, "k", value) for value in (0, math.nan)),
        (ServiceModel, "budget", -1),
        (RetryPolicy, "at_once", 0),
        (RetryPolicy, "attempts", 0),
        *((RetryPolicy, "timeout", value) for value in (0, math.inf)),
        (RetryPolicy, "give_up_after", 0),
    ],
)
def test_options_out_of_range_are_refused(build, name, value):
    arguments = [answer] if build is ServiceModel else []
    options = {"k": 1, name: value} if arguments else {name: value}
    with pytest.raises(ValueError, match=name):
        build(*arguments, **options)


def test_other_objects_than_callables_and_contexts_are_refused():
    with pytest.raises(ValueError, match="callable"):
        ServiceModel("https://example.org", k=1)
    with pytest.raises(ValueError, match="Context"):
        ServiceModel(answer, k=1).likeliest(["to be"])
