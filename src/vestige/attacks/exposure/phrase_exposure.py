"""Exposure of phrases by references; each phrase is scored once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.exposure.reference_space import References
from vestige.attacks.exposure.sequence_scores import text_log_probs
from vestige.data.canary import Canary
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError, IncompatibleModels, NotFinite
from vestige.metrics.exposure import (
    RankExposure,
    SkewNormalFit,
    fit_skew_normal,
    sampled_exposure,
    whole_exposure,
)
from vestige.models.protocols import NextToken

FEWEST = 100
"""References that a sample must have, and a fit: fewer say next to nothing."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ScoredPhrases:
    """Log-perplexities of phrases, by the phrase.

    Attributes:
        bits: of each.
        lengths: tokens of each.
    """

    bits: Mapping[str, float]
    lengths: Mapping[str, int]

    @classmethod
    def of(
        cls,
        model: NextToken,
        phrases: Sequence[str],
        done: Callable[[int], None] | None = None,
    ) -> "ScoredPhrases":
        """Score them together; `done` is told how many more are.

        Raises:
            NotFinite: a score is no number.
        """
        texts = model.vocabulary.encode_batch(list(phrases))
        scores = text_log_probs(model, texts, done)
        if np.isnan(scores).any():
            raise NotFinite
        bits = (scores / -log(2)).tolist()
        lengths = map(len, texts)
        return cls(*(dict(zip(phrases, all_, strict=True)) for all_ in (bits, lengths)))

    def __getitem__(self, phrases: Sequence[str]) -> Floats:
        """(n,) those of some phrases."""
        return np.array([self.bits[phrase] for phrase in phrases], np.float64)


@dataclass(frozen=True, kw_only=True)
class PhraseExposure:
    """Exposure of one phrase, in bits.

    Attributes:
        length: its tokens.
        log_perplexity: -log2 of its probability.
        rank: 1 + the others at least as likely.
        exposure: by the rank.
        low: the true exposure is no less, with 97.5% confidence; of a whole space, the same.
        high: it is no more; of a sample at its ceiling, the bits of the space.
        at_ceiling: no reference is as likely: all that is known is `low`, a bound.
        fit_exposure: by the skew-normal fit, at most the bits of the space, or None where nothing
            could be fitted.
        extrapolated: whether the fit was read beyond all references, where nothing checks it.
    """

    length: int
    log_perplexity: float
    rank: int
    exposure: float
    low: float
    high: float
    at_ceiling: bool
    fit_exposure: float | None
    extrapolated: bool | None


@dataclass(frozen=True, kw_only=True)
class KnownReferences:
    """References with their scores.

    Attributes:
        drawn: the phrases.
        bits: (n,) their log-perplexities.
        fit: of a skew-normal distribution to these, or None where it cannot be made.
    """

    drawn: References
    bits: Floats
    fit: SkewNormalFit | None

    @classmethod
    def of(cls, scored: ScoredPhrases, drawn: References) -> "KnownReferences":
        """References that have been scored, with a fit where one can be made."""
        bits = scored[drawn.phrases]
        fits = len(bits) >= FEWEST and np.isfinite(bits).all() and bits.min() < bits.max()
        return cls(drawn=drawn, bits=bits, fit=fit_skew_normal(bits) if fits else None)

    def measure(
        self, scored: ScoredPhrases, phrases: Sequence[str], *, inside: bool = False
    ) -> list[PhraseExposure]:
        """Each phrase's exposure among the references; of those `inside`, among the others."""
        if not phrases:
            return []
        bits = scored[phrases]
        ranked = self._rank(phrases, bits, inside)
        # what lies beyond the references is extrapolated, and the space is all there is
        fits = np.minimum(self.fit.exposure(bits), self.drawn.bits).tolist() if self.fit else None
        beyond = self.fit.extrapolated(bits).tolist() if self.fit else None
        return [
            PhraseExposure(
                log_perplexity=float(bits[i]),
                length=scored.lengths[phrases[i]],
                rank=int(ranked.rank[i]),
                exposure=float(ranked.exposure[i]),
                low=float(ranked.low[i]),
                high=float(ranked.high[i]),
                at_ceiling=bool(ranked.at_ceiling[i]),
                fit_exposure=fits[i] if fits else None,
                extrapolated=beyond[i] if beyond else None,
            )
            for i in range(len(phrases))
        ]

    def _rank(self, phrases: Sequence[str], bits: Floats, inside: bool) -> RankExposure:
        if not self.drawn.whole:
            return sampled_exposure(bits, self.bits, space_bits=self.drawn.bits, inside=inside)
        found = np.isin(phrases, self.drawn.phrases)
        return whole_exposure(bits, self.bits, inside=found)


def canary_ids(number: int, canary: Canary, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The ids of a canary; messages name its number, since its words are secret.

    Raises:
        DataError: the vocabulary lacks a word of it.
        IncompatibleModels: it was planted for another vocabulary.
    """
    ids = tuple(vocabulary.encode(canary.phrase))
    if not ids or vocabulary.unk_id in ids:
        raise DataError(
            f"canary {number} has words that the model's vocabulary of {len(vocabulary)} tokens "
            "lacks",
            remedy="Plant with --vocabulary, or pass the model trained on these canaries.",
        )
    if canary.ids and canary.ids != ids:
        raise IncompatibleModels(
            f"canary {number} was planted for another vocabulary",
            remedy="Pass the manifest of the model's own training text.",
        )
    return ids


def order_rank(scored: ScoredPhrases, phrase: str, others: Sequence[str]) -> int:
    """1 + how many of its own words in other orders are at least as likely as a phrase."""
    return 1 + int((scored[others] <= scored.bits[phrase]).sum())


def log_perplexities(
    model: NextToken, phrases: Sequence[str], done: Callable[[int], None] | None = None
) -> Floats:
    """(n,) -log2 of the probability of each phrase at the beginning of a text.

    Args:
        model: reads them with its own vocabulary.
        phrases: of one token or more.
        done: told how many more have been scored.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.25, 0.75], [[0.5, 0.5], [1.0, 0.0]])
        >>> log_perplexities(model, ["<eos> <unk>", "<eos>"]).round(3).tolist()
        [3.0, 2.0]
    """
    return text_log_probs(model, model.vocabulary.encode_batch(list(phrases)), done) / -log(2)
