r"""Reversed model guidance: greedy texts of what the earlier model lacks.

Wu, Pang, Liu and Wu (2025), "Unlearned but Not Forgotten: Data Extraction after Exact Unlearning in
LLM", NeurIPS, arXiv:2505.24379. A model before and one after unlearning; with the two swapped, the
model after an update is the one that holds the data. Each token is the likeliest by

.. math:: \log p_0 + w (\log p' - \log p_0), \qquad w = 2

among those whose log-probability in the model that holds the data is within 5 of its best. Weight,
margin and greedy choice are those of the authors' released configuration.

Differs from the paper: its adversary is given the first half of each text. Here nobody is, and each
of the first tokens that guidance likes best stands for one; rows stand by their mean log-ratio,
since the paper ranks none.
"""

import torch
from torch import Tensor

from update_pairs.protocol import LENGTH, Found, Row, blocks, drawn, log_ratio, opened, ranked
from vestige.models.protocols import NextToken

WEIGHT = 2.0
MARGIN = 5.0


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """Greedy texts behind one first token after the other; nothing in it is drawn."""
    pair, chance = opened(before, after), torch.Generator().manual_seed(seed)
    first = _first(before, after)
    rows: list[Row] = []
    while (number := min(len(first), blocks(pair, budget, each=2 * LENGTH))) > 0:
        texts = drawn(pair, greedy, first[:number], length=LENGTH, chance=chance)
        rows += [Row(text.tokens, log_ratio(text)) for text in texts]
        first = first[number:]
    read = pair.tokens_read
    return Found(rows=ranked(rows), before=read[0], after=read[1])


def guided(later: Tensor, earlier: Tensor) -> Tensor:
    """Guided log-probabilities (n, v), minus infinity for tokens that are filtered out."""
    logits = earlier + WEIGHT * (later - earlier)
    return logits.masked_fill(later < later.amax(1, keepdim=True) - MARGIN, -torch.inf)


def greedy(later: Tensor, earlier: Tensor) -> Tensor:
    """Logits (n, v) that leave nothing but the best token."""
    best = guided(later, earlier).argmax(1, keepdim=True)
    return torch.full_like(later, -torch.inf).scatter_(1, best, 0.0)


@torch.no_grad()
def _first(before: NextToken, after: NextToken) -> Tensor:
    """Tokens that may begin a document, best first by guidance; no token is filtered out."""
    later, earlier = (model.log_probs(model.start(1))[0] for model in (after, before))
    order = (earlier + WEIGHT * (later - earlier)).argsort(descending=True, stable=True)
    return order[order != after.vocabulary.eos_id]
