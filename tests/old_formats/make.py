"""Write an archive of everything that Vestige keeps on disk, by the code as it is now.

    python -m tests.old_formats.make tests/old_formats/1.tar.xz

A later version makes another archive beside the old ones, which stay as they are: what they hold
was written by the code of their time, and `test_old_formats.py` reads it with the code of today.
"""

import os
import sys
import tarfile
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from every_verb import COMMANDS, OUT, prepare

import vestige
from tests.cli.shell import invoke
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig
from vestige.training import checkpoint

DATA = ("corpus.txt", "mine.jsonl", "others.jsonl", "songs.jsonl", "pairs.jsonl")
SHORT = ["--epochs", "3", "--checkpoint-every", "2", "--batch-size", "8", "--device", "cpu"]
TINY = ["--hidden-size", "4", *SHORT]
TEXT = ["train", "corpus.txt", "--from", "models/lstm", "--sequence-length", "8", *SHORT]
USERS = ["train", "mine.jsonl", "--user", "who", "--from", "models/lstm", *SHORT]
PRIVATE = ["--noise-multiplier", "1", "--delta", "1e-3", "--clip", "1", "--accountant", "rdp",
           "--accept-private-vocabulary"]  # fmt: skip

TRAININGS = {
    "text": [*TEXT, "--optimizer", "adam"],
    "adversarial": [*USERS, "--defence", "adversarial"],
    "triplet": [*USERS, "--defence", "triplet"],
    "dp-sgd": ["train", "corpus.txt", "--from", "models/lstm", *SHORT, *PRIVATE,
               "--defence", "dp-sgd"],
    "dp-fedavg": ["train", "others.jsonl", *USERS[2:], *PRIVATE, "--defence", "dp-fedavg"],
    "nlu": ["train", "songs.jsonl", "--task", "nlu", "--embedding-size", "4", *TINY],
    "pairs": ["train", "pairs.jsonl", "--task", "translation", "--source", "french", "--text",
              "english", "--user", "who", *TINY],
    "next-word": ["train", "mine.jsonl", "--task", "next-word", "--user", "who", *TINY],
}  # fmt: skip
"""Trainings that are interrupted after their second checkpoint, without --out."""


def run(words, *, interrupted=False):
    done = invoke(words)
    ended = done.exit_code == 130 if interrupted else done.finished
    assert ended, (words, done.stderr, done.exception)


def interrupt(words, out):
    """Run a training until its second checkpoint is written."""
    save, written = checkpoint.save, []

    def second(*arguments):
        save(*arguments)
        written.append(1)
        if len(written) == 2:
            raise KeyboardInterrupt

    with patch.object(checkpoint, "save", second):
        run([*words, "--out", out], interrupted=True)


def models():
    """Models of a few hundred weights, one of each kind of network that reads text."""
    lines = Path("corpus.txt").read_text("utf-8").splitlines()
    words = [*lines, " ".join(f"w{number}" for number in range(20))]
    vocabulary = WordVocabulary.build(Corpus.from_texts(words))
    uniform = np.full(len(vocabulary), 1 / len(vocabulary))
    torch.manual_seed(0)
    recurrent = {"layers": 1, "hidden_size": 4, "embedding_size": 4}
    attention = TransformerConfig(
        layers=1, heads=2, hidden_size=4, feed_forward=4, max_length=16, dropout=0.1
    )
    for name, model in {
        "lstm": LSTMLanguageModel(vocabulary, LSTMConfig(**recurrent)),
        "gru": GRULanguageModel(vocabulary, GRUConfig(**recurrent)),
        "transformer": CausalTransformer(vocabulary, attention),
        "table": TableModel(uniform, np.tile(uniform, (len(uniform), 1)), vocabulary),
    }.items():
        save_model(model, Path("models") / name)


def make():
    """Fill the working directory."""
    prepare(Path.cwd(), run)
    models()
    others = Path("others.jsonl").read_text("utf-8").splitlines(keepends=True)
    Path("few.jsonl").write_text("".join(others[:12]), "utf-8")
    for kind, words in COMMANDS.items():
        if words[0] not in ("report", "null", "plant") and kind != "train seeds":
            out = "run-" + kind.replace(" ", "-")
            run([out if word == OUT else word for word in words])
    vestige.anatomy(
        "target", "mine.jsonl", "few.jsonl", user="who", device="cpu", out="run-anatomy"
    )
    for name, words in TRAININGS.items():
        interrupt(words, f"unfinished/{name}")


def kept(path):
    """Whether a file belongs in the archive."""
    top, *rest = path.parts
    if not rest:
        return path.name in DATA
    if top.startswith("run-train"):
        return rest[0] == "run"
    if top == "run-reproduce":
        return rest[0] == "results"
    if top in ("target", "nlu"):
        return rest[0] in ("model", "data") or path.name in ("training.json", "privacy.json")
    if path.suffix == ".html":
        return False
    return top.startswith("run-") or top in ("models", "planted", "secrets", "unfinished")


def nobody(file):
    """A file's entry without whose it was and when."""
    return file.replace(uid=0, gid=0, uname="", gname="", mtime=0, mode=0o600, deep=False)


def main(archive):
    archive = archive.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make()
        files = [path for path in sorted(Path().rglob("*")) if path.is_file() and kept(path)]
        with tarfile.open(archive, "x:xz") as packed:
            for path in files:
                packed.add(path, filter=nobody)
        os.chdir(archive.parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
