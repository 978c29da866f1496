"""Answers of a service outlive the program, and a kill costs none of them."""

import stat

import pytest

from tests.damage import damage_store
from vestige.errors import RunError
from vestige.models.answer_cache import AnswerCache
from vestige.models.service import ServiceModel
from vestige.models.top_k import Context
from vestige.monitor import SILENT

CONTEXTS = [Context(("to",)), Context(("to", "be"), "être"), Context(())]


class Told:
    """A monitor that remembers its lines."""

    lines = ()
    progress = staticmethod(SILENT.progress)

    def log(self, text):
        self.lines = (*self.lines, text)


def echo(contexts):
    return [[*context.words, "end"] for context in contexts]


def asked(path, contexts, *, budget=None):
    """One sitting; the answers and the statistics of all."""
    with AnswerCache(path) as kept:
        model = ServiceModel(echo, k=3, cache=kept, budget=budget)
        return model.likeliest(contexts), model.statistics


def test_a_second_sitting_asks_nothing_again(tmp_path):
    path = tmp_path / "answers.sqlite"
    first, account = asked(path, CONTEXTS)
    again, later = asked(path, CONTEXTS)
    assert again == first
    assert (account.queries, later.queries) == (3, 3)
    assert (account.calls, later.calls) == (1, 1)
    assert (account.short_lists, later.short_lists) == (2, 2)
    assert (account.cached, later.cached) == (0, 3)


def test_what_a_file_that_was_cut_has_lost_is_asked_again(tmp_path):
    path = tmp_path / "answers.sqlite"
    with AnswerCache(path) as kept:
        ServiceModel(echo, k=3, cache=kept).likeliest(CONTEXTS)
    whole = path.read_bytes()
    for cut in (*range(0, len(whole), 61), len(whole) - 1):
        path.write_bytes(whole[:cut])
        answers, _ = asked(path, CONTEXTS)
        assert answers == [("to", "end"), ("to", "be", "end"), ("end",)]
        assert len(AnswerCache(path)) == 3


def test_calls_under_way_at_a_kill_count_for_the_budget(tmp_path):
    path = tmp_path / "answers.sqlite"
    with AnswerCache(path) as kept:
        kept.sending(2)
    answers, account = asked(path, CONTEXTS, budget=4)
    assert [answer is None for answer in answers] == [False, False, True]
    assert (account.queries, account.unasked, account.budget_spent) == (4, 1, True)


def test_nothing_is_written_before_something_is_asked(tmp_path):
    with AnswerCache(tmp_path / "deep" / "answers.sqlite") as kept:
        assert list(kept) == []
    assert list(tmp_path.iterdir()) == []


def test_only_its_owner_may_read_it(tmp_path):
    asked(tmp_path / "answers.sqlite", CONTEXTS)
    assert stat.S_IMODE((tmp_path / "answers.sqlite").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"words": ["a"], "answer": ["b"]}\n', b"[" * 50_000, b"\0" * 9000],
)
def test_a_file_of_something_else_is_begun_anew_and_said_so(tmp_path, content):
    path = tmp_path / "answers.sqlite"
    path.write_bytes(content)
    told = Told()
    with AnswerCache(path, told) as kept:
        assert len(kept) == 0
    assert len(told.lines) == 1
    asked(path, CONTEXTS)


def test_a_flipped_bit_anywhere_changes_no_answer(tmp_path):
    path = tmp_path / "answers.sqlite"
    first, _ = asked(path, CONTEXTS)
    whole = path.read_bytes()
    for place in (*range(100), *range(100, len(whole), 61)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with AnswerCache(path) as kept:
            found = [kept.get(context) for context in CONTEXTS]
        assert all(answer in (None, known) for answer, known in zip(found, first, strict=True))


def test_a_damaged_answer_is_asked_again_and_the_file_is_whole(tmp_path):
    path = tmp_path / "answers.sqlite"
    first, _ = asked(path, CONTEXTS)
    assert damage_store(path, 'answer/[null, "to"]') == 1
    again, account = asked(path, CONTEXTS)
    assert again == first
    assert account.queries == 4
    told = Told()
    with AnswerCache(path, told) as kept:
        assert (len(kept), told.lines) == (3, ())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_answers_of_an_older_version_are_left_alone(tmp_path):
    old = tmp_path / "answers.jsonl"
    old.write_text('{"words": ["to"], "source": null, "answer": ["be"]}\n')
    asked(tmp_path / "answers.sqlite", CONTEXTS)
    assert len(old.read_text().splitlines()) == 1


def test_a_link_to_itself_is_no_file_and_is_said_before_anything_is_asked(tmp_path):
    path = tmp_path / "answers.sqlite"
    path.symlink_to(path)
    with pytest.raises(RunError, match=r"answers\.sqlite"):
        AnswerCache(path)


def test_answers_are_kept_for_good(tmp_path):
    kept = AnswerCache(tmp_path / "answers.sqlite")
    with pytest.raises(TypeError, match="kept for good"):
        del kept[CONTEXTS[0]]
