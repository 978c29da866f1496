"""How often does the interval of a completion rate over trainings cover the true rate?

Canaries of one training stand and fall together. Drawn are trainings whose own rate is
beta-distributed about the true one with correlation rho between two canaries of a training, and
canaries by that rate (a beta-binomial). Set side by side: Clopper and Pearson's interval over all
canaries of all trainings, as if each were drawn by itself; Student's t over the trainings' rates;
and `clustered_rate` (Korn and Graubard 1998).

    python benchmarks/clustered_rates.py [--repeats 4000]

The last line is JSON: coverage where 95 % is stated, for each rate, rho and number of trainings.
"""

import argparse
import json

import numpy as np

from vestige.metrics.estimates import clopper_pearson, clustered_rate, mean

CANARIES = 100


def coverage(
    rate: float, rho: float, trainings: int, *, repeats: int, chance: np.random.Generator
) -> dict[str, float]:
    """The share of intervals that hold the rate, by method."""
    size = (1 - rho) / rho
    own = chance.beta(rate * size, (1 - rate) * size, (repeats, trainings))
    hits = chance.binomial(CANARIES, own)
    held = dict.fromkeys(("pooled", "t", "clustered"), 0)
    for row in hits.tolist():
        intervals = {
            "pooled": clopper_pearson(sum(row), CANARIES * trainings),
            "t": mean([x / CANARIES for x in row]).interval,
            "clustered": clustered_rate(row, [CANARIES] * trainings).interval,
        }
        for name, interval in intervals.items():
            held[name] += interval.low <= rate <= interval.high
    return {name: count / repeats for name, count in held.items()}


def main() -> None:
    """Print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = np.random.default_rng(arguments.seed)
    rows = []
    for trainings in (3, 5, 10):
        for rate in (0.01, 0.05, 0.2, 0.4):
            for rho in (0.001, 0.01, 0.03, 0.1):
                found = coverage(rate, rho, trainings, repeats=arguments.repeats, chance=chance)
                rows.append({"trainings": trainings, "rate": rate, "rho": rho, **found})
                print(rows[-1], flush=True)
    print(json.dumps({"benchmark": "clustered_rates", "canaries": CANARIES, "rows": rows}))


if __name__ == "__main__":
    main()
