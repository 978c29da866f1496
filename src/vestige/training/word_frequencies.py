r"""Word-frequency baseline of perplexity.

A model that predicts no better has learned nothing, and its leakage says nothing about trained
models. Frequencies are smoothed as Witten and Bell (1991), "The Zero-Frequency Problem", IEEE
Transactions on Information Theory 37(4), method C, over a uniform distribution:

.. math:: p(w) = \frac{c(w) + T / V}{N + T}

with c(w) of N training tokens, T of the V tokens of the vocabulary seen. It has no
parameter, and is defined in the vocabulary's own tokens, such as subwords.
"""

import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.encoded import EncodedCorpus
from vestige.results import load

FREQUENCIES, JUDGED_BY = "word_frequency_perplexity", "judged_by"
"""Entries of a summary: the baseline, and its text ("validation" or "training")."""

_PIECE = 2**22


def token_counts(data: EncodedCorpus, size: int) -> NDArray[np.int64]:
    """(size,) token counts of a text, ends of texts included."""
    counts = np.zeros(size, np.int64)
    for begin in range(
        0, len(data.tokens), _PIECE
    ):  # bincount would convert the whole text to int64
        counts += np.bincount(data.tokens[begin : begin + _PIECE], minlength=size)
    return counts


def frequency_perplexity(training: EncodedCorpus, text: EncodedCorpus, *, size: int) -> float:
    """Perplexity of a text under the word frequencies of another.

    `size` is the number of tokens in their vocabulary.

    Example:
        >>> text = EncodedCorpus(np.array([0, 1], np.int32), np.array([0, 2]))
        >>> round(frequency_perplexity(text, text, size=2), 6)
        2.0
    """
    counts = token_counts(training, size)
    seen = max(int((counts > 0).sum()), 1)
    smoothed = (counts + seen / size) / (counts.sum() + seen)
    predicted = token_counts(text, size)
    occurring = predicted > 0
    loss = -float((predicted[occurring] * np.log(smoothed[occurring])).sum()) / int(predicted.sum())
    return math.exp(loss)


def is_useless(perplexity: float | None, by_frequencies: float | None) -> bool:
    """Whether a model predicts no better than word frequencies; False if these are unknown.

    `perplexity` is None if it is not finite.

    Example:
        >>> is_useless(4631.0, 512.0), is_useless(100.0, 512.0), is_useless(100.0, None)
        (True, False, False)
    """
    if by_frequencies is None:
        return False
    return perplexity is None or not perplexity < by_frequencies


def useless_words(perplexity: float | None, by_frequencies: float, *, who: str = "It") -> str:
    """Warning about a model that predicts no better than word frequencies.

    Example:
        >>> print(useless_words(4631.0, 512.0).split(":")[0])
        It predicts no better than word frequencies
    """
    stated = (
        "not finite" if perplexity is None or not perplexity < math.inf else f"{perplexity:,.1f}"
    )
    return (
        f"{who} predicts no better than word frequencies: perplexity {stated}, word frequencies "
        f"{by_frequencies:,.1f}. It is too weak to audit. Train it longer, on more text, or --from "
        "a public model; with dp-sgd, also with larger batches or a larger --epsilon."
    )


def useless_model(model: object) -> str | None:
    """A warning if the training record of a model shows that it is too weak to audit; else None."""
    if not isinstance(model, str | PathLike):
        return None
    run = Path(model) / "run"
    return useless_training(load(run).summary) if (run / "summary.json").is_file() else None


def useless_training(summary: Mapping[str, Any]) -> str | None:
    """A warning if a training is no better than word frequencies; else None."""
    by_frequencies, validation = summary.get(FREQUENCIES), summary.get("validation_perplexity")
    perplexity = summary.get("perplexity") if summary.get(JUDGED_BY) == "training" else validation
    if by_frequencies is None or not is_useless(perplexity, by_frequencies):
        return None
    return useless_words(perplexity, by_frequencies, who="The model")
