"""Claims from scores: their errors where nothing was used, their power, and what is refused."""

import numpy as np
import pytest

from tests.audits.membership.made_texts import PASSED, cut_scores
from vestige.audits.membership.text_audit import Scored, ranked
from vestige.audits.membership.text_audit import audit_scores as audit_with
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.errors import DataError
from vestige.metrics.listed import CutScores


def audit_scores(*lists, checks=PASSED, **more):
    return audit_with(*lists, checks=checks, **more)


def audited(found, column="named"):
    """(n,) a column of the audited texts."""
    return np.array([row[column] for row in found.rows if row["kind"] == "audited"])


def audit(used, never, *, gain=0.8, reference=200, known=0, seed=0, checks=PASSED, **lengths):
    chance = np.random.default_rng(seed)
    parts = [cut_scores(n, g, chance, **lengths) for n, g in ((used, gain), (never, 0.0)) if n]
    texts = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return audit_scores(
        Scored(texts),
        Scored(cut_scores(reference, 0.0, chance)),
        Scored(cut_scores(known, gain, chance)) if known else None,
        seed=seed,
        checks=checks,
    )


@pytest.mark.parametrize("mean_length", [25, 60, 150])
def test_a_list_of_which_nothing_was_used_is_seldom_said_to_have_been(mean_length):
    runs = 40
    found = [audit(0, 40, seed=n, mean_length=mean_length) for n in range(runs)]
    wrong = [one.verdict == LEAK for one in found]
    assert np.mean(wrong) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert sum(audited(one).any() for one in found) <= sum(wrong)
    assert all(
        (one.summary["at_least"] > 0) == shown for one, shown in zip(found, wrong, strict=True)
    )


def test_of_those_named_few_were_not_used_and_the_bounds_hold():
    runs, wrong, holds = 30, [], np.zeros(2)
    for n in range(runs):
        found = audit(20, 20, known=40, seed=n)
        assert found.verdict == LEAK
        wrong.append(audited(found)[20:].sum() / max(1, audited(found).sum()))
        holds += [found.summary["at_least"] <= 20, found.summary["at_most"] >= 20]
    assert np.mean(wrong) <= 0.05
    assert (holds >= 0.88 * runs).all()


def test_a_list_of_strong_evidence_is_named_and_bounded_from_both_sides():
    found = audit(12, 28, gain=3.0, known=40, reference=600)
    assert audited(found)[:12].all()
    assert not audited(found)[12:].any()
    told = found.summary
    assert 9 <= told["at_least"] <= 12 <= told["at_most"] <= 17
    assert told["verdict"] == LEAK
    assert len(found.rows) == 40 + 600


def test_with_a_weak_score_nothing_is_shown_and_nothing_excluded():
    found = audit(2, 38, gain=0.05, known=20)
    assert found.verdict == NO_LEAK
    assert found.summary["at_most"] == 40


def test_too_small_a_reference_is_refused_with_the_number_that_is_missing():
    with pytest.raises(
        DataError, match=r"reference has 12 independent texts.*Add 7 or more unused texts"
    ):
        audit(5, 5, reference=12)


def authors(prefix, texts, per):
    return [f"{prefix}{place // per}" for place in range(texts)]


def test_authors_who_write_alike_are_no_evidence():
    pooled, whole = [], []
    for seed in range(40):
        chance = np.random.default_rng(seed)
        texts = cut_scores(40, 0.0, chance, author=1.0, per=10)
        reference = cut_scores(300, 0.0, chance, author=1.0, per=10)
        pooled.append(audit_scores(Scored(texts), Scored(reference)).summary["list_p_value"])
        whole.append(
            audit_scores(
                Scored(texts, authors("t", 40, 10)), Scored(reference, authors("r", 300, 10))
            ).summary["list_p_value"]
        )
    assert np.mean(np.array(pooled) <= 0.05) > 0.15  # what a test of texts would say
    assert np.mean(np.array(whole) <= 0.05) <= 0.125


def test_bounds_count_authors_where_authors_are_told():
    chance = np.random.default_rng(0)
    found = audit_scores(
        Scored(cut_scores(60, 3.0, chance), authors("t", 60, 3)),
        Scored(cut_scores(300, 0.0, chance), authors("r", 300, 3)),
    )
    told = found.summary
    assert (told["units"], told["authors"], told["reference_authors"]) == ("authors", 20, 100)
    assert told["listed"] == 20


def test_an_author_on_both_sides_is_refused():
    chance = np.random.default_rng(0)
    with pytest.raises(DataError, match="1 authors are in both"):
        audit_scores(
            Scored(cut_scores(4, 0.0, chance), ["a", "a", "b", "c"]),
            Scored(cut_scores(40, 0.0, chance), ["c", *authors("r", 39, 1)]),
        )


@pytest.mark.parametrize("place", range(4))
def test_a_check_that_fails_leaves_nothing_decided(place):
    for given in ({"used": 12, "never": 28, "gain": 3.0}, {"used": 0, "never": 60}):
        checks = list(PASSED)
        checks[place] = Check(PASSED[place].name, "failed", "It failed.")
        assert audit(**given, checks=checks).verdict == UNDECIDED
        checks[place] = Check(PASSED[place].name, "could not run", "It could not.")
        decided = audit(**given).verdict == LEAK
        assert (audit(**given, checks=checks).verdict == LEAK) == decided


def test_too_few_texts_exclude_no_leak():
    found = audit(0, 10, reference=60)
    assert found.verdict == UNDECIDED
    assert "An AUC of 0.78 would be detected (power 80%); required: 0.65." in found.claim.reasons[0]


def test_reference_texts_of_one_author_weigh_as_one_in_every_p_value():
    """By hand: authors a of two texts and b, c of one each."""
    reference = Scored(
        CutScores.whole([3.0, 1.0, 2.0, 0.0, *[-1.0] * 16]), list("aabcdefghijklmnopqrs")
    )
    found = audit_scores(Scored(CutScores.whole([1.5] * 2), ["x", "y"]), reference)
    # Of 19 authors half of a and all of b score 1.5 or more.
    assert audited(found, "p_value") == pytest.approx([(1 + 0.5 + 1) / 20] * 2)
    # Its author's other text does not count against the first; of the third, half of a does.
    others = [row["p_value"] for row in found.rows if row["kind"] == "reference"]
    assert others[:4] == pytest.approx([1 / 19, 2 / 19, 1.5 / 19, 3 / 19])


def test_a_model_that_saw_neither_ranks_easier_texts_higher():
    chance = np.random.default_rng(4)
    reference = Scored(cut_scores(200, 0.0, chance))
    for gain in (0.5, -0.5):
        own, rest = ranked(Scored(cut_scores(60, gain, chance)), reference, rate=0.05)
        assert (own.size, rest.size) == (60, 200)
        assert (own.mean() > rest.mean()) == (gain > 0)


def test_few_authors_known_to_have_been_used_bound_nothing():
    """Two authors of twenty texts each are two units, however many texts they wrote."""
    wrong = {"authors": 0, "texts": 0}
    for seed in range(30):
        chance = np.random.default_rng(seed)
        texts = cut_scores(40, 1.0, chance, author=1.0)
        reference = cut_scores(200, 0.0, chance, author=1.0)
        known = cut_scores(40, 1.0, chance, author=1.0, per=20)
        for units in wrong:
            used = Scored(known, authors("u", 40, 20) if units == "authors" else None)
            found = audit_scores(Scored(texts), Scored(reference), used, seed=seed)
            wrong[units] += found.summary["at_most"] < 40
    assert wrong["authors"] == 0
    assert wrong["texts"] > 1


def test_the_same_seed_gives_the_same_claims():
    one, other = audit(12, 28, known=20, seed=3), audit(12, 28, known=20, seed=3)
    assert one.summary == other.summary
    assert one.rows == other.rows


def test_scores_without_lengths_are_compared_whole():
    chance = np.random.default_rng(6)
    found = audit_scores(
        Scored(CutScores.whole(chance.normal(4, 1, 10))),
        Scored(CutScores.whole(chance.normal(0, 1, 300))),
    )
    assert audited(found).sum() >= 8
