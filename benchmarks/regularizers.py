"""What does a step of each regularizer cost over a plain one?

Two LSTM layers of 550 over a vocabulary of 10,000, mixed batches of 32 sequences of 20 tokens by
100 users, a discriminator of 1,000 hidden units: each step with its update (SGD) beside
`plain_step` with update, on the same batch, in turns. The ratios are those of the medians, those
of the fastest repeats stand beside them. One thread, timed in its own seconds on the CPU: waiting
for other programs would drown what is measured.

    python benchmarks/regularizers.py [--repeats 16] [--device cpu]

The last line is JSON: at most 1.06 (adversarial) and 1.15 (triplet, in-batch triplet) is wanted;
the triplet's auxiliary batch costs a pass of the layers below the head, forward and back, which is
1.25 here.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.defences.goldfish import GoldfishStep
from vestige.defences.regularizers import AdversarialStep, TripletStep
from vestige.memory import keep_freed_pages
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.batches import Batch
from vestige.training.new_models import new_model
from vestige.training.sequences import SequenceBatches, Sequences
from vestige.training.steps import StepFn, plain_step

WORDS, LAYERS, HIDDEN = 10_000, 2, 550
ROWS, LENGTH, USERS = 32, 20, 100
LEARNING_RATE = 0.1


def now(device: str) -> float:
    """Seconds of this process on the CPU; on a GPU by the clock, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def make_batches(device: str) -> SequenceBatches:
    """Documents of one length, their words as unequally frequent as a text's, ten a user."""
    documents = 10 * USERS
    drawn = np.random.default_rng(0).zipf(1.3, documents * LENGTH) % WORDS
    data = EncodedCorpus(
        drawn.astype(np.int32),
        np.arange(documents + 1) * LENGTH,
        (np.arange(documents) % USERS).astype(np.int32),
        tuple(f"user{i}" for i in range(USERS)),
    )
    sequences = Sequences.of(data, length=LENGTH)
    return SequenceBatches(sequences, ROWS, "documents", 1, torch.device(device))


def updating(step: StepFn, device: str) -> Callable[[Batch], None]:
    """A step and its update, on a fresh model."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS))))
    shape = LSTMConfig(layers=LAYERS, embedding_size=HIDDEN, hidden_size=HIDDEN)
    model = new_model(vocabulary, shape, seed=0).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)

    def take(batch: Batch) -> None:
        step(model, batch, None)
        optimizer.step()

    return take


def main() -> None:
    """Time all steps in turns and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_pages()
    device = arguments.device
    batches = make_batches(device)
    steps: dict[str, StepFn] = {
        "plain": plain_step(),
        "adversarial": AdversarialStep(
            weight=0.1, width=HIDDEN, users=USERS, seed=0, device=device
        ),
        "triplet": TripletStep(weight=0.1, auxiliary=batches),
        "triplet_in_batch": TripletStep(weight=0.1),
        "goldfish": GoldfishStep(),
    }
    taking = {name: updating(step, device) for name, step in steps.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(arguments.repeats + 1):
        batch = next(batches.epoch(0, repeat))
        for name in list(steps)[:: 1 if repeat % 2 else -1]:
            began = now(device)
            taking[name](batch)
            if repeat:  # the first round warms up
                seconds[name].append(now(device) - began)

    result: dict[str, object] = {"benchmark": "regularizers"}
    for name in list(steps)[1:]:
        middle = statistics.median(seconds[name]) / statistics.median(seconds["plain"])
        result[f"{name}_ratio"] = round(middle, 3)
        result[f"{name}_fastest_ratio"] = round(min(seconds[name]) / min(seconds["plain"]), 3)
    result |= {
        "plain_seconds": round(statistics.median(seconds["plain"]), 4),
        "device": device,
        "repeats": arguments.repeats,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
