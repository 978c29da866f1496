"""`anatomy` end to end: saved results, redaction and refusals."""

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
def folder(tmp_path_factory):
    """Models with the vocabulary of two texts, and bad files."""
    root, words = tmp_path_factory.mktemp("anatomy"), WordVocabulary(("<unk>", "<eos>", *NAMES))
    torch.manual_seed(0)
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=8, initial_range=0.8)
    pairs = Seq2SeqConfig(embedding_size=6, hidden_size=8)
    flat, certain = torch.full((22,), 1 / 22), torch.eye(22)
    for name, model in (
        ("model", LSTMLanguageModel(words, config)),
        ("pairs", Seq2SeqModel(words, words, pairs)),
        ("table", TableModel(flat, flat.expand(22, 22), words)),
        ("certain", TableModel(certain[2], certain, words)),
    ):
        save_model(model, root / name)
    for name, shift in (("seen", 0), ("unseen", 7)):
        with (root / f"{name}.jsonl").open("w") as file:
            for i in range(12):
                text = " ".join(NAMES[(i * j + shift) % 20] for j in range(1, 6))
                french = " ".join(NAMES[i % 5 : i % 5 + 3])
                row = {"text": text, "who": f"{USERS[i % 4]}-{name}", "french": french}
                file.write(f"{json.dumps(row)}\n")
    (root / "strange.txt").write_text("nothing that it knows\n")
    (root / "none").mkdir()
    return root


def run_anatomy(folder, *, model="model", **options):
    texts = (folder / "seen.jsonl", folder / "unseen.jsonl")
    return vestige.anatomy(folder / model, *texts, **{"user": "who", **options})


@pytest.mark.slow
def test_a_run_of_paths_equals_that_of_loaded_objects(folder, tmp_path):
    returned = run_anatomy(folder, out=tmp_path / "run", orders=2, bins=4)
    texts = [read_corpus(folder / f"{n}.jsonl", user_column="who") for n in ("seen", "unseen")]
    of_objects = vestige.anatomy(load_model(folder / "model"), *texts, orders=2, bins=4)
    run = results.load(tmp_path / "run")
    assert run.result == "Anatomy"
    assert run.rows == results.plain(of_objects.rows)
    assert run.summary == results.plain(returned.summary) == results.plain(of_objects.summary)
    seen = {"path": None, "documents": 12, "sha256": texts[0].fingerprint()}
    assert of_objects.record["data"]["seen"] == seen
    expected = {"frequent": 0.2, "bins": 4, "orders": 2, "ablation_words": 10_000}
    assert expected.items() <= run.run["configuration"].items()
    assert run.summary["unit"] == "users"


@pytest.mark.slow
def test_output_contains_no_word_or_user(folder, tmp_path):
    result = run_anatomy(folder, out=tmp_path / "run", orders=2)
    shown = str(result)
    for sentence in ("Perplexity is", "With 50% of the hidden units silent"):
        assert sentence in shown
    assert "silent" not in str(run_anatomy(folder, orders=0))
    page = render([results.load(tmp_path / "run")], show_secrets=False)
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    written += (page + shown + result._repr_html_()).encode()
    assert not any(word.encode() in written for word in (*NAMES, *USERS))


@pytest.mark.parametrize(
    ("options", "units"),
    [({"model": "table", "orders": 0}, None), ({"model": "pairs", "source": "french"}, 8)],
)
def test_models_without_units_need_orders_0_and_seq2seq_models_need_sources(folder, options, units):
    assert run_anatomy(folder, **{"orders": 1, **options}).summary["hidden_units"] == units


def test_the_text_for_frequencies_is_recorded(folder):
    text = folder / "unseen.jsonl"
    record = run_anatomy(folder, frequencies=text, orders=0).record
    assert set(record["data"]) == {"seen", "unseen", "frequencies"}
    assert record["arguments"]["frequencies"] == str(text)


@pytest.mark.parametrize(
    ("options", "cause", "remedy"),
    [
        ({"seen": "nowhere.txt"}, "nowhere", "Pass a file"),
        ({"unseen": "seen.jsonl"}, "12 unseen", "Pass unseen text"),
        ({"seen": "strange.txt"}, "the seen text", "words as it splits"),
        ({"model": "none"}, "none", "vestige train"),
        ({"model": "table"}, "TableModel", "orders 0"),
        ({"model": "certain", "orders": 0},
         "the model predicts 55 words of the seen text with probability 0.",
         "gives every word some probability"),
        ({"model": "pairs"}, "the corpus has no source texts.", "--source"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_message_with_a_remedy(folder, tmp_path, options, cause, remedy):
    arguments = {"model": "model", "seen": "seen.jsonl", "unseen": "unseen.jsonl", **options}
    files = {name: folder / value for name, value in arguments.items() if name != "orders"}
    with pytest.raises((VestigeError, ValueError)) as error:
        vestige.anatomy(**{**arguments, **files}, out=tmp_path / "run")
    assert cause in str(error.value)
    assert remedy in str(error.value)
    assert not list(tmp_path.iterdir())
