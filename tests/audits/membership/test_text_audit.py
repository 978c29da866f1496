"""Claims from scores of texts: error rates, power, bounds, checks and authors."""

import numpy as np
import pytest

from tests.audits.membership.made_texts import PASSED, audited, cut_scores
from vestige.audits.membership.text_audit import ScoredTexts, audit_scores, rank_scores
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.errors import DataError
from vestige.metrics.listed import CutScores


def audit(used, unused, *, gain=0.8, reference=200, known=0, seed=0, checks=PASSED, **lengths):
    rng = np.random.default_rng(seed)
    parts = [cut_scores(n, g, rng, **lengths) for n, g in ((used, gain), (unused, 0.0)) if n]
    texts = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return audit_scores(
        ScoredTexts(texts),
        ScoredTexts(cut_scores(reference, 0.0, rng)),
        ScoredTexts(cut_scores(known, gain, rng)) if known else None,
        seed=seed,
        checks=checks,
    )


def authors(prefix, texts, per):
    return [f"{prefix}{n // per}" for n in range(texts)]


@pytest.mark.slow
@pytest.mark.parametrize("mean_length", [25, 150])
def test_the_rate_of_false_leaks_is_alpha(mean_length):
    runs = 40
    results = [audit(0, 40, seed=seed, mean_length=mean_length) for seed in range(runs)]
    leaks = [result.verdict == LEAK for result in results]
    assert np.mean(leaks) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert sum(audited(result, "named").any() for result in results) <= sum(leaks)
    assert [result.summary["at_least"] > 0 for result in results] == leaks


@pytest.mark.slow
def test_false_flags_and_bounds_have_their_error_rates():
    runs, false_shares, covered = 25, [], np.zeros(2)
    for seed in range(runs):
        result = audit(20, 20, known=40, seed=seed)
        assert result.verdict == LEAK
        flags = audited(result, "named")
        false_shares.append(flags[20:].sum() / max(1, flags.sum()))
        covered += [result.summary["at_least"] <= 20, result.summary["at_most"] >= 20]
    assert np.mean(false_shares) <= 0.05
    assert (covered >= 0.88 * runs).all()


@pytest.mark.slow
def test_strong_evidence_is_flagged_and_bounded_and_weak_evidence_is_not():
    result = audit(12, 28, gain=3.0, known=40, reference=600)
    assert audited(result, "named").tolist() == [True] * 12 + [False] * 28
    summary = result.summary
    assert 9 <= summary["at_least"] <= 12 <= summary["at_most"] <= 17
    assert summary["verdict"] == LEAK
    assert len(result.rows) == 40 + 600
    weak = audit(2, 38, gain=0.05, known=20)
    assert (weak.verdict, weak.summary["at_most"]) == (NO_LEAK, 40)


@pytest.mark.slow
@pytest.mark.parametrize("index", range(4))
def test_a_failed_check_is_undecided_and_one_that_could_not_run_allows_a_leak(index):
    for options in ({"used": 12, "unused": 28, "gain": 3.0}, {"used": 0, "unused": 60}):
        checks = list(PASSED)
        checks[index] = Check(PASSED[index].name, "failed", "It failed.")
        assert audit(**options, checks=checks).verdict == UNDECIDED
        checks[index] = Check(PASSED[index].name, "could not run", "It could not.")
        is_leak = audit(**options).verdict == LEAK
        assert (audit(**options, checks=checks).verdict == LEAK) == is_leak


def test_too_few_texts_are_undecided_and_too_few_references_are_refused():
    result = audit(0, 10, reference=60)
    assert result.verdict == UNDECIDED
    assert "An AUC of 0.78 would be detected (power 80%)" in result.claim.reasons[0]
    with pytest.raises(DataError, match=r"has 12 independent texts.*Add 7 or more unused texts"):
        audit(5, 5, reference=12)


def test_easier_texts_rank_higher():
    rng = np.random.default_rng(4)
    reference = ScoredTexts(cut_scores(200, 0.0, rng))
    for gain in (0.5, -0.5):
        ranks, others = rank_scores(ScoredTexts(cut_scores(60, gain, rng)), reference, rate=0.05)
        assert (ranks.size, others.size) == (60, 200)
        assert (ranks.mean() > others.mean()) == (gain > 0)


# Authors.


@pytest.mark.slow
def test_similar_texts_of_one_author_are_no_evidence():
    p_values = {"texts": [], "authors": []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        texts, reference = (cut_scores(n, 0.0, rng, author=1.0, per=10) for n in (40, 300))
        for unit, result in p_values.items():
            names = (authors("t", 40, 10), authors("r", 300, 10)) if unit == "authors" else ()
            lists = (ScoredTexts(texts, *names[:1]), ScoredTexts(reference, *names[1:]))
            result.append(audit_scores(*lists, checks=PASSED).summary["list_p_value"])
    assert np.mean(np.array(p_values["texts"]) <= 0.05) > 0.15
    assert np.mean(np.array(p_values["authors"]) <= 0.05) <= 0.125


def test_authors_are_the_units_and_may_not_be_on_both_sides():
    rng = np.random.default_rng(0)
    texts, reference = cut_scores(60, 3.0, rng), cut_scores(300, 0.0, rng)
    summary = audit_scores(
        ScoredTexts(texts, authors("t", 60, 3)),
        ScoredTexts(reference, authors("r", 300, 3)),
        checks=PASSED,
    ).summary
    assert summary["units"] == "authors"
    assert (summary["authors"], summary["reference_authors"], summary["listed"]) == (20, 100, 20)
    with pytest.raises(DataError, match="1 authors are in both"):
        audit_scores(
            ScoredTexts(cut_scores(4, 0.0, rng), ["a", "a", "b", "c"]),
            ScoredTexts(cut_scores(40, 0.0, rng), ["c", *authors("r", 39, 1)]),
            checks=PASSED,
        )


def test_reference_texts_of_one_author_have_the_weight_of_one():
    """By hand: author a has two texts, and b, c and the others have one each."""
    reference = ScoredTexts(
        CutScores.whole([3.0, 1.0, 2.0, 0.0, *[-1.0] * 16]), list("aabcdefghijklmnopqrs")
    )
    texts = ScoredTexts(CutScores.whole([1.5] * 2), ["x", "y"])
    result = audit_scores(texts, reference, checks=PASSED)
    # Half of author a and all of b, of 19 authors, score 1.5 or more.
    assert audited(result) == pytest.approx([(1 + 0.5 + 1) / 20] * 2)
    # The other text of a does not count for the first; half of a counts for the third.
    others = [row["p_value"] for row in result.rows if row["kind"] == "reference"]
    assert others[:4] == pytest.approx([1 / 19, 2 / 19, 1.5 / 19, 3 / 19])


@pytest.mark.slow
def test_two_known_authors_give_no_upper_bound():
    """Two authors of twenty texts each are two units; as forty texts their bound is wrong."""
    wrong_bounds = {"authors": 0, "texts": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        texts, reference = (cut_scores(n, g, rng, author=1.0) for n, g in ((40, 1), (200, 0)))
        known = cut_scores(40, 1.0, rng, author=1.0, per=20)
        for units in wrong_bounds:
            used = ScoredTexts(known, authors("u", 40, 20) if units == "authors" else None)
            result = audit_scores(
                ScoredTexts(texts), ScoredTexts(reference), used, seed=seed, checks=PASSED
            )
            wrong_bounds[units] += result.summary["at_most"] < 40
    assert wrong_bounds["authors"] == 0
    assert wrong_bounds["texts"] > 1
