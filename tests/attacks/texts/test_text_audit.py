"""Claims from scores: their errors where nothing was used, their power, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from tests.attacks.texts.made_texts import cut_scores
from vestige.attacks.texts.cut_scores import CutScores
from vestige.attacks.texts.shift import WordShift
from vestige.attacks.texts.text_audit import BaseCheck, Scored, audit_scores, base_check
from vestige.errors import DataError

TOLD = {"p_value": 0.01, "by_chance": 0.6, "words": 40, "texts": 40, "reference": 200}


def audit(used, never, *, gain=0.8, reference=200, known=0, seed=0, **lengths):
    chance = np.random.default_rng(seed)
    parts = [cut_scores(n, g, chance, **lengths) for n, g in ((used, gain), (never, 0.0)) if n]
    texts = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return audit_scores(
        Scored(texts),
        Scored(cut_scores(reference, 0.0, chance)),
        cut_scores(known, gain, chance) if known else None,
        seed=seed,
    )


@pytest.mark.parametrize("mean_length", [25, 60, 150])
def test_a_list_of_which_nothing_was_used_is_seldom_said_to_have_been(mean_length):
    runs = 40
    found = [audit(0, 40, seed=n, mean_length=mean_length) for n in range(runs)]
    wrong = [one.p_value <= one.rate for one in found]
    assert np.mean(wrong) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert sum(one.named.any() for one in found) <= sum(wrong)
    assert all((one.share.at_least > 0) == shown for one, shown in zip(found, wrong, strict=True))


def test_of_those_named_few_were_not_used_and_the_bounds_hold():
    runs, wrong, holds = 30, [], np.zeros(2)
    for n in range(runs):
        found = audit(20, 20, known=40, seed=n)
        assert found.verdict == "used"
        wrong.append(found.named[20:].sum() / max(1, found.named.sum()))
        holds += [found.share.at_least <= 20, found.share.at_most >= 20]
    assert np.mean(wrong) <= 0.05
    assert (holds >= 0.88 * runs).all()


def test_a_list_of_strong_evidence_is_named_and_bounded_from_both_sides():
    found = audit(12, 28, gain=3.0, known=40, reference=600)
    assert found.named[:12].all()
    assert not found.named[12:].any()
    told = found.summary()
    assert 9 <= told["at_least"] <= 12 <= told["at_most"] <= 17
    assert told["verdict"] == "used"
    assert len(list(found.rows())) == 40 + 600


def test_with_a_weak_score_nothing_is_shown_and_nothing_excluded():
    found = audit(2, 38, gain=0.05, known=20)
    assert found.verdict == "not shown"
    assert found.share.at_most == 40


def test_too_small_a_reference_is_refused_with_the_number_that_is_missing():
    with pytest.raises(DataError, match=r"reference has 12 texts.*Add 7 never-used texts"):
        audit(5, 5, reference=12)


def authors(prefix, texts, per):
    return [f"{prefix}{place // per}" for place in range(texts)]


def test_authors_who_write_alike_are_no_evidence():
    pooled, whole = [], []
    for seed in range(40):
        chance = np.random.default_rng(seed)
        texts = cut_scores(40, 0.0, chance, author=1.0, per=10)
        reference = cut_scores(300, 0.0, chance, author=1.0, per=10)
        pooled.append(audit_scores(Scored(texts), Scored(reference)).list_p_value)
        whole.append(
            audit_scores(
                Scored(texts, authors("t", 40, 10)), Scored(reference, authors("r", 300, 10))
            ).list_p_value
        )
    assert np.mean(np.array(pooled) <= 0.05) > 0.15  # what a test of texts would say
    assert np.mean(np.array(whole) <= 0.05) <= 0.125


def test_bounds_count_authors_where_authors_are_told():
    chance = np.random.default_rng(0)
    found = audit_scores(
        Scored(cut_scores(60, 3.0, chance), authors("t", 60, 3)),
        Scored(cut_scores(300, 0.0, chance), authors("r", 300, 3)),
    )
    assert found.summary()["units"] == "authors"
    assert found.share.listed == 20
    assert found.summary()["reference_authors"] == 100


def test_an_author_on_both_sides_is_refused():
    chance = np.random.default_rng(0)
    with pytest.raises(DataError, match="1 authors stand in both"):
        audit_scores(
            Scored(cut_scores(4, 0.0, chance), ["a", "a", "b", "c"]),
            Scored(cut_scores(40, 0.0, chance), ["c", *authors("r", 39, 1)]),
        )


def test_a_difference_in_words_or_under_the_base_leaves_nothing_decided():
    found = audit(12, 28, gain=3.0)
    assert found.verdict == "used"
    alike = WordShift(auc=0.5, **{**TOLD, "p_value": 0.4})
    assert replace(found, shift=alike).verdict == "used"
    assert replace(found, shift=WordShift(auc=0.8, **TOLD)).verdict == "not decided"
    assert replace(found, base=BaseCheck(p_value=0.6, easier=True)).verdict == "used"
    assert replace(found, base=BaseCheck(p_value=0.001, easier=False)).verdict == "not decided"


def test_a_model_that_saw_neither_tells_easier_and_harder_texts():
    chance = np.random.default_rng(4)
    reference = Scored(cut_scores(200, 0.0, chance))
    for gain, easier in ((0.5, True), (-0.5, False)):
        found = base_check(Scored(cut_scores(60, gain, chance)), reference, rate=0.05, seed=0)
        assert (found.differs, found.easier) == (True, easier)
    fair = base_check(Scored(cut_scores(60, 0.0, chance)), reference, rate=0.05, seed=0)
    assert not fair.differs


def test_the_same_seed_gives_the_same_claims():
    one, other = audit(12, 28, known=20, seed=3), audit(12, 28, known=20, seed=3)
    assert one.summary() == other.summary()
    assert list(one.rows()) == list(other.rows())


def test_scores_without_lengths_are_compared_whole():
    chance = np.random.default_rng(6)
    found = audit_scores(
        Scored(CutScores.whole(chance.normal(4, 1, 10))),
        Scored(CutScores.whole(chance.normal(0, 1, 300))),
    )
    assert found.named.sum() >= 8
