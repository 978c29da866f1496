"""What do ten trials cost in one batch, beside one after the other, and what does each attack cost?

Ten intent-and-slot models (two bi-LSTM layers of 64 a side, vectors of 50, 8 intents, 75 tags),
each asked for the four digits of a PIN: the paper's attack from one start, with the same number of
steps. The batch asks the ten models as one stack, with one backward pass a step; one by one, each
model is asked by itself. In turns; the ratio is that of the medians, that of the fastest repeats
stands beside it. One thread, timed in its own seconds on the CPU: waiting for other programs would
drown what is measured. Every attack is then timed on the stack with its default settings.

    python benchmarks/nlu_extraction.py [--repeats 4] [--epochs 250] [--device cpu]

The last line is JSON: at most 0.2 is wanted.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from reproduction.nlu.paper_attacks import discrete_optimization, embedding_optimization
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.searches import Search, coordinate_descent, every_loss, exhaust
from vestige.data.secret_pattern import SecretPattern
from vestige.data.vocabulary import WordVocabulary
from vestige.memory import keep_freed_pages
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.stacked import stack
from vestige.models.white_box import WhiteBox

TRIALS, INTENTS, SLOTS, WORDS = 10, 8, 37, 5_000
PATTERN = SecretPattern.parse("my pin code is {digit:4}", intent="intent0", slot="slot0")


def now(device: str) -> float:
    """Seconds of this process on the CPU; on a GPU by the clock, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def make_model(seed: int, device: str) -> IntentSlotModel:
    """A model of the size that Snips takes, its weights random."""
    known = ("my", "pin", "code", "is", *"0123456789")
    words = ("<unk>", "<eos>", *known, *(f"w{n}" for n in range(WORDS)))
    tags = [f"{kind}-slot{n}" for n in range(SLOTS) for kind in "BI"]
    shape = IntentSlotConfig(intents=tuple(f"intent{n}" for n in range(INTENTS)), tags=("O", *tags))
    torch.manual_seed(seed)
    return IntentSlotModel(WordVocabulary(words), shape).to(device).eval()


SEARCHES: dict[str, Search] = {
    "exact": lambda objective, *_: exhaust(objective, every_loss(objective)),
    "coordinate": coordinate_descent,
    "paper": discrete_optimization,
    "embedding": embedding_optimization,
}


def search(model: WhiteBox, attack: Search) -> None:
    """One attack on one model or on a stack, as a user would ask for it."""
    attack(objective_of(model, PATTERN), torch.Generator().manual_seed(0), None)


def timed(ways: dict[str, Callable[[], None]], repeats: int, device: str) -> dict[str, list[float]]:
    """Seconds of each way, in turns; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name in list(ways)[:: 1 if repeat % 2 else -1]:
            began = now(device)
            ways[name]()
            if repeat:
                seconds[name].append(now(device) - began)
    return seconds


def main() -> None:
    """Time both ways and every attack and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=250)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_pages()
    device = arguments.device
    models = [make_model(seed, device) for seed in range(TRIALS)]
    steps = partial(discrete_optimization, epochs=arguments.epochs)

    def one_by_one() -> None:
        for model in models:
            search(model, steps)

    both = timed(
        {"batch": lambda: search(stack(models), steps), "one_by_one": one_by_one},
        arguments.repeats,
        device,
    )
    stacked = stack(models)
    each = {name: partial(search, stacked, attack) for name, attack in SEARCHES.items()}
    seconds = timed(each, 1, device)
    middle = {name: statistics.median(found) for name, found in both.items()}
    result: dict[str, object] = {
        "benchmark": "nlu_extraction",
        "batch_ratio": round(middle["batch"] / middle["one_by_one"], 3),
        "batch_fastest_ratio": round(min(both["batch"]) / min(both["one_by_one"]), 3),
        "one_by_one_seconds": round(middle["one_by_one"], 3),
    }
    for name, found in seconds.items():
        result[f"{name}_seconds_per_trial"] = round(found[0] / TRIALS, 4)
    result |= {"trials": TRIALS, "device": device, "repeats": arguments.repeats}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
