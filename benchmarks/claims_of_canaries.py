"""How often do claims about planted canaries err?

- exposure: nothing is memorized, and the words of canaries and controls are 0.5 SD likelier than
  those of references; a claim of a leak is an error. Normal scores in place of a model.
- memorized: the same, and planted canaries 1.5 SD likelier still; a claim of a leak is right.
- completion: a model that never read the canaries completes each with its chance.
- epsilon: the largest probability of refuting a true epsilon, over all private mechanisms (a
  linear program), against the bound, and how often the bound of randomized response is too large.

    python benchmarks/claims_of_canaries.py [--runs N]

The last line is JSON: rates with their intervals of Clopper and Pearson.
"""

import argparse
import json
import math
from collections.abc import Callable
from itertools import accumulate, product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix
from scipy.special import expit
from scipy.stats import binom

from vestige.audits.exposure.canary_result import CanaryExposure
from vestige.audits.extraction.canaries import Completion
from vestige.claims import LEAK, NO_LEAK, Check
from vestige.metrics.epsilon import any_reached, guesses_for, one_run_epsilon
from vestige.metrics.estimates import clopper_pearson
from vestige.metrics.exposure import sampled_exposure

REFERENCES = 1000
PASSED = (Check("alive", "passed", "It predicts."), Check("read", "passed", "It reads."))


def share(times: int, of: int) -> list[float]:
    """A rate with its interval, in percent."""
    low, high = clopper_pearson(times, of)
    return [round(100 * one, 2) for one in (times / of, low, high)]


def exposed(scores: np.ndarray, planted: int, references: np.ndarray) -> CanaryExposure:
    found = sampled_exposure(scores, references, space_bits=40.0)
    canaries = tuple(
        {
            "pattern": "random", "copies": int(place < planted), "log_perplexity": float(score),
            "exposure": float(found.exposure[place]), "low": float(found.low[place]),
            "high": float(found.high[place]), "at_ceiling": bool(found.at_ceiling[place]),
            "exact_low": None, "references": REFERENCES, "whole": False,
        }
        for place, score in enumerate(scores)
    )  # fmt: skip
    return CanaryExposure(canaries=canaries, words=1, fit_distance=None, seed=0, checks=PASSED)


def exposures(runs: int, shift: float, planted: int, controls: int) -> dict[str, list[float]]:
    """Shares of verdicts where planted canaries are `shift` SD likelier than controls."""
    rng = np.random.default_rng([planted, controls])
    said = []
    for _ in range(runs):
        own, never, references = (rng.normal(size=n) for n in (planted, controls, REFERENCES))
        scores = np.concatenate([own - shift, never]) - 0.5  # low is likely
        said.append(exposed(scores, planted, references).verdict)
    return {verdict: share(said.count(verdict), runs) for verdict in (LEAK, NO_LEAK)}


def completions(runs: int, planted: int, controls: int, length: int) -> list[float]:
    """Share of leaks that are claimed of a model which guesses each order by chance."""
    rng = np.random.default_rng([planted, controls, length])
    chance, wrong = 1 / math.factorial(length - 1), 0
    for _ in range(runs):
        said = rng.random(planted + controls) < chance
        attempts = tuple(
            {
                "kind": "canary" if place < planted else "control",
                "greedy": bool(one),
                "chance": chance,
            }
            for place, one in enumerate(said)
        )  # fmt: skip
        wrong += Completion(attempts=attempts, prefix=1, beam=1, checks=PASSED).verdict == LEAK
    return share(wrong, runs)


def worst(
    canaries: int, sizes: list[int], refuted: Callable[[tuple[int, ...]], bool], privacy: tuple
) -> float:
    """The largest probability of an event that a private mechanism can give its right guesses.

    The mechanism names guesses in an order; they count in sections of some sizes. By symmetry over
    coins and canaries it is a distribution of the right ones in each section, whose excess over
    e^epsilon times a neighbour's, each section by its share of the canaries, is delta at most.
    """
    epsilon, delta = privacy
    states = list(product(*(range(size + 1) for size in sizes)))
    index, number = {state: place for place, state in enumerate(states)}, len(states)
    cells: list[tuple[int, int, float]] = []
    weights: list[float] = []
    for section, size in enumerate(sizes):
        for state in states:
            right = state[section]
            for step, share_of, back in (
                (-1, right / size, (size - right + 1) / size),
                (1, (size - right) / size, (right + 1) / size),
            ):
                if not 0 <= right + step <= size:
                    continue
                other = (*state[:section], right + step, *state[section + 1 :])
                row = len(weights)
                cells += [
                    (row, index[state], share_of),
                    (row, index[other], -math.exp(epsilon) * back),
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


def joint_levels(canaries: int = 20) -> list[dict[str, float]]:
    """The worst probability beside the bound, where all numbers of guesses are that improbable."""
    guesses = [h + k for h, k in guesses_for(canaries, None)]
    sizes = [b - a for a, b in zip([0, *guesses], guesses, strict=False)]
    found = []
    for epsilon, alone, delta in product((0.0, 0.5, 1.5), (0.02, 0.05, 0.2), (0, 1e-4, 1e-3)):
        tails = [binom.sf(np.arange(-1, n + 1), n, expit(epsilon)) for n in guesses]
        firsts = [int((tail > alone).sum()) for tail in tails]
        bound = any_reached(
            canaries, list(zip(guesses, firsts, strict=True)), epsilon=epsilon, delta=delta
        )

        def refuted(state: tuple[int, ...], firsts: list[int] = firsts) -> bool:
            return any(w >= v for w, v in zip(accumulate(state), firsts, strict=True))

        largest = worst(canaries, sizes, refuted, (epsilon, delta))
        if bound > 0:
            found.append({"delta": delta, "worst": largest, "bound": bound})
    return found


def too_large(runs: int, epsilon: float, delta: float, canaries: int = 200) -> list[float]:
    """How often the bound exceeds epsilon: randomized response that tells the coin with delta."""
    rng = np.random.default_rng([canaries, int(10 * epsilon)])
    wrong = 0
    for _ in range(runs):
        coins = rng.random(canaries) < 0.5
        right = (rng.random(canaries) < expit(epsilon)) | (rng.random(canaries) < delta)
        sure = rng.random(canaries)
        scores = np.where(coins == right, 1 + sure, -1 - sure)
        found = one_run_epsilon(scores[coins], scores[~coins], delta=delta)
        wrong += found.epsilon > epsilon
    return share(wrong, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    told: dict[str, object] = {"runs": runs}
    told["exposure"] = {str(n): exposures(runs, 0.0, 20, n) for n in (1, 5, 20)}
    told["memorized"] = {str(n): exposures(runs, 1.5, 20, n) for n in (1, 5, 20)}
    told["completion"] = {
        f"{n} of {k} words beside {c}": completions(runs, n, c, k)
        for n, c, k in ((20, 20, 3), (5, 20, 2), (1, 20, 4), (20, 0, 3))
    }
    told["epsilon too large"] = {
        f"{e}, {d}": too_large(runs, e, d) for e, d in ((0.0, 0.0), (1.0, 0.0), (1.0, 1e-4))
    }
    levels = joint_levels()
    for name, private in (("delta 0", False), ("delta > 0", True)):
        ratios = [one["worst"] / one["bound"] for one in levels if bool(one["delta"]) is private]
        told[f"worst over bound, {name}"] = [round(f(ratios), 6) for f in (min, max)]
    for name, value in told.items():
        print(f"{name}: {value}")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
