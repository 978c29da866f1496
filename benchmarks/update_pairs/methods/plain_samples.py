"""Texts sampled from the later model alone, as Carlini et al. (2021) begin, arXiv:2012.07805.

Differs from the paper: temperature 1 throughout and no other model beside; samples stand by their
mean log-probability, its perplexity ranking.
"""

import torch

from update_pairs.protocol import LENGTH, Found, Row, drawn_from, ranked
from vestige.models.protocols import NextToken

BLOCK = 100


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """Samples until the budget is spent, all of it by the later model."""
    chance, read = torch.Generator().manual_seed(seed), 0
    rows: list[Row] = []
    while (number := min(BLOCK, (budget - read) // LENGTH)) > 0:
        texts, more = drawn_from(after, number, length=LENGTH, chance=chance)
        read += more
        rows += [
            Row(text.tokens, sum(text.later) / len(text.tokens)) for text in texts if text.tokens
        ]
    return Found(rows=ranked(rows), before=0, after=read)
