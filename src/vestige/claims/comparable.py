"""Whether audited texts differ from the reference in more than membership.

Case, script, length, words and the scores of a model that saw neither are compared, each at a fifth
of the level (Bonferroni). Case, script and length count only where the difference is large, since
scores are compared at one length and small differences do not move them.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from vestige.claims.claim import Check
from vestige.metrics.tests import means_by_group, unit_permutation_test

LEVEL = 0.05
TESTS = 5
SMALL = (0.4, 0.6)
"""AUCs between these are small differences of case, script or length."""

TRAITS: Mapping[str, Callable[[str], float]] = {
    "upper case": lambda text: _share(text, str.isupper),
    "script": lambda text: _share(text, lambda letter: ord(letter) > 127),
    "length": lambda text: float(len(text.split())),
}


def comparable(
    texts: Sequence[str],
    reference: Sequence[str],
    *,
    words_differ: bool | None,
    base: tuple[ArrayLike, ArrayLike] | None = None,
    units: tuple[ArrayLike, ArrayLike] | None = None,
    who: str = "the base",
    seed: int = 0,
) -> Check:
    """Compare audited texts with the reference, without the audited model.

    Args:
        texts: n audited texts.
        reference: m texts that are known not to be in the training data.
        words_differ: whether a classifier tells them apart by their words at the level
            `LEVEL / TESTS`; None where there are too few texts to ask.
        base: (n,) and (m,) scores of a model that saw neither.
        units: (n,) and (m,) independent unit of each text; None: each text is one.
        who: that model in a sentence.
        seed: of the permutations.
    """
    owners = units or (np.arange(len(texts)), np.arange(len(reference)))
    apart = ["words"] if words_differ else []
    for name, trait in TRAITS.items():
        ranks = _ranks([trait(text) for text in texts], [trait(text) for text in reference])
        small = SMALL[0] <= _auc(*ranks) <= SMALL[1]
        if not small and _p_value(*ranks, owners, seed) <= LEVEL / TESTS:
            apart.append(name)
    if base is not None and _p_value(*_ranks(*base), owners, seed) <= LEVEL / TESTS:
        apart.append(f"how well {who} predicts them")
    if apart:
        return Check(
            "comparable", "failed",
            f"The texts differ from the reference in {_and(apart)}: their scores can differ "
            "without training on them.",
        )  # fmt: skip
    if words_differ is None:
        return Check(
            "comparable", "could not run",
            "Too few texts to compare their words with the words of the reference.",
        )  # fmt: skip
    asked = "words, case, script and length" + (
        "" if base is None else f", and {who} predicts both alike"
    )
    return Check("comparable", "passed", f"Texts and reference are alike in {asked}.")


def _share(text: str, holds: Callable[[str], bool]) -> float:
    letters = [one for one in text if one.isalpha()]
    return sum(map(holds, letters)) / max(1, len(letters))


def _ranks(own: ArrayLike, rest: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ranks of both sides among all."""
    sides = np.asarray(own, dtype=np.float64), np.asarray(rest, dtype=np.float64)
    ranks = rankdata(np.concatenate(sides))
    return ranks[: sides[0].size], ranks[sides[0].size :]


def _auc(own: NDArray[np.float64], rest: NDArray[np.float64]) -> float:
    return float((own.mean() - (own.size + 1) / 2) / rest.size)


def _p_value(
    own: NDArray[np.float64],
    rest: NDArray[np.float64],
    units: tuple[ArrayLike, ArrayLike],
    seed: int,
) -> float:
    """Two-sided, of mean ranks by unit."""
    sides = means_by_group(own, units[0]), means_by_group(rest, units[1])
    tails = [
        unit_permutation_test(sign * sides[0], sign * sides[1], seed=seed, permutations=1999)
        for sign in (1, -1)
    ]
    return min(1.0, 2 * min(tails))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
