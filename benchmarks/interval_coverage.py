"""How often intervals contain the truth, and how often `compare` errs, in simulations.

- `auc`: the interval of an AUC (`metrics.estimates.auc`), DeLong et al. (1988) and Newcombe (2006,
  method 5). Others score N(0, 1), members N(d, s); "lost" members score far above or far below all
  others. `perfect` are samples in which every member is above every other.
- `clustered`: completion rates over trainings. Canaries of one training are correlated
  (beta-binomial). `clustered_rate` (Korn and Graubard 1998), Clopper and Pearson over all canaries,
  and Student's t over trainings.
- `compare`: `compare` of trainings that differ only in their seed ("helps" or "worse" is false),
  and of a defence that reduces exposure by some bits; exposures vary as in real trainings.

    python benchmarks/interval_coverage.py [auc] [clustered] [compare]
"""

import math

import numpy as np
from harness import Row, Run, main, rate
from scipy.special import ndtri

from vestige.audits.comparison.comparison import compare_defences
from vestige.audits.comparison.measurements import MeasuredTraining
from vestige.metrics.estimates import auc, clopper_pearson, clustered_rate, mean
from vestige.training.evaluate import DocumentScores

Z = 1.959964
AREAS = (0.5, 0.7, 0.9, 0.95, 0.99)
SIZES = ((20, 20), (80, 80), (300, 300), (20, 300), (300, 20))
SHAPES = {"equal": 1.0, "x 3": 3.0, "/ 3": 1 / 3, "lost": None}
CANARIES, DOCUMENTS = 60, 200
SPREADS = {"canary": 1.24, "training": 0.22, "both": 0.49}
"""Standard deviations of exposure, in bits, in ten trainings of `vestige train`: of canaries, of
trainings, and of a canary in a training."""


# AUC ---------------------------------------------------------------------------------------------


def newcombe(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Method 5: the variance of Hanley and McNeil (1982), solved for the area by bisection."""
    n, m = members.size, others.size
    value = auc(members, others).value

    def upper_end(estimate: float) -> float:
        low, high = estimate, 1.0
        for _ in range(40):
            area = (low + high) / 2
            more = ((n + m) / 2 - 1) * ((1 - area) / (2 - area) + area / (1 + area))
            spread = math.sqrt(area * (1 - area) / (n * m) * (1 + more))
            low, high = (area, high) if area - estimate <= Z * spread else (low, area)
        return high

    return 1 - upper_end(1 - value), upper_end(value)


def delong(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The estimate plus and minus 1.96 standard errors."""
    pairs = (members[:, None] > others) + (members[:, None] == others) / 2
    above, below = pairs.mean(1), pairs.mean(0)
    error = math.sqrt(above.var(ddof=1) / members.size + below.var(ddof=1) / others.size)
    return float(pairs.mean() - Z * error), float(pairs.mean() + Z * error)


METHODS = {"ours": lambda *sides: auc(*sides).interval, "newcombe": newcombe, "delong": delong}


def auc_coverage(run: Run) -> list[Row]:
    """Coverage of each method, the least over true AUCs, by sizes and shape."""
    rng, repeats, rows = np.random.default_rng(0), run.times(2000, 4), []
    perfect = dict.fromkeys(METHODS, 0) | {"samples": 0}
    for n, m in SIZES:
        for shape in SHAPES:
            covered = {name: np.zeros(len(AREAS)) for name in METHODS}
            for index, area in enumerate(AREAS):
                for _ in range(repeats):
                    members = member_scores(shape, area, n, rng)
                    others = rng.normal(0, 1, m)
                    separated = bool(members.min() > others.max())
                    perfect["samples"] += separated
                    for name, interval in METHODS.items():
                        low, high = interval(members, others)
                        covered[name][index] += low <= area <= high
                        perfect[name] += separated and low <= area <= high
            least = {name: float(hits.min() / repeats) for name, hits in covered.items()}
            rows.append({"members": n, "others": m, "scores": shape, **least})
    samples = max(1, perfect.pop("samples"))
    return [*rows, {"scores": "perfect", **{name: n / samples for name, n in perfect.items()}}]


def member_scores(shape: str, area: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) scores of members whose true AUC against N(0, 1) is `area`."""
    spread = SHAPES[shape]
    if spread is None:
        return np.where(rng.random(n) < area, 50.0, -50.0)
    return rng.normal(ndtri(area) * math.hypot(1, spread), spread, n)


# Rates over trainings ----------------------------------------------------------------------------


def clustered(run: Run) -> list[Row]:
    """Coverage of three intervals of a rate, by true rate, correlation and number of trainings."""
    rng, repeats, rows = np.random.default_rng(0), run.times(4000, 10), []
    for trainings in (3, 5, 10):
        for true in (0.01, 0.05, 0.2, 0.4):
            for rho in (0.001, 0.01, 0.03, 0.1):
                covered = clustered_coverage(true, rho, trainings, repeats, rng)
                rows.append({"trainings": trainings, "rate": true, "rho": rho, **covered})
    return rows


def clustered_coverage(
    true: float, rho: float, trainings: int, repeats: int, rng: np.random.Generator
) -> dict[str, float]:
    """Coverage of one rate and correlation, with 100 canaries per training."""
    size, canaries = (1 - rho) / rho, 100
    training_rates = rng.beta(true * size, (1 - true) * size, (repeats, trainings))
    covered = dict.fromkeys(("pooled", "t", "clustered"), 0)
    for hits in rng.binomial(canaries, training_rates).tolist():
        intervals = {
            "pooled": clopper_pearson(sum(hits), canaries * trainings),
            "t": mean([x / canaries for x in hits]).interval,
            "clustered": clustered_rate(hits, [canaries] * trainings).interval,
        }
        for name, interval in intervals.items():
            covered[name] += interval.low <= true <= interval.high
    return {name: count / repeats for name, count in covered.items()}


# Compare -----------------------------------------------------------------------------------------


def compare(run: Run) -> list[Row]:
    """False verdicts of `compare`, and how often it says that an effective defence helps."""
    rng, rows = np.random.default_rng(0), []
    for number in (3, 4, 5):
        for effect in (0.0, 0.5, 1.0, 2.0):
            repeats = run.times(2000, 2)
            verdicts = [compare_verdict(rng, number, effect) for _ in range(repeats)]
            counted = ("helps",) if effect else ("helps", "worse")
            hits = sum(verdict in counted for verdict in verdicts)
            column = "helps" if effect else "false"
            rows.append({"trainings": number, "bits off": effect, column: rate(hits, repeats)})
    return rows


def compare_verdict(rng: np.random.Generator, number: int, effect: float) -> str:
    """The verdict on a second group of trainings, whose exposure is `effect` bits lower."""
    tokens = rng.integers(20, 200, DOCUMENTS)
    document_levels = rng.normal(5.5, 0.5, DOCUMENTS)
    canary_levels = rng.normal(8.0, SPREADS["canary"], CANARIES)

    def group(name: str, less: float) -> list[MeasuredTraining]:
        bits = canary_levels + rng.normal(0, SPREADS["training"], (number, 1)) - less
        bits = np.clip(bits + rng.normal(0, SPREADS["both"], (number, CANARIES)), 0, 14)
        nats = document_levels + rng.normal(0, 0.006, (number, 1))
        losses = (nats + rng.normal(0, 0.05, (number, DOCUMENTS))) * tokens
        return [training(name, *columns, tokens) for columns in zip(bits, losses, strict=True)]

    trainings = group("plain", 0.0) + group("other", effect)
    return str(compare_defences(trainings, baseline="plain").rows[1]["verdict"])


def training(name: str, bits: np.ndarray, loss: np.ndarray, tokens: np.ndarray) -> MeasuredTraining:
    """A training with these exposures and losses."""
    rest = {"copies": 1, "shuffled_exposure": None, "at_ceiling": False}
    canaries = tuple(
        {"phrase": f"canary {i}", "exposure": value, **rest} for i, value in enumerate(bits)
    )
    scores = DocumentScores(loss=loss, right=np.zeros_like(tokens), tokens=tokens)
    return MeasuredTraining(name=name, canaries=canaries, scores=scores)


PARTS = {"auc": auc_coverage, "clustered": clustered, "compare": compare}

if __name__ == "__main__":
    main("interval_coverage", __doc__, PARTS)
