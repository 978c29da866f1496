"""How often does a verdict on canaries err, and how often does it see what is there?

Whole runs of `canary_exposure`, each with a model, canaries, controls and references drawn anew:

- nothing: a random model that never saw the canaries; "memory" is an error;
- words: a model that likes the canaries' words in any order; "order" is an error;
- phrases: a model that likes the canaries as they stand; "order" is right.

    python benchmarks/exposure_tests.py [--runs N]

The last line is JSON: for each case and number of canaries the share of runs that said it.
"""

import argparse
import json
from itertools import pairwise, permutations

import numpy as np

from vestige.audits.exposure.canaries import canary_exposure
from vestige.data.canaries.texts import Canary
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel

WORDS = WordVocabulary(("<unk>", "<eos>", *("".join(p) for p in permutations("abcde", 3))))
LENGTH, REFERENCES, CONTROLS = 5, 500, 20


def run(case: str, planted: int, seed: int) -> tuple[bool, bool]:
    """Whether memory was said to show, and memory of the order."""
    rng = np.random.default_rng([seed, planted, len(case)])
    size = len(WORDS)
    drawn = [
        rng.choice(np.arange(2, size), LENGTH, replace=False) for _ in range(planted + CONTROLS)
    ]
    table = rng.dirichlet(np.full(size, 2.0), size + 1)
    for ids in drawn[:planted]:
        if case == "words":
            table[:, ids] *= 6
        if case == "phrases":
            for before, after in pairwise([size, *ids]):
                table[before, after] *= 6
    table /= table.sum(1, keepdims=True)
    canaries = [
        Canary(" ".join(WORDS.words[i] for i in ids), "random", (), int(place < planted))
        for place, ids in enumerate(drawn)
    ]
    model = TableModel(table[size], table[:size], WORDS)
    found = canary_exposure(model, canaries, seed=seed, references=REFERENCES)
    return found.test.significant, found.order is not None and found.order.significant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    shares: dict[str, float] = {}
    print(f"{'case':>8} {'canaries':>9} {'memory':>8} {'order':>8}   ({runs} runs each)")
    for case in ("nothing", "words", "phrases"):
        for planted in (1, 3, 10, 30):
            said = np.array([run(case, planted, seed) for seed in range(runs)])
            memory, order = said.mean(0)
            shares |= {f"{case}_{planted}_memory": memory, f"{case}_{planted}_order": order}
            print(f"{case:>8} {planted:>9} {memory:>8.3f} {order:>8.3f}", flush=True)
    print(json.dumps({"benchmark": "exposure_tests", "runs": runs, **shares}))


if __name__ == "__main__":
    main()
