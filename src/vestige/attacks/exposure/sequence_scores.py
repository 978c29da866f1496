r"""Log-probabilities of the tokens of many sequences, each from the beginning of a text.

.. math:: \log p(w_t \mid w_1 \ldots w_{t-1}) = z_{w_t} - \log \sum_{w} e^{z_w}

The sum over a sequence, negated and in bits, is the log-perplexity of Carlini et al. (2019), "The
Secret Sharer", Definition 1.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige import _validate
from vestige.models.protocols import NextToken, State

_ROWS = 4096
_CELLS = 2**24
"""Rows x vocabulary asked at once: 64 MiB of float32, a second of them while they are summed."""


@torch.no_grad()
def sequence_log_probs(model: NextToken, tokens: Tensor, *, rows: int = _ROWS) -> Tensor:
    """The log-probability of each token given those before it, from the beginning of a text.

    Args:
        model: any model of next tokens.
        tokens: (n, t) int64, each row one sequence, on any device.
        rows: sequences read at once; the vocabulary is asked in smaller slices yet.

    Returns:
        (n, t) float32 natural logarithms, on the model's device.

    Raises:
        ValueError: tokens is no (n, t) tensor of ids with t at least 1, or rows < 1.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.25, 0.75], [[0.5, 0.5], [1.0, 0.0]])
        >>> sequence_log_probs(model, torch.tensor([[1, 0], [0, 1]])).exp()
        tensor([[0.7500, 1.0000],
                [0.2500, 0.5000]])
    """
    _validate.positive(rows=rows)
    if tokens.ndim != 2 or not tokens.shape[1] or tokens.dtype != torch.int64:
        raise ValueError(
            "tokens must be int64 of shape (n, t) with t at least 1, "
            f"got {tokens.dtype} of shape {tuple(tokens.shape)}"
        )
    if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < model.vocab_size):
        raise ValueError(
            f"tokens must be ids below {model.vocab_size}, got {int(tokens.min())} to "
            f"{int(tokens.max())}"
        )
    tokens = tokens.to(model.device)
    answers = torch.empty(tokens.shape, device=model.device)
    # All sequences begin alike: one row says how likely each first token is.
    answers[:, 0] = model.log_probs(model.start(1))[0, tokens[:, 0]]
    if tokens.shape[1] == 1:
        return answers
    for first in range(0, len(tokens), rows):
        block = tokens[first : first + rows]
        state: State = model.start(len(block))
        for position in range(1, block.shape[1]):
            state = model.advance(state, block[:, position - 1])
            answers[first : first + rows, position] = _next(model, state, block[:, position])
    return answers


def _next(model: NextToken, state: State, following: Tensor) -> Tensor:
    """(n,) log-probabilities of the tokens that follow n texts; the vocabulary in slices."""
    step = max(1, _CELLS // model.vocab_size)
    answers = []
    for first in range(0, len(following), step):
        rows = slice(first, first + step)
        logits = model.logits(state[rows])
        chosen = logits.gather(1, following[rows, None])[:, 0]
        answers.append(chosen - logits.logsumexp(1))
    return torch.cat(answers)


def text_log_probs(
    model: NextToken, texts: Sequence[Sequence[int]], done: Callable[[int], None] | None = None
) -> NDArray[np.float64]:
    """(n,) natural log-probabilities of whole texts of ids; `done` is told how many more have one.

    Texts of one length are scored together.
    """
    rows = defaultdict(list)
    for row, ids in enumerate(texts):
        rows[len(ids)].append(row)
    sums = np.empty(len(texts))
    for of_length in rows.values():
        for first in range(0, len(of_length), _ROWS):
            chosen = of_length[first : first + _ROWS]
            found = sequence_log_probs(model, torch.tensor([texts[row] for row in chosen]))
            sums[chosen] = found.double().sum(1).cpu().numpy()
            if done:
                done(len(chosen))
    return sums
