"""What comes back of texts, end to end: found, beside never-seen ones, kept, resumed, refused."""

import json
from itertools import pairwise

import numpy as np
import pytest

from vestige import results
from vestige.attacks.texts import token_statistics as statistics_module
from vestige.cli.main import app
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel
from vestige.workflows.memorization import memorization

WORDS = tuple(f"w{n}" for n in range(200))
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
SETTINGS = {"prefix": 4, "suffix": 5, "top_k": 10}


def texts(count, seed, length=20):
    chance = np.random.default_rng(seed)
    return [
        " ".join(WORDS[word] for word in chance.permutation(200)[:length]) for _ in range(count)
    ]


ORDER = np.random.default_rng(1).permutation(200)
SEEN = [" ".join(WORDS[word] for word in part) for part in ORDER.reshape(10, 20)[:6]]
NEVER = texts(40, 2)


@pytest.fixture(scope="module")
def model():
    """Says what follows a word in the texts that it has seen, most times."""
    counts = np.full((202, 202), 0.02)
    for ids in VOCABULARY.encode_batch(SEEN):
        for one, other in pairwise(ids):
            counts[one, other] += 1
    return TableModel(np.full(202, 1 / 202), counts / counts.sum(axis=1, keepdims=True), VOCABULARY)


def corpus(rows):
    return Corpus.from_texts(rows)


def test_seen_texts_come_back_and_others_do_not(model):
    told = memorization(model, corpus(SEEN), reference=corpus(NEVER), **SETTINGS).summary()
    assert told["passages"] == 6 * 3
    assert told["sampled"] > 0.8
    assert told["reference_sampled"] == 0
    assert told["sampled_difference_low"] > 0.3
    assert told["sampled_per_10000"] == pytest.approx(told["sampled"] * 1e4 / 5)
    assert told["exact"] > told["reference_exact"] + 0.3
    assert told["edit_difference_low"] > 0


def test_never_seen_texts_differ_from_others_by_an_interval_around_zero(model):
    told = memorization(
        model, corpus(NEVER[:20]), reference=corpus(NEVER[20:]), **SETTINGS
    ).summary()
    for name in ("sampled", "greedy", "texts_sampled", "strength", "exact"):
        low, high = (told[f"{name}_difference_{end}"] for end in ("low", "high"))
        assert low < 0 < high, name


def test_a_continuation_is_as_near_as_greedy_decoding_says(model):
    found = memorization(model, corpus(SEEN), **SETTINGS)
    whole = found.texts.greedy == found.texts.passages
    assert whole.any()
    assert (found.texts.edit[whole] == 1).all()
    assert np.isnan(memorization(model, corpus(SEEN), continued=0, **SETTINGS).texts.edit).all()
    some = memorization(model, corpus(NEVER), continued=7, **SETTINGS)
    assert some.summary()["generated"] == 7


def test_a_second_command_asks_nothing_again(model, monkeypatch, tmp_path):
    asked, ask = [], statistics_module.token_statistics

    def counting(model, rows, **more):
        asked.append(len(rows))
        return ask(model, rows, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    keep = {"statistics": tmp_path, "reference": corpus(NEVER), **SETTINGS}
    first = memorization(model, corpus(SEEN), **keep)
    assert sum(asked) == 46
    again = memorization(model, corpus(SEEN), **keep | {"tries": 7, "suffix": 6})
    assert sum(asked) == 46
    assert again.summary() != first.summary()


def test_the_command_line_answers_first_and_withholds_the_texts(model, tmp_path, capsys):
    save_model(model, tmp_path / "model")
    for name, rows in (("seen", SEEN), ("never", NEVER)):
        lines = "".join(json.dumps({"text": one}) + "\n" for one in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    files = [f"--texts={tmp_path / 'seen.jsonl'}", f"--reference={tmp_path / 'never.jsonl'}"]
    sizes = ["--prefix=4", "--suffix=5", "--top-k=10"]
    out = tmp_path / "run"
    assert app(["memorization", str(tmp_path / "model"), *files, *sizes, f"--out={out}"]) == 0
    said = capsys.readouterr().out
    assert " of 18 passages of 5 tokens come back word for word" in said.splitlines()[0]
    assert "gives back more than common phrases" in said
    assert SEEN[0][:10] not in said
    assert results.load(out).summary["reference_texts"] == 40
    page = tmp_path / "page.html"
    assert app(["report", str(out), f"--out={page}"]) == 0
    assert "How much of these texts comes back?" in page.read_text()
    assert SEEN[0][:10] not in page.read_text()
    shown = tmp_path / "shown"
    command = ["memorization", str(tmp_path / "model"), *files, *sizes, f"--out={shown}"]
    assert app([*command, "--show-secrets"]) == 0
    assert SEEN[0][:10] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"prefix": 30}, DataError, "no text has 35 tokens.*the longest has 20"),
        ({"reference": Corpus.from_texts(SEEN[:2])}, DataError, "2 texts stand in both"),
        ({"texts": Corpus.from_texts([])}, DataError, "`texts` holds no text"),
        ({"chance": 1.0}, ValueError, "`chance` must lie in"),
    ],
)
def test_what_cannot_be_measured_is_refused(model, change, error, message):
    with pytest.raises(error, match=message):
        memorization(model, **{"texts": corpus(SEEN), **SETTINGS, **change})
