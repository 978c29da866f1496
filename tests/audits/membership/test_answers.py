"""Answers of a function outlive the program, and a kill loses at most those of one call."""

import stat

import pytest

from vestige.audits.membership.service import ACCOUNT, StoredAnswers
from vestige.errors import ModelError
from vestige.models.remote.functions import QueryStatistics, RetryPolicy, ServiceModel
from vestige.models.top_k import Context
from vestige.store import Store

CONTEXTS = [Context(("to",)), Context(("to", "be"), "être"), Context(())]
ANSWERS = [("to", "end"), ("to", "be", "end"), ("end",)]


def echo(contexts):
    return [[*context.words, "end"] for context in contexts]


def queried(path, contexts, *, budget=None):
    """One session; the answers and the statistics of all sessions."""
    with Store(path) as store, StoredAnswers(store) as answers:
        model = ServiceModel(echo, k=3, cache=answers, budget=budget)
        return model.likeliest(contexts), model.statistics


def test_a_second_session_queries_nothing_again(tmp_path):
    path = tmp_path / "work.sqlite"
    first, account = queried(path, CONTEXTS)
    again, later = queried(path, CONTEXTS)
    assert again == first == ANSWERS
    assert (account.queries, later.queries) == (3, 3)
    assert (account.calls, later.calls) == (1, 1)
    assert (account.short_lists, later.short_lists) == (2, 2)
    assert (account.cached, later.cached) == (0, 3)


def test_answers_before_a_kill_are_on_the_disk_but_for_those_of_one_call(tmp_path):
    """A process that is killed within a call writes nothing more."""
    path, calls = tmp_path / "work.sqlite", []

    def killed(contexts):
        calls.append(contexts)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return echo(contexts)

    store = Store(path)
    model = ServiceModel(killed, k=3, cache=StoredAnswers(store), retry=RetryPolicy(at_once=1))
    with pytest.raises(KeyboardInterrupt):
        model.likeliest(CONTEXTS)
    with StoredAnswers(store) as later:  # without the end of the first block
        assert [later.get(context) for context in CONTEXTS] == [*ANSWERS[:2], None]
        assert (later.before.queries, later.before.calls) == (3, 3)
    store.close()


def test_answers_before_a_malformed_one_are_kept(tmp_path):
    path = tmp_path / "work.sqlite"
    with (
        Store(path) as store,
        pytest.raises(ModelError, match="int instead of a list"),
        StoredAnswers(store) as answers,
    ):
        ServiceModel(lambda _: [["to"], 3, ["be"]], k=3, cache=answers).likeliest(CONTEXTS)
    with Store(path) as store, StoredAnswers(store) as answers:
        assert dict(answers) == {CONTEXTS[0]: ("to",)}


def test_calls_under_way_at_a_kill_count_for_the_budget(tmp_path):
    path = tmp_path / "work.sqlite"
    with Store(path) as store:
        store[ACCOUNT] = QueryStatistics(queries=2, calls=1).summary()
    answers, account = queried(path, CONTEXTS, budget=4)
    assert [answer is None for answer in answers] == [False, False, True]
    assert (account.queries, account.unasked, account.budget_spent) == (4, 1, True)


def test_nothing_is_written_before_something_is_queried(tmp_path):
    with Store(tmp_path / "deep" / "work.sqlite") as store, StoredAnswers(store) as answers:
        assert list(answers) == []
        assert len(store) == 0
    assert not (tmp_path / "deep" / "work.sqlite").exists()


def test_only_its_owner_may_read_it(tmp_path):
    queried(tmp_path / "work.sqlite", CONTEXTS)
    assert stat.S_IMODE((tmp_path / "work.sqlite").stat().st_mode) == 0o600


def test_a_flipped_bit_anywhere_changes_no_answer(tmp_path):
    path = tmp_path / "work.sqlite"
    first, _ = queried(path, CONTEXTS)
    whole = path.read_bytes()
    for place in range(0, len(whole), 31):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with Store(path) as store, StoredAnswers(store) as answers:
            found = [answers.get(context) for context in CONTEXTS]
        assert all(answer in (None, known) for answer, known in zip(found, first, strict=True))


def test_half_a_character_is_a_word_as_another(tmp_path):
    for _ in range(2):
        with Store(tmp_path / "work.sqlite") as store, StoredAnswers(store) as answers:
            model = ServiceModel(lambda _: [["\ud800", "\x1b[31m"]], k=2, cache=answers)
            assert model.likeliest(CONTEXTS[:1]) == [("\ud800", "\x1b[31m")]
            assert model.statistics.queries == 1


def test_answers_are_never_deleted(tmp_path):
    with pytest.raises(TypeError, match="answers are kept"):
        del StoredAnswers(Store())[CONTEXTS[0]]
