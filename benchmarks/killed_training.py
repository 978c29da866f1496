"""Whether a training that is killed at any moment ends in the same bits; a part of `kills.py`.

An LSTM with dropout and Adam. It has a checkpoint every five steps, so that many kills interrupt
the writing of one.
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


def random_text(tokens: int, *, seed: int) -> EncodedCorpus:
    """Random words in one document."""
    ids = np.random.default_rng(seed).integers(2, WORDS, tokens).astype(np.int32)
    return EncodedCorpus(ids, np.array([0, tokens]))


def small_training(directory: Path) -> None:
    """Two epochs with every kind of state that a checkpoint has."""
    torch.set_num_threads(1)
    words = ("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS)))
    shape = LSTMConfig(layers=2, embedding_size=32, hidden_size=32, dropout_in=0.1, dropout_out=0.1)
    train(
        new_model(WordVocabulary(words, lowercase=False), shape, seed=1),
        random_text(14_000, seed=2),
        validation=random_text(1_000, seed=3),
        config=TrainingConfig(seed=4, epochs=2, learning_rate=0.01, checkpoint_every=5),
        directory=directory,
        resume=True,
    )


def run_and_kill(directory: Path, after: float | None = None) -> bool:
    """Run the training in a new process and kill it after some seconds; whether it was killed."""
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


def digest(directory: Path) -> str:
    """One hash of the files of a training, without seconds."""
    sha256 = hashlib.sha256((directory / MODEL / "model.safetensors").read_bytes())
    history = json.loads((directory / HISTORY).read_text())
    with safe_open(directory / CHECKPOINT, "pt") as file:
        position = json.loads(file.metadata()["position"])
        for name in sorted(file.keys()):
            sha256.update(name.encode() + file.get_tensor(name).numpy().tobytes())
    for record in (*history, *position["epochs"], position):
        del record["seconds"]
    sha256.update(json.dumps([history, position]).encode())
    return sha256.hexdigest()


def training(run: Run) -> list[Row]:
    """Kill and resume several trainings once each; then one training as often in a row."""
    root, rng = run.folder / "trainings", random.Random(run.options.seed)
    root.mkdir()
    started = time.perf_counter()
    run_and_kill(root / "undisturbed")
    taken, expected = time.perf_counter() - started, digest(root / "undisturbed")
    kills, equal, times = 0, 0, run.times(20)
    while kills < times:
        directory = root / f"killed-{kills}"
        if run_and_kill(directory, rng.uniform(0, taken)):
            kills += 1
            run_and_kill(directory)
            equal += digest(directory) == expected
    in_a_row = sum(run_and_kill(root / "again", rng.uniform(0, taken)) for _ in range(times))
    run_and_kill(root / "again")
    faults = {"differs": kills - equal} if equal < kills else {}
    faults |= {} if digest(root / "again") == expected else {"differs after kills in a row": 1}
    happened = {"kills": kills, "in a row": in_a_row}
    return [{"training": "LSTM", "happened": happened, "faults": faults}]
