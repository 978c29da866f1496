"""Whether a training that is killed at any moment ends in the same bits, in Python.

An LSTM with dropout and Adam, checkpoints every five steps, so that many kills fall into the
writing of one. Part of `kills.py`.
"""

import hashlib
import json
import multiprocessing
import random
import time
from pathlib import Path

import numpy as np
import torch
from harness import Row, Run
from safetensors import safe_open

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.config import TrainingConfig
from vestige.training.directory import CHECKPOINT, HISTORY, MODEL
from vestige.training.loop import train
from vestige.training.new_models import new_model

WORDS = 200
FORK = multiprocessing.get_context("fork")  # a fresh interpreter would import torch for seconds


def text(tokens: int, *, seed: int) -> EncodedCorpus:
    """Random words, one document."""
    ids = np.random.default_rng(seed).integers(2, WORDS, tokens).astype(np.int32)
    return EncodedCorpus(ids, np.array([0, tokens]))


def small_training(directory: Path) -> None:
    """Two epochs: every kind of state a checkpoint holds."""
    torch.set_num_threads(1)
    words = ("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS)))
    shape = LSTMConfig(layers=2, embedding_size=32, hidden_size=32, dropout_in=0.1, dropout_out=0.1)
    train(
        new_model(WordVocabulary(words, lowercase=False), shape, seed=1),
        text(14_000, seed=2),
        validation=text(1_000, seed=3),
        config=TrainingConfig(seed=4, epochs=2, learning_rate=0.01, checkpoint_every=5),
        directory=directory,
        resume=True,
    )


def is_killed(directory: Path, after: float | None = None) -> bool:
    """Run the training in a process of its own, and kill it after some seconds."""
    process = FORK.Process(target=small_training, args=(directory,))
    process.start()
    process.join(after)
    killed = process.is_alive()
    if killed:
        process.kill()
        process.join()
    elif process.exitcode != 0:
        raise SystemExit(f"a training in {directory} failed with exit code {process.exitcode}")
    return killed


def outcome(directory: Path) -> str:
    """One hash over all that a training leaves, but for the seconds that it took."""
    digest = hashlib.sha256((directory / MODEL / "model.safetensors").read_bytes())
    history = json.loads((directory / HISTORY).read_text())
    with safe_open(directory / CHECKPOINT, "pt") as file:
        position = json.loads(file.metadata()["position"])
        for name in sorted(file.keys()):
            digest.update(name.encode() + file.get_tensor(name).numpy().tobytes())
    for record in (*history, *position["epochs"], position):
        del record["seconds"]
    digest.update(json.dumps([history, position]).encode())
    return digest.hexdigest()


def training(run: Run) -> list[Row]:
    """Kill and resume so often, each a training of its own; then as often in a row."""
    root, moments = run.folder / "trainings", random.Random(run.options.seed)
    root.mkdir()
    began = time.perf_counter()
    is_killed(root / "undisturbed")
    took, wanted = time.perf_counter() - began, outcome(root / "undisturbed")
    kills, equal, times = 0, 0, run.times(20)
    while kills < times:
        directory = root / f"killed-{kills}"
        if is_killed(directory, moments.uniform(0, took)):
            kills += 1
            is_killed(directory)
            equal += outcome(directory) == wanted
    in_a_row = sum(is_killed(root / "again", moments.uniform(0, took)) for _ in range(times))
    is_killed(root / "again")
    lost = {"differs": kills - equal} if equal < kills else {}
    lost |= {} if outcome(root / "again") == wanted else {"differs after kills in a row": 1}
    return [
        {"training": "LSTM", "happened": {"kills": kills, "in a row": in_a_row}, "faults": lost}
    ]
