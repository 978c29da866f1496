"""Answers of a service outlive the program, and a kill costs none of them."""

import stat

import pytest

from vestige.errors import DataError
from vestige.models.answer_cache import AnswerCache
from vestige.models.service import ServiceModel
from vestige.models.top_k import Context

CONTEXTS = [Context(("to",)), Context(("to", "be"), "être"), Context(())]


def echo(contexts):
    return [[*context.words, "end"] for context in contexts]


def asked(path, contexts, *, budget=None):
    """One sitting; the answers and the statistics of all."""
    with AnswerCache(path) as kept:
        model = ServiceModel(echo, k=3, cache=kept, budget=budget)
        return model.likeliest(contexts), model.statistics


def test_a_second_sitting_asks_nothing_again(tmp_path):
    path = tmp_path / "answers.jsonl"
    first, account = asked(path, CONTEXTS)
    again, later = asked(path, CONTEXTS)
    assert again == first
    assert (account.queries, later.queries) == (3, 3)
    assert (account.calls, later.calls) == (1, 1)
    assert (account.short_lists, later.short_lists) == (2, 2)
    assert (account.cached, later.cached) == (0, 3)


def test_a_line_that_a_kill_cut_is_asked_again(tmp_path):
    path = tmp_path / "answers.jsonl"
    with AnswerCache(path) as kept:
        ServiceModel(echo, k=3, cache=kept).likeliest(CONTEXTS)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        answers, _ = asked(path, CONTEXTS)
        assert answers == [("to", "end"), ("to", "be", "end"), ("end",)]
        assert len(AnswerCache(path)) == 3


def test_calls_under_way_at_a_kill_count_for_the_budget(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"sent": 2}\n')
    answers, account = asked(path, CONTEXTS, budget=4)
    assert [answer is None for answer in answers] == [False, False, True]
    assert (account.queries, account.unasked, account.budget_spent) == (4, 1, True)


def test_nothing_is_written_before_something_is_asked(tmp_path):
    with AnswerCache(tmp_path / "deep" / "answers.jsonl") as kept:
        assert list(kept) == []
    assert list(tmp_path.iterdir()) == []


def test_only_its_owner_may_read_it(tmp_path):
    asked(tmp_path / "answers.jsonl", CONTEXTS)
    assert stat.S_IMODE((tmp_path / "answers.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"words": 1}', '{"words": ["a"], "answer": ["b"]}', "[" * 50_000, "\0" * 9],
)
def test_a_line_of_something_else_is_left_out_and_counted(tmp_path, line):
    path = tmp_path / "answers.jsonl"
    first, _ = asked(path, CONTEXTS)
    path.write_text(line + "\n" + path.read_text())
    with AnswerCache(path) as kept:
        assert kept.damaged == 1
        assert [kept[context] for context in CONTEXTS] == first


def test_a_flipped_bit_anywhere_changes_no_answer(tmp_path):
    path = tmp_path / "answers.jsonl"
    first, _ = asked(path, CONTEXTS)
    whole = path.read_bytes()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with AnswerCache(path) as kept:
            found = [kept.get(context) for context in CONTEXTS]
        assert all(answer in (None, known) for answer, known in zip(found, first, strict=True))


def test_what_a_damaged_line_answered_is_asked_again_and_the_file_is_whole(tmp_path):
    path = tmp_path / "answers.jsonl"
    first, _ = asked(path, CONTEXTS)
    lines = path.read_bytes().splitlines(keepends=True)
    broken = next(place for place, line in enumerate(lines) if b'"answer"' in line)
    lines[broken] = lines[broken].replace(b"to", b"ot")
    path.write_bytes(b"".join(lines))
    again, account = asked(path, CONTEXTS)
    assert again == first
    assert account.queries == 4
    with AnswerCache(path) as kept:
        assert (len(kept), kept.damaged) == (3, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_without_checksums_is_read(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"words": ["to"], "source": null, "answer": ["be"]}\n')
    assert AnswerCache(path)[Context(("to",))] == ("be",)


def test_a_link_to_itself_is_no_file_and_is_said_before_anything_is_asked(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.symlink_to(path)
    with pytest.raises(DataError, match=r"answers\.jsonl"):
        AnswerCache(path)


def test_answers_are_kept_for_good(tmp_path):
    kept = AnswerCache(tmp_path / "answers.jsonl")
    with pytest.raises(TypeError, match="kept for good"):
        del kept[CONTEXTS[0]]
