"""An audit of texts end to end: found, bounded, cached, resumed, refused."""

import json
from itertools import pairwise

import numpy as np
import pytest

from tests.audits.membership.made_texts import audited
from tests.audits.told import Told
from tests.damage import damage_store
from vestige import results
from vestige.audits.membership.membership import membership
from vestige.audits.membership.text_scores import SCORES
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError, RunError
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = tuple(f"w{n}" for n in range(150))
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
LANGUAGE = np.random.default_rng(99).dirichlet(np.full(150, 0.2), 150)


def texts(count, seed):
    """Walks over words, all by the same chain."""
    chance, found = np.random.default_rng(seed), []
    for length in chance.integers(8, 40, count):
        walk = [int(chance.integers(150))]
        while len(walk) < length:
            walk.append(int(chance.choice(150, p=LANGUAGE[walk[-1]])))
        found.append(" ".join(WORDS[word] for word in walk))
    return found


def counted(*read):
    """A model of what follows a word, by counting; each corpus counts so many times."""
    counts = np.full((152, 152), 0.05)
    for corpus, times in read:
        for ids in VOCABULARY.encode_batch(corpus):
            for one, other in pairwise(ids):
                counts[one, other] += times
    table = counts / counts.sum(axis=1, keepdims=True)
    return TableModel(np.full(152, 1 / 152), table, VOCABULARY)


USED, NEVER, REFERENCE, KNOWN = (
    texts(n, seed) for n, seed in ((20, 1), (20, 2), (150, 3), (20, 4))
)
MORE = texts(60, 6)
PUBLIC = texts(200, 5)
BASE = counted((PUBLIC, 1))
TUNED = counted((PUBLIC, 1), (USED, 3), (KNOWN, 3))


def corpus(*lists):
    return Corpus.from_texts([text for one in lists for text in one])


BOTH = {"texts": corpus(USED, NEVER), "reference": corpus(REFERENCE)}


def audit(model=TUNED, **given):
    return membership(model, **{"base": BASE, **BOTH, **given})


def sentence(found, name):
    """What a check of an audit says."""
    return next(check.sentence for check in found.claim.checks if check.name == name)


@pytest.fixture(scope="module")
def plain():
    return audit()


# What is found.


@pytest.mark.slow
def test_used_texts_are_found_and_their_number_bounded():
    found = audit(used=corpus(KNOWN))
    told = found.summary
    assert told["verdict"] == LEAK
    assert audited(found, "named")[:20].sum() >= 15
    assert audited(found, "named")[20:].sum() <= 2
    assert told["at_least"] <= 20 <= told["at_most"]
    assert told["score"] == "error-zone"
    assert all(check.state == "passed" for check in found.claim.checks)
    clean = audit(texts=corpus(NEVER, MORE[:30]), used=corpus(KNOWN))
    assert (clean.verdict, clean.summary["at_most"] <= 8) == (NO_LEAK, True)


@pytest.mark.slow
def test_without_a_base_the_target_is_asked_alone():
    found = audit(base=None)
    assert (found.summary["score"], found.claim.verb) == ("loss", "membership")
    assert audit(base=None, texts=corpus(NEVER, MORE)).verdict == NO_LEAK


@pytest.mark.slow
@pytest.mark.parametrize("score", sorted(SCORES))
def test_every_score_finds_used_texts_with_a_base_and_says_where_it_takes_one(score):
    p_values = audited(audit(score=score))
    assert p_values[:20].mean() < p_values[20:].mean()
    if score in ("error-zone", "log-ratio", "rmia"):
        with pytest.raises(ValueError, match=f"`score` {score} needs `base`"):
            audit(score=score, base=None)
    else:
        assert audit(score=score, base=None).summary["score"] == score


# Units: copies, near-duplicates and authors.


def near(text, seed):
    """The same with another last word, in upper case, and with one more space."""
    return f" {text.upper().rpartition(' ')[0]} {WORDS[seed]}"


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
    assert "Independent units: 40 of 160 texts" in sentence(again, "independent")


def test_near_duplicates_of_audited_texts_are_no_reference(plain):
    beside = [f" {text}" for text in USED] + [near(text, 0) for text in NEVER]
    again = audit(reference=corpus(REFERENCE, beside))
    assert (again.verdict, again.claim.test.p) == (LEAK, plain.claim.test.p)
    assert sentence(again, "independent") == (
        "Independent units: 40 of 40 texts, 150 of 150 reference texts. Removed as near-duplicates "
        "of audited ones: 40 reference texts."
    )


@pytest.mark.slow
def test_authors_are_compared_as_wholes_where_they_are_told():
    def by(texts, mark):
        return Corpus.from_texts(texts, users=[f"{mark}{n // 4}" for n in range(len(texts))])

    given = {"texts": by([*USED, *NEVER], "t"), "reference": by(REFERENCE, "r")}
    told = audit(used=by(KNOWN, "u"), **given).summary
    assert (told["units"], told["listed"], told["authors"]) == ("authors", 10, 10)
    assert (told["reference_authors"], told["verdict"], told["known_used"]) == (38, LEAK, 5)
    with pytest.raises(DataError, match="`used` has no authors"):
        audit(used=corpus(KNOWN), **given)
    with pytest.raises(DataError, match="10 authors are in both"):
        audit(**{**given, "reference": by(REFERENCE, "t")})


# What decides nothing, and what is refused.

DRAWN = np.random.default_rng(0).dirichlet(np.ones(152), 153)
DEAD = TableModel(DRAWN[0], DRAWN[1:], VOCABULARY)


def half_unknown(own):
    """Every second word is not in the vocabulary."""
    return corpus([" ".join(f"{word} x{word}" for word in text.split()) for text in own])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "given", "reason"),
    [
        (TUNED, {"base": TUNED}, "Both models are the same."),
        (DEAD, {}, "too weak to audit"),
        (DEAD, {"base": None}, "too weak to audit"),
        (TUNED, {"texts": half_unknown([*NEVER, *MORE]), "reference": half_unknown(REFERENCE)},
         "50% of the tokens were read"),
    ],
)  # fmt: skip
def test_a_condition_that_does_not_hold_decides_nothing(model, given, reason):
    found = audit(model, **given)
    assert found.verdict == UNDECIDED
    assert any(reason in one for one in found.claim.reasons)


def test_scores_that_are_not_finite_are_refused(monkeypatch):
    ask = statistics_module.token_statistics

    def broken(*given, **more):
        said = ask(*given, **more)
        said.log_probs[3] = np.nan
        return said

    monkeypatch.setattr(statistics_module, "token_statistics", broken)
    with pytest.raises(ModelError, match="2 scores of the model are not finite"):
        audit(base=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": corpus(REFERENCE[:9])}, "the reference has 9 independent texts.*Add"),
        ({"reference": corpus(REFERENCE, NEVER[:3])}, "3 texts are in both"),
        ({"used": corpus(REFERENCE[:2])}, "`used` and `reference`"),
        ({"texts": Corpus.from_texts([])}, "`texts` has no text"),
    ],
)
def test_lists_that_cannot_be_compared_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        audit(**change)


# What is kept.


@pytest.fixture
def asked(monkeypatch):
    """How many texts were asked about, call after call; the fourth call is killed if it is told."""
    calls, ask = [], statistics_module.token_statistics

    def counting(model, texts, **more):
        calls.append(len(texts))
        return ask(model, texts, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    return calls


@pytest.mark.slow
def test_a_second_command_asks_nothing_again_and_more_texts_only_about_themselves(
    asked, plain, tmp_path
):
    keep = {"statistics": tmp_path / "kept"}
    assert audit(**keep).summary == plain.summary
    assert sum(asked) == 2 * (40 + 150)
    asked.clear()
    assert audit(**keep).summary == plain.summary
    audit(score="loss", **keep)
    assert not asked
    audit(texts=corpus(USED, NEVER, texts(3, 77)), **keep)
    assert sum(asked) == 2 * 3
    asked.clear()
    audit(counted((PUBLIC, 2)), base=None, **keep)
    assert sum(asked) == 190


@pytest.mark.slow
def test_a_killed_run_goes_on(monkeypatch, plain, tmp_path):
    monkeypatch.setattr(statistics_module, "GROUP_TOKENS", 500)
    ask, calls = statistics_module.token_statistics, []

    def killed(model, some, **more):
        calls.append(len(some))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return ask(model, some, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", killed)
    with pytest.raises(KeyboardInterrupt):
        audit(statistics=tmp_path / "kept")
    whole = audit(statistics=tmp_path / "kept")
    assert sum(calls[4:]) == 2 * 190 - sum(calls[:3])
    assert whole.summary == plain.summary


@pytest.mark.slow
def test_damaged_statistics_are_told_of_and_asked_again(asked, plain, tmp_path):
    keep = {"statistics": tmp_path / "kept"}
    audit(**keep)
    files = list((tmp_path / "kept").rglob("*.sqlite"))
    assert sum(map(damage_store, files)) == 2 * 190
    asked.clear()
    again = audit(**keep, monitor=(told := Told()))
    assert sum(asked) == 2 * 190
    assert told.lines
    assert all("is damaged" in line for line in told.lines)
    assert again.summary == plain.summary


@pytest.mark.slow
def test_a_run_directory_says_of_what_it_is(tmp_path):
    save_model(TUNED, tmp_path / "tuned")
    save_model(BASE, tmp_path / "base")
    for name, one in BOTH.items():
        rows = "".join(json.dumps({"text": text}) + "\n" for text in one)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    given = {name: tmp_path / f"{name}.jsonl" for name in BOTH}
    given |= {"base": tmp_path / "base", "out": tmp_path / "run"}
    found = audit(tmp_path / "tuned", **given)
    run = results.load(tmp_path / "run")
    assert run.summary == json.loads(results.to_json(found.summary))
    assert run.rows[0]["text"] == USED[0]
    assert set(run.run["models"]) == {"target", "base"}
    assert run.run["data"]["reference"]["documents"] == 150
    assert (tmp_path / "run.statistics").is_dir()
    with pytest.raises(RunError, match="exists already"):
        audit(tmp_path / "tuned", **given)
