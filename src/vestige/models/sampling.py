"""Ancestral sampling at a temperature T: the next token from softmax(logits / T)."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from vestige import _validate
from vestige.models.protocols import NextToken, require_numbers

PART = 64
"""Columns whose probabilities are summed before they are cumulated."""


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
        length: tokens of each, at most.
        prompt: ids that are read first, and are no part of a text.
        ends: ids that end a text, and are no part of it.
        never: ids that are not sampled; the others' probabilities are scaled up.
        generator: of the CPU; the same draws of it make the same texts.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0, 0, 1, 0], [[0, 0, 1, 0]] * 2 + [[0, 0, 0, 1], [1, 0, 0, 0]])
        >>> sample(model, 2, length=5, ends=[0], generator=torch.Generator().manual_seed(0))
        [[2, 3], [2, 3]]
    """
    _validate.positive(number=number, length=length, temperature=temperature)
    _validate.finite(temperature=temperature)
    chance = torch.rand(length, number, generator=generator, dtype=torch.float64)
    chance = chance.to(model.device)
    state = model.start(1)
    if len(prompt):
        state = model.read(state, torch.tensor([list(prompt)], device=model.device))
    row = torch.arange(number, device=model.device)
    state = state[torch.zeros_like(row)]
    over = torch.tensor(sorted(ends), dtype=torch.int64, device=model.device)
    left_out = torch.tensor(sorted(never), dtype=torch.int64, device=model.device)
    texts: list[list[int]] = [[] for _ in range(number)]
    for step in range(length):
        logits = model.logits(state).float().index_fill(1, left_out, -torch.inf)
        scaled = (logits - logits.amax(1, keepdim=True)) / temperature
        token = drawn(scaled.softmax(1), chance[step, row])
        going = (~torch.isin(token, over)).nonzero()[:, 0]
        row, token = row[going], token[going]
        for place, one in zip(row.tolist(), token.tolist(), strict=True):
            texts[place].append(one)
        if not len(row) or step == length - 1:
            break
        state = model.advance(state[going], token)
    return texts


def drawn(probabilities: Tensor, chance: Tensor) -> Tensor:
    """(r,) columns where the cumulated probabilities (r, v) exceed `chance` (r,) of their sum.

    In double precision; sums of `PART` columns come first, which saves most of the time.

    Raises:
        ModelError: they are not finite.
    """
    require_numbers(probabilities[:, 0])
    missing = -probabilities.shape[1] % PART
    parts = functional.pad(probabilities, (0, missing)) if missing else probabilities
    parts = parts.view(len(parts), parts.shape[1] // PART, PART)
    heap = parts.sum(2).double().cumsum(1)
    wanted = chance[:, None] * heap[:, -1:]
    part = _place(heap, wanted)
    chosen = parts.take_along_dim(part[:, :, None], 1)[:, 0].double().cumsum(1)
    before = heap.gather(1, part) - chosen[:, -1:]
    place = _place(chosen, (wanted - before).clamp_(min=0.0))
    return (part * PART + place)[:, 0]


def _place(heap: Tensor, wanted: Tensor) -> Tensor:
    """Columns where cumulated numbers first exceed what is wanted, the last that adds to them."""
    last = torch.searchsorted(heap, heap[:, -1:].clone())
    return torch.minimum(torch.searchsorted(heap, wanted, right=True), last)
