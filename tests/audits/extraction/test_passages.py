"""Passages extracted from texts, end to end: verdicts, units, cached statistics, refusals."""

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
"""The four words that can follow each word, with equal probability."""


def texts(count, seed, length=20):
    rng, result = np.random.default_rng(seed), []
    for _ in range(count):
        walk = [int(rng.integers(200))]
        while len(walk) < length:
            walk.append(int(rng.choice(FOLLOWING[walk[-1]])))
        result.append(" ".join(WORDS[word] for word in walk))
    return result


def model_of(texts):
    """A model of the language that knows some texts verbatim."""
    counts = np.full((202, 202), 0.001)
    for word, following in enumerate(FOLLOWING):
        counts[word + 2, following + 2] += 1
    for ids in VOCABULARY.encode_batch(texts):
        for first, second in pairwise(ids):
            counts[first, second] += 30
    return TableModel(np.full(202, 1 / 202), counts / counts.sum(axis=1, keepdims=True), VOCABULARY)


MEMBERS, REFERENCE = texts(12, 1), texts(80, 2)
MODEL = model_of(MEMBERS)


def extracted(members=MEMBERS, reference=REFERENCE, **options):
    members, reference = (
        Corpus.from_texts(texts) if isinstance(texts, list) else texts
        for texts in (members, reference)
    )
    return extract(MODEL, members, **{"reference": reference, **SETTINGS, **options})


@pytest.fixture(scope="module")
def plain():
    return extracted()


@pytest.mark.slow
def test_members_are_extracted_and_non_members_are_not(plain):
    summary = plain.summary
    assert summary["verdict"] == LEAK
    assert summary["passages"] == 12 * 3
    assert summary["sampled"] > 0.8
    assert summary["reference_sampled"] < 0.1
    assert summary["sampled_difference_low"] > 0.3
    assert summary["sampled_per_10000"] == pytest.approx(summary["sampled"] * 1e4 / 5)
    assert summary["exact"] > summary["reference_exact"] + 0.3
    clean = extracted(REFERENCE[:40], REFERENCE[40:])
    assert clean.verdict == NO_LEAK
    for name in ("sampled", "greedy", "texts_sampled", "strength", "exact"):
        low, high = (clean.summary[f"{name}_difference_{end}"] for end in ("low", "high"))
        assert low < 0 < high, name


@pytest.mark.slow
def test_without_a_reference_or_with_few_long_texts_the_verdict_is_undecided():
    result = extracted(reference=None)
    assert result.verdict == UNDECIDED
    assert "No reference was given" in " ".join(result.claim.reasons)
    short, others = texts(20, 5, length=6), texts(12, 6, length=6)
    result = extracted([*MEMBERS[:3], *short], [*REFERENCE[:3], *others])
    assert result.verdict == UNDECIDED
    assert {check.name: check.state for check in result.claim.checks}["independent"] == "failed"


@pytest.mark.slow
def test_copies_of_a_text_are_one_unit(plain):
    copies = extracted(MEMBERS * 4, [*REFERENCE, MEMBERS[0] + " " + WORDS[0]])
    assert (copies.summary["units"], copies.summary["reference_units"]) == (12, 80)
    assert copies.summary["p_value"] == plain.summary["p_value"]
    for end in ("low", "high"):
        name = f"sampled_difference_{end}"
        assert copies.summary[name] == pytest.approx(plain.summary[name])


def test_texts_of_one_author_are_one_unit():
    members = Corpus.from_texts(MEMBERS, users=["a"] * 6 + ["b"] * 6)
    reference = Corpus.from_texts(REFERENCE, users=[f"c{n // 4}" for n in range(80)])
    result = extracted(members, reference, author="author")
    assert (result.summary["units"], result.summary["reference_units"]) == (2, 20)
    assert result.verdict == UNDECIDED


@pytest.mark.slow
def test_a_second_command_uses_the_cached_statistics(monkeypatch, tmp_path):
    scored, token_statistics = [], statistics_module.token_statistics

    def counting(model, rows, **options):
        scored.extend(rows)
        return token_statistics(model, rows, **options)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    first = extracted(statistics=tmp_path)
    assert len(scored) == 92
    again = extracted(statistics=tmp_path, samples=7, suffix=6)
    assert len(scored) == 92
    assert again.summary != first.summary


@pytest.mark.slow
def test_the_command_prints_the_verdict_first_and_redacts_the_texts(tmp_path, capsys):
    save_model(MODEL, tmp_path / "model")
    for name, rows in (("members", MEMBERS), ("reference", REFERENCE)):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    words = ["extract", str(tmp_path / "model"), str(tmp_path / "members.jsonl")]
    words += [f"--reference={tmp_path / 'reference.jsonl'}"]
    words += ["--prefix=4", "--suffix=5", "--top-k=10"]
    out, page = tmp_path / "run", tmp_path / "page.html"
    command([*words, f"--out={out}"])
    terminal = capsys.readouterr().out
    first = r"LEAK  \d+ of 36 passages of 5 tokens are extracted \(reference: \d+ of 240\)\.\n"
    assert re.match(first, terminal)
    assert "is the passage with probability 50% or more" in terminal
    assert MEMBERS[0][:10] not in terminal
    assert results.load(out).summary["reference_texts"] == 80
    assert command(["report", str(out), f"--out={page}"]) == 1
    assert "How much of these texts is extracted?" in page.read_text()
    assert MEMBERS[0][:10] not in page.read_text()
    command([*words, f"--out={tmp_path / 'shown'}", "--show-secrets"])
    assert MEMBERS[0][:10] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"prefix": 30, "reference": None}, DataError, "no text has 35 tokens.*the longest has 20"),
        ({"reference": MEMBERS[:2]}, DataError, "2 texts are in both"),
        ({"members": []}, DataError, "`texts` has no text"),
        ({"probability": 1.0}, ValueError, "`probability` must be less than 1"),
    ],
)
def test_invalid_texts_and_options_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        extracted(**change)
