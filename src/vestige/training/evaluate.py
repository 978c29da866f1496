r"""Perplexity and next-word accuracy of texts, with confidence intervals, and BLEU of translations.

.. math:: \mathrm{perplexity} = \exp\left(-\frac{1}{n}\sum_{i=1}^{n}\ln p(s_i|c_i)\right), \qquad
    \mathrm{accuracy} = \frac1n \sum_{i=1}^{n} [\arg\max_s p(s|c_i) = s_i]

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.2 and table 1. Words of one text, and texts of one user, are dependent,
so the unit of the intervals is the user, or the text if users are unknown.

Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL, as
Post (2018), "A Call for Clarity in Reporting BLEU Scores", arXiv:1804.08771, counts it (sacrebleu).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import TrainingError
from vestige.metrics.estimates import Estimate, columns, ratio_of_sums
from vestige.models.predictions import correct, log_prob, measure
from vestige.models.prefix import Context
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
from vestige.training.batches import beginnings, of_one_length

ROWS = 256
"""Sources of one length answered together."""
RESAMPLES = 1000


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
    """Scores of d documents, read separately.

    Attributes:
        loss: float64 (d,) summed negative log-probability, in nats.
        right: int64 (d,) tokens with the highest predicted probability.
        tokens: int64 (d,) predicted tokens, with the end of the text; 0 for an empty document.
    """

    loss: NDArray[np.float64]
    right: Ids
    tokens: Ids

    def evaluation(self) -> Evaluation:
        """Perplexity and accuracy over all tokens; TrainingError if there are none."""
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

    def summary(self, users: NDArray[np.int32] | None = None) -> dict[str, Any]:
        """Accuracy, perplexity, the ends of their 95 % intervals, and tokens.

        Intervals are of ratios of sums over users (d,), or over texts; that of perplexity is of
        its logarithm. They are None for a single user or text.

        Example:
            >>> loss, right, tokens = np.array([2.0, 4.0]), np.array([1, 2]), np.array([2, 4])
            >>> found = DocumentScores(loss=loss, right=right, tokens=tokens).summary()
            >>> found["accuracy"], round(found["perplexity"], 3)
            (0.5, 2.718)
        """
        evaluation, nonempty = self.evaluation(), self.tokens > 0
        user_ids = np.arange(len(nonempty)) if users is None else users
        _, unit = np.unique(user_ids[nonempty], return_inverse=True)
        loss, right, tokens = (
            np.bincount(unit, weights=values[nonempty])
            for values in (self.loss, self.right, self.tokens)
        )
        summary = columns("accuracy", ratio_of_sums(right, tokens).within(0.0, 1.0))
        summary |= columns("perplexity", Estimate("perplexity", evaluation.perplexity))
        if math.isfinite(evaluation.perplexity):
            nats = ratio_of_sums(loss, tokens)
            for name, end in (("perplexity_low", nats.low), ("perplexity_high", nats.high)):
                summary[name] = None if end is None else math.exp(max(0.0, min(end, 700)))
        return {**summary, "accuracy": evaluation.accuracy, "tokens": evaluation.tokens}


def evaluate(
    model: LanguageModel, data: EncodedCorpus, *, batch_size: int = 20, sequence_length: int = 35
) -> Evaluation:
    """Score all tokens of a stream except the first, in float32.

    The stream is read in `batch_size` rows. The context begins with the row for a model that
    carries a state, and with the window of `sequence_length` tokens for other models.

    Raises:
        TrainingError: there is nothing to predict.
    """
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
    positions = places_of(rows, context=NO_CONTEXT)
    return _scores(model, rows, positions, context=NO_CONTEXT, max_length=window).evaluation()


def score_documents(
    model: LanguageModel, data: EncodedCorpus, *, sequence_length: int = 64
) -> DocumentScores:
    """Score all tokens of nonempty documents, each separately, in float32.

    Documents longer than `sequence_length` are read in pieces without a carried state.
    TrainingError if no document has a word.
    """
    positions = _word_positions(data)
    context = Context(model.first_token)
    return _scores(model, data, positions, context=context, max_length=sequence_length)


def score_pairs(model: Seq2SeqModel, pairs: EncodedPairs, *, length: int = 100) -> DocumentScores:
    """Score all tokens of all targets given their sources, in float32 and without dropout.

    At most `length` tokens of each text are read. TrainingError if no target has a word.
    """
    data = pairs.targets
    positions = _word_positions(data)
    positions = positions[positions - data.offsets[texts_at(data, positions)] < length]
    with evaluation_mode(model):
        decoder, context = after_sources(model, _beginnings(pairs.sources, length))
        return _scores(decoder, data, positions, context=context)


def _scores(
    model: LanguageModel | Decoder,
    data: EncodedCorpus,
    positions: Ids,
    *,
    context: Context,
    max_length: int | None = None,
) -> DocumentScores:
    with evaluation_mode(model):
        measured = measure(
            model, data, [log_prob, correct], positions, context=context, max_length=max_length
        )
    documents, d = texts_at(data, positions), len(data)
    return DocumentScores(
        loss=np.asarray(np.bincount(documents, -measured["log_probs"], minlength=d), np.float64),
        right=np.bincount(documents[measured["correct"]], minlength=d),
        tokens=np.bincount(documents, minlength=d),
    )


def _word_positions(data: EncodedCorpus) -> Ids:
    """Positions of all tokens of nonempty documents."""
    positions = np.flatnonzero(np.repeat(np.diff(data.offsets) > 1, np.diff(data.offsets)))
    if not len(positions):
        raise TrainingError("No document has a word", remedy="Give more text.")
    return positions


def _beginnings(data: EncodedCorpus, length: int) -> EncodedCorpus:
    """The first tokens of each document."""
    lengths = np.minimum(np.diff(data.offsets), length)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    read = np.repeat(data.offsets[:-1] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return EncodedCorpus(data.tokens[read], offsets)


# Translations


class Bleu(NamedTuple):
    """BLEU of answers, in [0, 100], and the settings of sacrebleu."""

    score: Estimate
    signature: str


@torch.no_grad()
def answer_greedily(
    model: Seq2SeqModel, sources: EncodedCorpus, *, length: int = 100
) -> list[list[int]]:
    """Greedy decoding until the end of the text, without dropout: the ids of each answer.

    At most `length` tokens of a source are read, and answered; ids have no end-of-text token.
    """
    answers: list[list[int]] = [[] for _ in range(len(sources))]
    with evaluation_mode(model):
        for chosen in of_one_length(np.minimum(np.diff(sources.offsets), length), ROWS):
            ids = beginnings(sources, chosen, length, model.device)
            for position, row in zip(chosen, _continued(model, ids, length).tolist(), strict=True):
                has_end = model.first_token in row
                answers[position] = row[: row.index(model.first_token)] if has_end else row
    return answers


def bleu(
    model: Seq2SeqModel,
    sources: EncodedCorpus,
    references: Sequence[str],
    *,
    length: int = 100,
    seed: int | None = None,
) -> Bleu:
    """BLEU of a model's greedy answers; `seed`: of its bootstrap interval, None for no interval.

    If the vocabulary splits texts into words, so are references. A word that the vocabulary lacks
    is kept and never matches.
    """
    from sacrebleu.metrics.bleu import BLEU

    vocabulary = model.vocabulary
    answers = [vocabulary.decode(ids) for ids in answer_greedily(model, sources, length=length)]
    tokenized = [as_read(text, vocabulary) for text in references]
    metric = BLEU(force=True)
    result = metric.corpus_score(answers, [tokenized])
    low, high = (None, None) if seed is None else bleu_interval(answers, tokenized, seed=seed)
    score = Estimate("BLEU", result.score, low, high, n=len(answers))
    return Bleu(score, str(metric.get_signature()))


def bleu_interval(
    answers: Sequence[str], references: Sequence[str], *, seed: int
) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of BLEU over 1,000 resamples of the texts; None for no variation."""
    from sacrebleu.metrics.bleu import BLEU

    metric, rows = BLEU(effective_order=True, force=True), []
    for answer, reference in zip(answers, references, strict=True):
        sentence = metric.sentence_score(answer, [reference])
        rows.append([*sentence.counts, *sentence.totals, sentence.sys_len, sentence.ref_len])
    counts, rng = np.array(rows, dtype=np.int64), np.random.default_rng(seed)
    scores = []
    for _ in range(RESAMPLES):
        weights = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
        *counts_and_totals, answer_length, reference_length = (weights @ counts).tolist()
        orders = len(counts_and_totals) // 2
        matches, totals = counts_and_totals[:orders], counts_and_totals[orders:]
        resampled = BLEU.compute_bleu(
            matches, totals, answer_length, reference_length, smooth_method="exp"
        )
        scores.append(resampled.score)
    low, high = np.percentile(scores, [2.5, 97.5]).tolist()
    return (low, high) if low < high else (None, None)


def as_read(text: str, vocabulary: Vocabulary) -> str:
    """Text in the form of the vocabulary's decoded answers."""
    return " ".join(vocabulary.split(text)) if isinstance(vocabulary, WordVocabulary) else text


def _continued(model: Seq2SeqModel, sources: Tensor, length: int) -> Tensor:
    """(b, at most `length`) greedy tokens; ignore those after an end-of-text token."""
    decoder, state = model.reading(sources), None
    tokens = torch.full((len(sources), 1), model.first_token, device=sources.device)
    ended, generated = torch.zeros_like(tokens, dtype=torch.bool), []
    for _ in range(length):
        hidden, state = decoder.body(tokens, state)
        tokens = decoder.predict(hidden).argmax(-1)
        generated.append(tokens)
        ended |= tokens == model.first_token
        if ended.all():
            break
    return torch.cat(generated, 1)
