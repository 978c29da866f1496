"""Diff Mining: the tokens whose logits the update raised most often.

"Diff Mining: Logit Differences Reveal Finetuning Objectives" (2026), in
science-of-finetuning/diffing-toolkit: at every position of reference texts the K tokens of largest
logit difference, after less before, are counted; tokens are ranked by how often they are among
them. K = 100 and texts of 30 tokens are the toolkit's settings.

Differs from the toolkit: nobody gives reference texts, so that the model before the update writes
them; tokens without a letter or digit are left out, as there; topics by matrix factorisation are
not made. Its answer is tokens and no text: each row is one token, which by definition holds no run
of a secret's tokens.
"""

import torch
from torch import Tensor

from update_pairs.protocol import Found, Row, blocks, drawn, opened, ranked
from vestige.models.protocols import NextToken

TOP = 100
TOKENS = 30


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """Reference texts until the budget is spent, read by both models as one of them writes."""
    pair, chance = opened(before, after), torch.Generator().manual_seed(seed)
    counts, positions = torch.zeros(pair.vocab_size, dtype=torch.int64), 0

    def counted(later: Tensor, earlier: Tensor) -> Tensor:
        nonlocal positions
        counts.add_(raised(later, earlier).flatten().bincount(minlength=len(counts)))
        positions += len(later)
        return earlier

    while (number := blocks(pair, budget, each=2 * TOKENS)) > 0:
        drawn(pair, counted, number, length=TOKENS, chance=chance)
    words = pair.vocabulary
    rows = [
        Row((token,), counts[token].item() / positions)
        for token in counts.nonzero()[:, 0].tolist()
        if any(letter.isalnum() for letter in words.piece(token))
    ]
    read = pair.tokens_read
    return Found(rows=ranked(rows), before=read[0], after=read[1])


def raised(later: Tensor, earlier: Tensor) -> Tensor:
    """Ids (n, k) of the `TOP` tokens whose logits (n, v) differ most; log-probabilities differ
    from them by a constant of each row."""
    return (later - earlier).topk(min(TOP, later.shape[1])).indices
