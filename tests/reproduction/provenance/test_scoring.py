"""Both audits and their rows equal counts by hand, naive definitions and scikit-learn."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_curve

from reproduction.provenance import scoring
from reproduction.provenance.scoring import (
    audit_row,
    decide,
    histogram_scores,
    rank_histogram,
    result_columns,
    true_positives_at,
)
from tests.audits.membership.made_users import VOCABULARY, queries_of, shadows_of, words_of
from vestige.audits.membership.ranked_words import surprise_words
from vestige.audits.membership.user_audit import JudgedUsers
from vestige.audits.membership.user_texts import NonMembers
from vestige.metrics.estimates import auc

MEMBERS, OTHERS = np.array([4.0, 3.0, 3.0, 0.0]), np.array([3.0, 1.0, -1.0, -2.0])
QUERIES = queries_of(90)
IN, OUT, FITTED = np.arange(15), np.arange(15, 30), np.arange(30, 50)


def results(members: Any, others: Any, *, above: float) -> dict[str, Any]:
    members, others = np.array(members, np.float64), np.array(others, np.float64)
    return result_columns(members, others, np.concatenate([members, others]) > above)


@pytest.fixture
def observed() -> SimpleNamespace:
    """Two members, users 1 and 3, and two others, 0 and 2."""
    inside, outside = SimpleNamespace(perplexity=4.0), SimpleNamespace(perplexity=5.0)
    return SimpleNamespace(
        members=(1, 3), others=(0, 2), audited=(1, 3, 0, 2), shadowed=(4, 5), known=NonMembers(),
        words=SimpleNamespace(vocab_size=30), shown=lambda k: SimpleNamespace(queries=None),
        target=SimpleNamespace(inside=inside, outside=outside),
    )  # fmt: skip


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the score and the p-value of each user."""

    def judge(*pairs: tuple[float | None, float]) -> None:
        users = tuple({"score": score, "p_value": p_value} for score, p_value in pairs)
        judged = JudgedUsers(
            users=users, compared_scores=(), list_p_value=None, test=None, auc=None,
            compared_users=9, rate=0.05,
        )  # fmt: skip
        monkeypatch.setattr(scoring, "score_words", lambda *_, **__: None)
        monkeypatch.setattr(scoring, "judge_users", lambda *_, **__: judged)

    return judge


def test_shares_and_auc_are_counted_by_hand() -> None:
    row = results(MEMBERS, OTHERS, above=2)  # three members and one other are flagged
    pairs = [(m > other) + 0.5 * (m == other) for m in MEMBERS for other in OTHERS]
    assert row["auc"] == sum(pairs) / 16
    assert results(OTHERS, MEMBERS, above=2)["auc"] == pytest.approx(1 - sum(pairs) / 16)
    assert (row["accuracy"], row["precision"]) == (6 / 8, 3 / 4)
    assert (row["recall"], row["false_positive_rate"]) == (3 / 4, 1 / 4)
    assert row["recall_low"] == pytest.approx(stats.beta.ppf(0.025, 3, 2))  # Clopper and Pearson
    assert row["recall_high"] == pytest.approx(stats.beta.ppf(0.975, 4, 1))
    none = results(MEMBERS, OTHERS, above=9)
    assert (none["precision"], none["recall"], none["accuracy"]) == (None, 0, 0.5)


def test_the_true_positive_rate_equals_the_roc_curve_of_scikit_learn() -> None:
    generator = np.random.default_rng(1)
    members, others = generator.normal(1, 1, 150), generator.normal(0, 1, 230)
    point = true_positives_at(members, others, false_positive_rate=0.05)
    fpr, tpr, _ = roc_curve(
        np.repeat([1, 0], [150, 230]), np.concatenate([members, others]), drop_intermediate=False
    )
    assert point is not None
    assert point.value == tpr[fpr <= 0.05 + 1e-12].max()
    assert point.low < point.value < point.high
    equal = true_positives_at(np.zeros(10), np.zeros(10), false_positive_rate=0.5)
    assert equal is not None
    assert equal.value == 0


@pytest.mark.slow
def test_the_interval_covers_the_true_rate_at_its_level() -> None:
    truth = float(stats.norm.sf(stats.norm.isf(0.1) - 1))
    generator = np.random.default_rng(2)
    covered = 0
    for number in range(100):
        scores = generator.normal(1, 1, 200), generator.normal(0, 1, 200)
        point = true_positives_at(*scores, false_positive_rate=0.1, seed=number)
        covered += point.low <= truth <= point.high
    assert covered >= 88


def test_fewer_than_a_hundred_others_have_no_rate_at_one_percent() -> None:
    assert results([200.0, 1.0], range(99), above=0)["tpr_at_fpr_1"] is None
    # one of the hundred others is above 98
    assert results([200.0, 98.5, 98.0, 1.0], range(100), above=0)["tpr_at_fpr_1"] == 0.5


def test_the_papers_audit_flags_positive_scores(observed, monkeypatch) -> None:
    by_user = np.array([-1.0, 2.0, 0.5, -3.0, 0.0, 0.0])
    monkeypatch.setattr(scoring, "histogram_scores", lambda *_: by_user)
    scores, flagged = decide(observed, "paper", k=5)
    assert scores.tolist() == [2.0, -3.0, -1.0, 0.5]
    assert flagged.tolist() == [True, False, False, True]
    for k, shown in ((7, 7), (30, 30), (10**9, 30)):
        row = audit_row(observed, "paper", k=k, dataset="made")
        assert (row["dataset"], row["audit"], row["k"], row["ratio"]) == (
            "made", "paper", shown, 1.25,
        )  # fmt: skip


def test_our_audit_flags_p_values_up_to_its_level(observed, judge) -> None:
    judge((2.0, 0.05), (1.0, 0.051), (0.5, 0.01), (-1.0, 1.0))
    scores, flagged = decide(observed, "ours", k=5)
    assert flagged.tolist() == [True, False, True, False]
    assert scores.tolist() == [2.0, 1.0, 0.5, -1.0]


def test_a_user_without_words_has_the_lowest_score(observed, judge) -> None:
    judge((None, 1.0), (1.0, 0.2), (0.5, 0.3), (-4.0, 1.0))
    scores, flagged = decide(observed, "ours", k=5)
    assert scores.tolist() == [-4.0, 1.0, 0.5, -4.0]
    assert not flagged[0]


def test_histograms_follow_algorithm_1() -> None:
    words = words_of(QUERIES, IN, k=300)
    histograms = rank_histogram(words, bins=50)
    for user in (0, 44, 89):
        ranks = words.shown[QUERIES.users == user]
        width = VOCABULARY // 50
        expected = [
            sum((i - 1) * width <= r - 1 < i * width for r in ranks if r <= 300)
            for i in range(1, 51)
        ]
        assert histograms[user].tolist() == [*expected, int((ranks == 301).sum())]


def test_our_audit_is_stronger_than_the_papers_with_few_words_shown() -> None:
    shadows = shadows_of(QUERIES, 6, half_of=FITTED)
    words = words_of(QUERIES, IN, gain=0.15, k=10, shadows=shadows)
    ours = QUERIES.mean_by_user(surprise_words(words, FITTED))
    papers = histogram_scores(words, FITTED)
    assert auc(ours[IN], ours[OUT]).value > auc(papers[IN], papers[OUT]).value
