"""How often do intervals of an AUC cover the true one?

Simulated audits of n members and m others whose true AUC is known, 0.5 to 0.99: others score
N(0, 1); members N(d, s) with s of 1, 3 and 1/3, or, "lost", as many far above all others as the AUC
says and the rest far below, which is the hardest that an AUC can be to estimate. Beside
`metrics.estimates.auc` stand Newcombe (2006), method 5, which was here before, and the plain
interval of DeLong et al. (1988). "perfect" counts only samples in which every member stands above
every other.

    python benchmarks/auc_intervals.py [--rounds 2000]

The last line is JSON; the exit status is 1 where ours covers less than 0.95 less four standard
errors of the simulation.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import ndtri

from vestige.metrics.estimates import auc

AREAS = (0.5, 0.7, 0.9, 0.95, 0.99)
SIZES = ((20, 20), (80, 80), (300, 300), (20, 300), (300, 20))
Z = 1.959964
Ends = tuple[float, float]


def newcombe(members: np.ndarray, others: np.ndarray) -> Ends:
    """Method 5: the variance of Hanley and McNeil (1982), solved for the area by bisection."""
    n, m = members.size, others.size
    value = auc(members, others).value

    def end(estimate: float) -> float:
        mean = (n + m) / 2 - 1
        low, high = estimate, 1.0
        for _ in range(40):
            area = (low + high) / 2
            spread = area * (1 - area) / (n * m)
            variance = spread * (1 + mean * ((1 - area) / (2 - area) + area / (1 + area)))
            fits = area - estimate <= Z * math.sqrt(variance)
            low, high = (area, high) if fits else (low, area)
        return high

    return 1 - end(1 - value), end(value)


def delong(members: np.ndarray, others: np.ndarray) -> Ends:
    """The estimate and 1.96 standard errors on either side."""
    pairs = (members[:, None] > others) + (members[:, None] == others) / 2
    above, below = pairs.mean(1), pairs.mean(0)
    error = math.sqrt(above.var(ddof=1) / members.size + below.var(ddof=1) / others.size)
    return pairs.mean() - Z * error, pairs.mean() + Z * error


def ours(members: np.ndarray, others: np.ndarray) -> Ends:
    """That of the package."""
    low, high = auc(members, others).interval
    return low, high


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Ends]] = {
    "newcombe": newcombe,
    "delong": delong,
    "ours": ours,
}


def members_of(shape: str, area: float, n: int, generator: np.random.Generator) -> np.ndarray:
    """(n,) scores of members whose true area against N(0, 1) is `area`."""
    if shape == "lost":
        return np.where(generator.random(n) < area, 50.0, -50.0)
    spread = {"equal": 1.0, "x 3": 3.0, "/ 3": 1 / 3}[shape]
    return generator.normal(ndtri(area) * math.hypot(1, spread), spread, n)


def cases() -> Iterator[tuple[int, int, str, float]]:
    for n, m in SIZES:
        for shape in ("equal", "x 3", "/ 3", "lost"):
            for area in AREAS:
                yield n, m, shape, area


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    generator = np.random.default_rng(0)
    print(f"{'n':>4}{'m':>5}  {'members':8}{'AUC':>5}", *(f"{name:>16}" for name in METHODS))
    worst, found = 1.0, []
    perfect = dict.fromkeys(METHODS, 0) | {"samples": 0}
    for n, m, shape, area in cases():
        covered, width = dict.fromkeys(METHODS, 0), dict.fromkeys(METHODS, 0.0)
        for _ in range(rounds):
            members = members_of(shape, area, n, generator)
            others = generator.normal(0, 1, m)
            whole = members.min() > others.max()
            perfect["samples"] += whole
            for name, interval in METHODS.items():
                low, high = interval(members, others)
                covered[name] += low <= area <= high
                width[name] += min(high, 1.0) - max(low, 0.0)
                perfect[name] += whole and low <= area <= high
        cells = (f"{covered[k] / rounds:>9.3f} ({width[k] / rounds:.2f})" for k in METHODS)
        print(f"{n:>4}{m:>5}  {shape:8}{area:>5}", *cells, flush=True)
        worst = min(worst, covered["ours"] / rounds)
        found.append({name: covered[name] / rounds for name in METHODS})
    low = {name: min(case[name] for case in found) for name in METHODS}
    mean = {name: float(np.mean([case[name] for case in found])) for name in METHODS}
    count = int(perfect.pop("samples"))
    shares = {name: round(float(some) / count, 3) for name, some in perfect.items()}
    print(f"\nwidths in brackets; {count} samples were perfect and covered in", shares)
    floor = 0.95 - 4 * math.sqrt(0.95 * 0.05 / rounds)
    print(json.dumps({"least": low, "mean": mean, "perfect": shares, "floor": floor}))
    return int(worst < floor)


if __name__ == "__main__":
    sys.exit(main())
