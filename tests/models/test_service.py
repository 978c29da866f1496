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


def contexts(n, begin=0):
    return [Context((str(i),)) for i in range(begin, begin + n)]


def good(asked):
    return [WORDS for _ in asked]


class Failing:
    """Raises for the calls whose numbers are given, from 0; answers the others."""

    def __init__(self, *numbers, always=False):
        self.numbers, self.always, self.sizes = numbers, always, []

    def __call__(self, asked):
        self.sizes.append(len(asked))
        if self.always or len(self.sizes) - 1 in self.numbers:
            raise ConnectionError("the line is down")
        return good(asked)


def test_each_context_is_sent_once():
    ask = Failing()
    model = ServiceModel(ask, k=5)
    one, two = contexts(2)
    assert model.likeliest([one, two, one]) == [tuple(WORDS)] * 3
    assert model.likeliest([two, *contexts(1, 7)]) == [tuple(WORDS)] * 2
    assert ask.sizes == [2, 1]
    counted = model.statistics
    assert (counted.contexts, counted.cached, counted.queries, counted.calls) == (5, 2, 3, 2)


def test_a_model_behind_a_callable_answers_as_itself():
    table = TableModel([0.2, 0.3, 0.5], [[0.5, 0.25, 0.25]] * 3)
    own = narrow(table, k=2)
    asked = ServiceModel(own.likeliest, k=2)
    questions = [Context(()), Context(("w2",))] * 3
    expected = likeliest_ranks(own, questions, ["w2", "w2"] * 3)
    assert likeliest_ranks(asked, questions, ["w2", "w2"] * 3).tolist() == expected.tolist()


def test_a_cache_that_is_given_is_read_and_written():
    cache = {Context(("0",)): ["known"]}  # as a file gives it back
    model = ServiceModel(good, k=5, cache=cache)
    assert model.likeliest(contexts(2)) == [("known",), tuple(WORDS)]
    assert cache[Context(("1",))] == tuple(WORDS)
    assert model.statistics.queries == 1


@pytest.mark.parametrize("budget", [0, 1, 3, 4, 10, 11])
def test_the_budget_is_never_exceeded_and_the_rest_stays_unasked(budget):
    model = ServiceModel(good, k=5, budget=budget, retry=RetryPolicy(at_once=3))
    ranks = likeliest_ranks(model, contexts(10), ["of"] * 10)
    sent = min(budget, 10)
    assert ranks.tolist() == [3] * sent + [0] * (10 - sent)
    counted = model.statistics
    assert (counted.queries, counted.unasked) == (sent, 10 - sent)
    assert counted.budget_spent == (budget < 10)


def test_attempts_count_against_the_budget():
    ask = Failing(always=True)
    model = ServiceModel(
        ask, k=5, budget=10, retry=RetryPolicy(at_once=4, attempts=9), sleep=lambda _: None
    )
    assert model.likeliest(contexts(4)) == [None] * 4
    assert ask.sizes == [4, 4]
    assert (model.statistics.queries, model.statistics.budget_spent) == (8, True)
    assert model.statistics.unanswered == 4


def test_pauses_grow_up_to_a_bound():
    pauses = []
    policy = RetryPolicy(attempts=6, pause=1, growth=3, longest_pause=20)
    model = ServiceModel(Failing(0, 1, 2, 3, 4), k=5, retry=policy, sleep=pauses.append)
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert pauses == [1, 3, 9, 20, 20]
    counted = model.statistics
    assert (counted.calls, counted.retries, counted.failures) == (6, 5, 5)
    assert counted.unanswered == 0
    assert list(RetryPolicy(attempts=10_000).pauses())[-2:] == [60, None]


def test_a_callable_that_never_answers_is_given_up():
    ask = Failing(always=True)
    policy = RetryPolicy(at_once=2, attempts=3, give_up_after=2)
    model = ServiceModel(ask, k=5, retry=policy, sleep=lambda _: None)
    assert model.likeliest(contexts(9)) == [None] * 9
    assert model.likeliest(contexts(1, 50)) == [None]
    counted = model.statistics
    assert len(ask.sizes) == 6
    assert (counted.unanswered, counted.unasked, counted.gave_up) == (4, 6, True)
    assert not counted.budget_spent
    assert isinstance(model.last_error, ConnectionError)


def test_a_group_that_failed_may_be_asked_again_later():
    model = ServiceModel(Failing(0), k=5, retry=RetryPolicy(attempts=1))
    assert model.likeliest(contexts(1)) == [None]
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    assert not model.statistics.gave_up


def test_slow_calls_are_left_behind():
    calls = []

    def slow_at_first(asked):
        calls.append(asked)
        time.sleep(0.5 if len(calls) == 1 else 0)
        return good(asked)

    model = ServiceModel(
        slow_at_first, k=5, retry=RetryPolicy(timeout=0.1, pause=0), sleep=lambda _: None
    )
    assert model.likeliest(contexts(1)) == [tuple(WORDS)]
    counted = model.statistics
    assert (counted.timeouts, counted.failures, counted.retries) == (1, 1, 1)
    assert 0.1 <= counted.seconds < 0.5


def test_errors_within_a_timeout_are_those_of_the_callable():
    policy = RetryPolicy(timeout=5, attempts=1)
    model = ServiceModel(Failing(always=True), k=5, retry=policy)
    assert model.likeliest(contexts(1)) == [None]
    assert isinstance(model.last_error, ConnectionError)
    assert model.statistics.timeouts == 0


class Odd(BaseException):
    """What a library may raise that is no Exception."""


class Hostile(list):
    def __iter__(self):
        raise RuntimeError("not for you")


@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize("error", [SystemExit(0), SystemExit("bye"), Odd(), GeneratorExit()])
def test_a_callable_that_leaves_has_failed(error, timeout):
    def leaves(asked):
        raise error

    policy = RetryPolicy(attempts=2, give_up_after=1, timeout=timeout)
    model = ServiceModel(leaves, k=5, retry=policy, sleep=lambda _: None)
    assert model.likeliest(contexts(1)) == [None]
    assert model.statistics.failures == 2
    assert model.statistics.gave_up
    assert model.last_error is error


def test_endless_recursion_has_failed():
    def deep(asked):
        return deep(asked)

    policy = RetryPolicy(attempts=1, give_up_after=1)
    model = ServiceModel(deep, k=5, retry=policy, sleep=lambda _: None)
    assert model.likeliest(contexts(1)) == [None]
    assert isinstance(model.last_error, RecursionError)


def test_what_a_callable_does_to_its_argument_changes_no_question():
    def meddles(asked):
        for context in asked:
            object.__setattr__(context, "words", ("other",))
        return [["a"]] * len(asked)

    cache = {}
    asked = contexts(3)
    ServiceModel(meddles, k=1, cache=cache).likeliest(asked)
    assert list(cache) == contexts(3) == asked


def test_a_word_too_long_is_named_by_its_query_and_what_was_answered_is_kept():
    lists = [["a"], ["b", "x" * 5_000_000], ["c"]]
    cache = {}
    model = ServiceModel(lambda asked: lists, k=2, cache=cache)
    with pytest.raises(ModelError, match=r"a word of 5,000,000 characters.* answer to query 2\b"):
        model.likeliest(contexts(3))
    assert list(cache.values()) == [("a",)]


def test_words_too_long_together_are_refused():
    model = ServiceModel(lambda asked: [[f"{n:01000}" for n in range(100)]], k=100)
    with pytest.raises(ModelError, match="more than 6,400 characters in all"):
        model.likeliest(contexts(1))


def test_of_a_million_words_no_more_are_read_than_are_wanted():
    words = [f"w{n}" for n in range(1_000_000)]
    words[3] = 7
    model = ServiceModel(lambda asked: [words], k=3)
    assert model.likeliest(contexts(1)) == [("w0", "w1", "w2")]
    assert model.statistics.long_lists == 1


def test_an_interruption_is_no_failure():
    def interrupted(asked):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ServiceModel(interrupted, k=5).likeliest(contexts(1))


def test_short_long_and_repeated_lists_are_mended_and_counted():
    lists = [["a"], ["a", "b", "c", "d"], ["a", "a", "b"], [], None, ("a", "b")]
    model = ServiceModel(lambda asked: lists, k=2)
    assert model.likeliest(contexts(6)) == [
        ("a",), ("a", "b"), ("a", "b"), (), None, ("a", "b"),
    ]  # fmt: skip
    counted = model.statistics
    assert (counted.short_lists, counted.long_lists, counted.duplicates) == (2, 1, 1)
    assert counted.refused == 1


def test_words_that_the_asker_does_not_know_keep_their_places():
    model = ServiceModel(lambda asked: [["zyx", "of", "wvu"]], k=2, known={"of", "the"})
    assert likeliest_ranks(model, contexts(1), ["of"]).tolist() == [2]
    assert model.statistics.unknown_words == 1


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
    model = ServiceModel(lambda asked: given, k=2)
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
        (RetryPolicy, "growth", 0.5),
        *((RetryPolicy, "pause", value) for value in (-1, math.inf)),
        (RetryPolicy, "longest_pause", math.nan),
        *((RetryPolicy, "timeout", value) for value in (0, math.inf)),
        (RetryPolicy, "give_up_after", 0),
    ],
)
def test_options_have_bounds(build, name, value):
    options = {"k": 1} if build is ServiceModel else {}
    with pytest.raises(ValueError, match=name):
        build(*([good] if options else []), **{**options, name: value})


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
