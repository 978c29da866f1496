"""How often claims about planted canaries err, in simulations.

- `exposure`: planted canaries that nothing memorized beside controls, both likelier than
  references; then canaries that are 1.5 standard deviations likelier, where a leak is right.
- `completion`: a model that completes canaries by chance.
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
"""Taken for granted, which can only add verdicts."""


def exposure(run: Run) -> list[Row]:
    """Verdicts on 20 planted canaries beside 1, 5 and 20 controls."""
    rows = []
    for title, shift in (("nothing memorized", 0.0), ("1.5 SD likelier", 1.5)):
        for controls in (1, 5, 20):
            rng, times = np.random.default_rng([20, controls]), run.times(1000, 4)
            told = [{"verdict": exposure_verdict(rng, shift, controls)} for _ in range(times)]
            rows.append({"canaries": title, "controls": controls, **verdicts(told)})
    return rows


def exposure_verdict(rng: np.random.Generator, shift: float, controls: int) -> str:
    """Of normal scores; low is likely."""
    own, never, references = (rng.normal(size=n) for n in (20, controls, REFERENCES))
    scores = np.concatenate([own - shift, never]) - 0.5
    found = sampled_exposure(scores, references, space_bits=40.0)
    canaries = tuple(
        {
            "pattern": "random", "copies": int(place < 20), "log_perplexity": float(score),
            "exposure": float(found.exposure[place]), "low": float(found.low[place]),
            "high": float(found.high[place]), "at_ceiling": bool(found.at_ceiling[place]),
            "exact_low": None, "references": REFERENCES, "whole": False,
        }
        for place, score in enumerate(scores)
    )  # fmt: skip
    told = CanaryExposure(canaries=canaries, words=1, seed=0, checks=CHECKS)
    return told.verdict


def completion(run: Run) -> list[Row]:
    """Leaks that are claimed of a model which guesses each order of words by chance."""
    rows, times = [], run.times(1000, 20)
    for planted, controls, words in ((20, 20, 3), (5, 20, 2), (1, 20, 4), (20, 0, 3)):
        rng, wrong = np.random.default_rng([planted, controls, words]), 0
        chance = 1 / math.factorial(words - 1)
        for _ in range(times):
            said = rng.random(planted + controls) < chance
            kinds = ["canary"] * planted + ["control"] * controls
            attempts = tuple(
                {"kind": kind, "greedy": bool(one), "chance": chance}
                for kind, one in zip(kinds, said, strict=True)
            )
            found = Completion(attempts=attempts, prefix=1, beam=1, checks=CHECKS)
            wrong += found.verdict == LEAK
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
    levels = joint_levels(run.size(20, 6))
    for title, private in (("0", False), ("1e-4, 1e-3", True)):
        ratios = [one["worst"] / one["bound"] for one in levels if bool(one["delta"]) is private]
        least, most = (round(f(ratios), 6) for f in (min, max))
        rows.append({"delta": title, "worst over bound, least": least, "most": most})
    return rows


def bound_exceeds(rng: np.random.Generator, true: float, delta: float) -> bool:
    """Whether the bound of randomized response, which tells the coin with delta, is too large."""
    coins = rng.random(200) < 0.5
    right = (rng.random(200) < expit(true)) | (rng.random(200) < delta)
    sure = rng.random(200)
    scores = np.where(coins == right, 1 + sure, -1 - sure)
    return bool(one_run_epsilon(scores[coins], scores[~coins], delta=delta).epsilon > true)


def joint_levels(canaries: int) -> list[dict[str, float]]:
    """The worst probability beside the bound, where all numbers of guesses are that improbable."""
    guesses = [h + k for h, k in guesses_for(canaries, None)]
    sizes = [b - a for a, b in zip([0, *guesses], guesses, strict=False)]
    found = []
    for true, alone, delta in product((0.0, 0.5, 1.5), (0.02, 0.05, 0.2), (0, 1e-4, 1e-3)):
        tails = [binom.sf(np.arange(-1, n + 1), n, expit(true)) for n in guesses]
        firsts = [int((tail > alone).sum()) for tail in tails]
        reached = list(zip(guesses, firsts, strict=True))
        bound = any_reached(canaries, reached, epsilon=true, delta=delta)

        def refuted(state: tuple[int, ...], firsts: list[int] = firsts) -> bool:
            return any(w >= v for w, v in zip(accumulate(state), firsts, strict=True))

        if bound > 0:
            worst = worst_mechanism(canaries, sizes, refuted, true, delta)
            found.append({"delta": delta, "worst": worst, "bound": bound})
    return found


def worst_mechanism(
    canaries: int,
    sizes: Sequence[int],
    refuted: Callable[[tuple[int, ...]], bool],
    true: float,
    delta: float,
) -> float:
    """The largest probability of an event that a private mechanism can give its right guesses.

    The mechanism names guesses in an order; they count in sections of some sizes. By symmetry over
    coins and canaries it is a distribution of the right ones in each section, whose excess over
    e^epsilon times a neighbour's, each section by its share of the canaries, is delta at most.
    """
    states = list(product(*(range(size + 1) for size in sizes)))
    index, number = {state: place for place, state in enumerate(states)}, len(states)
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
    found = linprog(
        [-float(refuted(state)) for state in states] + [0.0] * len(weights),
        A_ub=coo_matrix((values, (rows, columns)), shape=shape).tocsr(),
        b_ub=[0.0] * len(weights) + [delta],
        A_eq=coo_matrix(([1.0] * number, ([0] * number, range(number))), shape=(1, shape[1])),
        b_eq=[1.0],
        method="highs",
    )
    return -float(found.fun)


PARTS = {"exposure": exposure, "completion": completion, "epsilon": epsilon}

if __name__ == "__main__":
    main("error_rates_canaries", __doc__, PARTS)
