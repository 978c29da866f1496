"""Phrases of an added text are listed and counted."""

from pathlib import Path

import pytest

from reproduction.stages import Work
from reproduction.updates.added_text import added_text, best_of, best_phrases, on_topic_counts
from reproduction.updates.searches import Finding
from vestige.audits.update.phrases import Text


def finding(*tokens: int, score: float = 1.0, group: int = 0) -> Finding:
    return Finding(Text(tokens, (), score=score), 0, group)


def test_the_first_phrases_are_listed_without_repeated_tokens() -> None:
    findings = [finding(1), finding(2, 2, 2), finding(3), finding(4)]
    assert [f.phrase.tokens for f in best_of(findings, 2, grouped=False)] == [(1,), (3,)]


def test_the_first_phrase_of_each_group_is_listed() -> None:
    findings = [finding(1, group=1), finding(2, group=0), finding(3, group=1), finding(4, group=0)]
    assert [f.phrase.tokens for f in best_of(findings, 1, grouped=True)] == [(2,), (1,)]


def test_a_phrase_is_listed_once_with_its_highest_score(monkeypatch) -> None:
    findings = {
        "one": [finding(1, score=3.0, group=0), finding(2, score=1.0, group=1)],
        "two": [finding(2, score=5.0, group=0), finding(3, score=0.5, group=1)],
    }
    name = "reproduction.updates.added_text.findings"
    monkeypatch.setattr(name, lambda pair, search: findings[pair])
    assert best_phrases(["one", "two"], 10) == [(2,), (1,), (3,)]  # type: ignore[list-item]
    assert best_phrases(["one", "two"], 1) == [(2,)]  # type: ignore[list-item]


def rows(source: str, search: str, *phrases: tuple[bool, int, float]) -> list[dict[str, object]]:
    return [
        {
            "added": "hockey", "model": "rnn", "source": source, "search": search,
            "on_topic": on_topic, "in_added": in_added, "score": score,
            "topic_share_added": 0.25, "topic_share_original": 0.031,
        }
        for on_topic, in_added, score in phrases
    ]  # fmt: skip


def test_the_remark_counts_phrases_on_topic_and_verbatim() -> None:
    counted = [
        *rows("ours", "group", (True, 2, 9.5), (False, 0, 3.0), (True, 0, 2.0)),
        *rows("null", "group", (False, 0, 4.25)),
        *rows("ours", "vanilla", (True, 1, 1.0)),
        *rows("paper", "group", (True, 1, 56.0)),
    ]
    assert on_topic_counts(counted) == (
        "On topic, hockey, rnn: group 2 of 3 (highest score 9.5), 1 verbatim, null 0 of 1 "
        "(highest score 4.25); vanilla 1 of 1 (highest score 1), 1 verbatim, null 0 of 0. By the "
        "same measure 25.0% of the added text's own windows are on topic, and 3.1% of the "
        "original's."
    )


def test_the_remark_has_a_sentence_for_each_model() -> None:
    other = [row | {"model": "transformer"} for row in rows("ours", "group", (False, 0, 1.0))]
    remark = on_topic_counts([*rows("ours", "group", (True, 1, 1.0)), *other])
    assert "hockey, rnn: group 1 of 1" in remark
    assert "hockey, transformer: group 0 of 1" in remark


def test_a_text_is_added_completely_or_as_a_random_part() -> None:
    work = Work(Path())
    whole, part = (added_text("grammar-topic", words, work) for words in (None, 100))
    assert set(part) <= set(whole)
    assert sum(len(text.split()) for text in part) == pytest.approx(100, abs=6)
    assert list(part) == list(added_text("grammar-topic", 100, work))
