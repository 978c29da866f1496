r"""Perplexity and next-word accuracy.

.. math:: \mathrm{perplexity} = \exp\left(-\frac{1}{n}\sum_{i=1}^{n}\ln p(s_i|c_i)\right), \qquad
    \mathrm{accuracy} = \frac1n \sum_{i=1}^{n} [\arg\max_s p(s|c_i) = s_i]

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.2.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.errors import TrainingError
from vestige.models.behind import Context
from vestige.models.predictions import correct, log_prob, measure
from vestige.models.protocols import LanguageModel
from vestige.models.reading import (
    NO_CONTEXT,
    Ids,
    evaluation_mode,
    pack,
    places_of,
    texts_at,
)
from vestige.models.seq2seq import Decoder, Seq2SeqModel, after_sources


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Perplexity and accuracy on a text.

    Attributes:
        perplexity: at least 1; inf past float range.
        accuracy: in [0, 1].
        tokens: predicted tokens.
        measures: further measures, by name.
    """

    perplexity: float
    accuracy: float
    tokens: int
    measures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DocumentScores:
    """Scores of d documents, each read by itself.

    Attributes:
        loss: float64 (d,) summed negative log-probability, in nats.
        right: int64 (d,) tokens that were the model's first choice.
        tokens: int64 (d,) predicted tokens, the end of the text included; 0 for an empty document.
    """

    loss: NDArray[np.float64]
    right: Ids
    tokens: Ids

    def evaluation(self) -> Evaluation:
        """Perplexity and accuracy over all tokens of all documents.

        Raises:
            TrainingError: there is none.
        """
        tokens = int(self.tokens.sum())
        if not tokens:
            raise TrainingError(
                "There are no tokens to evaluate on", remedy="Evaluate on more text."
            )
        mean = float(self.loss.sum()) / tokens
        return Evaluation(
            perplexity=math.exp(mean) if mean < 700 else mean + math.inf,  # NaN stays NaN
            accuracy=int(self.right.sum()) / tokens,
            tokens=tokens,
        )


def evaluate(
    model: LanguageModel, data: EncodedCorpus, *, batch_size: int = 20, sequence_length: int = 35
) -> Evaluation:
    """Score every token of a stream but the first, in float32.

    The stream is read in `batch_size` rows. The context of a model that carries a state begins at
    its row; that of any other model begins at its window of `sequence_length` tokens.

    Raises:
        TrainingError: there is nothing to predict.
    """
    _validate.at_least(1, batch_size=batch_size, sequence_length=sequence_length)
    n = len(data.tokens)
    if n < 2:
        raise TrainingError(
            f"A text of {n} tokens is too short to evaluate on",
            remedy="Evaluate on more text.",
        )
    length = math.ceil((n - 1) / batch_size)
    # A row begins with the last token of the row before.
    rows = pack([data.tokens[start : start + length + 1] for start in range(0, n - 1, length)])
    window = None if model.carries_state else sequence_length
    places = places_of(rows, context=NO_CONTEXT)
    return _scores(model, rows, places, context=NO_CONTEXT, max_length=window).evaluation()


def evaluate_documents(
    model: LanguageModel, data: EncodedCorpus, *, sequence_length: int = 64
) -> Evaluation:
    """Perplexity and accuracy over all tokens of documents, each read by itself.

    Raises:
        TrainingError: there is nothing to predict.
    """
    return score_documents(model, data, sequence_length=sequence_length).evaluation()


def score_documents(
    model: LanguageModel, data: EncodedCorpus, *, sequence_length: int = 64
) -> DocumentScores:
    """Score every token of every document that has a word, each document by itself, in float32.

    Args:
        model: anything that was trained on documents, or on a stream of them.
        data: the documents, each with its end.
        sequence_length: tokens of a piece: longer documents are read in several, each without the
            state of the one before.

    Raises:
        TrainingError: no document has a word in it.
    """
    _validate.at_least(1, sequence_length=sequence_length)
    places = _words(data)
    context = Context(model.first_token)
    return _scores(model, data, places, context=context, max_length=sequence_length)


def score_pairs(model: Seq2SeqModel, pairs: EncodedPairs, *, length: int = 100) -> DocumentScores:
    """Score every token of every target given its source, in float32 and without dropout.

    Args:
        model: reads the sources and predicts the targets.
        pairs: p of them; one without a word in its target scores nothing.
        length: tokens that are read of a source and of a target at most.

    Raises:
        TrainingError: no target has a word in it.
    """
    _validate.at_least(1, length=length)
    data = pairs.targets
    places = _words(data)
    places = places[places - data.offsets[texts_at(data, places)] < length]
    with evaluation_mode(model):
        decoder, context = after_sources(model, _beginnings(pairs.sources, length))
        return _scores(decoder, data, places, context=context)


def _scores(
    model: LanguageModel | Decoder,
    data: EncodedCorpus,
    places: Ids,
    *,
    context: Context,
    max_length: int | None = None,
) -> DocumentScores:
    with evaluation_mode(model):
        found = measure(
            model, data, [log_prob, correct], places, context=context, max_length=max_length
        )
    owners, d = texts_at(data, places), len(data)
    return DocumentScores(
        loss=np.asarray(np.bincount(owners, -found["log_probs"], minlength=d), np.float64),
        right=np.bincount(owners[found["correct"]], minlength=d),
        tokens=np.bincount(owners, minlength=d),
    )


def _words(data: EncodedCorpus) -> Ids:
    """Positions of all tokens of documents that have more than their end."""
    places = np.flatnonzero(np.repeat(np.diff(data.offsets) > 1, np.diff(data.offsets)))
    if not len(places):
        raise TrainingError("No document has a word", remedy="Give more text.")
    return places


def _beginnings(data: EncodedCorpus, length: int) -> EncodedCorpus:
    """The first tokens of each document."""
    lengths = np.minimum(np.diff(data.offsets), length)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    read = np.repeat(data.offsets[:-1] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return EncodedCorpus(data.tokens[read], offsets)
