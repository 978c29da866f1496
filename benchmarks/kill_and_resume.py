"""Does a training killed at a random moment, then resumed, end in the same bits?

Trains once undisturbed; then, for each of N seeded random moments of that time, starts anew,
sends SIGKILL, resumes, and compares the weights and the history byte for byte. Checkpoints are
written every few steps, so that many kills fall into the writing of one. A last training is
killed as many times in a row, then left to end.

    python benchmarks/kill_and_resume.py [--kills 20] [--seed 0]

The last line is JSON; the exit status is 1 where a byte differs.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch._dynamo  # every optimizer imports it, for seconds: once here, not in each child
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
    """Two epochs of an LSTM with dropout and Adam: every kind of state a checkpoint holds."""
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


def run(directory: Path, *, kill_after: float | None = None) -> bool:
    """Run the training in a process of its own; True when it was killed."""
    process = FORK.Process(target=small_training, args=(directory,))
    process.start()
    process.join(kill_after)
    killed = process.is_alive()
    if killed:
        process.kill()
        process.join()
    elif process.exitcode != 0:
        sys.exit(f"a training in {directory} failed with exit code {process.exitcode}")
    return killed


def outcome(directory: Path) -> str:
    """One hash over all that a training leaves behind, but for the seconds that it took."""
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


def stage(directory: Path) -> str:
    """What the kill left behind."""
    if not (directory / CHECKPOINT).exists():
        return "before the first checkpoint"
    if (directory / f".{CHECKPOINT}").exists():
        return "while writing a checkpoint"
    return "after the model was saved" if (directory / MODEL).exists() else "between checkpoints"


def main() -> None:
    """Kill, resume, compare, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    equal, killed, kills_in_a_row, stages = 0, 0, 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        began = time.perf_counter()
        run(root / "undisturbed")
        seconds = time.perf_counter() - began
        expected = outcome(root / "undisturbed")
        while killed < arguments.kills:
            directory = root / f"killed-{killed}"
            if not run(directory, kill_after=moments.uniform(0, seconds)):
                continue
            killed += 1
            stages[stage(directory)] += 1
            run(directory)
            equal += outcome(directory) == expected
        for _ in range(arguments.kills):
            kills_in_a_row += run(root / "again", kill_after=moments.uniform(0, seconds))
        run(root / "again")
        equal_again = outcome(root / "again") == expected
    result = {
        "benchmark": "kill_and_resume",
        "kills": killed,
        "equal": equal,
        "kills_in_a_row": kills_in_a_row,
        "equal_after_kills_in_a_row": equal_again,
        "stages": dict(stages),
        "seconds_undisturbed": round(seconds, 2),
    }
    print(json.dumps(result))
    sys.exit(0 if equal == killed and equal_again else 1)


if __name__ == "__main__":
    main()
