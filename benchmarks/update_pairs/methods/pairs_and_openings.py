"""`vestige diff` as it was before samples: pairs of tokens and openings, and no repair."""

from dataclasses import replace

from reproduction.updates.searches import PAIRS_AND_OPENINGS
from update_pairs.methods.hybrid import searched
from update_pairs.protocol import Found, opened
from vestige.audits.update.plan import tokens_of
from vestige.audits.update.prompts import beginning
from vestige.models.protocols import NextToken

MOST = 2000
"""Pairs that were extended by default."""


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """As many seeds as the budget is expected to allow; nothing in it is drawn."""
    pair = opened(before, after)
    for seeds in range(MOST, 0, -100):
        how = replace(PAIRS_AND_OPENINGS, pairs=seeds)
        if tokens_of(how, pair, [beginning(pair)]) <= budget:
            break
    return searched(before, after, how, fragments=False)
