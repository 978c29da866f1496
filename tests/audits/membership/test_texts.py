"""An audit of texts by counted models: what is found, what counts once, what is read again."""

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
    return Corpus.from_texts([text for one in lists for text in one])


USED, NEVER, REFERENCE, KNOWN = (
    texts(n, seed) for n, seed in ((20, 1), (20, 2), (150, 3), (20, 4))
)
PUBLIC, MORE = texts(200, 5), texts(60, 6)
BASE = CHAIN.counted((PUBLIC, 1))
TUNED = CHAIN.counted((PUBLIC, 1), (USED, 3), (KNOWN, 3))
BOTH = {"texts": corpus(USED, NEVER), "reference": corpus(REFERENCE)}


def audit(model=TUNED, **options):
    return membership(model, **{"base": BASE, **BOTH, **options})


@pytest.fixture(scope="module")
def plain():
    return audit()


# What is found.


@pytest.mark.slow
def test_used_texts_are_found_and_their_number_is_bounded():
    result = audit(used=corpus(KNOWN))
    summary = result.summary
    assert (summary["verdict"], summary["score"]) == (LEAK, "error-zone")
    assert audited(result, "named")[:20].sum() >= 15
    assert audited(result, "named")[20:].sum() <= 2
    assert summary["at_least"] <= 20 <= summary["at_most"]
    assert not result.claim.failed
    clean = audit(texts=corpus(NEVER, MORE[:30]), used=corpus(KNOWN))
    assert clean.verdict == NO_LEAK
    assert clean.summary["at_most"] <= 8
    alone = audit(base=None, texts=corpus(NEVER, MORE))
    assert (alone.verdict, alone.summary["score"], alone.claim.verb) == (
        NO_LEAK, "loss", "membership"
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("score", sorted(SCORES))
def test_every_score_finds_used_texts_and_some_need_a_base(score):
    p_values = audited(audit(score=score))
    assert p_values[:20].mean() < p_values[20:].mean()
    if score in ("error-zone", "log-ratio", "rmia"):
        with pytest.raises(ValueError, match=f"`score` {score} needs `base`"):
            audit(score=score, base=None)
    else:
        assert audit(score=score, base=None).summary["score"] == score


def test_texts_of_which_half_the_words_are_unknown_are_undecided():
    def half_unknown(own):
        return corpus([" ".join(f"{word} x{word}" for word in text.split()) for text in own])

    result = audit(texts=half_unknown([*NEVER, *MORE]), reference=half_unknown(REFERENCE))
    assert result.verdict == UNDECIDED
    assert any("50% of the tokens were read" in one for one in result.claim.reasons)


# Units: near-duplicates count once, and authors are compared as wholes.


def near(text, seed):
    """The same with another last word, in upper case, and with one more space."""
    return f" {text.upper().rpartition(' ')[0]} {CHAIN.words[seed]}"


def independence(result):
    return next(one.sentence for one in result.claim.checks if one.name == "independent")


@pytest.mark.slow
def test_copies_and_near_duplicates_count_once_on_either_list(plain):
    again = audit(texts=corpus(USED[:1] * 30, USED[1:], NEVER[:1] * 30, NEVER[1:]))
    assert again.claim.test == plain.claim.test
    assert audited(again, "number")[:2].tolist() == [1, 31]
    several = {
        role: corpus(own, [near(text, n) for text in own for n in range(3)])
        for role, own in (("texts", [*USED, *NEVER]), ("reference", REFERENCE))
    }
    again = audit(**several)
    assert [again.summary[s] for s in BOTH] == [plain.summary[s] for s in BOTH]
    assert again.claim.test == plain.claim.test
    assert "Independent units: 40 of 160 texts" in independence(again)


def test_near_duplicates_of_audited_texts_are_no_reference(plain):
    beside = [f" {text}" for text in USED] + [near(text, 0) for text in NEVER]
    again = audit(reference=corpus(REFERENCE, beside))
    assert (again.verdict, again.claim.test.p) == (LEAK, plain.claim.test.p)
    assert independence(again) == (
        "Independent units: 40 of 40 texts, 150 of 150 reference texts. Removed as near-duplicates "
        "of audited ones: 40 reference texts."
    )


@pytest.mark.slow
def test_authors_are_compared_as_wholes_if_they_are_known():
    def by(texts, mark):
        return Corpus.from_texts(texts, users=[f"{mark}{n // 4}" for n in range(len(texts))])

    options = {"texts": by([*USED, *NEVER], "t"), "reference": by(REFERENCE, "r")}
    summary = audit(used=by(KNOWN, "u"), **options).summary
    assert (summary["units"], summary["listed"], summary["authors"]) == ("authors", 10, 10)
    assert (summary["reference_authors"], summary["known_used"]) == (38, 5)
    assert summary["verdict"] == LEAK
    with pytest.raises(DataError, match="`used` has no authors"):
        audit(used=corpus(KNOWN), **options)
    with pytest.raises(DataError, match="10 authors are in both"):
        audit(**{**options, "reference": by(REFERENCE, "t")})


# What is refused.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": corpus(REFERENCE[:9])}, "the reference has 9 independent texts.*Add"),
        ({"reference": corpus(REFERENCE, NEVER[:3])}, "3 texts are in both"),
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
    ask = statistics_module.token_statistics

    def broken(*options, **more):
        read = ask(*options, **more)
        read.log_probs[3] = np.nan
        return read

    monkeypatch.setattr(statistics_module, "token_statistics", broken)
    with pytest.raises(ModelError, match="2 scores of the model are not finite"):
        audit(base=None)


# What is kept.


@pytest.fixture
def queried(monkeypatch):
    """How many texts each call of a model read."""
    calls, ask = [], statistics_module.token_statistics

    def counting(model, texts, **more):
        calls.append(len(texts))
        return ask(model, texts, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    return calls


@pytest.mark.slow
def test_a_second_command_reads_only_what_is_new(queried, plain, tmp_path):
    keep = {"statistics": tmp_path / "kept"}

    def read_by(**options):
        queried.clear()
        result = audit(**options, **keep)
        return sum(queried), result

    assert read_by() == (2 * (40 + 150), plain)
    assert read_by() == (0, plain)
    assert read_by(score="loss")[0] == 0
    assert read_by(texts=corpus(USED, NEVER, texts(3, 77)))[0] == 2 * 3
    assert read_by(model=CHAIN.counted((PUBLIC, 2)), base=None)[0] == 190
