"""Greedy decoding and beam search: whether a model generates the rest of a text."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.errors import NotFinite
from vestige.models.largest import largest
from vestige.models.predictions import Columns, Predictions, measure
from vestige.models.protocols import NextToken, State
from vestige.models.reading import evaluation_mode, pack

CELLS_PER_SLICE = 2**22
"""Rows x vocabulary that are computed together: 16 MiB of float32."""

ALIKE = 1e-4
"""Log-probabilities that differ by less are ties: sums over a text carry rounding errors."""


class Continuations(NamedTuple):
    """Up to w continuations of n texts that a beam keeps, best first."""

    tokens: Tensor  # (n, w, t) ids
    log_prob: Tensor  # (n, w) natural; -inf for what the model never generates


class ReadThrough(NamedTuple):
    """How a model predicts the t tokens of a text, each after the true tokens before it."""

    likeliest: NDArray[np.bool_]  # (t,) whether each is the most probable
    likeliest_word: NDArray[np.bool_]  # whether it is, if the end of a text is excluded
    log_probs: NDArray[np.float32]  # (t,) natural


@torch.no_grad()
def attempts(
    model: NextToken, texts: Sequence[Sequence[int]], *, prefix: int, beam: int
) -> list[dict[str, Any]]:
    """Let a model read the first tokens of each text, and see whether it generates the rest.

    Greedy decoding from a prefix gives the rest of a text if and only if every token of the rest is
    the most probable one after the true tokens before it.

    Args:
        texts: ids; all of one length unless the beam is 1.
        prefix: tokens that the model reads.
        beam: continuations that the beam search keeps.

    Returns:
        for each text: greedy, whether greedy decoding gives the whole rest; beam_place, its
        position among the beam's continuations, 1 for the best, or None; prefix_needed, tokens of
        the shortest prefix from which greedy decoding gives the rest, None if only the whole text
        does; log_prob of the rest in nats.

    Raises:
        NotFinite: the model gives numbers that are no probabilities.
    """
    read = read_through(model, texts)
    rests = [float(one.log_probs[prefix:].sum(dtype=np.float64)) for one in read]
    if beam == 1:
        kept = [[bool(one.likeliest_word[prefix:].all() and np.isfinite(rest))]
                for one, rest in zip(read, rests, strict=True)]  # fmt: skip
    else:
        tokens = torch.tensor(texts, device=model.device)
        found = best_continuations(model, tokens[:, :prefix], tokens.shape[1] - prefix, width=beam)
        own = (found.tokens == tokens[:, None, prefix:]).all(2) & found.log_prob.isfinite()
        kept = own.tolist()
    rows = []
    for one, places, rest in zip(read, kept, rests, strict=True):
        wrong = 1 + np.flatnonzero(~one.likeliest)
        needed = int(wrong.max(initial=0))  # up to the last that greedy decoding would not take
        rows.append({
            "greedy": needed <= prefix,
            "beam_place": places.index(True) + 1 if True in places else None,
            "prefix_needed": needed if needed < one.likeliest.size else None,
            "log_prob": rest,
        })  # fmt: skip
    return rows


def read_through(model: NextToken, texts: Sequence[Sequence[int]]) -> list[ReadThrough]:
    """Texts from their beginning; `NotFinite` if the model's numbers are no probabilities."""

    def statistic(part: Predictions) -> Columns:
        answers = _normalised(part.logits)
        own = answers.gather(1, part.targets[:, None])[:, 0]
        likeliest = largest(answers, 1, alike=ALIKE)[:, 0] == part.targets
        answers[:, model.vocabulary.eos_id] = -torch.inf
        word = largest(answers, 1, alike=ALIKE)[:, 0] == part.targets
        return {"likeliest": likeliest, "likeliest_word": word, "log_probs": own}

    packed = pack(texts)
    with evaluation_mode(model):
        found = measure(model, packed, [statistic])
    columns = (np.split(found[name], packed.offsets[1:-1]) for name in ReadThrough._fields)
    return list(map(ReadThrough, *columns))


def best_continuations(
    model: NextToken, prefixes: Tensor, length: int, *, width: int
) -> Continuations:
    """The likeliest continuations, so many tokens long, that a beam of each text finds.

    The end of a text is never taken. `prefixes` are (n, m) int64 ids from the beginning of a text.
    """
    n = len(prefixes)
    state = model.start(n)
    for column in prefixes.unbind(1):
        state = model.advance(state, column)
    tokens = torch.empty(n, 1, 0, dtype=torch.int64, device=model.device)
    score = torch.zeros(n, 1, device=model.device)
    for place in range(length):
        parent, token, score = _children(model, state, score, width)
        extended = tokens.gather(1, parent[:, :, None].expand(-1, -1, place))  # (n, w, place)
        tokens = torch.cat([extended, token[:, :, None]], 2)
        if place + 1 < length:
            first = torch.arange(n, device=model.device)[:, None] * (len(state) // n)
            state = model.advance(state[(first + parent).flatten()], token.flatten())
    return Continuations(tokens, score)


def _children(
    model: NextToken, state: State, score: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The best one-token extensions of each text's candidates: parent, token and score (n, w)."""
    n, candidates = score.shape
    each = min(width, model.vocab_size)
    best = torch.empty(len(state), each, device=model.device)
    token = torch.empty(len(state), each, dtype=torch.int64, device=model.device)
    for rows, answers in _log_probs(model, state):
        answers[:, model.vocabulary.eos_id] = -torch.inf
        # No candidate has more than `width` extensions among the `width` best.
        token[rows] = largest(answers, each, alike=ALIKE)
        best[rows] = answers.gather(1, token[rows])
    totals = (best.view(n, candidates, each) + score[:, :, None]).flatten(1)
    cell = largest(totals, min(width, totals.shape[1]), alike=ALIKE)
    return cell // each, token.view(n, -1).gather(1, cell), totals.gather(1, cell)


def _log_probs(model: NextToken, state: State) -> Iterator[tuple[slice, Tensor]]:
    """(rows, v) natural logs of what comes next, a slice of the rows at a time."""
    step = max(1, CELLS_PER_SLICE // model.vocab_size)
    for first in range(0, len(state), step):
        rows = slice(first, first + step)
        yield rows, _normalised(model.logits(state[rows]))


def _normalised(logits: Tensor) -> Tensor:
    """(m, v) natural logs of probabilities."""
    answers = torch.log_softmax(logits.float(), dim=1)
    if bool(answers.isnan().any()):
        raise NotFinite
    return answers
