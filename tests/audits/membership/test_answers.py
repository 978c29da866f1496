"""Answers of a function outlive the program, and a kill loses at most those of one call."""

import stat

import pytest

from vestige.errors import ModelError
from vestige.models.remote.functions import ACCOUNT, ServiceModel
from vestige.models.remote.retry import RetryPolicy
from vestige.models.top_k import Context
from vestige.store import Store

CONTEXTS = [Context(("to",)), Context(("to", "be"), "être"), Context(())]
ANSWERS = [("to", "end"), ("to", "be", "end"), ("end",)]


def echo(contexts):
    return [[*context.words, "end"] for context in contexts]


def queried(path, contexts, *, budget=None):
    """One session; the answers and the statistics of all sessions."""
    with Store(path) as store:
        model = ServiceModel(echo, k=3, store=store, budget=budget)
        return model.likeliest(contexts), model.statistics


def cached(store):
    """The answers in a store; nothing is asked."""
    return ServiceModel(echo, k=3, store=store, budget=0).likeliest(CONTEXTS)


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
    model = ServiceModel(killed, k=3, store=store, retry=RetryPolicy(at_once=1))
    with pytest.raises(KeyboardInterrupt):
        model.likeliest(CONTEXTS)
    assert cached(store) == [*ANSWERS[:2], None]
    assert (store[ACCOUNT]["queries"], store[ACCOUNT]["calls"]) == (3, 3)
    store.close()


def test_answers_before_a_malformed_one_are_kept(tmp_path):
    path = tmp_path / "work.sqlite"
    with Store(path) as store, pytest.raises(ModelError, match="int instead of a list"):
        ServiceModel(lambda _: [["to"], 3, ["be"]], k=3, store=store).likeliest(CONTEXTS)
    with Store(path) as store:
        assert cached(store) == [("to",), None, None]


def test_calls_under_way_at_a_kill_count_for_the_budget(tmp_path):
    path = tmp_path / "work.sqlite"
    with Store(path) as store:
        store[ACCOUNT] = {"queries": 2, "calls": 1, "budget": None, "gave_up": False}  # as of old
    answers, account = queried(path, CONTEXTS, budget=4)
    assert [answer is None for answer in answers] == [False, False, True]
    assert (account.queries, account.unasked, account.budget_spent) == (4, 1, True)


def test_nothing_is_written_before_something_is_queried(tmp_path):
    with Store(tmp_path / "deep" / "work.sqlite") as store:
        assert cached(store) == [None] * 3
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
        with Store(path) as store:
            found = cached(store)
        assert all(answer in (None, known) for answer, known in zip(found, first, strict=True))


def test_half_a_character_is_a_word_as_another(tmp_path):
    for _ in range(2):
        with Store(tmp_path / "work.sqlite") as store:
            model = ServiceModel(lambda _: [["\ud800", "\x1b[31m"]], k=2, store=store)
            assert model.likeliest(CONTEXTS[:1]) == [("\ud800", "\x1b[31m")]
            assert model.statistics.queries == 1
