"""Scores of language models with confidence intervals.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.2 and table 1: word accuracy and perplexity. The words of one text, and
the texts of one user, are not independent of each other: intervals count users, or texts where
users are unknown.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.metrics.estimates import Estimate, columns, ratio_of_sums
from vestige.training.evaluate import DocumentScores
from vestige.training.translations import Bleu


@dataclass(frozen=True, kw_only=True)
class ScoredTexts:
    """Scores on texts with 95 % intervals, which are None for one user or text.

    Attributes:
        accuracy: share of tokens that were the model's first choice, in [0, 1]; the interval is of
            a ratio of sums over users or texts.
        perplexity: at least 1; the interval is likewise, of its logarithm.
        tokens: predicted tokens, the ends of texts among them.
        bleu: of greedy translations; None where nothing was translated.
    """

    accuracy: Estimate
    perplexity: Estimate
    tokens: int
    bleu: Bleu | None = None

    def summary(self) -> dict[str, Any]:
        """Scores by name; interval ends as "…_low" and "…_high"."""
        row: dict[str, Any] = columns("accuracy", self.accuracy)
        row |= columns("perplexity", self.perplexity)
        if self.bleu is not None:
            row |= {**columns("bleu", self.bleu.score), "bleu_signature": self.bleu.signature}
        return {**row, "tokens": self.tokens}


def with_intervals(
    scores: DocumentScores, users: NDArray[np.int32] | None, *, bleu: Bleu | None = None
) -> ScoredTexts:
    """Intervals from scores by text or by user.

    Args:
        scores: of d texts.
        users: (d,) user ID per text, or None.
        bleu: of the texts' translations.

    Raises:
        TrainingError: there is no token.

    Example:
        >>> loss, right, tokens = np.array([2.0, 4.0]), np.array([1, 2]), np.array([2, 4])
        >>> found = with_intervals(DocumentScores(loss=loss, right=right, tokens=tokens), None)
        >>> found.accuracy.value, round(found.perplexity.value, 3)
        (0.5, 2.718)
    """
    whole = scores.evaluation()
    read = scores.tokens > 0
    owners = np.arange(len(read)) if users is None else users
    _, owner = np.unique(owners[read], return_inverse=True)
    loss, right, tokens = (
        np.bincount(owner, weights=part[read])
        for part in (scores.loss, scores.right, scores.tokens)
    )
    hits = ratio_of_sums(right, tokens).within(0.0, 1.0)
    perplexity = Estimate("perplexity", whole.perplexity, n=hits.n)
    if math.isfinite(whole.perplexity):
        nats = ratio_of_sums(loss, tokens)
        low, high = (
            None if end is None else math.exp(max(0.0, min(end, 700)))
            for end in (nats.low, nats.high)
        )
        perplexity = replace(perplexity, low=low, high=high)
    return ScoredTexts(
        accuracy=replace(hits, name="accuracy", value=whole.accuracy),
        perplexity=perplexity,
        tokens=whole.tokens,
        bleu=bleu,
    )
