"""Greedy decoding and beam search: whether a model generates the rest of a text."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

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
    """Continuations of n texts that a beam keeps, best first.

    Attributes:
        tokens: (n, w, t) ids; w is less than the width if there are fewer continuations.
        log_prob: (n, w) natural logarithms; -inf for what the model never generates.
    """

    tokens: Tensor
    log_prob: Tensor


class ReadThrough(NamedTuple):
    """How a model predicts n texts of up to t tokens; 0 or False after the end of a text.

    Attributes:
        likeliest: (n, t) whether each token is the most probable after its prefix.
        likeliest_word: (n, t) whether it is, if the end of a text is excluded.
        log_probs: (n, t) natural logarithms.
    """

    likeliest: Tensor
    likeliest_word: Tensor
    log_probs: Tensor


@torch.no_grad()
def attempts(
    model: NextToken, texts: Sequence[Sequence[int]], *, prefix: int, beam: int
) -> list[dict[str, Any]]:
    """Let a model read the first tokens of each text, and see whether it generates the rest.

    Args:
        texts: ids, the longest first; all of one length unless the beam is 1.
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
    lengths = torch.tensor([len(text) for text in texts], device=model.device)
    tokens = pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    tokens = tokens.to(model.device)
    read = read_through(model, tokens, lengths)
    rests = read.log_probs[:, prefix:].double().sum(1)
    if beam == 1:
        ended = torch.arange(tokens.shape[1], device=model.device) >= lengths[:, None]
        own = ((read.likeliest_word | ended)[:, prefix:].all(1) & rests.isfinite())[:, None]
    else:
        found = best_continuations(model, tokens[:, :prefix], tokens.shape[1] - prefix, width=beam)
        own = (found.tokens == tokens[:, None, prefix:]).all(2) & found.log_prob.isfinite()
    rows = []
    columns = zip(texts, read.likeliest.tolist(), own.tolist(), rests.tolist(), strict=True)
    for text, likeliest, kept, rest in columns:
        wrong = [place for place, right in enumerate(likeliest[: len(text)], 1) if not right]
        needed = max(wrong, default=0)  # up to the last token that greedy decoding would not take
        rows.append({
            "greedy": needed <= prefix,
            "beam_place": kept.index(True) + 1 if True in kept else None,
            "prefix_needed": needed if needed < len(text) else None,
            "log_prob": rest,
        })  # fmt: skip
    return rows


def read_through(model: NextToken, tokens: Tensor, lengths: Tensor | None = None) -> ReadThrough:
    """Whether each token is the most probable after its prefix, and its log-probability.

    Greedy decoding from a prefix gives the rest of a text if and only if every token of the rest is
    the most probable one after the true tokens before it.

    Args:
        tokens: (n, t) int64 ids, each row from the beginning of a text, on the model's device.
        lengths: (n,) int64 tokens of each text; None: t of each.

    Raises:
        NotFinite: the model gives numbers that are no probabilities.
    """
    n, t = tokens.shape
    sizes = [t] * n if lengths is None else lengths.tolist()
    rows = [row[:size] for row, size in zip(tokens.tolist(), sizes, strict=True)]

    def statistic(part: Predictions) -> Columns:
        answers = _normalised(part.logits)
        own = answers.gather(1, part.targets[:, None])[:, 0]
        likeliest = largest(answers, 1, alike=ALIKE)[:, 0] == part.targets
        answers[:, model.vocabulary.eos_id] = -torch.inf
        word = largest(answers, 1, alike=ALIKE)[:, 0] == part.targets
        return {"likeliest": likeliest, "likeliest_word": word, "log_probs": own}

    with evaluation_mode(model):
        found = measure(model, pack(rows), [statistic])
    inside = torch.arange(t) < torch.tensor(sizes)[:, None]
    columns = {}
    for name, values in found.items():
        column = torch.zeros(n, t, dtype=torch.from_numpy(values).dtype)
        column[inside] = torch.from_numpy(values)
        columns[name] = column.to(model.device)
    return ReadThrough(**columns)


def best_continuations(
    model: NextToken, prefixes: Tensor, length: int, *, width: int
) -> Continuations:
    """The likeliest continuations that a beam finds, each text with a beam of its own.

    The end of a text is never taken: all continuations compared are equally long.

    Args:
        prefixes: (n, m) int64 ids from the beginning of a text.
        length: tokens to add, at least 1.
        width: continuations of each text to keep.
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
