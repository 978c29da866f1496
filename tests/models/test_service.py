"""A stranger's callable may fail, dawdle, mumble and cost; the query statistics say all of it."""

import json
import math
import time

import pytest

from tests.models.narrowed import narrow
from vestige.errors import ModelError
from vestige.models.remote.functions import ServiceModel
from vestige.models.remote.retry import RetryPolicy
from vestige.models.table import TableModel
from vestige.models.top_k import Context, likeliest_ranks

WORDS = ["the", "a", "of", "and", "to"]
DOWN = ConnectionError("the line is down")


def contexts(n, begin=0):
    return [Context((str(i),)) for i in range(begin, begin + n)]


def good(queries):
    return [WORDS for _ in queries]


class Failing:
    """Raises for the calls whose numbers are given, from 0; answers the others."""

    def __init__(self, *numbers, always=False, error=DOWN):
        self.numbers, self.always, self.error, self.sizes = numbers, always, error, []

    def __call__(self, queries):
        self.sizes.append(len(queries))
        if self.always or len(self.sizes) - 1 in self.numbers:
            raise self.error
        return good(queries)


def service(ask, *, k=5, budget=None, known=None, cache=None, pauses=None, **policy):
    """A model behind a callable whose pauses are noted and not made."""
    noted = [] if pauses is None else pauses
    options = {"budget": budget, "known": known, "cache": cache}
    options = {name: value for name, value in options.items() if value is not None}
    return ServiceModel(ask, k=k, retry=RetryPolicy(**policy), sleep=noted.append, **options)


def counted(model, *names):
    return tuple(getattr(model.statistics, name) for name in names)


def test_each_context_is_sent_once():
    ask = Failing()
    model = service(ask)
    first, second = contexts(2)
    assert model.likeliest([first, second, first]) == [tuple(WORDS)] * 3
    assert model.likeliest([second, *contexts(1, 7)]) == [tuple(WORDS)] * 2
    assert ask.sizes == [2, 1]
    assert counted(model, "contexts", "cached", "queries", "calls") == (5, 2, 3, 2)
    cache = {Context(("0",)): ["known"]}  # as a file gives it back
    model = service(good, cache=cache)
    assert model.likeliest(contexts(2)) == [("known",), tuple(WORDS)]
    assert cache[Context(("1",))] == tuple(WORDS)
    assert model.statistics.queries == 1


def test_a_model_behind_a_callable_answers_as_itself():
    model = narrow(TableModel([0.2, 0.3, 0.5], [[0.5, 0.25, 0.25]] * 3), k=2)
    service_model = ServiceModel(model.likeliest, k=2)
    questions = [Context(()), Context(("w2",))] * 3
    expected = likeliest_ranks(model, questions, ["w2", "w2"] * 3)
    assert likeliest_ranks(service_model, questions, ["w2", "w2"] * 3).tolist() == expected.tolist()


@pytest.mark.parametrize("budget", [0, 1, 3, 4, 10, 11])
def test_the_budget_is_never_exceeded_and_the_rest_stays_unasked(budget):
    model = service(good, budget=budget, at_once=3)
    ranks = likeliest_ranks(model, contexts(10), ["of"] * 10)
    sent = min(budget, 10)
    assert ranks.tolist() == [3] * sent + [0] * (10 - sent)
    assert counted(model, "queries", "unasked", "budget_spent") == (sent, 10 - sent, budget < 10)


def test_attempts_count_against_the_budget():
    ask = Failing(always=True)
    model = service(ask, budget=10, at_once=4, attempts=9)
    assert model.likeliest(contexts(4)) == [None] * 4
    assert ask.sizes == [4, 4]
    assert counted(model, "queries", "budget_spent", "unanswered") == (8, True, 4)


def test_pauses_grow_up_to_a_bound():
    pauses = []
    model = service(Failing(*range(8)), pauses=pauses, attempts=9)
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert counted(model, "calls", "retries", "failures", "unanswered") == (9, 8, 8, 0)
    assert list(RetryPolicy(attempts=10_000).pauses())[-2:] == [60, None]


def test_a_callable_that_never_answers_is_given_up():
    ask = Failing(always=True)
    model = service(ask, at_once=2, attempts=3, give_up_after=2)
    assert model.likeliest(contexts(9)) == [None] * 9
    assert model.likeliest(contexts(1, 50)) == [None]
    assert len(ask.sizes) == 6
    names = ("unanswered", "unasked", "gave_up", "budget_spent")
    assert counted(model, *names) == (4, 6, True, False)
    assert isinstance(model.last_error, ConnectionError)
    model = service(Failing(0), attempts=1)  # one that failed once may be asked again
    assert model.likeliest(contexts(1)) == [None]
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert not model.statistics.gave_up


def test_slow_calls_are_left_behind_and_errors_within_a_timeout_are_the_callables():
    calls = []

    def slow_at_first(queries):
        calls.append(queries)
        time.sleep(0.5 if len(calls) == 1 else 0)
        return good(queries)

    model = service(slow_at_first, timeout=0.1)
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert counted(model, "timeouts", "failures", "retries") == (1, 1, 1)
    assert 0.1 <= model.statistics.seconds < 0.5
    model = service(Failing(always=True), timeout=5, attempts=1)
    assert model.likeliest(contexts(1)) == [None]
    assert isinstance(model.last_error, ConnectionError)
    assert model.statistics.timeouts == 0


class Odd(BaseException):
    """What a library may raise that is no Exception."""


@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize("error", [SystemExit(0), SystemExit("bye"), Odd(), GeneratorExit()])
def test_a_callable_that_leaves_has_failed(error, timeout):
    ask = Failing(always=True, error=error)
    model = service(ask, attempts=2, give_up_after=1, timeout=timeout)
    assert model.likeliest(contexts(1)) == [None]
    assert counted(model, "failures", "gave_up") == (2, True)
    assert model.last_error is error


def test_endless_recursion_has_failed_and_an_interruption_has_not():
    def deep(queries):
        return deep(queries)

    model = service(deep, attempts=1, give_up_after=1)
    assert model.likeliest(contexts(1)) == [None]
    assert isinstance(model.last_error, RecursionError)
    with pytest.raises(KeyboardInterrupt):
        service(Failing(always=True, error=KeyboardInterrupt())).likeliest(contexts(1))


def test_what_a_callable_does_to_its_argument_changes_no_question():
    def meddles(queries):
        for context in queries:
            object.__setattr__(context, "words", ("other",))
        return [["a"]] * len(queries)

    cache, queries = {}, contexts(3)
    ServiceModel(meddles, k=1, cache=cache).likeliest(queries)
    assert list(cache) == contexts(3) == queries


def test_words_that_are_too_long_are_refused_and_what_was_answered_is_kept():
    lists, cache = [["a"], ["b", "x" * 5_000_000], ["c"]], {}
    model = ServiceModel(lambda queries: lists, k=2, cache=cache)
    with pytest.raises(ModelError, match=r"a word of 5,000,000 characters.* answer to query 2\b"):
        model.likeliest(contexts(3))
    assert list(cache.values()) == [("a",)]
    model = ServiceModel(lambda queries: [[f"{n:01000}" for n in range(100)]], k=100)
    with pytest.raises(ModelError, match="more than 6,400 characters in all"):
        model.likeliest(contexts(1))


def test_lists_are_mended_and_counted():
    lists = [["a"], ["a", "b", "c", "d"], ["a", "a", "b"], [], None, ("a", "b")]
    model = service(lambda queries: lists, k=2)
    mended = [("a",), ("a", "b"), ("a", "b"), (), None, ("a", "b")]
    assert model.likeliest(contexts(6)) == mended
    names = ("short_lists", "long_lists", "duplicates", "refused")
    assert counted(model, *names) == (2, 1, 1, 1)
    words = [f"w{n}" for n in range(1_000_000)]
    words[3] = 7  # no more are read than are wanted
    model = service(lambda queries: [words], k=3)
    assert model.likeliest(contexts(1)) == [("w0", "w1", "w2")]
    assert model.statistics.long_lists == 1
    model = service(lambda queries: [["zyx", "of", "wvu"]], k=2, known={"of", "the"})
    assert likeliest_ranks(model, contexts(1), ["of"]).tolist() == [2]  # unknown: keeps its place
    assert model.statistics.unknown_words == 1


class Hostile(list):
    def __iter__(self):
        raise RuntimeError("not for you")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "0 answers for 2"),
        ("the cat", "str instead of a list of answers"),
        (b"the", "bytes instead of a list of answers"),
        (3, "int instead of a list of answers"),
        ({"a": 1, "b": 2}, "dict instead of a list of answers"),
        ((answer for answer in [["a"], ["b"]]), "generator instead of a list of answers"),
        ([["a"]], "1 answers for 2 contexts"),
        ([["a"]] * 3, "3 answers for 2 contexts"),
        (["the", "a"], "str instead of a list of words"),
        ([{"a": 0.5}, {"b": 0.1}], "dict instead of a list of words"),
        ([["a"], [1]], "int instead of a word"),
        ([["a"], [None]], "NoneType instead of a word"),
        ([["a"], [b"a"]], "bytes instead of a word"),
        ([["a"], [("a", 0.5)]], "tuple instead of a word"),
        ([["a"], 7], "int instead of a list of words"),
        ([["a"], {"b"}], "set instead of a list of words"),
        ([["a"], [float("nan")]], "float instead of a word, for the answer to query 2"),
        (Hostile([["a"], ["b"]]), "a list that raises RuntimeError, for answers to queries 1 to 2"),
    ],
)
def test_answers_that_are_no_lists_of_words_are_named(given, message):
    model = ServiceModel(lambda queries: given, k=2)
    with pytest.raises(ModelError, match=message):
        model.likeliest(contexts(2))
    assert model.statistics.calls == 1  # asking again would not help


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
def test_options_have_bounds(build, name, value):
    arguments = [good] if build is ServiceModel else []
    options = {"k": 1, name: value} if arguments else {name: value}
    with pytest.raises(ValueError, match=name):
        build(*arguments, **options)


def test_what_is_no_callable_or_context_is_refused():
    with pytest.raises(ValueError, match="callable"):
        ServiceModel("https://example.org", k=1)
    with pytest.raises(ValueError, match="Context"):
        ServiceModel(good, k=1).likeliest(["to be"])


def test_statistics_are_a_row_of_plain_values():
    model = ServiceModel(good, k=5, budget=1)
    model.likeliest(contexts(2))
    summary = json.loads(json.dumps(model.statistics.summary(), allow_nan=False))
    assert summary["queries"] == 1
    assert summary["budget_spent"] is True
