"""`membership` of texts in Python: verdicts, units, refusals and caching."""

import numpy as np
import pytest

from tests.audits.chains import Chain
from tests.audits.membership.made_texts import audited
from vestige.audits.membership.membership import membership
from vestige.audits.membership.text_scores import SCORES
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.errors import DataError, ModelError
from vestige.models import token_statistics as statistics_module

CHAIN = Chain(150, 0.2)


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return CHAIN.texts(rng.integers(8, 40, count), rng)


def corpus(*lists):
    return Corpus.from_texts([text for rows in lists for text in rows])


USED, UNUSED, REFERENCE, KNOWN = texts(20, 1), texts(20, 2), texts(150, 3), texts(20, 4)
PUBLIC, MORE = texts(200, 5), texts(60, 6)
BASE = CHAIN.counted((PUBLIC, 1))
TUNED = CHAIN.counted((PUBLIC, 1), (USED, 3), (KNOWN, 3))
LISTS = {"texts": corpus(USED, UNUSED), "reference": corpus(REFERENCE)}


def audit(model=TUNED, **options):
    return membership(model, **{"base": BASE, **LISTS, **options})


@pytest.fixture(scope="module")
def plain():
    return audit()


# Verdicts.


@pytest.mark.slow
def test_used_texts_are_flagged_and_their_number_is_bounded():
    result = audit(used=corpus(KNOWN))
    summary = result.summary
    assert (summary["verdict"], summary["score"]) == (LEAK, "error-zone")
    assert audited(result, "named")[:20].sum() >= 15
    assert audited(result, "named")[20:].sum() <= 2
    assert summary["at_least"] <= 20 <= summary["at_most"]
    assert not result.claim.failed
    clean = audit(texts=corpus(UNUSED, MORE[:30]), used=corpus(KNOWN))
    assert clean.verdict == NO_LEAK
    assert clean.summary["at_most"] <= 8
    result = audit(base=None, texts=corpus(UNUSED, MORE))
    verdict = (result.verdict, result.summary["score"], result.claim.verb)
    assert verdict == (NO_LEAK, "loss", "membership")


@pytest.mark.slow
@pytest.mark.parametrize("score", sorted(SCORES))
def test_every_score_detects_used_texts_and_some_need_a_base(score):
    p_values = audited(audit(score=score))
    assert p_values[:20].mean() < p_values[20:].mean()
    if score in ("error-zone", "log-ratio", "rmia"):
        with pytest.raises(ValueError, match=f"`score` {score} needs `base`"):
            audit(score=score, base=None)
    else:
        assert audit(score=score, base=None).summary["score"] == score


def test_texts_with_half_of_their_words_unknown_are_undecided():
    def half_unknown(rows):
        return corpus([" ".join(f"{word} x{word}" for word in text.split()) for text in rows])

    result = audit(texts=half_unknown([*UNUSED, *MORE]), reference=half_unknown(REFERENCE))
    assert result.verdict == UNDECIDED
    assert any("50% of the tokens were read" in reason for reason in result.claim.reasons)


# Units.


def near_duplicate(text, n):
    """The text with another last word, in upper case, and with one more space."""
    return f" {text.upper().rpartition(' ')[0]} {CHAIN.words[n]}"


def independence(result):
    return next(check.sentence for check in result.claim.checks if check.name == "independent")


@pytest.mark.slow
def test_copies_and_near_duplicates_count_once_on_either_list(plain):
    copied = audit(texts=corpus(USED[:1] * 30, USED[1:], UNUSED[:1] * 30, UNUSED[1:]))
    assert copied.claim.test == plain.claim.test
    assert audited(copied, "number")[:2].tolist() == [1, 31]
    duplicated = audit(**{
        role: corpus(rows, [near_duplicate(text, n) for text in rows for n in range(3)])
        for role, rows in LISTS.items()
    })  # fmt: skip
    assert [duplicated.summary[s] for s in LISTS] == [plain.summary[s] for s in LISTS]
    assert duplicated.claim.test == plain.claim.test
    assert "Independent units: 40 of 160 texts" in independence(duplicated)


def test_near_duplicates_of_audited_texts_are_removed_from_the_reference(plain):
    copies = [f" {text}" for text in USED] + [near_duplicate(text, 0) for text in UNUSED]
    result = audit(reference=corpus(REFERENCE, copies))
    assert (result.verdict, result.claim.test.p) == (LEAK, plain.claim.test.p)
    assert independence(result) == (
        "Independent units: 40 of 40 texts, 150 of 150 reference texts. Removed as near-duplicates "
        "of audited ones: 40 reference texts."
    )


@pytest.mark.slow
def test_known_authors_are_the_units():
    def by_author(rows, name):
        return Corpus.from_texts(rows, users=[f"{name}{n // 4}" for n in range(len(rows))])

    options = {"texts": by_author([*USED, *UNUSED], "t"), "reference": by_author(REFERENCE, "r")}
    summary = audit(used=by_author(KNOWN, "u"), **options).summary
    assert (summary["units"], summary["listed"], summary["authors"]) == ("authors", 10, 10)
    assert (summary["reference_authors"], summary["known_used"]) == (38, 5)
    assert summary["verdict"] == LEAK
    with pytest.raises(DataError, match="`used` has no authors"):
        audit(used=corpus(KNOWN), **options)


# Refusals.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": corpus(REFERENCE[:9])}, "the reference has 9 independent texts.*Add"),
        ({"reference": corpus(REFERENCE, UNUSED[:3])}, "3 texts are in both"),
        ({"used": corpus(REFERENCE[:2])}, "`used` and `reference`"),
        ({"texts": Corpus.from_texts([])}, "`texts` has no text"),
        ({"score": "learned"}, "`score` learned needs `shadow_texts`"),
        ({"score": "loss", "shadow_texts": corpus(MORE)}, "does not go with `score` loss"),
        ({"score": "calibrated", "base": None}, "`score` calibrated needs `base`"),
        ({"shadow_texts": corpus(MORE, REFERENCE[:1])}, "`reference` and `shadow_texts`"),
    ],
)
def test_lists_and_scores_that_cannot_be_compared_are_refused(change, message):
    with pytest.raises((ValueError, DataError), match=message):
        audit(**change)


def test_scores_that_are_not_finite_are_refused(monkeypatch):
    statistics = statistics_module.token_statistics

    def broken(*arguments, **options):
        result = statistics(*arguments, **options)
        result.log_probs[3] = np.nan
        return result

    monkeypatch.setattr(statistics_module, "token_statistics", broken)
    with pytest.raises(ModelError, match="2 scores of the model are not finite"):
        audit(base=None)


# Caching.


@pytest.mark.slow
def test_a_second_command_scores_only_new_texts(monkeypatch, plain, tmp_path):
    calls, statistics = [], statistics_module.token_statistics

    def counting(model, texts, **options):
        calls.append(len(texts))
        return statistics(model, texts, **options)

    def audit_and_count(**options):
        calls.clear()
        result = audit(**options, statistics=tmp_path / "cache")
        return sum(calls), result

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    assert audit_and_count() == (2 * (40 + 150), plain)
    assert audit_and_count() == (0, plain)
    assert audit_and_count(score="loss")[0] == 0
    assert audit_and_count(texts=corpus(USED, UNUSED, texts(3, 77)))[0] == 2 * 3
    assert audit_and_count(model=CHAIN.counted((PUBLIC, 2)), base=None)[0] == 190
