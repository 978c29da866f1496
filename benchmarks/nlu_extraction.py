"""What does each attack on an intent-and-slot model cost?

Ten models (two bi-LSTM layers of 64 a side, vectors of 50, 8 intents, 75 tags), each asked for the
four digits of a PIN, one after the other, by every attack with its default settings. One thread,
timed in its own seconds on the CPU: waiting for other programs would dominate what is measured.

    python benchmarks/nlu_extraction.py [--repeats 4] [--device cpu]

The last line is JSON: seconds of a trial, the median of the repeats.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from reproduction.nlu.paper_attacks import discrete_optimization, embedding_optimization
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.searches import Search, coordinate_descent, every_loss, exhaust
from vestige.data.canaries.patterns import SecretPattern
from vestige.data.vocabulary import WordVocabulary
from vestige.memory import keep_freed_pages
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel

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


def main() -> None:
    """Time every attack and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_pages()
    device = arguments.device
    models = [make_model(seed, device) for seed in range(TRIALS)]
    result: dict[str, object] = {"benchmark": "nlu_extraction"}
    for name, attack in SEARCHES.items():
        seconds = []
        for _ in range(arguments.repeats):
            began = now(device)
            for model in models:
                attack(objective_of(model, PATTERN), torch.Generator().manual_seed(0), None)
            seconds.append((now(device) - began) / TRIALS)
        result[f"{name}_seconds_per_trial"] = round(statistics.median(seconds), 4)
    result |= {"trials": TRIALS, "device": device, "repeats": arguments.repeats}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
