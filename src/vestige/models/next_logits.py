"""Logits of every token of many texts, given those before it.

A Hugging Face model reads whole texts in one forward pass, padded on the right, where causal
attention never looks. Any other reads token by token, and texts that have ended are dropped.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from vestige.models.protocols import NextToken, State

POSITIONS = 2**13
"""Tokens of texts, and of what stands before them, in one forward pass."""


@torch.no_grad()
def next_logits(
    model: NextToken, tokens: Tensor, lengths: Tensor, *, cells: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Logits from which each token of n texts is told, in slices.

    Args:
        model: any model of next tokens.
        tokens: (n, t) int64, each row a text from its beginning, on the model's device.
        lengths: (n,) int64 tokens of each text, on the model's device, the longest first; what a
            row holds behind them is not read.
        cells: logits in a slice at most, where a row of them has no more.

    Yields:
        (m,) places in `tokens.flatten()`, (m,) the row of logits for each, and (k, v) logits.
    """
    if not len(tokens):
        return
    width = tokens.shape[1]
    first = model.start(1)
    begins = torch.arange(len(tokens), device=tokens.device) * width
    yield begins, torch.zeros_like(begins), model.logits(first)
    whole = getattr(model, "reads_whole", False)
    states = _whole(model, first, tokens, lengths) if whole else _stepwise(model, tokens, lengths)
    for state, places in states:
        step = max(1, cells // model.vocab_size)
        for begin in range(0, len(places), step):
            asked = places[begin : begin + step]
            rows = torch.arange(len(asked), device=asked.device)
            yield asked, rows, model.logits(state[begin : begin + step])


def _whole(
    model: NextToken, first: State, tokens: Tensor, lengths: Tensor
) -> Iterator[tuple[State, Tensor]]:
    """States of whole texts at once, and the place of the token that each tells.

    The state of a text's beginning is one forward pass, whose weights a slow model reads once.
    """
    every: list[int] = lengths.tolist()
    before = int(getattr(first, "length", 0))
    begin = 0
    while begin < len(every) and every[begin] > 1:
        read = every[begin] - 1  # nothing is asked behind the last token
        rows = slice(begin, begin + max(1, POSITIONS // (before + read)))
        state = model.after_each(  # type: ignore[attr-defined]
            first[torch.zeros(len(every[rows]), dtype=torch.int64, device=tokens.device)],
            tokens[rows, :read],
        )
        column = torch.arange(1, read + 1, device=tokens.device)
        asked = column < lengths[rows, None]
        row = torch.arange(begin, begin + len(every[rows]), device=tokens.device)
        places = row[:, None] * tokens.shape[1] + column
        yield state[asked.flatten().nonzero()[:, 0]], places[asked]
        begin += len(every[rows])


def _stepwise(model: NextToken, tokens: Tensor, lengths: Tensor) -> Iterator[tuple[State, Tensor]]:
    """States after each token in turn, and the place of the token that each tells."""
    state = model.start(len(tokens))
    for column in range(1, int(lengths[0])):
        going = int((lengths > column).sum())
        state = model.advance(state[:going], tokens[:going, column - 1])
        yield state, torch.arange(going, device=tokens.device) * tokens.shape[1] + column
