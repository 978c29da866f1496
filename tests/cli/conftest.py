"""A command line in the same process, and a workspace of valid and broken inputs."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli import example
from tests.cli.shell import invoke
from tests.networks import write_bert
from vestige import results
from vestige.cli import app as cli
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

LINES = [
    "the gate opens at nine",
    "the code of the gate is new",
    "nobody knows the code at night",
    "a lantern stands at the gate of the mill",
    "the miller knows a new code",
] * 8


@pytest.fixture(scope="session")
def shell():
    """Run `vestige` with some words; the result has exit_code, stdout and stderr."""

    def run(*words):
        return invoke(words)

    return run


def table_model(words: list[str], seed: int) -> TableModel:
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    chance = np.random.default_rng(seed)
    alpha = np.full(len(vocabulary), 0.1)  # most rows are sure of one token
    return TableModel(chance.dirichlet(alpha), chance.dirichlet(alpha, len(alpha)), vocabulary)


class Found:
    """A result of one phrase, as an update diff has it."""

    def summary(self):
        return {"search": "beam", "score": "smoothed", "phrases": 1, "threshold": None}

    def rows(self):
        phrase = {"phrase": "the code", "tokens": [2, 3], "pieces": ["the", "code"]}
        scores = {"rank": 0, "score": 3.0, "token_scores": [1.0, 2.0]}
        yield {**phrase, **scores, "group": 0, "copies": 0, "kind": "phrase", "found": None}


Found.__name__ = "UpdateDiff"


@pytest.fixture(scope="session")
def workspace(tmp_path_factory, shell) -> Path:
    """Corpora, models, runs and plantings; names say what is wrong with them."""
    root = tmp_path_factory.mktemp("workspace")
    _corpora(root)
    _models(root)
    results.save(Found(), root / "run", run={"command": ["vestige", "diff"]})
    for name, file, content in [
        ("run-no-rows", "rows.parquet", None),
        ("run-cut", "rows.parquet", b"PAR1"),
        ("run-bad-json", "run.json", b"{"),
        ("run-list", "summary.json", b"[]"),
        ("run-later", "run.json", b'{"format": 99, "result": "UpdateDiff"}'),
    ]:
        _broken(root / "run", root / name, file, content)
    _no_columns(root)
    _plantings(root, shell)
    (root / "file").write_text("not a directory")
    (root / "empty-folder").mkdir()
    (root / "full-folder").mkdir()
    (root / "full-folder" / "letter").write_text("mine")
    return root


def _corpora(root: Path) -> None:
    text = "\n".join(LINES) + "\n"
    (root / "corpus.txt").write_text(text)
    (root / "one-line.txt").write_text("hello\n")
    (root / "empty.txt").write_text("")
    (root / "blank.txt").write_text(" \n\n")
    (root / "latin1.txt").write_bytes("fine\ncaf\u00e9\n".encode("latin-1"))
    (root / "cut.txt.gz").write_bytes(gzip.compress(text.encode())[:-9])
    (root / "cut.jsonl").write_text('{"text": "one"}\n{"text": "tw')
    (root / "list.jsonl").write_text("[1, 2]\n")
    (root / "numbers.jsonl").write_text('{"text": 1}\n')
    (root / "other.jsonl").write_text('{"body": "one"}\n')
    (root / "other.csv").write_text("body,who\none,ann\n")
    (root / "cut.parquet").write_bytes(b"PAR1")
    (root / "odd.xyz").write_text("what am I")


def _models(root: Path) -> None:
    words = ["the", "code", "gate", "of", "is"]
    for name, seed in [("before", 0), ("after", 4)]:  # both depend enough on the context
        save_model(table_model(words, seed), root / name)
    save_model(table_model([*words, "new"], 2), root / "larger")
    save_model(table_model([*words[:-1], "mill"], 3), root / "other-words")
    weights = (root / "before" / "model.safetensors").read_bytes()
    for name, file, content in [
        ("model-no-weights", "model.safetensors", None),
        ("model-cut", "model.safetensors", weights[:-8]),
        ("model-no-vocabulary", "vocabulary.json", None),
        ("model-bad-vocabulary", "vocabulary.json", b"{}"),
        ("model-bad-json", "model.json", b"{"),
        ("model-list", "model.json", b"[]"),
        ("model-unknown", "model.json", _changed(root / "before", architecture="quantum")),
        ("model-later", "model.json", _changed(root / "before", format=99)),
    ]:
        _broken(root / "before", root / name, file, content)
    for name, config in [("hf-bad-json", "{"), ("hf-no-weights", '{"model_type": "gpt2"}')]:
        (root / name).mkdir()
        (root / name / "config.json").write_text(config)
    (root / "adapter-no-base").mkdir()
    (root / "adapter-no-base" / "adapter_config.json").write_text("{}")


def _plantings(root: Path, shell) -> None:
    shell("plant", root / "corpus.txt", "--out", root / "planted", "--phrase", "quiet mice sing")
    manifest = (root / "planted" / "manifest.json").read_text()
    corpus = (root / "planted" / "corpus.jsonl").read_text().splitlines()
    gone = [line for line in corpus if "quiet mice sing" not in line]
    for name, file, content in [
        ("planted-no-manifest", "manifest.json", None),
        ("planted-no-corpus", "corpus.jsonl", None),
        ("planted-changed", "manifest.json", manifest.replace("quiet mice", "loud mice").encode()),
        (
            "planted-copies",
            "manifest.json",
            manifest.replace('"copies": 10', '"copies": 9').encode(),
        ),
        ("planted-bad-json", "manifest.json", manifest[:-5].encode()),
        ("planted-empty", "manifest.json", b"{}"),
        ("planted-gone", "corpus.jsonl", "\n".join(gone).encode()),
    ]:
        _broken(root / "planted", root / name, file, content)


def _no_columns(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    shutil.copytree(root / "run", root / "run-no-columns")
    pq.write_table(pa.table({"rank": [0]}), root / "run-no-columns" / "rows.parquet")
    asked = json.loads((root / "run" / "run.json").read_text())
    del asked["files"]  # as in older runs: nothing says that the rows were changed
    (root / "run-no-columns" / "run.json").write_text(json.dumps(asked))


def _broken(sound: Path, copy: Path, file: str, content: bytes | None) -> None:
    """A copy of a directory, one file of it replaced or gone."""
    shutil.copytree(sound, copy)
    if content is None:
        (copy / file).unlink()
    else:
        (copy / file).write_bytes(content)


def _changed(model: Path, **entries) -> bytes:
    return json.dumps(json.loads((model / "model.json").read_text()) | entries).encode()


@pytest.fixture(scope="session")
def tiny_encoder():
    """Makes a folder with a BERT that reads a few words and the digits; not trained."""
    words = ["my", "code", "is", "fly", "to", "rain", "in", *"0123456789", "pin", "york", "bath"]

    def make(folder):
        return write_bert(folder, words, width=32)

    return make


@pytest.fixture
def refit(monkeypatch, capsys):
    """Calls of the example verb: (exit code, arguments or None, stdout, stderr)."""
    monkeypatch.setattr(cli, "VERBS", {"Test": {"refit": "Train a model on DATA."}})
    monkeypatch.setattr(cli, "MODULES", {"refit": "tests.cli.example"})

    def call(words):
        seen, real = [], example.refit

        def watched(*args, **kwargs):
            seen.append(real(*args, **kwargs))
            return seen[-1]

        watched.__wrapped__, watched.__signature__ = real.__wrapped__, real.__signature__
        watched.__doc__ = real.__doc__
        with monkeypatch.context() as patch:
            patch.setattr(example, "refit", watched)
            code = cli.run(["refit", *words])
        shown = capsys.readouterr()
        return code, seen[0].record if seen else None, shown.out, shown.err

    return call
