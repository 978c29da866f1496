"""How often intervals hold the truth, in simulations.

- `auc`: the interval of an AUC (`metrics.estimates.auc`) beside DeLong et al. (1988) and Newcombe
  (2006, method 5). Others score N(0, 1), members N(d, s); "lost" members stand far above all others
  or far below. `perfect` are samples in which every member is above every other.
- `clustered`: completion rates over trainings. Canaries of one training are correlated
  (beta-binomial). `clustered_rate` (Korn and Graubard 1998) beside Clopper and Pearson over all
  canaries, and Student's t over trainings.
- `share_used`: both bounds on the share of used texts, 40 listed texts, normal scores.
- `compare`: `compare` of trainings that differ in their seed alone ("helps" or "worse" is false),
  and of a defence that takes some bits off; exposures with the spreads of real trainings.

    python benchmarks/interval_coverage.py [auc] [clustered] [share_used] [compare]
"""

import math
from collections.abc import Sequence

import numpy as np
from harness import Row, Run, main, rate
from scipy.special import ndtri

from vestige.audits.comparison.comparison import compare_defences
from vestige.audits.comparison.measurements import MeasuredTraining
from vestige.metrics.estimates import auc, clopper_pearson, clustered_rate, mean
from vestige.metrics.listed import share_used
from vestige.training.evaluate import DocumentScores

Z = 1.959964
AREAS = (0.5, 0.7, 0.9, 0.95, 0.99)
SIZES = ((20, 20), (80, 80), (300, 300), (20, 300), (300, 20))
SHAPES = {"equal": 1.0, "x 3": 3.0, "/ 3": 1 / 3, "lost": None}
CANARIES, DOCUMENTS = 60, 200
SPREADS = {"canary": 1.24, "training": 0.22, "both": 0.49}
"""Standard deviations of exposure, in bits, of ten trainings of `vestige train`: of canaries, of
trainings, and of a canary in a training."""


def newcombe(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Method 5: the variance of Hanley and McNeil (1982), solved for the area by bisection."""
    n, m = members.size, others.size
    value = auc(members, others).value

    def end(estimate: float) -> float:
        low, high = estimate, 1.0
        for _ in range(40):
            area = (low + high) / 2
            more = ((n + m) / 2 - 1) * ((1 - area) / (2 - area) + area / (1 + area))
            spread = math.sqrt(area * (1 - area) / (n * m) * (1 + more))
            low, high = (area, high) if area - estimate <= Z * spread else (low, area)
        return high

    return 1 - end(1 - value), end(value)


def delong(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The estimate and 1.96 standard errors on either side."""
    pairs = (members[:, None] > others) + (members[:, None] == others) / 2
    above, below = pairs.mean(1), pairs.mean(0)
    error = math.sqrt(above.var(ddof=1) / members.size + below.var(ddof=1) / others.size)
    return float(pairs.mean() - Z * error), float(pairs.mean() + Z * error)


METHODS = {"ours": lambda *sides: auc(*sides).interval, "newcombe": newcombe, "delong": delong}


def areas(run: Run) -> list[Row]:
    """Coverage and mean width of each method, worst over true AUCs, by sizes and shape."""
    generator, rounds, rows = np.random.default_rng(0), run.times(2000, 4), []
    perfect = dict.fromkeys(METHODS, 0) | {"samples": 0}
    for n, m in SIZES:
        for shape in SHAPES:
            covered = {name: np.zeros(len(AREAS)) for name in METHODS}
            for place, area in enumerate(AREAS):
                for _ in range(rounds):
                    members = _members(shape, area, n, generator)
                    others = generator.normal(0, 1, m)
                    whole = bool(members.min() > others.max())
                    perfect["samples"] += whole
                    for name, interval in METHODS.items():
                        low, high = interval(members, others)
                        covered[name][place] += low <= area <= high
                        perfect[name] += whole and low <= area <= high
            least = {name: float(found.min() / rounds) for name, found in covered.items()}
            rows.append({"members": n, "others": m, "scores": shape, **least})
    samples = max(1, perfect.pop("samples"))
    return [*rows, {"scores": "perfect", **{name: n / samples for name, n in perfect.items()}}]


def _members(shape: str, area: float, n: int, generator: np.random.Generator) -> np.ndarray:
    """(n,) scores of members whose true AUC against N(0, 1) is `area`."""
    spread = SHAPES[shape]
    if spread is None:
        return np.where(generator.random(n) < area, 50.0, -50.0)
    return generator.normal(ndtri(area) * math.hypot(1, spread), spread, n)


def clustered(run: Run) -> list[Row]:
    """Coverage of three intervals of a rate, by true rate, correlation and number of trainings."""
    chance, repeats, rows = np.random.default_rng(0), run.times(4000, 10), []
    for trainings in (3, 5, 10):
        for true in (0.01, 0.05, 0.2, 0.4):
            for rho in (0.001, 0.01, 0.03, 0.1):
                held = _held(true, rho, trainings, repeats, chance)
                rows.append({"trainings": trainings, "rate": true, "rho": rho, **held})
    return rows


def _held(
    true: float, rho: float, trainings: int, repeats: int, chance: np.random.Generator
) -> dict[str, float]:
    size, each = (1 - rho) / rho, 100
    own = chance.beta(true * size, (1 - true) * size, (repeats, trainings))
    held = dict.fromkeys(("pooled", "t", "clustered"), 0)
    for row in chance.binomial(each, own).tolist():
        intervals = {
            "pooled": clopper_pearson(sum(row), each * trainings),
            "t": mean([x / each for x in row]).interval,
            "clustered": clustered_rate(row, [each] * trainings).interval,
        }
        for name, interval in intervals.items():
            held[name] += interval.low <= true <= interval.high
    return {name: count / repeats for name, count in held.items()}


def shares(run: Run) -> list[Row]:
    """How often each bound on the share used holds; 95 % is stated for each."""
    runs, rows = run.times(2500, 10), []
    for gap in (0.5, 1.5, 3.0):
        for share in (0.0, 0.1, 0.5, 1.0):
            chance = np.random.default_rng([int(10 * gap), 200, int(10 * share)])
            used, held = round(40 * share), np.zeros(2, int)
            for _ in range(runs):
                listed = [chance.normal(gap, 1, used), chance.normal(0, 1, 40 - used)]
                never, known = chance.normal(0, 1, 200), chance.normal(gap, 1, 40)
                found = share_used(np.concatenate(listed), never, known)
                held += [found.at_least <= used, found.at_most >= used]
            low, high = held.tolist()
            rows.append({"gap": gap, "used": share, "lower": rate(low, runs)})
            rows[-1]["upper"] = rate(high, runs)
    return rows


def compared(run: Run) -> list[Row]:
    """False verdicts of `compare`, and how often a defence that works is seen to help."""
    chance, rows = np.random.default_rng(0), []
    for number in (3, 4, 5):
        for effect in (0.0, 0.5, 1.0, 2.0):
            repeats = run.times(2000, 2)
            told = [_verdict(*_trainings(chance, number, effect)) for _ in range(repeats)]
            wanted = ("helps",) if effect else ("helps", "worse")
            hits = sum(verdict in wanted for verdict in told)
            column = "helps" if effect else "false"
            rows.append({"trainings": number, "bits off": effect, column: rate(hits, repeats)})
    return rows


def _verdict(first: Sequence[MeasuredTraining], second: Sequence[MeasuredTraining]) -> str:
    found = compare_defences([*first, *second], baseline="plain")
    return str(found.rows[1]["verdict"])


def _trainings(
    chance: np.random.Generator, number: int, effect: float
) -> tuple[list[MeasuredTraining], list[MeasuredTraining]]:
    """Two groups of trainings, the second with so many bits less exposure."""
    tokens = chance.integers(20, 200, DOCUMENTS)
    hard = chance.normal(5.5, 0.5, DOCUMENTS)
    level = chance.normal(8.0, SPREADS["canary"], CANARIES)

    def group(name: str, less: float) -> list[MeasuredTraining]:
        bits = level + chance.normal(0, SPREADS["training"], (number, 1)) - less
        bits = np.clip(bits + chance.normal(0, SPREADS["both"], (number, CANARIES)), 0, 14)
        nats = hard + chance.normal(0, 0.006, (number, 1))
        nats = (nats + chance.normal(0, 0.05, (number, DOCUMENTS))) * tokens
        return [_measured(name, own, loss, tokens) for own, loss in zip(bits, nats, strict=True)]

    return group("plain", 0.0), group("other", effect)


def _measured(
    name: str, bits: np.ndarray, loss: np.ndarray, tokens: np.ndarray
) -> MeasuredTraining:
    rest = {"copies": 1, "shuffled_exposure": None, "at_ceiling": False}
    canaries = tuple(
        {"phrase": f"canary {i}", "exposure": value, **rest} for i, value in enumerate(bits)
    )
    scores = DocumentScores(loss=loss, right=np.zeros_like(tokens), tokens=tokens)
    return MeasuredTraining(name=name, canaries=canaries, scores=scores)


PARTS = {"auc": areas, "clustered": clustered, "share_used": shares, "compare": compared}

if __name__ == "__main__":
    main("interval_coverage", __doc__, PARTS)
