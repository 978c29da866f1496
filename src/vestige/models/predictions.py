r"""What a model predicts at each token: ranks, log-probabilities, most probable tokens, moments.

A statistic is a function of the logits of m tokens. `measure` reads texts once (`reading`),
computes logits in slices and applies all statistics to a slice while it is in the cache. Memory
never holds more logits.

.. math:: r = 1 + |\{w : z_w > z_y\}| + |\{w < y : z_w = z_y\}|

Ranks: Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 3. 1 is the most probable; equal logits are ordered by id. Larger logits
are counted; nothing is sorted. Mean and deviation: Zhang et al. (2024), "Min-K%++",
arXiv:2404.02936.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.models.largest import largest
from vestige.models.prefix import ReadContext
from vestige.models.ranks import LinearRanks, not_finite_error
from vestige.models.reading import (
    GPU_FACTOR,
    Ids,
    Span,
    evaluation_mode,
    head_of,
    pack,
    read,
    read_beginning,
    require_ids,
    require_within_limit,
    target_positions,
    texts_at,
    unprefixed,
    word_positions,
)
from vestige.models.seq2seq import after_sources

PRODUCT_CELLS = 2**23
"""Logits of one product of the head: a fast product needs many rows."""

CACHE_CELLS = 2**20
"""Logits of one slice: statistics read them several times, from the cache."""

LEAST_LOG_PROB = -200.0
"""Lower bound: below it a probability is 0 in float32, and 0 x inf would be NaN."""

REPORT_EVERY = 4096
"""Texts between two reports of progress."""

Progress = Callable[[int, int], object]
"""Called with (tokens done, tokens in all)."""

Columns = Mapping[str, Tensor]
"""Named columns (m, ...) of m predictions."""


@dataclass(frozen=True)
class Predictions:
    """Float32 logits (m, v) and true tokens (m,)."""

    logits: Tensor
    targets: Tensor

    @cached_property
    def log_probs(self) -> Tensor:
        """(m, v) natural logarithms."""
        return torch.log_softmax(self.logits, 1)


Statistic = Callable[[Predictions], Columns]


def log_prob(predictions: Predictions) -> Columns:
    """Natural log-probability of the true token."""
    logits, targets = predictions.logits, predictions.targets[:, None]
    if "log_probs" in vars(predictions):  # computed by another statistic
        return {"log_probs": predictions.log_probs.gather(1, targets)[:, 0]}
    return {"log_probs": logits.gather(1, targets)[:, 0] - logits.logsumexp(1)}


def rank(predictions: Predictions) -> Columns:
    """Rank of the true token from 1; ties by id."""
    return {"ranks": ranks_in(predictions.logits, predictions.targets)}


def correct(predictions: Predictions) -> Columns:
    """Whether the true token is the most probable one."""
    return {"correct": predictions.logits.argmax(1) == predictions.targets}


def moments(predictions: Predictions) -> Columns:
    """Mean and standard deviation of the log-probability of a token sampled from the model."""
    log_probs = predictions.log_probs.clamp(min=LEAST_LOG_PROB)
    probabilities = log_probs.exp()
    means = torch.linalg.vecdot(probabilities, log_probs)
    variances = torch.linalg.vecdot(probabilities, log_probs.sub_(means[:, None]).square_())
    return {"means": means, "deviations": variances.sqrt()}


def top(k: int, *, log_probs: bool = True) -> Statistic:
    """The k most probable tokens, best first, ties by id, with or without log-probabilities."""

    def statistic(predictions: Predictions) -> Columns:
        ids = largest(predictions.logits, min(k, predictions.logits.shape[1]))
        columns = {"likeliest": ids.int()}
        if log_probs:
            columns["likeliest_log_probs"] = predictions.log_probs.gather(1, ids)
        return columns

    return statistic


def finite(predictions: Predictions) -> Columns:
    """No column; raises ModelError if a logit is NaN."""
    if bool(predictions.logits.amax(1).isnan().any()):  # the maximum of a row with NaN is NaN
        raise not_finite_error()
    return {}


def ranks_in(logits: Tensor, targets: Tensor) -> Tensor:
    """Ranks (m,) int32 of targets (m,) among logits (m, v), none of them NaN."""
    true_logits = logits.gather(1, targets[:, None])
    compared = torch.empty_like(logits)  # sums of float32 are several times faster than of bool
    ranks = 1 + torch.gt(logits, true_logits, out=compared).sum(1).int()
    [tied] = (torch.eq(logits, true_logits, out=compared).sum(1) > 1).nonzero(as_tuple=True)
    if len(tied):
        smaller = torch.arange(logits.shape[1], device=logits.device) < targets[tied, None]
        ranks[tied] += ((logits[tied] == true_logits[tied]) & smaller).sum(1).int()
    return ranks


@torch.no_grad()
def predictions(model: Any, span: Span) -> Iterator[Predictions]:
    """The predictions of a span in order: products of many rows, in slices."""
    head, factor = head_of(model), 1 if model.device.type == "cpu" else GPU_FACTOR
    product_rows = max(1, factor * PRODUCT_CELLS // model.vocab_size)
    slice_rows = max(1, factor * CACHE_CELLS // model.vocab_size)
    for begin in range(0, len(span.targets), product_rows):
        targets = span.targets[begin : begin + product_rows]
        logits = head(span.hidden[begin : begin + product_rows])
        for start in range(0, len(targets), slice_rows):
            part = logits[start : start + slice_rows].float()
            yield Predictions(part, targets[start : start + slice_rows].to(part.device))


def measure(
    model: Any,
    texts: EncodedCorpus | EncodedPairs,
    statistics: Sequence[Statistic],
    positions: ArrayLike | None = None,
    *,
    context: ReadContext | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> dict[str, NDArray[Any]]:
    """Columns (m, ...) of statistics by name, in the order of `positions`; see `read`.

    For pairs, an encoder-decoder reads the targets after their sources.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.1, 0.2, 0.7], [[0.2, 0.3, 0.5]] * 3)
        >>> measure(model, pack([[2, 1], [0]]), [rank])["ranks"]
        array([1, 2, 3], dtype=int32)
    """
    model, data, context = reader_inputs(model, texts, context)
    chosen = target_positions(data, positions, context=context)
    wanted, inverse = np.unique(chosen, return_inverse=True)
    if not len(wanted):
        empty = Predictions(torch.empty(0, model.vocab_size), torch.empty(0, dtype=torch.int64))
        return {name: column.numpy() for name, column in _apply(statistics, empty).items()}
    spans = read(model, data, wanted, context=context, **reading)
    columns = fold(spans, span_statistics(model, statistics), wanted, progress=progress)
    if positions is None:
        return columns
    return {name: values[inverse] for name, values in columns.items()}


def reader_inputs(
    model: Any, texts: EncodedCorpus | EncodedPairs, context: ReadContext | None = None
) -> tuple[Any, EncodedCorpus, ReadContext | None]:
    """Model, texts and context for `read`; for pairs: decoder, targets and their sources."""
    if not isinstance(texts, EncodedPairs):
        return model, texts, context
    require_ids(model.vocab_size, targets=texts.targets)
    decoder, source_context = after_sources(model, texts.sources)
    return decoder, texts.targets, source_context


def span_statistics(
    model: Any, statistics: Sequence[Statistic]
) -> Callable[[Span], Iterable[Columns]]:
    """The function that yields the columns of a span, slice by slice.

    Ranks of finite logits are counted in blocks of a linear head's product.
    """
    if finite in statistics and rank in statistics and set(statistics) <= {finite, rank, log_prob}:
        linear = LinearRanks.of(model, log_probs=log_prob in statistics)
        if linear is not None:
            return lambda span: [linear(span.hidden, span.targets)]
    return lambda span: (_apply(statistics, part) for part in predictions(model, span))


@torch.no_grad()
def fold(
    spans: Iterable[Span],
    statistics: Callable[[Span], Iterable[Columns]],
    positions: Ids,
    *,
    progress: Progress | None = None,
) -> dict[str, NDArray[Any]]:
    """Columns of spans in any order, in the order of `positions`."""
    columns: dict[str, NDArray[Any]] = {}
    done = 0
    for span in spans:
        index = np.searchsorted(positions, span.positions)
        for part in statistics(span):
            slice_index, index = np.split(index, [len(next(iter(part.values())))])
            for name, values in part.items():
                rows = values.cpu().numpy()
                if name not in columns:  # allocated once, so that the heap does not fragment
                    columns[name] = np.empty((len(positions), *rows.shape[1:]), rows.dtype)
                columns[name][slice_index] = rows
        done += len(span.positions)
        if progress is not None:
            progress(done, len(positions))
    return columns


class WordRanks(NamedTuple):
    """Ranks (w,) int32 in [1, v], 1 the most probable, and natural log-probabilities (w,)."""

    ranks: NDArray[np.int32]
    log_probs: NDArray[np.float32]


def word_ranks(
    model: Any,
    texts: EncodedCorpus | EncodedPairs,
    positions: ArrayLike | None = None,
    *,
    progress: Progress | None = None,
    **reading: Any,
) -> WordRanks:
    """Ranks and log-probabilities of words (w,), in the order of `positions`.

    Args:
        positions: see `target_positions`; None: every token except the ends of texts.
        progress: called with (words done, words in all).

    Raises:
        ValueError: see `read`.
        ModelError: a logit is not finite.
    """
    if positions is None:
        positions = word_positions(texts.targets if isinstance(texts, EncodedPairs) else texts)
    statistics = [finite, rank, log_prob]
    columns = measure(model, texts, statistics, positions, progress=progress, **reading)
    return WordRanks(columns["ranks"], columns["log_probs"])


def text_log_probs(
    model: Any, texts: Sequence[Sequence[int]], report: Callable[[int], None] | None = None
) -> NDArray[np.float64]:
    """(n,) natural log-probabilities of whole texts of ids, each from the beginning of a text.

    A repeated text is read once, and the first token of all texts is predicted once: most texts
    are short phrases. `report` gets the number of finished texts. Negated and in bits, this is the
    log-perplexity of Carlini et al. (2019), "The Secret Sharer", Definition 1.

    Raises:
        ValueError: a text is empty or too long, or has ids that the model lacks.
    """
    counts = Counter(tuple(ids) for ids in texts)
    if () in counts:
        raise ValueError("texts must have at least one token each, got an empty one")
    unique = sorted(counts, key=lambda ids: (-len(ids), ids))
    sums: dict[tuple[int, ...], float] = {}
    with evaluation_mode(model):
        context, logits = read_beginning(model)
        first = torch.log_softmax(logits.float(), 1)[0].cpu().numpy()
        for begin in range(0, len(unique), REPORT_EVERY):
            batch = unique[begin : begin + REPORT_EVERY]
            sums |= zip(batch, _sums(model, pack(batch), context, first).tolist(), strict=True)
            if report:
                report(sum(counts[ids] for ids in batch))
    return np.array([sums[tuple(ids)] for ids in texts], np.float64)


def log_probs_of(model: Any, texts: Sequence[Sequence[int]]) -> list[NDArray[np.float64]]:
    """Natural log-probabilities of each token of each text, from the beginning of a text."""
    packed = pack(texts)
    require_within_limit(model, packed)
    with evaluation_mode(model):
        log_probs = measure(model, packed, [log_prob])["log_probs"]
    return np.split(log_probs.astype(np.float64), packed.offsets[1:])[:-1]


def _sums(
    model: Any, texts: EncodedCorpus, context: ReadContext | None, first: NDArray[np.float32]
) -> NDArray[np.float64]:
    """(n,) log-probabilities of texts, from those of all first tokens (v,)."""
    require_ids(model.vocab_size, texts=texts)
    require_within_limit(model, texts)
    later = np.delete(np.arange(len(texts.tokens)), texts.offsets[:-1])
    reader = model if context is None else unprefixed(model)
    log_probs = measure(reader, texts, [log_prob], later, context=context)["log_probs"]
    sums = np.bincount(
        texts_at(texts, later), log_probs.astype(np.float64), minlength=texts.offsets.size - 1
    )
    return np.asarray(sums + first[texts.tokens[texts.offsets[:-1]]], np.float64)


def _apply(statistics: Sequence[Statistic], part: Predictions) -> dict[str, Tensor]:
    return {name: column for statistic in statistics for name, column in statistic(part).items()}
