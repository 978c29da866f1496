"""Claims from scores of texts: their errors where nothing was used, their power, their refusals."""

import numpy as np
import pytest

from tests.audits.membership.made_texts import PASSED, audited, cut_scores
from vestige.audits.membership.text_audit import ScoredTexts, audit_scores, rank_scores
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.errors import DataError
from vestige.metrics.listed import CutScores


def audit(used, never, *, gain=0.8, reference=200, known=0, seed=0, checks=PASSED, **lengths):
    rng = np.random.default_rng(seed)
    parts = [cut_scores(n, g, rng, **lengths) for n, g in ((used, gain), (never, 0.0)) if n]
    texts = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return audit_scores(
        ScoredTexts(texts),
        ScoredTexts(cut_scores(reference, 0.0, rng)),
        ScoredTexts(cut_scores(known, gain, rng)) if known else None,
        seed=seed,
        checks=checks,
    )


def authors(prefix, texts, per):
    return [f"{prefix}{place // per}" for place in range(texts)]


def test_the_same_seed_gives_the_same_claims():
    one, other = audit(12, 28, known=20, seed=3), audit(12, 28, known=20, seed=3)
    assert (one.summary, one.rows) == (other.summary, other.rows)


@pytest.mark.slow
@pytest.mark.parametrize("mean_length", [25, 150])
def test_a_list_of_unused_texts_is_seldom_called_used(mean_length):
    runs = 40
    result = [audit(0, 40, seed=n, mean_length=mean_length) for n in range(runs)]
    wrong = [one.verdict == LEAK for one in result]
    assert np.mean(wrong) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert sum(audited(one, "named").any() for one in result) <= sum(wrong)
    assert [one.summary["at_least"] > 0 for one in result] == wrong


@pytest.mark.slow
def test_few_flags_are_false_and_the_bounds_hold():
    runs, wrong, holds = 25, [], np.zeros(2)
    for n in range(runs):
        result = audit(20, 20, known=40, seed=n)
        assert result.verdict == LEAK
        named = audited(result, "named")
        wrong.append(named[20:].sum() / max(1, named.sum()))
        holds += [result.summary["at_least"] <= 20, result.summary["at_most"] >= 20]
    assert np.mean(wrong) <= 0.05
    assert (holds >= 0.88 * runs).all()


@pytest.mark.slow
def test_strong_evidence_is_flagged_and_bounded_from_both_sides_and_weak_evidence_is_not():
    result = audit(12, 28, gain=3.0, known=40, reference=600)
    assert audited(result, "named").tolist() == [True] * 12 + [False] * 28
    summary = result.summary
    assert 9 <= summary["at_least"] <= 12 <= summary["at_most"] <= 17
    assert summary["verdict"] == LEAK
    assert len(result.rows) == 40 + 600
    weak = audit(2, 38, gain=0.05, known=20)
    assert (weak.verdict, weak.summary["at_most"]) == (NO_LEAK, 40)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(4))
def test_a_check_that_fails_leaves_it_undecided(place):
    for options in ({"used": 12, "never": 28, "gain": 3.0}, {"used": 0, "never": 60}):
        checks = list(PASSED)
        checks[place] = Check(PASSED[place].name, "failed", "It failed.")
        assert audit(**options, checks=checks).verdict == UNDECIDED
        checks[place] = Check(PASSED[place].name, "could not run", "It could not.")
        decided = audit(**options).verdict == LEAK
        assert (audit(**options, checks=checks).verdict == LEAK) == decided


def test_too_few_texts_exclude_no_leak_and_too_small_a_reference_is_refused():
    result = audit(0, 10, reference=60)
    assert result.verdict == UNDECIDED
    assert (
        "An AUC of 0.78 would be detected (power 80%); required: 0.65." in result.claim.reasons[0]
    )
    with pytest.raises(DataError, match=r"has 12 independent texts.*Add 7 or more unused texts"):
        audit(5, 5, reference=12)


def test_scores_without_lengths_are_of_whole_texts():
    rng = np.random.default_rng(6)
    lists = [ScoredTexts(CutScores.whole(rng.normal(m, 1, n))) for m, n in ((4, 10), (0, 300))]
    assert audited(audit_scores(*lists, checks=PASSED), "named").sum() >= 8


def test_easier_texts_rank_higher():
    rng = np.random.default_rng(4)
    reference = ScoredTexts(cut_scores(200, 0.0, rng))
    for gain in (0.5, -0.5):
        own, rest = rank_scores(ScoredTexts(cut_scores(60, gain, rng)), reference, rate=0.05)
        assert (own.size, rest.size) == (60, 200)
        assert (own.mean() > rest.mean()) == (gain > 0)


# Authors: whole persons are compared if they are known.


@pytest.mark.slow
def test_authors_who_write_alike_are_no_evidence():
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


def test_authors_are_the_units_and_nobody_may_be_on_both_sides():
    rng = np.random.default_rng(0)
    texts, reference = cut_scores(60, 3.0, rng), cut_scores(300, 0.0, rng)
    summary = audit_scores(
        ScoredTexts(texts, authors("t", 60, 3)),
        ScoredTexts(reference, authors("r", 300, 3)),
        checks=PASSED,
    ).summary
    assert (summary["units"], summary["authors"], summary["reference_authors"]) == (
        "authors",
        20,
        100,
    )
    assert summary["listed"] == 20
    with pytest.raises(DataError, match="1 authors are in both"):
        audit_scores(
            ScoredTexts(cut_scores(4, 0.0, rng), ["a", "a", "b", "c"]),
            ScoredTexts(cut_scores(40, 0.0, rng), ["c", *authors("r", 39, 1)]),
            checks=PASSED,
        )


def test_reference_texts_of_one_author_weigh_as_one_in_every_p_value():
    """By hand: authors a of two texts and b, c of one each."""
    reference = ScoredTexts(
        CutScores.whole([3.0, 1.0, 2.0, 0.0, *[-1.0] * 16]), list("aabcdefghijklmnopqrs")
    )
    texts = ScoredTexts(CutScores.whole([1.5] * 2), ["x", "y"])
    result = audit_scores(texts, reference, checks=PASSED)
    # Of 19 authors half of a and all of b score 1.5 or more.
    assert audited(result) == pytest.approx([(1 + 0.5 + 1) / 20] * 2)
    # Its author's other text does not count against the first; of the third, half of a does.
    others = [row["p_value"] for row in result.rows if row["kind"] == "reference"]
    assert others[:4] == pytest.approx([1 / 19, 2 / 19, 1.5 / 19, 3 / 19])


@pytest.mark.slow
def test_few_known_authors_bound_nothing():
    """Two authors of twenty texts each are two units, however many texts they wrote."""
    wrong = {"authors": 0, "texts": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        texts, reference = (cut_scores(n, g, rng, author=1.0) for n, g in ((40, 1), (200, 0)))
        known = cut_scores(40, 1.0, rng, author=1.0, per=20)
        for units in wrong:
            used = ScoredTexts(known, authors("u", 40, 20) if units == "authors" else None)
            result = audit_scores(
                ScoredTexts(texts), ScoredTexts(reference), used, seed=seed, checks=PASSED
            )
            wrong[units] += result.summary["at_most"] < 40
    assert wrong["authors"] == 0
    assert wrong["texts"] > 1
