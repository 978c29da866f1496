"""What is extracted of texts, end to end: found, compared, undecided, resumed, refused."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

from vestige import results
from vestige.audits.extraction.extract import extract
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.cli.app import run as command
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = tuple(f"w{n}" for n in range(200))


VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))


SETTINGS = {"prefix": 4, "suffix": 5, "top_k": 10}


FOLLOWING = np.random.default_rng(1).permuted(np.tile(np.arange(200), (200, 1)), axis=1)[:, :4]
"""Each word is followed by one of four, as likely."""


def texts(count, seed, length=20):
    chance, found = np.random.default_rng(seed), []
    for _ in range(count):
        walk = [int(chance.integers(200))]
        while len(walk) < length:
            walk.append(int(chance.choice(FOLLOWING[walk[-1]])))
        found.append(" ".join(WORDS[word] for word in walk))
    return found


SEEN, NEVER = texts(12, 1), texts(80, 2)


def table(*seen):
    """Knows the language, and texts by heart that it has seen."""
    counts = np.full((202, 202), 0.001)
    for word, following in enumerate(FOLLOWING):
        counts[word + 2, following + 2] += 1
    for ids in VOCABULARY.encode_batch(list(seen)):
        for one, other in pairwise(ids):
            counts[one, other] += 30
    return TableModel(np.full(202, 1 / 202), counts / counts.sum(axis=1, keepdims=True), VOCABULARY)


@pytest.fixture(scope="module")
def model():
    return table(*SEEN)


def corpus(rows):
    return Corpus.from_texts(rows)


def failed(found):
    return {check.name for check in found.claim.checks if check.state == "failed"}


@pytest.mark.slow
def test_seen_texts_come_back_and_others_do_not(model):
    told = extract(model, corpus(SEEN), reference=corpus(NEVER), **SETTINGS).summary
    assert told["verdict"] == LEAK
    assert told["passages"] == 12 * 3
    assert told["sampled"] > 0.8
    assert told["reference_sampled"] < 0.1
    assert told["sampled_difference_low"] > 0.3
    assert told["sampled_per_10000"] == pytest.approx(told["sampled"] * 1e4 / 5)
    assert told["exact"] > told["reference_exact"] + 0.3


@pytest.mark.slow
def test_texts_that_were_not_read_show_no_leak(model):
    found = extract(model, corpus(NEVER[:40]), reference=corpus(NEVER[40:]), **SETTINGS)
    assert found.verdict == NO_LEAK
    told = found.summary
    for name in ("sampled", "greedy", "texts_sampled", "strength", "exact"):
        low, high = (told[f"{name}_difference_{end}"] for end in ("low", "high"))
        assert low < 0 < high, name


NOTHING = TableModel(np.full(202, 1 / 202), np.full((202, 202), 1 / 202), VOCABULARY)


@pytest.mark.slow
def test_a_condition_that_does_not_hold_decides_nothing(model):
    found = extract(model, corpus(SEEN), **SETTINGS)
    assert found.verdict == UNDECIDED
    assert "No reference was given" in " ".join(found.claim.reasons)
    short, others = texts(20, 5, length=6), texts(12, 6, length=6)
    few = corpus([*SEEN[:3], *short]), corpus([*NEVER[:3], *others])
    capitals = corpus([text.upper() for text in NEVER])
    for one, own, rest, reason in (
        (model, *few, "independent"),
        (model, corpus(SEEN), capitals, "comparable"),
        (NOTHING, corpus(SEEN), corpus(NEVER), "alive"),
    ):
        found = extract(one, own, reference=rest, **SETTINGS)
        assert (found.verdict, reason in failed(found)) == (UNDECIDED, True)


@pytest.mark.slow
def test_copies_of_texts_are_one_unit(model):
    once = extract(model, corpus(SEEN), reference=corpus(NEVER), **SETTINGS)
    again = [*NEVER, SEEN[0] + " " + WORDS[0]]
    four = extract(model, corpus(SEEN * 4), reference=corpus(again), **SETTINGS)
    assert (four.summary["units"], four.summary["reference_units"]) == (12, 80)
    assert four.summary["p_value"] == once.summary["p_value"]
    for end in ("low", "high"):
        name = f"sampled_difference_{end}"
        assert four.summary[name] == pytest.approx(once.summary[name])
    few = extract(model, corpus(SEEN[:3] * 9), reference=corpus(NEVER), **SETTINGS)
    assert few.verdict == UNDECIDED
    assert "independent" in failed(few)


def test_texts_of_one_author_are_one_unit(model):
    own = Corpus.from_texts(SEEN, users=["a"] * 6 + ["b"] * 6)
    rest = Corpus.from_texts(NEVER, users=[f"c{n // 4}" for n in range(80)])
    found = extract(model, own, reference=rest, author="author", **SETTINGS)
    assert (found.summary["units"], found.summary["reference_units"]) == (2, 20)
    assert found.verdict == UNDECIDED


@pytest.mark.slow
def test_a_second_command_asks_nothing_again(model, monkeypatch, tmp_path):
    asked, ask = [], statistics_module.token_statistics

    def counting(model, rows, **more):
        asked.append(len(rows))
        return ask(model, rows, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    keep = {"statistics": tmp_path, "reference": corpus(NEVER), **SETTINGS}
    first = extract(model, corpus(SEEN), **keep)
    assert sum(asked) == 92
    again = extract(model, corpus(SEEN), **keep | {"samples": 7, "suffix": 6})
    assert sum(asked) == 92
    assert again.summary != first.summary


@pytest.mark.slow
def test_the_command_line_answers_first_and_withholds_the_texts(model, tmp_path, capsys):
    save_model(model, tmp_path / "model")
    for name, rows in (("seen", SEEN), ("never", NEVER)):
        lines = "".join(json.dumps({"text": one}) + "\n" for one in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    files = [str(tmp_path / "seen.jsonl"), f"--reference={tmp_path / 'never.jsonl'}"]
    sizes = ["--prefix=4", "--suffix=5", "--top-k=10"]
    out = tmp_path / "run"
    command(["extract", str(tmp_path / "model"), *files, *sizes, f"--out={out}"])
    said = capsys.readouterr().out
    assert re.match(
        r"LEAK  \d+ of 36 passages of 5 tokens are extracted \(reference: \d+ of 240\)\.\n", said
    )
    assert "is the passage with probability 50% or more" in said
    assert SEEN[0][:10] not in said
    assert results.load(out).summary["reference_texts"] == 80
    page = tmp_path / "page.html"
    assert command(["report", str(out), f"--out={page}"]) == 1
    assert "How much of these texts is extracted?" in page.read_text()
    assert SEEN[0][:10] not in page.read_text()
    shown = tmp_path / "shown"
    words = ["extract", str(tmp_path / "model"), *files, *sizes, f"--out={shown}"]
    command([*words, "--show-secrets"])
    assert SEEN[0][:10] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"prefix": 30}, DataError, "no text has 35 tokens.*the longest has 20"),
        ({"reference": Corpus.from_texts(SEEN[:2])}, DataError, "2 texts are in both"),
        ({"what": Corpus.from_texts([])}, DataError, "`texts` has no text"),
        ({"probability": 1.0}, ValueError, "`probability` must be less than 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(model, change, error, message):
    with pytest.raises(error, match=message):
        extract(model, **{"what": corpus(SEEN), **SETTINGS, **change})
