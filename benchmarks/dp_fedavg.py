"""What does a round of DP-FedAvg cost over the same text trained plainly?

One LSTM layer of 128 over a vocabulary of 5,000, ten users of 48 texts of 20 tokens: a round with
its update (each user's 6 local steps of 8 texts, clipping, noise), beside plain steps with update
(SGD) of the same number of texts, mixed, in turns: of 8 texts each, as in the round, and of 64. The
ratios are those of the medians, those of the fastest repeats stand beside them. A round that copies
the model for each user with `deepcopy`, which is how one would write it down, is timed in the same
run. One thread, timed in its own seconds on the CPU: waiting for other programs would drown what is
measured.

    python benchmarks/dp_fedavg.py [--repeats 12] [--device cpu]

The last line is JSON: at most 1.15 over plain steps of the same size is wanted.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.memory import keep_freed_pages
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.training.batches import Batch
from vestige.training.new_models import new_model
from vestige.training.sequences import Sequences
from vestige.training.steps import plain_step

WORDS, HIDDEN = 5_000, 128
USERS, TEXTS, LENGTH = 10, 48, 20
LOCAL, LARGE = 8, 64
RATE, CLIP, NOISE = 1.0, 1.0, 1.0

Round = Callable[[Batch], None]


def now(device: str) -> float:
    """Seconds of this process on the CPU; on a GPU by the clock, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def make_batch(device: str) -> Batch:
    """All users' texts of one length, their words as unequally frequent as a text's."""
    texts = USERS * TEXTS
    drawn = np.random.default_rng(0).zipf(1.3, texts * LENGTH) % WORDS
    data = EncodedCorpus(
        drawn.astype(np.int32),
        np.arange(texts + 1) * LENGTH,
        (np.arange(texts) % USERS).astype(np.int32),
        tuple(f"user{i}" for i in range(USERS)),
    )
    sequences = Sequences.of(data, length=LENGTH)
    return sequences.batch(np.arange(texts), 1, torch.device(device))


def fresh(device: str) -> tuple[LanguageModel, torch.optim.Optimizer]:
    """A new model and its server."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS))))
    shape = LSTMConfig(layers=1, embedding_size=HIDDEN, hidden_size=HIDDEN)
    model = new_model(vocabulary, shape, seed=0).to(device).train()
    return model, torch.optim.SGD(model.parameters(), lr=RATE, fused=True)


def plain(device: str, rows: int) -> Round:
    """Plain steps of so many texts each over all of them."""
    model, optimizer = fresh(device)
    step = plain_step()

    def take(batch: Batch) -> None:
        for chosen in torch.randperm(len(batch.inputs)).to(device).split(rows):
            step(model, batch.select(chosen), None)
            optimizer.step()

    return take


def federated(device: str) -> Round:
    """Ours."""
    model, optimizer = fresh(device)
    step = DPFedAvgStep(
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_units=USERS,
        local_batch_size=LOCAL,
        local_learning_rate=RATE,
    )

    def take(batch: Batch) -> None:
        step(model, batch, None)
        optimizer.step()

    return take


def copied(device: str) -> Round:
    """The same with a copy of the model for every user."""
    model, _ = fresh(device)
    step = plain_step()

    def take(batch: Batch) -> None:
        start = [p.detach().clone() for p in model.parameters()]
        total = [torch.zeros_like(p) for p in start]
        for user in range(USERS):
            local = deepcopy(model)
            optimizer = torch.optim.SGD(local.parameters(), lr=RATE, fused=True)
            rows = (batch.users == user).nonzero().flatten()
            for chosen in rows[torch.randperm(len(rows)).to(device)].split(LOCAL):
                step(local, batch.select(chosen), None)
                optimizer.step()
            update = [p.detach() - q for p, q in zip(local.parameters(), start, strict=True)]
            scale = min(1.0, CLIP / float(torch.nn.utils.get_total_norm(update)))
            total = [t + scale * u for t, u in zip(total, update, strict=True)]
        with torch.no_grad():
            for p, t in zip(model.parameters(), total, strict=True):
                p += (t + NOISE * CLIP * torch.randn_like(t)) / USERS

    return take


def main() -> None:
    """Time all kinds in turns and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_pages()
    device = arguments.device
    batch = make_batch(device)
    kinds = {
        "plain": plain(device, LOCAL),
        "plain_large": plain(device, LARGE),
        "dp_fedavg": federated(device),
        "deepcopy": copied(device),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for repeat in range(arguments.repeats + 1):
        for name in list(kinds)[:: 1 if repeat % 2 else -1]:
            began = now(device)
            kinds[name](batch)
            if repeat:  # the first round warms up
                seconds[name].append(now(device) - began)

    result: dict[str, object] = {"benchmark": "dp_fedavg"}
    for name, base in (("dp_fedavg", "plain"), ("dp_fedavg", "plain_large"), ("deepcopy", "plain")):
        middle = statistics.median(seconds[name]) / statistics.median(seconds[base])
        result[f"{name}_over_{base}"] = round(middle, 3)
        result[f"{name}_over_{base}_fastest"] = round(min(seconds[name]) / min(seconds[base]), 3)
    result |= {
        "plain_seconds": round(statistics.median(seconds["plain"]), 4),
        "tokens": batch.tokens,
        "device": device,
        "repeats": arguments.repeats,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
