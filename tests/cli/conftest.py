"""The command line in this process, and a workspace of valid and broken inputs."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import example
from tests.cli.shell import invoke
from tests.files import damaged_copy
from tests.networks import write_bert
from vestige import results
from vestige.cli import app as cli
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel
from vestige.results import Result

LINES = [
    "the gate opens at nine",
    "the code of the gate is new",
    "nobody knows the code at night",
    "a lantern stands at the gate of the mill",
    "the miller knows a new code",
] * 8


@pytest.fixture(scope="session")
def shell():
    """Runs `vestige` with some words; see `invoke`."""

    def run(*words):
        return invoke(words)

    return run


def table_model(words: list[str], seed: int) -> TableModel:
    """A random bigram model of some words."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    generator = np.random.default_rng(seed)
    alpha = np.full(len(vocabulary), 0.1)  # most rows have one probable token
    table = generator.dirichlet(alpha), generator.dirichlet(alpha, len(alpha))
    return TableModel(*table, vocabulary)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory, shell) -> Path:
    """Corpora, models, runs and plantings; names say what is wrong with them."""
    root = tmp_path_factory.mktemp("workspace")
    _write_corpora(root)
    _write_models(root)
    _write_runs(root)
    _write_plantings(root, shell)
    (root / "file").write_text("not a directory")
    (root / "empty-folder").mkdir()
    (root / "full-folder").mkdir()
    (root / "full-folder" / "letter").write_text("mine")
    return root


def _write_corpora(root: Path) -> None:
    text = "\n".join(LINES) + "\n"
    for name, content in {
        "corpus.txt": text,
        "one-line.txt": "hello\n",
        "empty.txt": "",
        "blank.txt": " \n\n",
        "latin1.txt": "fine\ncaf\u00e9\n".encode("latin-1"),
        "cut.txt.gz": gzip.compress(text.encode())[:-9],
        "cut.jsonl": '{"text": "one"}\n{"text": "tw',
        "list.jsonl": "[1, 2]\n",
        "numbers.jsonl": '{"text": 1}\n',
        "other.jsonl": '{"body": "one"}\n',
        "other.csv": "body,who\none,ann\n",
        "cut.parquet": "PAR1",
        "odd.xyz": "what am I",
    }.items():
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def _write_models(root: Path) -> None:
    words = ["the", "code", "gate", "of", "is"]
    for name, seed in [("before", 0), ("after", 4)]:  # both depend enough on the context
        save_model(table_model(words, seed), root / name)
    save_model(table_model([*words[:-1], "mill"], 3), root / "other-words")
    sound = root / "before"
    weights = (sound / "model.safetensors").read_bytes()
    settings = json.loads((sound / "model.json").read_text())
    for name, file, content in [
        ("model-no-weights", "model.safetensors", None),
        ("model-cut", "model.safetensors", weights[:-8]),
        ("model-no-vocabulary", "vocabulary.json", None),
        ("model-bad-vocabulary", "vocabulary.json", "{}"),
        ("model-bad-json", "model.json", "{"),
        ("model-list", "model.json", "[]"),
        ("model-unknown", "model.json", json.dumps({**settings, "architecture": "quantum"})),
        ("model-later", "model.json", json.dumps({**settings, "format": 99})),
    ]:
        damaged_copy(sound, root / name, file, content)
    for name, file, content in [
        ("hf-bad-json", "config.json", "{"),
        ("hf-no-weights", "config.json", '{"model_type": "gpt2"}'),
        ("adapter-no-base", "adapter_config.json", "{}"),
    ]:
        (root / name).mkdir()
        (root / name / file).write_text(content)


def _write_runs(root: Path) -> None:
    phrase = {
        "phrase": "the code", "tokens": [2, 3], "pieces": ["the", "code"], "rank": 0, "score": 3.0,
        "token_scores": [1.0, 2.0], "group": 0, "copies": 0, "kind": "phrase", "found": None,
    }  # fmt: skip
    summary = {"search": "beam", "score": "smoothed", "phrases": 1, "threshold": None}
    diff = Result(kind="UpdateDiff", summary=summary, rows=[phrase])
    results.save(diff, root / "run", run={"command": ["vestige", "diff"]})
    for name, file, content in [
        ("run-no-rows", "rows.parquet", None),
        ("run-cut", "rows.parquet", "PAR1"),
        ("run-bad-json", "run.json", "{"),
        ("run-list", "summary.json", "[]"),
        ("run-later", "run.json", '{"format": 99, "result": "UpdateDiff"}'),
    ]:
        damaged_copy(root / "run", root / name, file, content)
    record = json.loads((root / "run" / "run.json").read_text())
    del record["files"]  # as in older runs, which have no checksums
    damaged_copy(root / "run", root / "run-no-columns", "run.json", json.dumps(record))
    pq.write_table(pa.table({"rank": [0]}), root / "run-no-columns" / "rows.parquet")


def _write_plantings(root: Path, shell) -> None:
    shell("plant", root / "corpus.txt", "--out", root / "planted", "--phrase", "quiet mice sing")
    manifest = (root / "planted" / "manifest.json").read_text()
    corpus = (root / "planted" / "corpus.jsonl").read_text().splitlines()
    unplanted = [line for line in corpus if "quiet mice sing" not in line]
    for name, file, content in [
        ("planted-no-manifest", "manifest.json", None),
        ("planted-no-corpus", "corpus.jsonl", None),
        ("planted-changed", "manifest.json", manifest.replace("quiet mice", "loud mice")),
        ("planted-copies", "manifest.json", manifest.replace('"copies": 10', '"copies": 9')),
        ("planted-bad-json", "manifest.json", manifest[:-5]),
        ("planted-empty", "manifest.json", "{}"),
        ("planted-gone", "corpus.jsonl", "\n".join(unplanted)),
    ]:
        damaged_copy(root / "planted", root / name, file, content)


@pytest.fixture(scope="session")
def tiny_encoder():
    """Writes an untrained BERT with a few words and the digits into a folder."""
    words = ["my", "code", "is", "fly", "to", "rain", "in", *"0123456789", "pin", "york", "bath"]

    def make(folder):
        return write_bert(folder, words, width=32)

    return make


@pytest.fixture
def refit(monkeypatch, capsys):
    """Runs the example verb; returns (exit code, its record or None, stdout, stderr)."""
    monkeypatch.setattr(cli, "VERBS", {"Test": {"refit": "Train a model on DATA."}})
    monkeypatch.setattr(cli, "MODULES", {"refit": "tests.cli.example"})

    def call(words):
        results = []
        with monkeypatch.context() as patch:
            patch.setattr(example, "refit", example.with_result(results.append))
            code = cli.run(["refit", *words])
        output = capsys.readouterr()
        return code, results[0].record if results else None, output.out, output.err

    return call
