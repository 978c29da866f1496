"""Rows of an audit against counts by hand, from made-up scores and answers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reproduction.provenance import audit_rows
from reproduction.provenance.audit_rows import AuditDecisions, audit_row, decide
from vestige.audits.membership.user_audit import Judged
from vestige.audits.membership.user_texts import NonMembers

MEMBERS, OTHERS = np.array([4.0, 3.0, 3.0, 0.0]), np.array([3.0, 1.0, -1.0, -2.0])


def decisions(members: Any, others: Any, *, above: float) -> AuditDecisions:
    scores = np.array([*members, *others], dtype=np.float64)
    return AuditDecisions(
        members=scores[: len(members)], others=scores[len(members) :], called=scores > above
    )


def user(score: float | None, p_value: float) -> dict[str, float | None]:
    return {"score": score, "p_value": p_value}


def judge(monkeypatch: pytest.MonkeyPatch, users: list[dict[str, float | None]]) -> None:
    """Let users be judged so."""
    judged = Judged(
        users=tuple(users), compared=(), list_p_value=None, test=None, auc=None, known=9, rate=0.05
    )
    monkeypatch.setattr(audit_rows, "score_words", lambda *_, **__: None)
    monkeypatch.setattr(audit_rows, "judge_users", lambda *_, **__: judged)


@pytest.fixture
def observed() -> SimpleNamespace:
    """Two members at places 1 and 3, two others at 0 and 2."""
    return SimpleNamespace(
        members=(1, 3),
        others=(0, 2),
        audited=(1, 3, 0, 2),
        shadowed=(4, 5),
        known=NonMembers(),
        words=SimpleNamespace(vocab_size=30),
        ratio=1.25,
        shown=lambda k: SimpleNamespace(queries=None),
    )


def test_ties_count_half_in_the_auc() -> None:
    row = decisions(MEMBERS, OTHERS, above=2).row()
    pairs = [(one > other) + 0.5 * (one == other) for one in MEMBERS for other in OTHERS]
    assert row["auc"] == sum(pairs) / 16


def test_the_auc_of_exchanged_sides_is_its_complement() -> None:
    there, back = decisions(MEMBERS, OTHERS, above=2), decisions(OTHERS, MEMBERS, above=2)
    assert there.row()["auc"] == pytest.approx(1 - back.row()["auc"])  # type: ignore[operator]


def test_shares_of_decisions_are_counted_by_hand() -> None:
    row = decisions(MEMBERS, OTHERS, above=2).row()  # three members and one other are called
    assert (row["accuracy"], row["precision"]) == (6 / 8, 3 / 4)
    assert (row["recall"], row["false_positive_rate"]) == (3 / 4, 1 / 4)


def test_the_interval_of_recall_is_clopper_and_pearsons() -> None:
    row = decisions(MEMBERS, OTHERS, above=2).row()
    assert row["recall_low"] == pytest.approx(stats.beta.ppf(0.025, 3, 2))
    assert row["recall_high"] == pytest.approx(stats.beta.ppf(0.975, 4, 1))


def test_nobody_called_leaves_no_precision() -> None:
    row = decisions(MEMBERS, OTHERS, above=9).row()
    assert (row["precision"], row["recall"], row["accuracy"]) == (None, 0, 0.5)


def test_one_percent_of_fewer_than_a_hundred_others_is_nobody() -> None:
    assert decisions([200.0, 1.0], range(99), above=0).row()["tpr_at_fpr_1"] is None
    # The second highest of a hundred, 98, lets one other through.
    assert decisions([200.0, 98.5, 98.0, 1.0], range(100), above=0).row()["tpr_at_fpr_1"] == 0.5


def test_the_papers_audit_calls_who_is_on_the_members_side(
    observed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_place = np.array([-1.0, 2.0, 0.5, -3.0, 0.0, 0.0])
    monkeypatch.setattr(audit_rows, "histogram_scores", lambda *_: by_place)
    found = decide(observed, "paper", k=5)
    assert (found.members.tolist(), found.others.tolist()) == ([2.0, -3.0], [-1.0, 0.5])
    assert found.called.tolist() == [True, False, False, True]
    assert found.p_values is None


def test_our_audit_calls_whose_p_value_is_no_larger_than_its_level(
    observed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [user(2.0, 0.05), user(1.0, 0.051), user(0.5, 0.01), user(-1.0, 1.0)]
    judge(monkeypatch, users)
    found = decide(observed, "ours", k=5)
    assert found.called.tolist() == [True, False, True, False]
    assert (found.members.tolist(), found.others.tolist()) == ([2.0, 1.0], [0.5, -1.0])


def test_a_user_without_words_stands_no_higher_than_anybody(
    observed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [user(None, 1.0), user(1.0, 0.2), user(0.5, 0.3), user(-4.0, 1.0)]
    judge(monkeypatch, users)
    found = decide(observed, "ours", k=5)
    assert found.members.tolist() == [-4.0, 1.0]
    assert not found.called[0]


@pytest.mark.parametrize(("asked", "told"), [(7, 7), (30, 30), (10**9, 30)])
def test_a_row_never_shows_more_words_than_there_are(
    observed: Any, monkeypatch: pytest.MonkeyPatch, asked: int, told: int
) -> None:
    monkeypatch.setattr(audit_rows, "histogram_scores", lambda *_: np.arange(6.0))
    row = audit_row(observed, "paper", k=asked, dataset="made")
    assert (row["dataset"], row["audit"], row["k"]) == ("made", "paper", told)
    assert (row["ratio"], row["auc"]) == (1.25, 0.75)  # 1 and 3 against 0 and 2
