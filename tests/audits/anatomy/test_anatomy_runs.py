"""`anatomy` saves what the attack finds, names no word, and refuses bad input."""

import json

import pytest
import torch

import vestige
from vestige import results
from vestige.data.formats.reading import read_corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import VestigeError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel
from vestige.reports.page import render

NAMES = [f"word{i}" for i in range(20)]
USERS = ("rosalind", "orlando", "celia", "silvius")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three models that know the words of two texts, and files that do not fit."""
    root = tmp_path_factory.mktemp("anatomy")
    vocabulary = WordVocabulary(("<unk>", "<eos>", *NAMES))
    torch.manual_seed(0)
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=8, initial_range=0.8)
    save_model(LSTMLanguageModel(vocabulary, config), root / "model")
    pairs = Seq2SeqConfig(embedding_size=6, hidden_size=8)
    save_model(Seq2SeqModel(vocabulary, vocabulary, pairs), root / "pairs")
    flat = torch.full((22,), 1 / 22)
    save_model(TableModel(flat, flat.expand(22, 22), vocabulary), root / "table")
    certain = torch.eye(22)
    save_model(TableModel(certain[2], certain, vocabulary), root / "certain")
    for name, shift in (("seen", 0), ("unseen", 7)):
        rows = [
            {
                "text": " ".join(NAMES[(i * j + shift) % 20] for j in range(1, 6)),
                "who": f"{USERS[i % 4]}-{name}",
                "french": " ".join(NAMES[i % 5 : i % 5 + 3]),
            }
            for i in range(12)
        ]
        lines = "\n".join(json.dumps(row) for row in rows)
        (root / f"{name}.jsonl").write_text(lines + "\n")
    (root / "strange.txt").write_text("nothing that it knows\n")
    (root / "empty.txt").write_text("")
    (root / "cut.jsonl").write_text('{"text": "one"}\n{"text": "tw')
    (root / "none").mkdir()
    return root


def measured(place, out=None, *, model="model", **more):
    given = {"user": "who", **more}
    return vestige.anatomy(
        place / model, place / "seen.jsonl", place / "unseen.jsonl", out=out, **given
    )


@pytest.mark.slow
def test_a_run_of_paths_holds_what_loaded_objects_give(place, tmp_path):
    returned = measured(place, tmp_path / "run", orders=2, bins=4)
    texts = [read_corpus(place / f"{n}.jsonl", user_column="who") for n in ("seen", "unseen")]
    found = vestige.anatomy(load_model(place / "model"), *texts, orders=2, bins=4)
    run = results.load(tmp_path / "run")
    assert run.result == "Anatomy"
    assert run.rows == results.plain(found.rows)
    assert run.summary == results.plain(returned.summary) == results.plain(found.summary)
    seen = {"path": None, "documents": 12, "sha256": texts[0].fingerprint()}
    assert found.record["data"]["seen"] == seen
    expected = {"frequent": 0.2, "bins": 4, "orders": 2, "ablation_words": 10_000}
    assert expected.items() <= run.run["configuration"].items()
    assert run.summary["unit"] == "users"


def test_the_printed_result_has_three_tables_and_the_answer(place):
    shown = str(measured(place, orders=2))
    assert "Perplexity is" in shown
    assert "With 50% of the hidden units silent" in shown
    assert "silent" not in str(measured(place, orders=0))


@pytest.mark.slow
def test_neither_words_nor_users_are_written_or_shown(place, tmp_path):
    found = measured(place, tmp_path / "run", orders=1)
    page = render([results.load(tmp_path / "run")], show_secrets=False)
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    written += page.encode() + str(found).encode() + found._repr_html_().encode()
    for word in [*NAMES, *USERS]:
        assert word.encode() not in written


def test_a_model_without_units_needs_orders_0(place):
    assert measured(place, model="table", orders=0).summary["hidden_units"] is None


def test_decoders_are_asked_with_their_sources(place):
    found = measured(place, model="pairs", source="french", orders=1)
    assert found.summary["hidden_units"] == 8
    assert found.record["models"]["model"]["architecture"] == "seq2seq"


def test_other_text_may_be_counted(place, tmp_path):
    measured(place, tmp_path / "run", frequencies=place / "unseen.jsonl", orders=0)
    run = results.load(tmp_path / "run")
    assert run.summary["counted"] == "given text"
    assert set(run.run["data"]) == {"seen", "unseen", "frequencies"}
    given = {"unseen": str(place / "unseen.jsonl"), "frequencies": str(place / "unseen.jsonl")}
    assert given.items() <= run.run["arguments"].items()


# The arguments that differ, and what the message names.
CASES = {
    "seen nowhere": ({"seen": "nowhere.txt"}, "nowhere", "Pass a file"),
    "unseen empty": ({"unseen": "empty.txt"}, "empty.txt", "Pass a file"),
    "unseen all seen": ({"unseen": "seen.jsonl"}, "12 unseen", "Pass unseen text"),
    "unknown words only": ({"seen": "strange.txt"}, "the seen text", "words as it splits"),
    "model nowhere": ({"model": "nowhere"}, "nowhere", "vestige train"),
    "no model there": ({"model": "none"}, "none", "vestige train"),
    "units of a table": ({"model": "table"}, "TableModel", "orders 0"),
    "impossible words": (
        {"model": "certain", "orders": 0},
        "the model predicts 55 words of the seen text with probability 0.",
        "gives every word some probability",
    ),
    "pairs without sources": ({"model": "pairs"}, "the corpus has no source texts.", "--source"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_gets_one_message_with_a_remedy(case, place, tmp_path):
    given, named, remedy = CASES[case]
    files = {"model": "model", "seen": "seen.jsonl", "unseen": "unseen.jsonl", **given}
    for name in ("model", "seen", "unseen", "frequencies"):
        if name in files:
            files[name] = place / files[name]
    with pytest.raises((VestigeError, ValueError)) as error:
        vestige.anatomy(**files, out=tmp_path / "run")
    assert named in str(error.value)
    assert remedy in str(error.value)
    assert not list(tmp_path.iterdir())
