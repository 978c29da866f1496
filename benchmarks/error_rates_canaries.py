"""How often claims about planted canaries err, in simulations.

- `exposure`: planted canaries that no model memorized and controls, both more probable than the
  references; then canaries that are 1.5 standard deviations more probable, where a leak is right.
- `completion`: a model that completes canaries by guessing.
- `epsilon`: how often the bound of one run exceeds the truth (randomized response), and the largest
  probability of refuting a true epsilon over all private mechanisms (a linear program) relative to
  the bound.

    python benchmarks/error_rates_canaries.py [PART ...] [--times N]
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, product

import numpy as np
from harness import Row, Run, main, rate, verdicts
from scipy.optimize import linprog
from scipy.sparse import coo_matrix
from scipy.special import expit
from scipy.stats import binom

from vestige.audits.exposure.canary_result import CanaryExposure
from vestige.audits.extraction.canaries import Completion
from vestige.claims import LEAK, Check
from vestige.metrics.epsilon import any_reached, guesses_for, one_run_epsilon
from vestige.metrics.exposure import sampled_exposure

REFERENCES = 1000
CHECKS = tuple(Check(name, "passed", "Supposed.") for name in ("alive", "read"))
"""Supposed to pass, which can only add verdicts."""


def exposure(run: Run) -> list[Row]:
    """Verdicts on 20 planted canaries with 1, 5 and 20 controls."""
    rows = []
    for title, shift in (("nothing memorized", 0.0), ("1.5 SD likelier", 1.5)):
        for controls in (1, 5, 20):
            rng, times = np.random.default_rng([20, controls]), run.times(1000, 4)
            draws = [{"verdict": exposure_verdict(rng, shift, controls)} for _ in range(times)]
            rows.append({"canaries": title, "controls": controls, **verdicts(draws)})
    return rows


def exposure_verdict(rng: np.random.Generator, shift: float, controls: int) -> str:
    """The verdict on normal log-perplexities."""
    planted, never, references = (rng.normal(size=n) for n in (20, controls, REFERENCES))
    scores = np.concatenate([planted - shift, never]) - 0.5
    exposures = sampled_exposure(scores, references, space_bits=40.0)
    canaries = tuple(
        {
            "pattern": "random", "copies": int(index < 20), "log_perplexity": float(score),
            "exposure": float(exposures.exposure[index]), "low": float(exposures.low[index]),
            "high": float(exposures.high[index]), "at_ceiling": bool(exposures.at_ceiling[index]),
            "exact_low": None, "references": REFERENCES, "whole": False,
        }
        for index, score in enumerate(scores)
    )  # fmt: skip
    return CanaryExposure(canaries=canaries, words=1, seed=0, checks=CHECKS).verdict


def completion(run: Run) -> list[Row]:
    """False leaks of a model that guesses the order of words."""
    rows, times = [], run.times(1000, 20)
    for planted, controls, words in ((20, 20, 3), (5, 20, 2), (1, 20, 4), (20, 0, 3)):
        rng, wrong = np.random.default_rng([planted, controls, words]), 0
        probability = 1 / math.factorial(words - 1)
        for _ in range(times):
            completed = rng.random(planted + controls) < probability
            kinds = ["canary"] * planted + ["control"] * controls
            attempts = tuple(
                {"kind": kind, "greedy": bool(greedy), "chance": probability}
                for kind, greedy in zip(kinds, completed, strict=True)
            )
            result = Completion(attempts=attempts, prefix=1, beam=1, checks=CHECKS)
            wrong += result.verdict == LEAK
        case = {"canaries": planted, "controls": controls, "words": words}
        rows.append(case | {"false": rate(wrong, times)})
    return rows


def epsilon(run: Run) -> list[Row]:
    """Bounds that are too large, and the worst mechanism relative to its bound."""
    rows, times = [], run.times(1000, 4)
    for true, delta in ((0.0, 0.0), (1.0, 0.0), (1.0, 1e-4)):
        rng = np.random.default_rng([200, int(10 * true)])
        wrong = sum(bound_exceeds(rng, true, delta) for _ in range(times))
        rows.append({"epsilon": true, "delta": delta, "bound too large": rate(wrong, times)})
    levels = worst_cases(run.size(20, 6))
    for title, private in (("0", False), ("1e-4, 1e-3", True)):
        ratios = [row["worst"] / row["bound"] for row in levels if bool(row["delta"]) is private]
        least, most = (round(f(ratios), 6) for f in (min, max))
        rows.append({"delta": title, "worst over bound, least": least, "most": most})
    return rows


def bound_exceeds(rng: np.random.Generator, true: float, delta: float) -> bool:
    """Whether the bound of randomized response that reveals the coin with delta is too large."""
    coins = rng.random(200) < 0.5
    correct = (rng.random(200) < expit(true)) | (rng.random(200) < delta)
    confidence = rng.random(200)
    scores = np.where(coins == correct, 1 + confidence, -1 - confidence)
    return bool(one_run_epsilon(scores[coins], scores[~coins], delta=delta).epsilon > true)


def worst_cases(canaries: int) -> list[dict[str, float]]:
    """The worst mechanism's probability of refutation and its bound, with delta, of 27 cases."""
    guesses = [h + k for h, k in guesses_for(canaries, None)]
    sizes = [b - a for a, b in zip([0, *guesses], guesses, strict=False)]
    rows = []
    for true, level, delta in product((0.0, 0.5, 1.5), (0.02, 0.05, 0.2), (0, 1e-4, 1e-3)):
        tails = [binom.sf(np.arange(-1, n + 1), n, expit(true)) for n in guesses]
        thresholds = [int((tail > level).sum()) for tail in tails]
        reached = list(zip(guesses, thresholds, strict=True))
        bound = any_reached(canaries, reached, epsilon=true, delta=delta)

        def refuted(state: tuple[int, ...], thresholds: list[int] = thresholds) -> bool:
            return any(w >= v for w, v in zip(accumulate(state), thresholds, strict=True))

        if bound > 0:
            worst = worst_mechanism(canaries, sizes, refuted, true, delta)
            rows.append({"delta": delta, "worst": worst, "bound": bound})
    return rows


def worst_mechanism(
    canaries: int,
    sizes: Sequence[int],
    refuted: Callable[[tuple[int, ...]], bool],
    true: float,
    delta: float,
) -> float:
    """The largest probability of `refuted` under any (epsilon, delta)-private mechanism.

    The mechanism orders its guesses, which are counted in sections of the given sizes. By symmetry
    over coins and canaries it is a distribution of the number of right guesses per section. Its
    excess over e^epsilon times a neighbour's distribution is at most delta, where each section has
    the weight of its share of the canaries.
    """
    states = list(product(*(range(size + 1) for size in sizes)))
    index, number = {state: column for column, state in enumerate(states)}, len(states)
    cells: list[tuple[int, int, float]] = []
    weights: list[float] = []
    for section, size in enumerate(sizes):
        for state in states:
            right = state[section]
            steps = (-1, right / size, (size - right + 1) / size), (
                1, (size - right) / size, (right + 1) / size,
            )  # fmt: skip
            for step, share, back in steps:
                if not 0 <= right + step <= size:
                    continue
                other = (*state[:section], right + step, *state[section + 1 :])
                row = len(weights)
                cells += [
                    (row, index[state], share),
                    (row, index[other], -math.exp(true) * back),
                    (row, number + row, -1.0),
                ]
                weights.append(size / canaries)
    cells += [(len(weights), number + row, weight) for row, weight in enumerate(weights)]
    rows, columns, values = zip(*cells, strict=True)
    shape = (len(weights) + 1, number + len(weights))
    solution = linprog(
        [-float(refuted(state)) for state in states] + [0.0] * len(weights),
        A_ub=coo_matrix((values, (rows, columns)), shape=shape).tocsr(),
        b_ub=[0.0] * len(weights) + [delta],
        A_eq=coo_matrix(([1.0] * number, ([0] * number, range(number))), shape=(1, shape[1])),
        b_eq=[1.0],
        method="highs",
    )
    return -float(solution.fun)


PARTS = {"exposure": exposure, "completion": completion, "epsilon": epsilon}

if __name__ == "__main__":
    main("error_rates_canaries", __doc__, PARTS)
