"""One beam from the beginning of a document, by the differential score.

Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 2.4: the beam begins with the whole
vocabulary and halves.

Differs from the paper: it halves down to the floor that spends the budget; near-copies are folded,
as by our search.
"""

from reproduction.updates.beam_search import beam_search, folded, halving_widths
from update_pairs.protocol import Found, Row
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.models.protocols import NextToken

TOKENS = 10
"""Tokens of every phrase. The paper's canaries have five words, its beams the length of these."""


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """A beam of `TOKENS` steps; nothing in it is drawn."""
    pair = Pair.of(before, after, TokenScore("differential"))
    steps = widths(pair.vocab_size, budget)
    leaders = folded(beam_search(pair, steps))
    found = tuple(Row(phrase.tokens, phrase.score) for phrase, _ in leaders if not phrase.is_run)
    read = 1 + sum(steps[:-1])  # each prefix once, however often memory makes the search read it
    return Found(rows=found, before=read, after=read)


def widths(vocab_size: int, budget: int) -> list[int]:
    """The halving beam with the highest floor that both models can read within the budget."""
    low, high = 1, vocab_size
    while low < high:
        middle = (low + high + 1) // 2
        read = sum(halving_widths(vocab_size, TOKENS, floor=middle)[:-1])
        low, high = (middle, high) if 2 * (read + 1) <= budget else (low, middle - 1)
    return halving_widths(vocab_size, TOKENS, floor=low)
