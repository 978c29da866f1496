r"""CDD: texts drawn while what the update changed is amplified.

"Reading the Finetuning Prior: Verbatim Content Recovery via Contrastive Decoding Diffing" (2026),
arXiv:2605.25902: no chat template, a pre-fill that says nothing, and at each step the logits

.. math:: \ell' + \alpha (\ell' - \ell_0)

Differs from the paper: written from its abstract and summaries of it, since neither its text nor
its code was to be had. The pre-fill is the beginning of a document and nothing else; alpha is 0.5
and the temperature 1. In the paper a reader (a language model) judges the samples, so that it needs
no order; here they stand by the mean log-ratio that is amplified, :math:`\log p' - \log p_0`.
"""

import torch
from torch import Tensor

from update_pairs.protocol import LENGTH, Found, Row, blocks, drawn, log_ratio, opened, ranked
from vestige.models.protocols import NextToken

ALPHA = 0.5


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """Samples until the budget is spent."""
    pair, chance = opened(before, after), torch.Generator().manual_seed(seed)
    rows: list[Row] = []
    while (number := blocks(pair, budget, each=2 * LENGTH)) > 0:
        texts = drawn(pair, amplified, number, length=LENGTH, chance=chance)
        rows += [Row(text.tokens, log_ratio(text)) for text in texts]
    read = pair.tokens_read
    return Found(rows=ranked(rows), before=read[0], after=read[1])


def amplified(later: Tensor, earlier: Tensor) -> Tensor:
    """The contrast of two models' log-probabilities (n, v)."""
    return later + ALPHA * (later - earlier)
