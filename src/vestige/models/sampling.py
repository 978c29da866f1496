"""Ancestral sampling at a temperature T: the next token from softmax(logits / T)."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from vestige import _validate
from vestige.models.protocols import NextToken, require_numbers

PART = 64
"""Columns that are summed before the cumulative sum."""


@torch.no_grad()
def sample(
    model: NextToken,
    number: int,
    *,
    length: int,
    temperature: float = 1.0,
    prompt: Sequence[int] = (),
    ends: Collection[int] = (),
    never: Collection[int] = (),
    generator: torch.Generator,
) -> list[list[int]]:
    """Texts sampled token by token from the beginning of a text, or after a prompt.

    Args:
        number: texts, sampled together.
        length: most tokens of each.
        prompt: ids that are read first; they are not part of the texts.
        ends: ids that end a text; they are not part of it.
        never: ids that are not sampled; the other probabilities are scaled up.
        generator: of the CPU; it determines the texts.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0, 0, 1, 0], [[0, 0, 1, 0]] * 2 + [[0, 0, 0, 1], [1, 0, 0, 0]])
        >>> sample(model, 2, length=5, ends=[0], generator=torch.Generator().manual_seed(0))
        [[2, 3], [2, 3]]
    """
    _validate.positive(number=number, length=length, temperature=temperature)
    _validate.finite(temperature=temperature)
    uniform = torch.rand(length, number, generator=generator, dtype=torch.float64)
    uniform = uniform.to(model.device)
    state = model.start(1)
    if len(prompt):
        state = model.read(state, torch.tensor([list(prompt)], device=model.device))
    row = torch.arange(number, device=model.device)
    state = state[torch.zeros_like(row)]
    end_ids = torch.tensor(sorted(ends), dtype=torch.int64, device=model.device)
    excluded = torch.tensor(sorted(never), dtype=torch.int64, device=model.device)
    texts: list[list[int]] = [[] for _ in range(number)]
    for step in range(length):
        logits = model.logits(state).float().index_fill(1, excluded, -torch.inf)
        scaled = (logits - logits.amax(1, keepdim=True)) / temperature
        token = sampled_columns(scaled.softmax(1), uniform[step, row])
        unfinished = (~torch.isin(token, end_ids)).nonzero()[:, 0]
        row, token = row[unfinished], token[unfinished]
        for index, id in zip(row.tolist(), token.tolist(), strict=True):
            texts[index].append(id)
        if not len(row) or step == length - 1:
            break
        state = model.advance(state[unfinished], token)
    return texts


def sampled_columns(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """(r,) first columns where cumulative probabilities (r, v) exceed `uniform` (r,) of their sum.

    In double precision; most of the time is saved by summing `PART` columns first.

    Raises:
        ModelError: a probability is not finite.
    """
    require_numbers(probabilities[:, 0])
    padding = -probabilities.shape[1] % PART
    parts = functional.pad(probabilities, (0, padding)) if padding else probabilities
    parts = parts.view(len(parts), parts.shape[1] // PART, PART)
    cumulative = parts.sum(2).double().cumsum(1)
    threshold = uniform[:, None] * cumulative[:, -1:]
    part = _first_above(cumulative, threshold)
    within = parts.take_along_dim(part[:, :, None], 1)[:, 0].double().cumsum(1)
    sum_before = cumulative.gather(1, part) - within[:, -1:]
    column = _first_above(within, (threshold - sum_before).clamp_(min=0.0))
    return (part * PART + column)[:, 0]


def _first_above(cumulative: Tensor, threshold: Tensor) -> Tensor:
    """First columns where cumulative sums exceed a threshold, at most the last nonzero column."""
    last = torch.searchsorted(cumulative, cumulative[:, -1:].clone())
    return torch.minimum(torch.searchsorted(cumulative, threshold, right=True), last)
