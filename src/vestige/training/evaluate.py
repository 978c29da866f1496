r"""Perplexity and next-word accuracy of texts, with confidence intervals, and BLEU of translations.

.. math:: \mathrm{perplexity} = \exp\left(-\frac{1}{n}\sum_{i=1}^{n}\ln p(s_i|c_i)\right), \qquad
    \mathrm{accuracy} = \frac1n \sum_{i=1}^{n} [\arg\max_s p(s|c_i) = s_i]

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.2 and table 1. The words of one text, and the texts of one user, depend
on each other: intervals count users, or texts if users are unknown.

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
    target_positions,
    texts_at,
)
from vestige.models.seq2seq import Decoder, Seq2SeqModel, after_sources
from vestige.training.batches import beginnings, of_one_length

ROWS = 256
"""Sources of one length that are answered together."""
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
        """Perplexity and accuracy over all tokens; TrainingError if there is none."""
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

        The intervals are of ratios of sums over users (d,), or over texts; that of perplexity is
        of its logarithm. They are None for one user or text.

        Example:
            >>> loss, right, tokens = np.array([2.0, 4.0]), np.array([1, 2]), np.array([2, 4])
            >>> found = DocumentScores(loss=loss, right=right, tokens=tokens).summary()
            >>> found["accuracy"], round(found["perplexity"], 3)
            (0.5, 2.718)
        """
        whole, read = self.evaluation(), self.tokens > 0
        owners = np.arange(len(read)) if users is None else users
        _, owner = np.unique(owners[read], return_inverse=True)
        loss, right, tokens = (
            np.bincount(owner, weights=part[read]) for part in (self.loss, self.right, self.tokens)
        )
        found = columns("accuracy", ratio_of_sums(right, tokens).within(0.0, 1.0))
        found |= columns("perplexity", Estimate("perplexity", whole.perplexity))
        if math.isfinite(whole.perplexity):
            nats = ratio_of_sums(loss, tokens)
            for name, end in (("perplexity_low", nats.low), ("perplexity_high", nats.high)):
                found[name] = None if end is None else math.exp(max(0.0, min(end, 700)))
        return {**found, "accuracy": whole.accuracy, "tokens": whole.tokens}


def evaluate(
    model: LanguageModel, data: EncodedCorpus, *, batch_size: int = 20, sequence_length: int = 35
) -> Evaluation:
    """Score every token of a stream but the first, in float32.

    The stream is read in `batch_size` rows. The context of a model that carries a state begins at
    its row; that of any other model begins at its window of `sequence_length` tokens.

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
    places = target_positions(rows, context=NO_CONTEXT)
    return _scores(model, rows, places, context=NO_CONTEXT, max_length=window).evaluation()


def score_documents(
    model: LanguageModel, data: EncodedCorpus, *, sequence_length: int = 64
) -> DocumentScores:
    """Score every token of every document that has a word, each document by itself, in float32.

    Documents longer than `sequence_length` are read in pieces, each without the state of the one
    before. TrainingError if no document has a word.
    """
    places = _words(data)
    context = Context(model.first_token)
    return _scores(model, data, places, context=context, max_length=sequence_length)


def score_pairs(model: Seq2SeqModel, pairs: EncodedPairs, *, length: int = 100) -> DocumentScores:
    """Score every token of every target given its source, in float32 and without dropout.

    At most `length` tokens of each text are read. TrainingError if no target has a word.
    """
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


# Translations


class Bleu(NamedTuple):
    """BLEU of answers, in [0, 100], and sacrebleu's settings."""

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
            for place, row in zip(chosen, _continued(model, ids, length).tolist(), strict=True):
                ends = model.first_token in row
                answers[place] = row[: row.index(model.first_token)] if ends else row
    return answers


def bleu(
    model: Seq2SeqModel,
    sources: EncodedCorpus,
    references: Sequence[str],
    *,
    length: int = 100,
    seed: int | None = None,
) -> Bleu:
    """BLEU of a model's greedy answers; `seed`: of its interval by resampling texts, None for none.

    If a vocabulary splits texts into words, references are split likewise; a word that the
    vocabulary lacks stays as it is and is never matched.
    """
    from sacrebleu.metrics.bleu import BLEU

    words = model.vocabulary
    answers = [words.decode(ids) for ids in answer_greedily(model, sources, length=length)]
    written = [as_read(text, words) for text in references]
    metric = BLEU(force=True)
    found = metric.corpus_score(answers, [written])
    low, high = (None, None) if seed is None else bleu_interval(answers, written, seed=seed)
    score = Estimate("BLEU", found.score, low, high, n=len(answers))
    return Bleu(score, str(metric.get_signature()))


def bleu_interval(
    answers: Sequence[str], references: Sequence[str], *, seed: int
) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of BLEU over 1,000 resamples of the texts; None for no variation."""
    from sacrebleu.metrics.bleu import BLEU

    metric, rows = BLEU(effective_order=True, force=True), []
    for answer, reference in zip(answers, references, strict=True):
        own = metric.sentence_score(answer, [reference])
        rows.append([*own.counts, *own.totals, own.sys_len, own.ref_len])
    counts, chance = np.array(rows, dtype=np.int64), np.random.default_rng(seed)
    scores = []
    for _ in range(RESAMPLES):
        drawn = np.bincount(chance.integers(len(rows), size=len(rows)), minlength=len(rows))
        *both, answered, asked = (drawn @ counts).tolist()
        right, whole = both[: len(both) // 2], both[len(both) // 2 :]
        scores.append(BLEU.compute_bleu(right, whole, answered, asked, smooth_method="exp").score)
    low, high = np.percentile(scores, [2.5, 97.5]).tolist()
    return (low, high) if low < high else (None, None)


def as_read(text: str, vocabulary: Vocabulary) -> str:
    """Text in the form of the vocabulary's decoded answers."""
    return " ".join(vocabulary.split(text)) if isinstance(vocabulary, WordVocabulary) else text


def _continued(model: Seq2SeqModel, sources: Tensor, length: int) -> Tensor:
    """(b, at most `length`) greedy tokens; those after an end-of-text token mean nothing."""
    given, state = model.reading(sources), None
    tokens = torch.full((len(sources), 1), model.first_token, device=sources.device)
    ended, found = torch.zeros_like(tokens, dtype=torch.bool), []
    for _ in range(length):
        hidden, state = given.body(tokens, state)
        tokens = given.predict(hidden).argmax(-1)
        found.append(tokens)
        ended |= tokens == model.first_token
        if ended.all():
            break
    return torch.cat(found, 1)
