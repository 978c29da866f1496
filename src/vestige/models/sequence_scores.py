r"""Log-probabilities of the tokens of many sequences, each from the beginning of a text.

.. math:: \log p(w_t \mid w_1 \ldots w_{t-1}) = z_{w_t} - \log \sum_{w} e^{z_w}

The sum over a sequence, negated and in bits, is the log-perplexity of Carlini et al. (2019), "The
Secret Sharer", Definition 1.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vestige import _validate
from vestige.models.next_logits import next_logits
from vestige.models.protocols import NextToken

_ROWS = 4096
_CELLS = 2**24
"""Rows x vocabulary that are computed together: 64 MiB of float32, twice while they are summed."""


def sequence_log_probs(model: NextToken, tokens: Tensor, *, rows: int = _ROWS) -> Tensor:
    """The log-probability of each token given those before it, from the beginning of a text.

    Args:
        model: any model of next tokens.
        tokens: (n, t) int64, each row one sequence, on any device.
        rows: sequences read together; their logits are computed in smaller slices.

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
    _check_ids(model, tokens)
    tokens = tokens.to(model.device)
    answers = torch.empty(tokens.shape, device=model.device)
    for first in range(0, len(tokens), rows):
        block = tokens[first : first + rows]
        lengths = torch.full((len(block),), block.shape[1], device=model.device)
        answers[first : first + rows] = _log_probs(model, block, lengths)
    return answers


def text_log_probs(
    model: NextToken, texts: Sequence[Sequence[int]], done: Callable[[int], None] | None = None
) -> NDArray[np.float64]:
    """(n,) natural log-probabilities of whole texts of ids; `done` gets the number of new ones.

    The longest texts are read first, and a repeated text once.

    Raises:
        ValueError: a text is empty, or has ids that the model lacks.
    """
    times = Counter(tuple(ids) for ids in texts)
    if () in times:
        raise ValueError("texts must have at least one token each, got an empty one")
    different = sorted(times, key=lambda ids: (-len(ids), ids))
    sums: dict[tuple[int, ...], float] = {}
    for first in range(0, len(different), _ROWS):
        chosen = different[first : first + _ROWS]
        padded = pad_sequence([torch.tensor(ids) for ids in chosen], batch_first=True)
        _check_ids(model, padded)
        lengths = torch.tensor([len(ids) for ids in chosen], device=model.device)
        found = _log_probs(model, padded.to(model.device), lengths)
        sums |= zip(chosen, found.double().sum(1).tolist(), strict=True)
        if done:
            done(sum(times[ids] for ids in chosen))
    return np.array([sums[tuple(ids)] for ids in texts], np.float64)


def _log_probs(model: NextToken, tokens: Tensor, lengths: Tensor) -> Tensor:
    """(n, t) log-probabilities of the tokens of texts, the longest first; 0 after their ends."""
    answers = torch.zeros(tokens.numel(), device=model.device)
    ids = tokens.flatten()
    for places, rows, logits in next_logits(model, tokens, lengths, cells=_CELLS):
        answers[places] = (logits[rows, ids[places]] - logits.logsumexp(1)[rows]).float()
    return answers.view(tokens.shape)


def _check_ids(model: NextToken, tokens: Tensor) -> None:
    if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < model.vocab_size):
        raise ValueError(
            f"tokens must be ids below {model.vocab_size}, got {int(tokens.min())} to "
            f"{int(tokens.max())}"
        )
