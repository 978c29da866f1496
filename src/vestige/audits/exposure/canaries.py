"""Exposure of planted canaries, and of controls that were never planted.

Carlini et al. (2019), "The Secret Sharer", sections 4 and 5, as in Mireshghallah et al. (2021),
"Privacy Regularization: Joint Privacy-Utility Optimization in Language Models", appendix A.5.

Differs from the papers: every canary is also ranked among other orders of its own words. This
separates memory of the sequence from frequent words. Controls are measured in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import isfinite, log
from typing import Any, NamedTuple

import numpy as np

from vestige import _validate
from vestige.audits.exposure.canary_result import ORDERED, CanaryExposure
from vestige.audits.exposure.exact_rank import exact_rank
from vestige.audits.exposure.references import (
    References,
    listed_references,
    other_order,
    other_orders,
    space_words,
    split_phrase,
    word_references,
)
from vestige.data.canaries.texts import RANDOM_ORDER, Canary, canary_ids
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError, NotFinite
from vestige.metrics.exposure import sampled_exposure, whole_exposure
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import NextToken

Progress = Callable[[int, int], None]
Scores = Mapping[str, float]  # log-perplexity of each phrase, in bits

FEWEST = 100
"""Least size of a sample of references."""

FEWEST_ORDERS, ORDERS = 19, 719
"""Other orders of its words that a canary is compared with; six words have 719."""

_RANK_COLUMNS = ("rank", "exposure", "low", "high", "at_ceiling")
_SHUFFLED_COLUMNS = ("log_perplexity", "exposure")


class _Subject(NamedTuple):
    """A canary.

    Attributes:
        text: its words, separated by blanks.
        other_order: the same words in another order, or None.
        group: canaries of a group share their references.
    """

    canary: Canary
    text: str
    other_order: str | None
    group: int

    @classmethod
    def of(cls, number: int, canary: Canary, vocabulary: Vocabulary, *, listed: bool) -> "_Subject":
        canary_ids(number, canary, vocabulary)  # raises for a canary that the model cannot read
        words = split_phrase(canary.phrase, vocabulary)
        group = 0 if listed else len(words)
        return cls(canary, " ".join(words), other_order(words, vocabulary), group)


def canary_exposure(
    model: NextToken,
    canaries: Sequence[Canary],
    *,
    seed: int,
    references: int = 2**14,
    candidates: Sequence[str] | None = None,
    exact_budget: int | None = None,
    orders: int = ORDERS,
    progress: Progress | None = None,
) -> CanaryExposure:
    """Exposure of every canary and control, and of their words in another order.

    Phrases are scored from the beginning of a text. Canaries with the same number of words share
    their references.

    Args:
        model: any model of next tokens.
        canaries: planted ones and controls, at least one of each.
        seed: of the references, and of the other orders if these are sampled.
        references: size of a sample of references, at least 100; its log2 is the largest exposure.
            A space with fewer phrases is enumerated.
        candidates: all phrases that the canaries could have been, instead of random words.
        exact_budget: prefixes to read for the exact rank of each planted canary; None: no exact
            rank.
        orders: most other orders of its words that a canary is compared with; 0: none.
        progress: called with (phrases and prefixes done, all).

    Raises:
        ValueError: an argument is out of range.
        DataError: there is no planted canary or no control, or the vocabulary lacks a word.
        IncompatibleModels: the ids of the canaries are those of another vocabulary.
        NotFinite: a score is not a number.
    """
    vocabulary, listed = model.vocabulary, candidates is not None
    _validate.at_least(FEWEST, references=references)
    _validate.at_least(0, orders=orders)
    _check_exact(exact_budget, vocabulary, listed=listed)
    planted = [index for index, canary in enumerate(canaries) if canary.planted]
    _require_both(len(planted), len(canaries))
    subjects = [
        _Subject.of(number, canary, vocabulary, listed=listed)
        for number, canary in enumerate(canaries, start=1)
    ]
    orders_of = _sample_orders(subjects, references, orders, seed)
    words = () if listed else space_words(vocabulary, canaries)
    if candidates is not None:
        spaces = {0: listed_references(candidates, vocabulary)}
    else:
        spaces = _sample_references(subjects, words, references, seed)

    own = (text for one in subjects for text in (one.text, one.other_order) if text is not None)
    in_spaces = (space.phrases for space in spaces.values())
    phrases = list(dict.fromkeys(chain(own, *orders_of, *in_spaces)))
    count = _counter(progress, len(phrases) + len(planted) * (exact_budget or 0))
    bits = text_log_probs(model, vocabulary.encode_batch(phrases), count) / -log(2)
    if np.isnan(bits).any():
        raise NotFinite
    scores = dict(zip(phrases, bits.tolist(), strict=True))

    exposures: dict[int, dict[str, Any]] = {}  # by index of the canary
    for group, space in spaces.items():
        members = {i: subject for i, subject in enumerate(subjects) if subject.group == group}
        columns = _exposure_columns([*members.values()], scores, space)
        exposures.update(zip(members, columns, strict=True))
    rows = [
        _row(subject, exposures[index], other_texts, scores, vocabulary)
        for index, (subject, other_texts) in enumerate(zip(subjects, orders_of, strict=True))
    ]
    if exact_budget is not None:
        alphabet = vocabulary.encode(" ".join(words))
        for row in (rows[index] for index in planted):
            if isfinite(row["log_perplexity"]):
                ids = vocabulary.encode(row["phrase"])
                rank = exact_rank(model, ids, alphabet=alphabet, distinct=True, budget=exact_budget)
                row |= {"exact_low": rank.exposure_low, "exact_high": rank.exposure_high}
                count(exact_budget)
    return CanaryExposure(canaries=tuple(rows), words=len(words), seed=seed)


def _row(
    subject: _Subject,
    exposure: Mapping[str, Any],
    other_texts: Sequence[str],
    scores: Scores,
    vocabulary: Vocabulary,
) -> dict[str, Any]:
    """The row of a canary, without exact ranks."""
    canary, score = subject.canary, scores[subject.text]
    length = len(vocabulary.encode(subject.text))
    return {
        **{name: getattr(canary, name) for name in ("phrase", "pattern", "user", "copies")},
        **exposure,
        "length": length,
        "per_token": score / length,
        "exact_low": None,
        "exact_high": None,
        "orders": 1 + len(other_texts),
        "order_rank": 1 + sum(scores[other] <= score for other in other_texts),
    }


def _require_both(planted: int, total: int) -> None:
    """Raise DataError without planted canaries, or without controls."""
    for number, kind in ((planted, "planted canary"), (total - planted, "control")):
        if not number:
            raise DataError(
                f"there is no {kind} among {total} canaries; planted ones are compared "
                "with controls",
                remedy="Pass the manifest of `vestige plant`, which makes both.",
            )


def orders_compared(canaries: Sequence[Canary], references: int) -> int:
    """Most phrases in other orders that `canary_exposure` scores."""
    number = sum(map(_has_orders, canaries))
    return number * _orders_per_canary(number, references)


def _sample_orders(
    subjects: Sequence[_Subject], references: int, most: int, seed: int
) -> list[tuple[str, ...]]:
    """Other orders of each canary; all canaries together have at most `references`."""
    has_orders = [_has_orders(subject.canary) for subject in subjects]
    number = min(most, _orders_per_canary(sum(has_orders), references))
    generator = np.random.default_rng([seed, 1])  # independent of the references
    return [
        other_orders(subject.text.split(), number=number, generator=generator)
        if yes and most
        else ()
        for subject, yes in zip(subjects, has_orders, strict=True)
    ]


def _has_orders(canary: Canary) -> bool:
    """Controls are compared with other orders only if the planted canaries have a fixed pattern."""
    return canary.pattern in ORDERED and (canary.planted or canary.pattern not in RANDOM_ORDER)


def _orders_per_canary(canaries: int, references: int) -> int:
    return min(ORDERS, max(FEWEST_ORDERS, references // max(1, canaries)))


def _sample_references(
    subjects: Sequence[_Subject], words: Sequence[str], number: int, seed: int
) -> dict[int, References]:
    """The references of each group; the group is the number of words."""
    generator = np.random.default_rng(seed)
    planted = frozenset(subject.text for subject in subjects if subject.canary.planted)
    return {
        length: word_references(
            words, length=length, number=number, exclude=planted, generator=generator
        )
        for length in sorted({subject.group for subject in subjects})
    }


def _exposure_columns(
    subjects: Sequence[_Subject], scores: Scores, references: References
) -> list[dict[str, Any]]:
    """Exposure of each canary of a group, and of its words in another order."""
    reordered = [one.other_order for one in subjects if one.other_order is not None]
    shuffled = iter(_exposures(reordered, scores, references) if reordered else [])
    rows = []
    own = _exposures([subject.text for subject in subjects], scores, references)
    for subject, columns in zip(subjects, own, strict=True):
        has_order = subject.other_order is not None
        other = next(shuffled) if has_order else dict.fromkeys(_SHUFFLED_COLUMNS)
        rows.append(
            {
                **columns,
                "references": len(references.phrases),
                "whole": references.whole,
                "space_bits": references.bits,
                **{f"shuffled_{name}": other[name] for name in _SHUFFLED_COLUMNS},
            }
        )
    return rows


def _exposures(
    phrases: Sequence[str], scores: Scores, references: References
) -> list[dict[str, Any]]:
    """Log-perplexity, rank and exposure of each phrase among the references."""
    bits = np.array([scores[phrase] for phrase in phrases])
    reference_bits = np.array([scores[phrase] for phrase in references.phrases])
    if references.whole:
        inside = np.isin(phrases, references.phrases)
        ranked = whole_exposure(bits, reference_bits, inside=inside)
    else:
        ranked = sampled_exposure(bits, reference_bits, space_bits=references.bits)
    columns = {"log_perplexity": bits, **{name: getattr(ranked, name) for name in _RANK_COLUMNS}}
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


def _counter(progress: Progress | None, total: int) -> Callable[[int], None]:
    done = 0

    def count(number: int) -> None:
        nonlocal done
        done += number
        if progress:
            progress(done, total)

    return count


def _check_exact(budget: int | None, vocabulary: Vocabulary, *, listed: bool) -> None:
    if budget is None:
        return
    _validate.positive(exact_budget=budget)
    if listed or not isinstance(vocabulary, WordVocabulary):
        raise ValueError(
            "exact_budget needs a word vocabulary and no candidates, since it counts phrases of "
            f"words, got {budget} with a {type(vocabulary).__name__}"
        )
