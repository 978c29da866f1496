"""Greedy decoding and BLEU of sequence-to-sequence models.

Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL, as
Post (2018), "A Call for Clarity in Reporting BLEU Scores", arXiv:1804.08771, counts it (sacrebleu).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import TrainingError
from vestige.metrics.estimates import Estimate
from vestige.models.seq2seq import Seq2SeqModel
from vestige.training.utterances import of_one_length

ROWS = 256
"""Sources of one length that are answered together."""
RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Bleu:
    """BLEU of answers, with its parts.

    Attributes:
        score: of the whole corpus, in [0, 100]; the interval, by resampling texts, is None if not
            requested, or if nothing varies.
        signature: sacrebleu's settings.
    """

    score: Estimate
    signature: str


@torch.no_grad()
def answer_greedily(
    model: Seq2SeqModel, sources: EncodedCorpus, *, length: int = 100
) -> list[list[int]]:
    """Greedy decoding until the end of the text.

    Args:
        model: answers without dropout.
        sources: s of them.
        length: tokens that are read of a source, and answered, at most.

    Returns:
        the ids of each answer, without the end-of-text token.
    """
    _validate.at_least(1, length=length)
    was_training = model.training
    model.eval()
    answers: list[list[int]] = [[] for _ in range(len(sources))]
    sizes = np.minimum(np.diff(sources.offsets), length)
    for chosen in of_one_length(sizes, ROWS):
        places = sources.offsets[chosen][:, None] + np.arange(sizes[chosen[0]])
        ids = torch.from_numpy(sources.tokens[places].astype(np.int64)).to(model.device)
        for place, row in zip(chosen, _continued(model, ids, length).tolist(), strict=True):
            ends = model.first_token in row
            answers[place] = row[: row.index(model.first_token)] if ends else row
    model.train(was_training)
    return answers


def bleu(
    model: Seq2SeqModel,
    sources: EncodedCorpus,
    references: Sequence[str],
    *,
    length: int = 100,
    seed: int | None = None,
) -> Bleu:
    """BLEU of a model's greedy answers.

    Where a vocabulary splits texts into words, references are split likewise, so that both sides
    are written alike; a word that the vocabulary lacks stays what it is and is never matched.

    Args:
        model: answers.
        sources: s of them.
        references: the s texts that people wrote.
        length: see `answer_greedily`.
        seed: draws texts anew for the interval; None: no interval.

    Raises:
        ValueError: references are not as many as sources.
        TrainingError: there are none.
    """
    from sacrebleu.metrics.bleu import BLEU

    if len(sources) != len(references):
        raise ValueError(f"references must be {len(sources)}, got {len(references)}")
    if not len(sources):
        raise TrainingError("There are no source texts", remedy="Give some.")
    words = model.vocabulary
    said = [words.decode(ids) for ids in answer_greedily(model, sources, length=length)]
    written = [as_read(text, words) for text in references]
    metric = BLEU(force=True)
    found = metric.corpus_score(said, [written])
    low, high = (None, None) if seed is None else bleu_interval(said, written, seed=seed)
    score = Estimate("BLEU", found.score, low, high, n=len(said))
    return Bleu(score=score, signature=str(metric.get_signature()))


def bleu_interval(
    said: Sequence[str], references: Sequence[str], *, seed: int
) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of BLEU: percentiles over texts that are drawn anew, 1,000 times.

    Args:
        said: answers.
        references: as many.
        seed: decides the draws.

    Returns:
        two numbers in [0, 100]; None for both where nothing varies between texts.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric, rows = BLEU(effective_order=True, force=True), []
    for answer, reference in zip(said, references, strict=True):
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
    """(b, at most `length`) greedy tokens; what stands behind an end-of-text token is noise."""
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
