"""Texts as token scores alone, and their scores over first tokens."""

import numpy as np

from vestige.claims import Check
from vestige.metrics.listed import CutScores, ladder

RUNGS = ladder(400)
PASSED = tuple(
    Check(name, "passed", f"The check {name} passed.")
    for name in ("alive", "read", "independent", "comparable")
)
"""The checks of an audit without a base that scores alone cannot make."""


def cut_scores(count, gain, chance, *, mean_length=60, author=0.0, per=1):
    """Mean token scores over first tokens.

    Args:
        count: texts.
        gain: mean of their tokens' scores.
        chance: generator.
        mean_length: of their lengths, which are geometric.
        author: deviation of authors, of `per` texts each.
    """
    lengths = np.clip(chance.geometric(1 / mean_length, count), 5, 400)
    of_author = np.repeat(chance.normal(0, author, -(-count // per)), per)[:count]
    of_text = chance.normal(gain, 0.3, count) + of_author
    sums = [np.cumsum(chance.normal(m, 1, n)) for m, n in zip(of_text, lengths, strict=True)]
    return CutScores.of(
        lambda places, cut: np.array([sums[place][cut - 1] / cut for place in places]),
        lengths,
        RUNGS,
    )
