"""Does `train` keep the pace of a minimal plain PyTorch loop?

Both train the two-layer LSTM of 200 over a vocabulary of 10,000 with the settings of "ptb-lstm",
on the same random text, in turns; each repeat begins from the same weights. The ratio is that of
the medians, that of the fastest repeats stands beside it. One thread, timed in its own seconds on
the CPU: waiting for other programs would drown what is measured.

    python benchmarks/training.py [--repeats 16] [--steps 10] [--device cpu]

The last line is JSON: at least 0.95 is wanted.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.presets import preset

WORDS = 10_000
ROWS, LENGTH = 20, 20


def now(device: str) -> float:
    """Seconds of this process on the CPU; on a GPU by the clock, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def plain_loop(tokens: np.ndarray, config: TrainingConfig, device: str) -> float:
    """The loop that anyone would write first; seconds."""
    torch.manual_seed(0)
    embedding, head = nn.Embedding(WORDS, 200).to(device), nn.Linear(200, WORDS).to(device)
    lstm = nn.LSTM(200, 200, num_layers=2, batch_first=True).to(device)
    parameters = [*embedding.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=config.learning_rate)
    rows = torch.from_numpy(tokens[:-1].astype(np.int64)).view(ROWS, -1).to(device)
    following = torch.from_numpy(tokens[1:].astype(np.int64)).view(ROWS, -1).to(device)
    state = None
    began = now(device)
    for i in range(0, rows.shape[1], LENGTH):
        outputs, (hidden, cell) = lstm(embedding(rows[:, i : i + LENGTH]), state)
        targets = following[:, i : i + LENGTH].flatten()
        loss = cross_entropy(head(outputs).flatten(0, 1), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
        optimizer.step()
        state = (hidden.detach(), cell.detach())
    return now(device) - began


def vestige_loop(tokens: np.ndarray, config: TrainingConfig, device: str) -> float:
    """The same with `train`; seconds."""
    vocabulary = WordVocabulary(
        ("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS))), lowercase=False
    )
    model = new_model(vocabulary, LSTMConfig(), seed=0).to(device)
    data = EncodedCorpus(tokens, np.array([0, len(tokens)]))
    began = now(device)
    train(model, data, config=config)
    return now(device) - began


def main() -> None:
    """Time both in turns and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    drawn = np.random.default_rng(0).zipf(1.3, ROWS * LENGTH * arguments.steps + 1)
    tokens = (drawn % WORDS).astype(np.int32)
    config = replace(preset("ptb-lstm").training, epochs=1, precision="float32")

    loops = [plain_loop, vestige_loop]
    seconds: dict[str, list[float]] = {loop.__name__: [] for loop in loops}
    for repeat in range(arguments.repeats + 1):
        for loop in loops if repeat % 2 else loops[::-1]:
            taken = loop(tokens, config, arguments.device)
            if repeat:  # the first round warms up
                seconds[loop.__name__].append(taken)
    plain, ours = seconds["plain_loop"], seconds["vestige_loop"]
    result = {
        "benchmark": "training",
        "tokens_per_second_ratio": round(statistics.median(plain) / statistics.median(ours), 3),
        "fastest_ratio": round(min(plain) / min(ours), 3),
        "tokens_per_second": round((len(tokens) - 1) / min(ours)),
        "device": arguments.device,
        "repeats": arguments.repeats,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
