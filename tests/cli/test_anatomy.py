"""`vestige anatomy` saves what the library finds, says it plainly, and refuses what it must."""

import json

import pytest
import torch

from vestige import results
from vestige.attacks.anatomy.memorization import AnatomyPlan, anatomy
from vestige.data.loaders import read_corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import load_model, save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

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


def run_verb(shell, place, out, *more, model="model"):
    given = ["--seen", place / "seen.jsonl", "--unseen", place / "unseen.jsonl"]
    return shell("anatomy", place / model, *given, "--user", "who", "--out", out, *more)


def test_the_verb_saves_what_the_library_finds(shell, place, tmp_path):
    done = run_verb(shell, place, tmp_path / "run", "--json", "--orders", 2, "--bins", 4)
    assert done.exit_code == 0, (done.stderr, done.exception)
    texts = [read_corpus(place / f"{n}.jsonl", user_column="who") for n in ("seen", "unseen")]
    plan = AnatomyPlan(orders=2, bins=4)
    found = anatomy(load_model(place / "model"), texts[0], unseen=texts[1], plan=plan)
    run = results.load(tmp_path / "run")
    assert run.result == "Anatomy"
    assert run.rows == results.plain(found.rows())
    assert run.summary == json.loads(done.stdout) == results.plain(found.summary())
    assert run.run["configuration"] == {
        "frequent": 0.2,
        "bins": 4,
        "orders": 2,
        "ablation_words": 10_000,
    }
    assert run.summary["unit"] == "users"


def test_the_terminal_shows_three_tables_and_the_answer(shell, place, tmp_path):
    done = run_verb(shell, place, tmp_path / "run", "--orders", 2)
    for title in ("Log-probabilities", "Ranks by frequency", "Accuracy with silent units"):
        assert title in done.stdout
    assert "Perplexity is" in done.stdout
    assert "With 50 % of the hidden units silent" in done.stdout
    without = run_verb(shell, place, tmp_path / "without", "--orders", 0)
    assert "silent" not in without.stdout


def test_neither_words_nor_users_are_written_or_shown(shell, place, tmp_path):
    done = run_verb(shell, place, tmp_path / "run", "--orders", 1)
    shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    files = [*(tmp_path / "run").iterdir(), tmp_path / "page.html"]
    written = b"".join(file.read_bytes() for file in files) + done.stdout.encode()
    for word in [*NAMES, *USERS]:
        assert word.encode() not in written


def test_a_model_without_units_needs_orders_0(shell, place, tmp_path):
    done = run_verb(shell, place, tmp_path / "run", "--orders", 0, model="table")
    assert done.exit_code == 0, done.stderr
    assert results.load(tmp_path / "run").summary["hidden_units"] is None


def test_decoders_are_asked_with_their_sources(shell, place, tmp_path):
    more = ["--source", "french", "--orders", 1]
    done = run_verb(shell, place, tmp_path / "run", *more, model="pairs")
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert results.load(tmp_path / "run").summary["hidden_units"] == 8


def test_other_text_may_be_counted(shell, place, tmp_path):
    counted = ["--frequencies", place / "unseen.jsonl", "--orders", 0]
    done = run_verb(shell, place, tmp_path / "run", *counted)
    assert done.exit_code == 0, done.stderr
    run = results.load(tmp_path / "run")
    assert run.summary["counted"] == "given text"
    assert set(run.run["data"]) == {"seen", "unseen", "frequencies"}


BOTH = "--seen P/seen.jsonl --unseen P/unseen.jsonl"
# The words after `vestige anatomy`, P/ standing for the place, and what the message names.
CASES = {
    "no seen text": ("P/model --unseen P/unseen.jsonl", "--seen", "--help"),
    "no unseen text": ("P/model --seen P/seen.jsonl", "--unseen", "--help"),
    "seen nowhere": ("P/model --seen P/nowhere.txt --unseen P/unseen.jsonl", "nowhere", "Give"),
    "unseen empty": ("P/model --seen P/seen.jsonl --unseen P/empty.txt", "empty.txt", "Give"),
    "unseen cut": ("P/model --seen P/seen.jsonl --unseen P/cut.jsonl", "cut.jsonl, line 2", "Mend"),
    "unseen all seen": ("P/model --seen P/seen.jsonl --unseen P/seen.jsonl", "12 unseen", "Give"),
    "unknown words only": (
        "P/model --seen P/strange.txt --unseen P/unseen.jsonl",
        "the seen text",
        "words as it splits",
    ),
    "frequencies nowhere": (f"P/model {BOTH} --frequencies P/nowhere.txt", "nowhere", "Give"),
    "no such column": (f"P/model {BOTH} --text body", "body", "column"),
    "no such user column": (f"P/model {BOTH} --user id", "id", "column"),
    "unknown format": (f"P/model {BOTH} --format xml", "xml", "one of"),
    "model nowhere": (f"P/nowhere {BOTH}", "nowhere", "vestige train"),
    "no model there": (f"P/none {BOTH}", "none", "vestige train"),
    "units of a table": (f"P/table {BOTH}", "TableModel", "--orders 0"),
    "impossible words": (f"P/certain {BOTH} --orders 0", "no probability", "possible"),
    "pairs without sources": (f"P/pairs {BOTH}", "no sources", "--source"),
    "frequent 0": (f"P/model {BOTH} --frequent 0", "frequent must lie in", "Change"),
    "frequent all": (f"P/model {BOTH} --frequent 1", "frequent must lie in", "Change"),
    "frequent no number": (f"P/model {BOTH} --frequent most", "--frequent", "must be a number"),
    "no bins": (f"P/model {BOTH} --bins 0", "--bins", "--help"),
    "orders negative": (f"P/model {BOTH} --orders -1", "--orders", "--help"),
    "no words to ask": (f"P/model {BOTH} --ablation-words 0", "--ablation-words", "--help"),
    "no such device": (f"P/model {BOTH} --device tpu9", "device", "tpu9"),
    "seed negative": (f"P/model {BOTH} --seed -1", "--seed", "--help"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_gets_one_message_with_a_remedy(case, place, shell, tmp_path):
    line, named, remedy = CASES[case]
    words = [word.replace("P/", f"{place}/") for word in line.split()]
    done = shell("anatomy", *words, "--out", tmp_path / "run")
    assert done.exit_code == 2, (done.stdout, done.stderr, done.exception)
    message = " ".join(done.stderr.split())
    assert named in message
    assert remedy in message
    assert "Traceback" not in message
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_run_is_never_overwritten(shell, place, tmp_path):
    done = run_verb(shell, place, tmp_path)
    assert done.exit_code == 2
    assert "another --out" in done.stderr
