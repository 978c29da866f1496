"""Ranks of the words of targets under an encoder-decoder, given their sources.

As `word_ranks` for models that translate or answer: Song and Shmatikov (2019), "Auditing Data
Provenance in Text-Generation Models", KDD, arXiv:1811.00513, section 3. Sources of one length are
read together, so that nothing is masked; each target is read once, whatever is asked of it.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.data.encoded import EncodedPairs
from vestige.models.protocols import require_evaluation
from vestige.models.ranks import RankCounter
from vestige.models.seq2seq import Seq2SeqModel
from vestige.models.word_ranks import Progress, Read, WordRanks, asked_places, collect, require_ids

_ROWS = 64


def pair_ranks(
    model: Seq2SeqModel,
    pairs: EncodedPairs,
    *,
    where: ArrayLike | None = None,
    log_probs: bool = False,
    rows_at_once: int = _ROWS,
    progress: Progress | None = None,
) -> WordRanks:
    """The rank of every word of the targets among all words that the model could have said.

    Args:
        model: in evaluation mode.
        pairs: ids by the model's own vocabularies.
        where: what to ask of the targets, see `word_ranks`; None: every word but the ends.
        log_probs: give these too, from the same pass.
        rows_at_once: pairs that are read together, at most; bounds memory.
        progress: told (words done, words in all).

    Raises:
        ValueError: the model is in training mode, `where` does not fit, or an id is none of its.
        ModelError: a logit is not a number.
    """
    _validate.at_least(1, rows_at_once=rows_at_once)
    require_evaluation(model)
    data = pairs.targets
    places = asked_places(data, where=where)
    require_ids(len(model.source_vocabulary), sources=pairs.sources)
    require_ids(model.vocab_size, targets=data)
    reads = _reads(model, pairs, places, rows_at_once)
    found = collect(reads, RankCounter(model.head, log_probs=log_probs), places, progress=progress)
    return WordRanks.of(data, places, found)


@torch.no_grad()
def _reads(
    model: Seq2SeqModel, pairs: EncodedPairs, places: NDArray[np.int64], rows: int
) -> Iterator[Read]:
    data, sources = pairs.targets, pairs.sources
    asked = np.zeros(len(data.tokens), dtype=bool)
    asked[places] = True
    texts = np.unique(np.searchsorted(data.offsets, places, side="right") - 1)
    lengths = np.diff(data.offsets)
    for chosen in _alike(texts, np.diff(sources.offsets), lengths, rows):
        wide = np.arange(int(np.diff(sources.offsets)[chosen[0]]))
        read = sources.tokens[sources.offsets[chosen][:, None] + wide].astype(np.int64)
        columns = np.arange(int(lengths[chosen].max()))
        inside = columns < lengths[chosen][:, None]
        at = np.where(inside, data.offsets[chosen][:, None] + columns, 0)
        inputs = np.asarray(data.tokens[at - 1], np.int64)
        inputs[:, 0] = model.first_token
        device = model.device
        hidden = model.body(torch.from_numpy(read).to(device), torch.from_numpy(inputs).to(device))
        wanted = inside & asked[at]
        truth = torch.from_numpy(np.asarray(data.tokens[at[wanted]], np.int64)).to(device)
        yield Read(hidden[torch.from_numpy(wanted).to(device)], truth, at[wanted])


def _alike(
    texts: NDArray[np.int64],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    rows: int,
) -> Iterator[NDArray[np.int64]]:
    """Texts whose sources have one length, those with targets of like length together."""
    order = texts[np.lexsort((texts, targets[texts], sources[texts]))]
    ends = np.flatnonzero(np.diff(sources[order])) + 1
    for group in np.split(order, ends):
        yield from (group[begin : begin + rows] for begin in range(0, len(group), rows))
