"""Does the interval of an estimated rank cover the true one, and how near is the estimate?

Pairs of random bigram tables, the later one half moved to another, small enough that every phrase
is scored; phrases of ranks drawn on a logarithmic scale, from the first to the last.

    python benchmarks/rank_estimate.py [--runs N] [--samples N]

The last line is JSON: `coverage` (95 % is stated) and `refused`, over all sizes.
"""

import argparse
import json

import numpy as np

from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.sampled_rank import Sampling, sampled_rank
from vestige.attacks.update.token_scores import token_score
from vestige.models.table import TableModel

SIZES = [(6, 4, 0.4), (20, 4, 0.1), (20, 4, 0.5), (40, 3, 0.05), (12, 5, 0.2), (12, 6, 0.1)]
"""Vocabulary, length and concentration: the smaller this, the more peaked the distributions."""

Covered = tuple[bool, float, float]


def every_score(before: TableModel, after: TableModel, length: int) -> np.ndarray:
    """(v ** length,) the differential score of every phrase."""
    size = before.vocab_size
    gains = (after.log_table.exp() - before.log_table.exp()).double().numpy()
    scores = gains[size]
    for _ in range(length - 1):
        scores = (scores.reshape(-1, size)[:, :, None] + gains[None, :size]).reshape(-1)
    return scores


def trial(size: int, length: int, concentration: float, samples: int, seed: int) -> Covered | None:
    """Whether the interval covers the rank, log2 of estimate over rank, and effective samples."""
    rng = np.random.default_rng([seed, size, length])
    alpha = np.full(size, concentration)
    old, new = rng.dirichlet(alpha, size + 1), rng.dirichlet(alpha, size + 1)
    both = [TableModel(t[size], t[:size]) for t in (old, (old + new) / 2)]
    scores = every_score(*both, length)
    rank = int(10 ** rng.uniform(0, np.log10(len(scores))))
    cell = int(np.argsort(-scores, kind="stable")[rank - 1])
    tokens = tuple(int(i) for i in np.unravel_index(cell, (size,) * length))
    above = float(scores[cell]) + 1e-6 * length
    found = sampled_rank(
        ModelPair(*both, token_score("differential")),
        tokens,
        above=above,
        sampling=Sampling(seed=seed, samples=samples),
    )
    true = int((scores > above).sum())
    if found.value is None or found.low is None or found.high is None:
        return None
    ratio = float(np.log2(max(found.value, 0.5) / max(true, 0.5)))
    return found.low <= true <= found.high, ratio, found.effective


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--samples", type=int, default=1000)
    given = parser.parse_args()
    print("tokens length peaked  covered  refused  log2 ratio: mean   sd   effective samples")
    known: list[Covered] = []
    for size, length, concentration in SIZES:
        shape = (size, length, concentration, given.samples)
        found = [one for seed in range(given.runs) if (one := trial(*shape, seed)) is not None]
        covered, ratio, effective = (np.array(part) for part in zip(*found, strict=True))
        print(
            f"{size:>6} {length:>6} {concentration:>6} {covered.mean():>8.3f} "
            f"{given.runs - len(found):>8} {ratio.mean():>17.3f} {ratio.std():>5.2f} "
            f"{np.median(effective):>12.0f}",
            flush=True,
        )
        known += found
    every = given.runs * len(SIZES)
    result = {"coverage": float(np.mean([one[0] for one in known])), "estimates": len(known)}
    print(json.dumps({"benchmark": "rank_estimate", **result, "refused": every - len(known)}))


if __name__ == "__main__":
    main()
