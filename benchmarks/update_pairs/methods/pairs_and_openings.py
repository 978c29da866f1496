"""`vestige diff` as it was before samples: pairs of tokens and openings, and no repair."""

from update_pairs.methods.hybrid import searched
from update_pairs.protocol import Found, opened
from vestige.attacks.update.seed_and_extend import pairs_and_openings
from vestige.models.protocols import NextToken

MOST = 2000
"""Pairs that were extended by default."""


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """As many seeds as the budget is expected to allow; nothing in it is drawn."""
    pair = opened(before, after)
    for seeds in range(MOST, 0, -100):
        how = pairs_and_openings(seeds=seeds, repaired=0)
        if how.planned(pair).total <= budget:
            break
    return searched(before, after, how, fragments=False)
