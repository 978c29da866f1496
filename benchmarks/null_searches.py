"""How often is chance called found, by tail, phrases a search and number of null searches?

Draws the scores of m null searches and of one more search of the same kind, the clean update, and
counts how often its best phrase is called found:

- `tail of 1`: an exponential tail fitted to one null search, at E = 0.05: the rule before this one;
- `above all`: by the counted E-value at its least, 1 / (m + 1): the rate to expect;
- `found`: E at most 0.05, as `vestige diff` says it: never with fewer than 19 null searches.

    python benchmarks/null_searches.py [--trials 2000] [--seed 0]

Rates are in percent; one in a trials' sample of N has a standard error of sqrt(r (1 - r) / N),
0.5 at 5 of 100 and 2,000 trials. The last line is JSON: the rates over all tails and sizes by
number of null searches, and how many standard errors the furthest single rate lies above its level.
"""

import argparse
import json
import math
from collections.abc import Callable
from statistics import fmean

import numpy as np

from vestige.audits.update.nulls import LEVEL, NullScores

Draw = Callable[[np.random.Generator, int], np.ndarray]

TAILS: dict[str, Draw] = {
    "uniform": lambda random, n: random.random(n),
    "half-normal": lambda random, n: np.abs(random.standard_normal(n)),
    "gamma 4": lambda random, n: random.gamma(4, size=n),
    "exponential": lambda random, n: random.exponential(size=n),
    "Weibull 0.6": lambda random, n: random.weibull(0.6, size=n),
    "lognormal": lambda random, n: random.lognormal(size=n),
    "Pareto 3": lambda random, n: random.pareto(3, size=n),
    # searches that differ among each other: in scale, and in how many phrases they have, or none
    "uneven": lambda random, n: random.lognormal(0, 0.5) * random.exponential(
        size=random.poisson(random.exponential(n))
    ),
}  # fmt: skip
PHRASES = (20, 51, 400)
NULLS = (1, 4, 9, 19)


def old_threshold(scores: list[float], tail: int = 50) -> float:
    """The score with E = 0.05 by an exponential tail of one null search, never under its best."""
    ranked = sorted(scores, reverse=True)
    above = min(tail, len(ranked) - 1)
    if above < 1:
        return max(ranked, default=0.0)
    excess = math.fsum(s - ranked[above] for s in ranked[:above]) / above
    growth = math.pow(above / LEVEL, 1 / above) - 1
    return max(ranked[0], ranked[above] + above * excess * growth)


def rates(draw: Draw, phrases: int, nulls: int, trials: int, seed: int) -> dict[str, float]:
    """How often each rule calls the best phrase of a clean update found."""
    random = np.random.default_rng([seed, phrases, nulls])
    called = dict.fromkeys(("tail of 1", "above all", "found"), 0)
    for _ in range(trials):
        searches = [draw(random, phrases).tolist() for _ in range(nulls + 1)]
        update = searches.pop()
        if not update:
            continue
        best, scores = max(update), NullScores.of(searches)
        called["tail of 1"] += best > old_threshold(searches[0])
        called["above all"] += scores.e_value(best) <= scores.least
        called["found"] += bool(scores.found(best))
    return {rule: number / trials for rule, number in called.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rules = ("tail of 1", "above all", "found")
    print(f"{'tail':12}{'phrases':>8}{'nulls':>6}" + "".join(f"{rule:>14}" for rule in rules))
    seen: dict[int, list[dict[str, float]]] = {nulls: [] for nulls in NULLS}
    furthest = -math.inf
    for number, (name, draw) in enumerate(TAILS.items()):
        for phrases in PHRASES:
            for nulls in NULLS:
                seed = 1000 * asked.seed + number
                rate = rates(draw, phrases, nulls, asked.trials, seed)
                seen[nulls].append(rate)
                level = 1 / (nulls + 1)
                error = math.sqrt(level * (1 - level) / asked.trials)
                furthest = max(furthest, (rate["above all"] - level) / error)
                cells = "".join(f"{100 * rate[rule]:14.1f}" for rule in rules)
                print(f"{name:12}{phrases:8}{nulls:6}{cells}", flush=True)
    summary = {
        f"{rule}, {nulls} nulls": {
            "mean": round(fmean(rate[rule] for rate in found), 4),
            "most": max(rate[rule] for rate in found),
        }
        for nulls, found in seen.items()
        for rule in rules
    }
    told = {"benchmark": "null_searches", "trials": asked.trials, "rates": summary}
    print(json.dumps({**told, "furthest_above_level_in_errors": round(furthest, 2)}))


if __name__ == "__main__":
    main()
