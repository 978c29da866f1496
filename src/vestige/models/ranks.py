r"""Ranks of true words among a model's predictions.

.. math:: r = 1 + |\{w : z_w > z_y\}| + |\{w < y : z_w = z_y\}|

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 3: ranks of the true words, and not their probabilities, are what tells
members from others. 1 is the likeliest; equal logits stand in the order of their ids, so that a
rank is the word's place in a stable sort of all words, to the last one.

Nothing is sorted: larger logits are counted slice by slice, while a slice of the product is still
in the cache. Rows in the order of their true ids make two plain comparisons of a slice: words
below the true id count from equal on (>=), words above it only where they are larger (>).

A product's last bit may depend on its shape, and a tie on the last bit. The true logit is
therefore guessed, looked up in the slice that holds it, and the rows are counted again where the
two differ: what is compared comes from one and the same product.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vestige import _validate
from vestige.errors import ModelError

ROWS, COLUMNS = 1024, 512
"""A slice of logits: 2 MiB, which stay in the cache and are enough for a fast product."""

_TILE = 16
"""Products of rows and columns in such steps agree to the last bit on the CPUs that we know."""

_CELLS = 2**24
_PASSES = 4

Fill = Callable[[int, Tensor], Tensor]
"""(number of the slice, buffer) -> the slice's logits, in the buffer's memory."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Ranks and log-probabilities of n true words.

    Attributes:
        ranks: (n,) int64 in [1, v].
        log_probs: (n,) float32 natural logarithms; None if not requested.
    """

    ranks: Tensor
    log_probs: Tensor | None = None


def true_ranks(
    hidden: Tensor, head: nn.Linear, truth: Tensor, *, rows: int = ROWS, columns: int = COLUMNS
) -> Tensor:
    """The rank of each true word among the logits of a linear head.

    Args:
        hidden: (n, h) what the head reads.
        head: h -> v, in float32.
        truth: (n,) int64 ids in [0, v).
        rows: of a slice, rounded up to a multiple of 16.
        columns: of a slice, likewise. Memory is rows x columns, however large n and v are.

    Returns:
        (n,) int64 in [1, v].

    Raises:
        ValueError: shapes, types or ids do not fit.
        ModelError: weights or hidden vectors are not finite, or a logit is not a number.

    Example:
        >>> head = nn.Linear(1, 3, bias=False)
        >>> _ = head.weight.data.copy_(torch.tensor([[2.0], [3.0], [2.0]]))
        >>> true_ranks(torch.ones(3, 1), head, torch.tensor([0, 1, 2]))
        tensor([2, 1, 3])
    """
    return RankCounter(head, rows=rows, columns=columns)(hidden, truth).ranks


@torch.no_grad()
def ranks_in(
    logits: Tensor, truth: Tensor, *, log_probs: bool = False, columns: int = COLUMNS
) -> Ranked:
    """The rank of each true word among logits that are there already; they are not changed.

    Args:
        logits: (n, v) float32; -inf is allowed.
        truth: (n,) int64 ids in [0, v).
        log_probs: give these too.
        columns: looked at together.

    Raises:
        ValueError: shapes, types or ids do not fit.
        ModelError: a logit is not a number.

    Example:
        >>> ranks_in(torch.tensor([[0.5, 1.5, 0.5]]), torch.tensor([2])).ranks
        tensor([3])
    """
    _validate.at_least(1, columns=columns)
    _check(logits, truth, name="logits", vocab_size=logits.shape[-1] if logits.ndim else 0)
    if bool(logits.isnan().any()):
        raise _not_a_number()
    counting = _Counting(logits.shape[1], columns, logits.device)

    def answer(chosen: Tensor, ids: Tensor) -> Ranked:
        def fill(number: int, buffer: Tensor) -> Tensor:
            part = logits[:, counting.bounds[number] : counting.bounds[number + 1]]
            return torch.index_select(part, 0, chosen, out=buffer)

        guess = logits[chosen, ids][:, None]
        return counting.count(fill, ids, guess, log_probs=log_probs)

    return _in_blocks(answer, truth, ROWS, log_probs=log_probs)


class RankCounter:
    """Counts ranks among a head's logits; slices and buffers are made once.

    Args:
        head: h -> v, in float32; it must not change while this is in use.
        log_probs: give these too.
        rows: of a slice, rounded up to a multiple of 16.
        columns: of a slice, likewise.

    Raises:
        ValueError: the head is not float32, or a slice would be empty.
        ModelError: a weight is not finite.
    """

    @torch.no_grad()
    def __init__(
        self,
        head: nn.Linear,
        *,
        log_probs: bool = False,
        rows: int = ROWS,
        columns: int = COLUMNS,
    ) -> None:
        _validate.at_least(1, rows=rows, columns=columns)
        if head.weight.dtype != torch.float32:
            raise ValueError(f"head must be float32, got {head.weight.dtype}: call float()")
        self._weight: Tensor = head.weight.detach()
        self._bias: Tensor | None = None if head.bias is None else head.bias.detach()
        self._log_probs = log_probs
        self._rows = _up(rows)
        if not _finite(self._weight):
            raise _not_a_number()
        if self._bias is not None and bool((self._bias.isnan() | self._bias.isposinf()).any()):
            raise _not_a_number()
        self._counting = _Counting(len(self._weight), _up(columns), self._weight.device)
        self._slices = [self._slice(*bounds) for bounds in self._counting.slices()]

    @torch.no_grad()
    def __call__(self, hidden: Tensor, truth: Tensor) -> Ranked:
        """Ranks of n true words, hidden (n, h) and truth (n,) int64."""
        vocab_size, width = self._weight.shape
        _check(hidden, truth, name="hidden", vocab_size=vocab_size, width=width)
        if hidden.numel() and not _finite(hidden):
            raise _not_a_number()

        def answer(chosen: Tensor, ids: Tensor) -> Ranked:
            rows = hidden[chosen]

            def fill(number: int, buffer: Tensor) -> Tensor:
                weight, bias = self._slices[number]
                size = buffer.shape[1]
                out = self._counting.buffer(len(rows), weight.shape[1])
                if bias is None:
                    torch.mm(rows, weight, out=out)
                else:
                    torch.addmm(bias, rows, weight, out=out)
                return out[:, :size]

            guess = self._guess(rows, ids)
            return self._counting.count(fill, ids, guess, log_probs=self._log_probs)

        return _in_blocks(answer, truth, self._rows, log_probs=self._log_probs)

    def _slice(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The weights (h, c) and bias (c,) of some words; c is a multiple of 16."""
        weight, bias = self._weight[start:stop], self._bias
        bias = None if bias is None else bias[start:stop]
        missing = _up(stop - start) - (stop - start)
        if missing:
            weight = nn.functional.pad(weight, (0, 0, 0, missing))
            bias = None if bias is None else nn.functional.pad(bias, (0, missing))
        return weight.t(), bias

    def _guess(self, rows: Tensor, ids: Tensor) -> Tensor:
        """(m, 1) true logits, as products in little squares of which the diagonal is kept."""
        shape = (len(rows) // _TILE, _TILE, rows.shape[1])
        weight = self._weight[ids].view(shape).transpose(1, 2)
        if self._bias is None:
            squares = torch.bmm(rows.view(shape), weight)
        else:
            squares = torch.baddbmm(self._bias[ids].view(-1, 1, _TILE), rows.view(shape), weight)
        return squares.diagonal(dim1=1, dim2=2).reshape(-1, 1)


class _Counting:
    """Counter of one block of rows, with buffers of its own."""

    def __init__(self, vocab_size: int, columns: int, device: torch.device) -> None:
        self.bounds = [*range(0, vocab_size, columns), vocab_size]
        self._edges = torch.tensor(self.bounds, device=device)
        self._columns = min(columns, _up(vocab_size))
        self._memory = torch.empty(0, device=device)
        self._equal = torch.empty(0, device=device)

    def slices(self) -> Iterator[tuple[int, int]]:
        """Bounds of the vocabulary's slices."""
        return zip(self.bounds, self.bounds[1:], strict=False)

    def buffer(self, rows: int, columns: int) -> Tensor:
        if self._memory.numel() < rows * columns:
            self._memory = torch.empty(rows * self._columns, device=self._memory.device)
        return self._memory[: rows * columns].view(rows, columns)

    def count(self, fill: Fill, ids: Tensor, guess: Tensor, *, log_probs: bool) -> Ranked:
        """Ranks of ids (m,) in ascending order, given true logits (m, 1) that may be off."""
        for _ in range(_PASSES):
            ranks, seen, whole = self._pass(fill, ids, guess, log_probs)
            if bool(seen.isnan().any()):
                raise _not_a_number()
            if torch.equal(seen, guess):
                sure = None if whole is None else seen[:, 0] - whole
                return Ranked(ranks=ranks, log_probs=sure)
            guess = seen
        raise ModelError(
            "the device computes another product each time",
            remedy="Pass --device cpu.",
        )

    def _pass(
        self, fill: Fill, ids: Tensor, true: Tensor, log_probs: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ranks (m,), the true logits met (m, 1), and what all words' logits sum up to (m,)."""
        rows = len(ids)
        met = true.clone()
        ranks = torch.ones(rows, dtype=torch.float64, device=ids.device)
        whole = torch.full((rows,), -math.inf, device=ids.device) if log_probs else None
        lows = torch.searchsorted(ids, self._edges).tolist()
        for number, (start, stop) in enumerate(self.slices()):
            part = fill(number, self.buffer(rows, stop - start))
            if whole is not None:
                whole = torch.logaddexp(whole, part.logsumexp(1))
            low, high = lows[number], lows[number + 1]
            if high > low:
                own = ids[low:high, None] - start
                met[low:high] = part[low:high].gather(1, own)
                ranks[low:high] += self._equal_before(part[low:high], true[low:high], own)
            # In place: 0 or 1 takes the place of each logit.
            torch.gt(part[:high], true[:high], out=part[:high])
            torch.ge(part[high:], true[high:], out=part[high:])
            ranks += part.sum(1)
        return ranks.long(), met, whole

    def _equal_before(self, part: Tensor, true: Tensor, own: Tensor) -> Tensor | float:
        """(m,) words of a slice as likely as the true one and of smaller ids."""
        if self._equal.numel() < part.numel():
            self._equal = torch.empty(part.numel(), device=part.device)
        equal = torch.eq(part, true, out=self._equal[: part.numel()].view(part.shape))
        if float(equal.sum(1).amax()) <= 1:
            return 0.0  # only the word itself
        equal *= torch.arange(part.shape[1], device=part.device) < own
        return equal.sum(1)


def ranks_by(
    predict: Callable[[Tensor], Tensor], vocab_size: int, *, log_probs: bool = False
) -> Callable[[Tensor, Tensor], Ranked]:
    """Rank counter for models without a separate linear head.

    Args:
        predict: (m, ...) what was read -> (m, v) logits.
        vocab_size: v.
        log_probs: give these too.

    Returns:
        A function of (n, ...) and truth (n,) int64 that gives a `Ranked`.
    """
    step = max(1, _CELLS // vocab_size)

    @torch.no_grad()
    def count(outputs: Tensor, truth: Tensor) -> Ranked:
        slices = [slice(first, first + step) for first in range(0, max(1, len(truth)), step)]
        parts = [
            ranks_in(predict(outputs[some]).float(), truth[some], log_probs=log_probs)
            for some in slices
        ]
        known = [part.log_probs for part in parts if part.log_probs is not None]
        return Ranked(
            ranks=torch.cat([part.ranks for part in parts]),
            log_probs=torch.cat(known) if known else None,
        )

    return count


def _in_blocks(
    answer: Callable[[Tensor, Tensor], Ranked], truth: Tensor, rows: int, *, log_probs: bool
) -> Ranked:
    """Answers computed in blocks of rows ordered by id, in the rows' own order."""
    n = len(truth)
    ranks = torch.empty(n, dtype=torch.int64, device=truth.device)
    known = torch.empty(n, device=truth.device) if log_probs else None
    order = truth.argsort(stable=True)
    # The last row comes again, so that every product has a multiple of 16 rows.
    order = torch.cat([order, order[-1:].expand(_up(n) - n if n else 0)])
    for chosen in (order[first : first + rows] for first in range(0, len(order), rows)):
        found = answer(chosen, truth[chosen])
        ranks[chosen] = found.ranks
        if known is not None and found.log_probs is not None:
            known[chosen] = found.log_probs
    return Ranked(ranks=ranks, log_probs=known)


def _check(
    given: Tensor, truth: Tensor, *, name: str, vocab_size: int, width: int | None = None
) -> None:
    if given.ndim != 2 or given.dtype != torch.float32 or given.shape[1] != (width or vocab_size):
        raise ValueError(
            f"{name} must be float32 of shape (n, {width or 'v'}), "
            f"got {given.dtype} of shape {tuple(given.shape)}"
        )
    if truth.dtype != torch.int64 or truth.shape != given.shape[:1]:
        raise ValueError(
            f"truth must be int64 of shape ({len(given)},), one id for each row of {name}, "
            f"got {truth.dtype} of shape {tuple(truth.shape)}"
        )
    if len(truth) and not (int(truth.min()) >= 0 and int(truth.max()) < vocab_size):
        raise ValueError(
            f"truth must be ids in [0, {vocab_size}), got {int(truth.min())} to {int(truth.max())}"
        )


def _up(size: int) -> int:
    return -(-size // _TILE) * _TILE


def _finite(tensor: Tensor) -> bool:
    """Whether all values are finite, without a copy."""
    return all(math.isfinite(float(end)) for end in torch.aminmax(tensor))


def _not_a_number() -> ModelError:
    return ModelError(
        "the model's logits are not finite",
        remedy="Train the model again, or pass an undamaged file.",
    )
