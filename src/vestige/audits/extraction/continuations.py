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

LOGITS_PER_SLICE = 2**22
"""Logits that are computed at a time: 16 MiB of float32."""

TIE_TOLERANCE = 1e-4
"""Log-probabilities that differ by less are ties: sums over a text carry rounding errors."""


class Continuations(NamedTuple):
    """Up to w continuations of each of n texts, found by a beam search, best first."""

    tokens: Tensor  # (n, w, t) ids
    log_prob: Tensor  # (n, w) natural; -inf for what the model never generates


class TokenPredictions(NamedTuple):
    """A model's predictions of the t tokens of a text, each after the true tokens before it."""

    likeliest: NDArray[np.bool_]  # (t,) whether each is the most probable token
    likeliest_word: NDArray[np.bool_]  # (t,) the same if the end of a text is excluded
    log_probs: NDArray[np.float32]  # (t,) natural


@torch.no_grad()
def complete_texts(
    model: NextToken, texts: Sequence[Sequence[int]], *, prefix: int, beam: int
) -> list[dict[str, Any]]:
    """Let a model read the first tokens of each text, and test whether it generates the rest.

    Greedy decoding from a prefix gives the rest of a text if and only if every token of the rest is
    the most probable one after the true tokens before it.

    Args:
        texts: ids; all of one length unless the beam is 1.
        prefix: tokens that the model reads.
        beam: width of the beam search.

    Returns:
        for each text: greedy, whether greedy decoding gives the whole rest; beam_place, its
        position among the beam's continuations, 1 for the best, or None; prefix_needed, tokens of
        the shortest prefix from which greedy decoding gives the rest, None if only the whole text
        does; log_prob of the rest in nats.

    Raises:
        NotFinite: the model gives numbers that are no probabilities.
    """
    predictions = predict_tokens(model, texts)
    log_probs = [float(text.log_probs[prefix:].sum(dtype=np.float64)) for text in predictions]
    if beam == 1:
        is_rest = [
            [bool(text.likeliest_word[prefix:].all() and np.isfinite(log_prob))]
            for text, log_prob in zip(predictions, log_probs, strict=True)
        ]
    else:
        tokens = torch.tensor(texts, device=model.device)
        best = best_continuations(model, tokens[:, :prefix], tokens.shape[1] - prefix, width=beam)
        matches = (best.tokens == tokens[:, None, prefix:]).all(2) & best.log_prob.isfinite()
        is_rest = matches.tolist()
    rows = []
    for text, matched, log_prob in zip(predictions, is_rest, log_probs, strict=True):
        # The prefix must include the last token that greedy decoding would not take.
        needed = int((1 + np.flatnonzero(~text.likeliest)).max(initial=0))
        rows.append({
            "greedy": needed <= prefix,
            "beam_place": matched.index(True) + 1 if True in matched else None,
            "prefix_needed": needed if needed < text.likeliest.size else None,
            "log_prob": log_prob,
        })  # fmt: skip
    return rows


def predict_tokens(model: NextToken, texts: Sequence[Sequence[int]]) -> list[TokenPredictions]:
    """Predictions for texts, read from their beginning.

    Raises:
        NotFinite: the model gives numbers that are no probabilities.
    """

    def statistic(part: Predictions) -> Columns:
        log_probs = _normalised(part.logits)
        of_targets = log_probs.gather(1, part.targets[:, None])[:, 0]
        likeliest = largest(log_probs, 1, alike=TIE_TOLERANCE)[:, 0] == part.targets
        log_probs[:, model.vocabulary.eos_id] = -torch.inf
        word = largest(log_probs, 1, alike=TIE_TOLERANCE)[:, 0] == part.targets
        return {"likeliest": likeliest, "likeliest_word": word, "log_probs": of_targets}

    packed = pack(texts)
    with evaluation_mode(model):
        statistics = measure(model, packed, [statistic])
    columns = (
        np.split(statistics[name], packed.offsets[1:-1]) for name in TokenPredictions._fields
    )
    return list(map(TokenPredictions, *columns))


def best_continuations(
    model: NextToken, prefixes: Tensor, length: int, *, width: int
) -> Continuations:
    """The most probable continuations of `length` tokens that a beam search finds for each text.

    The end of a text is excluded. `prefixes` are (n, m) int64 ids from the beginning of a text.
    """
    n = len(prefixes)
    state = model.start(n)
    for column in prefixes.unbind(1):
        state = model.advance(state, column)
    tokens = torch.empty(n, 1, 0, dtype=torch.int64, device=model.device)
    score = torch.zeros(n, 1, device=model.device)
    for position in range(length):
        parent, token, score = _extend(model, state, score, width)
        previous = tokens.gather(1, parent[:, :, None].expand(-1, -1, position))  # (n, w, position)
        tokens = torch.cat([previous, token[:, :, None]], 2)
        if position + 1 < length:
            first = torch.arange(n, device=model.device)[:, None] * (len(state) // n)
            state = model.advance(state[(first + parent).flatten()], token.flatten())
    return Continuations(tokens, score)


def _extend(
    model: NextToken, state: State, score: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The best one-token extensions of each text's candidates: parent, token and score (n, w)."""
    n, candidates = score.shape
    # No candidate has more than `width` extensions among the `width` best.
    extensions = min(width, model.vocab_size)
    best = torch.empty(len(state), extensions, device=model.device)
    token = torch.empty(len(state), extensions, dtype=torch.int64, device=model.device)
    for rows, log_probs in _log_probs(model, state):
        log_probs[:, model.vocabulary.eos_id] = -torch.inf
        token[rows] = largest(log_probs, extensions, alike=TIE_TOLERANCE)
        best[rows] = log_probs.gather(1, token[rows])
    totals = (best.view(n, candidates, extensions) + score[:, :, None]).flatten(1)
    index = largest(totals, min(width, totals.shape[1]), alike=TIE_TOLERANCE)
    return index // extensions, token.view(n, -1).gather(1, index), totals.gather(1, index)


def _log_probs(model: NextToken, state: State) -> Iterator[tuple[slice, Tensor]]:
    """(rows, v) log-probabilities of the next token, for a slice of the rows at a time."""
    step = max(1, LOGITS_PER_SLICE // model.vocab_size)
    for first in range(0, len(state), step):
        rows = slice(first, first + step)
        yield rows, _normalised(model.logits(state[rows]))


def _normalised(logits: Tensor) -> Tensor:
    """(m, v) natural logs of probabilities."""
    log_probs = torch.log_softmax(logits.float(), dim=1)
    if bool(log_probs.isnan().any()):
        raise NotFinite
    return log_probs
