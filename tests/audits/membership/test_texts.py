"""An audit of texts end to end: found, bounded, cached, resumed, refused."""

import json
from itertools import pairwise

import numpy as np
import pytest

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
PUBLIC = texts(200, 5)
BASE = counted((PUBLIC, 1))
TUNED = counted((PUBLIC, 1), (USED, 3), (KNOWN, 3))


def corpus(*lists):
    return Corpus.from_texts([text for one in lists for text in one])


def audited(found, column="p_value"):
    """(n,) a column of the audited texts."""
    return np.array([row[column] for row in found.rows if row["kind"] == "audited"])


@pytest.fixture
def lists():
    return {"texts": corpus(USED, NEVER), "reference": corpus(REFERENCE)}


def test_used_texts_are_found_and_their_number_bounded(lists):
    found = membership(TUNED, base=BASE, used=corpus(KNOWN), **lists)
    told = found.summary
    assert told["verdict"] == LEAK
    assert audited(found, "named")[:20].sum() >= 15
    assert audited(found, "named")[20:].sum() <= 2
    assert told["at_least"] <= 20 <= told["at_most"]
    assert told["score"] == "error-zone"
    assert all(check.state == "passed" for check in found.claim.checks)


def test_a_list_that_was_not_used_is_bounded_from_above(lists):
    lists["texts"] = corpus(NEVER, texts(30, 6))
    found = membership(TUNED, base=BASE, used=corpus(KNOWN), **lists)
    assert found.verdict == NO_LEAK
    assert found.summary["at_most"] <= 8


def test_without_a_base_the_target_is_asked_alone(lists):
    found = membership(TUNED, **lists)
    assert found.summary["score"] == "loss"
    assert found.claim.verb == "membership"
    lists["texts"] = corpus(NEVER, texts(60, 6))
    assert membership(TUNED, **lists).verdict == NO_LEAK


@pytest.fixture
def asked(monkeypatch):
    """How many texts were asked about, call after call."""
    calls, ask = [], statistics_module.token_statistics

    def counting(model, texts, **more):
        calls.append(len(texts))
        return ask(model, texts, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    return calls


def test_a_second_command_asks_nothing_again_and_more_texts_only_about_themselves(
    lists, asked, tmp_path
):
    keep = {"statistics": tmp_path / "kept"}
    first = membership(TUNED, base=BASE, **lists, **keep)
    assert sum(asked) == 2 * (40 + 150)
    asked.clear()
    again = membership(TUNED, base=BASE, **lists, **keep)
    assert not asked
    assert again.summary == first.summary
    membership(TUNED, base=BASE, score="loss", **lists, **keep)
    assert not asked
    lists["texts"] = corpus(USED, NEVER, texts(3, 77))
    membership(TUNED, base=BASE, **lists, **keep)
    assert sum(asked) == 2 * 3


def test_a_killed_run_goes_on(lists, monkeypatch, tmp_path):
    monkeypatch.setattr(statistics_module, "GROUP_TOKENS", 500)
    ask, calls = statistics_module.token_statistics, []

    def killed(model, some, **more):
        calls.append(len(some))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return ask(model, some, **more)

    keep = {"statistics": tmp_path / "kept"}
    monkeypatch.setattr(statistics_module, "token_statistics", killed)
    with pytest.raises(KeyboardInterrupt):
        membership(TUNED, base=BASE, **lists, **keep)
    done = sum(calls[:3])
    whole = membership(TUNED, base=BASE, **lists, **keep)
    assert sum(calls[4:]) == 2 * 190 - done
    assert whole.summary == membership(TUNED, base=BASE, **lists).summary


def test_damaged_statistics_are_told_of_and_asked_again(lists, asked, tmp_path):
    keep = {"statistics": tmp_path / "kept"}
    first = membership(TUNED, **lists, **keep)
    [file] = (tmp_path / "kept").rglob("*.sqlite")
    assert damage_store(file) == 190
    asked.clear()
    told = Told()
    again = membership(TUNED, **lists, **keep, monitor=told)
    assert sum(asked) == 190
    [line] = told.lines
    assert "is damaged" in line
    assert again.summary == first.summary


def test_another_model_is_not_answered_from_what_is_kept(lists, asked, tmp_path):
    keep = {"statistics": tmp_path / "kept"}
    membership(TUNED, **lists, **keep)
    asked.clear()
    membership(BASE, **lists, **keep)
    assert sum(asked) == 190


def test_a_run_directory_says_of_what_it_is_and_repeats(lists, tmp_path):
    save_model(TUNED, tmp_path / "tuned")
    save_model(BASE, tmp_path / "base")
    for name, one in lists.items():
        rows = "".join(json.dumps({"text": text}) + "\n" for text in one)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    given = {name: tmp_path / f"{name}.jsonl" for name in lists}
    out = tmp_path / "run"
    found = membership(tmp_path / "tuned", base=tmp_path / "base", out=out, **given)
    run = results.load(out)
    assert run.summary == json.loads(results.to_json(found.summary))
    assert run.rows[0]["text"] == USED[0]
    assert set(run.run["models"]) == {"target", "base"}
    assert run.run["data"]["reference"]["documents"] == 150
    assert (tmp_path / "run.statistics").is_dir()
    with pytest.raises(RunError, match="exists already"):
        membership(tmp_path / "tuned", out=out, **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"reference": Corpus.from_texts(REFERENCE[:9])},
            "the reference has 9 independent texts.*Add",
        ),
        ({"reference": Corpus.from_texts([*REFERENCE, *NEVER[:3]])}, "3 texts are in both"),
        ({"used": Corpus.from_texts(REFERENCE[:2])}, "`used` and `reference`"),
        ({"texts": Corpus.from_texts([])}, "`texts` has no text"),
    ],
)
def test_lists_that_cannot_be_compared_are_refused(lists, change, message):
    with pytest.raises(DataError, match=message):
        membership(TUNED, **{**lists, **change})


def test_a_rate_out_of_range_is_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="`alpha` must be greater than 0"):
        membership("no-model", texts="no-texts", reference="no-reference", alpha=0.0)


def test_copies_of_a_text_are_one_text_with_the_number_of_the_first(lists):
    once = membership(TUNED, base=BASE, **lists)
    lists["texts"] = corpus(USED[:1] * 30, USED[1:], NEVER[:1] * 30, NEVER[1:])
    again = membership(TUNED, base=BASE, **lists)
    assert again.claim.test == once.claim.test
    assert audited(again, "number")[:2].tolist() == [1, 31]


def test_authors_are_compared_as_wholes_where_they_are_told():
    def by(texts, mark):
        return Corpus.from_texts(texts, users=[f"{mark}{n // 4}" for n in range(len(texts))])

    given = {"texts": by([*USED, *NEVER], "t"), "reference": by(REFERENCE, "r")}
    told = membership(TUNED, base=BASE, used=by(KNOWN, "u"), **given).summary
    assert (told["units"], told["listed"], told["authors"]) == ("authors", 10, 10)
    assert (told["reference_authors"], told["verdict"], told["known_used"]) == (38, LEAK, 5)
    with pytest.raises(DataError, match="`used` has no authors"):
        membership(TUNED, base=BASE, used=corpus(KNOWN), **given)
    given["reference"] = by(REFERENCE, "t")
    with pytest.raises(DataError, match="10 authors are in both"):
        membership(TUNED, base=BASE, **given)


def sentence(found, name):
    """What a check of an audit says."""
    return next(check.sentence for check in found.claim.checks if check.name == name)


def near(text, seed):
    """The same with another last word, in upper case, and with one more space."""
    return f" {text.upper().rpartition(' ')[0]} {WORDS[seed]}"


@pytest.mark.parametrize("copies", [4, 8])
def test_near_duplicates_count_once_on_either_list(lists, copies):
    once = membership(TUNED, base=BASE, **lists)
    for role, own in (("texts", [*USED, *NEVER]), ("reference", REFERENCE)):
        lists[role] = corpus(own, [near(text, n) for text in own for n in range(copies - 1)])
    again = membership(TUNED, base=BASE, **lists)
    for side in ("texts", "reference"):
        assert again.summary[side] == once.summary[side]
    assert again.claim.test == once.claim.test
    assert f"Independent units: 40 of {40 * copies} texts" in sentence(again, "independent")


def test_near_duplicates_of_audited_texts_are_no_reference(lists):
    once = membership(TUNED, base=BASE, **lists)
    lists["reference"] = corpus(
        REFERENCE, [f" {text}" for text in USED], [near(t, 0) for t in NEVER]
    )
    again = membership(TUNED, base=BASE, **lists)
    assert (again.verdict, again.claim.test.p) == (LEAK, once.claim.test.p)
    assert sentence(again, "independent") == (
        "Independent units: 40 of 40 texts, 150 of 150 reference texts. Removed as near-duplicates "
        "of audited ones: 40 reference texts."
    )


def test_a_base_that_is_the_model_itself_decides_nothing(lists):
    found = membership(TUNED, base=TUNED, **lists)
    assert found.verdict == UNDECIDED
    assert "Both models are the same." in found.claim.reasons


def test_a_model_that_predicts_no_text_decides_nothing(lists):
    drawn = np.random.default_rng(0).dirichlet(np.ones(152), 153)
    dead = TableModel(drawn[0], drawn[1:], VOCABULARY)
    for base in (None, BASE):
        found = membership(dead, base=base, **lists)
        assert found.verdict == UNDECIDED
        assert "too weak to audit" in found.claim.reasons[0]


def test_scores_that_are_not_finite_are_refused(lists, monkeypatch):
    ask = statistics_module.token_statistics

    def broken(*given, **more):
        said = ask(*given, **more)
        said.log_probs[3] = np.nan
        return said

    monkeypatch.setattr(statistics_module, "token_statistics", broken)
    with pytest.raises(ModelError, match="2 scores of the model are not finite"):
        membership(TUNED, **lists)


def test_texts_of_which_little_is_read_exclude_no_leak(lists):
    """Every second word is not in the vocabulary."""

    def strange(own):
        return corpus([" ".join(f"{word} x{word}" for word in text.split()) for text in own])

    lists = {"texts": strange([*NEVER, *texts(60, 6)]), "reference": strange(REFERENCE)}
    found = membership(TUNED, base=BASE, **lists)
    assert found.verdict == UNDECIDED
    assert any("50% of the tokens were read" in one for one in found.claim.reasons)


@pytest.mark.parametrize("score", sorted(SCORES))
def test_every_score_finds_used_texts_with_a_base_and_says_where_it_takes_one(lists, score):
    found = membership(TUNED, base=BASE, score=score, **lists)
    assert audited(found)[:20].mean() < audited(found)[20:].mean()
    if score in ("error-zone", "log-ratio", "rmia"):
        with pytest.raises(ValueError, match=f"`score` {score} needs `base`"):
            membership(TUNED, score=score, **lists)
    else:
        assert membership(TUNED, score=score, **lists).summary["score"] == score
