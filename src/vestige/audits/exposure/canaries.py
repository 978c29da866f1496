"""Exposure of planted canaries, and of controls that were never planted.

Carlini et al. (2019), "The Secret Sharer", sections 4 and 5, as in Mireshghallah et al. (2021),
"Privacy Regularization: Joint Privacy-Utility Optimization in Language Models", appendix A.5.

Differs from the papers: every canary is also ranked among other orders of its own words, which
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
"""References that a sample must have."""

FEWEST_ORDERS, ORDERS = 19, 719
"""Other orders of its words that a canary is compared with; 719 are all of six words."""

_RANKED = ("rank", "exposure", "low", "high", "at_ceiling")
_SHUFFLED = ("log_perplexity", "exposure")


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
    """Exposure of every canary and control, and of each in another order.

    Phrases are scored from the beginning of a text; each number of words has its own references.

    Args:
        model: any model of next tokens.
        canaries: planted ones and controls, at least one of each.
        seed: of the references, and of the orders of words if not all are compared.
        references: phrases in a sample, at least 100; its log2 is the ceiling of exposure by rank.
            A space of no more phrases is read whole.
        candidates: phrases that the canaries could have been, instead of random words.
        exact_budget: prefixes to read for each planted canary's exact rank; None: no exact rank.
        orders: other orders of its words that a canary is compared with at most; 0: none.
        progress: called with (phrases and prefixes done, all).

    Raises:
        ValueError: an argument is out of range.
        DataError: there is no planted canary, no control, or a word that the vocabulary lacks.
        IncompatibleModels: the canaries' ids are those of another vocabulary.
        NotFinite: a score is not a number.
    """
    vocabulary, listed = model.vocabulary, candidates is not None
    _validate.at_least(FEWEST, references=references)
    _validate.at_least(0, orders=orders)
    _check_exact(exact_budget, vocabulary, listed=listed)
    planted = [place for place, canary in enumerate(canaries) if canary.planted]
    for number, kind in (
        (len(planted), "planted canary"),
        (len(canaries) - len(planted), "control"),
    ):
        if not number:
            raise DataError(
                f"there is no {kind} among {len(canaries)} canaries; planted ones are compared "
                "with controls",
                remedy="Pass the manifest of `vestige plant`, which makes both.",
            )
    numbered = enumerate(canaries, start=1)
    subjects = [_Subject.of(n, one, vocabulary, listed=listed) for n, one in numbered]
    reordered = _reordered(subjects, references, orders, seed)
    words = () if listed else space_words(vocabulary, canaries)
    if candidates is not None:
        spaces = {0: listed_references(candidates, vocabulary)}
    else:
        spaces = _spaces(subjects, words, references, seed)

    own = (text for one in subjects for text in (one.text, one.other) if text is not None)
    phrases = list(dict.fromkeys(chain(own, *reordered, *(s.phrases for s in spaces.values()))))
    count = _counter(progress, len(phrases) + len(planted) * (exact_budget or 0))
    bits = text_log_probs(model, vocabulary.encode_batch(phrases), count) / -log(2)
    if np.isnan(bits).any():
        raise NotFinite
    scores = dict(zip(phrases, bits.tolist(), strict=True))

    rows: list[dict[str, Any]] = [
        {name: getattr(canary, name) for name in ("phrase", "pattern", "user", "copies")}
        for canary in canaries
    ]
    pairs = list(zip(rows, subjects, strict=True))
    for group, drawn in spaces.items():
        _rank([(row, one) for row, one in pairs if one.group == group], scores, drawn)
    for (row, one), some in zip(pairs, reordered, strict=True):
        row["length"] = len(vocabulary.encode(one.text))
        row["per_token"] = row["log_perplexity"] / row["length"]
        row |= {"exact_low": None, "exact_high": None, "orders": 1 + len(some)}
        row["order_rank"] = 1 + sum(scores[other] <= scores[one.text] for other in some)
    if exact_budget is not None:
        alphabet = vocabulary.encode(" ".join(words))
        for row in (rows[place] for place in planted):
            if isfinite(row["log_perplexity"]):
                ids = vocabulary.encode(row["phrase"])
                rank = exact_rank(model, ids, alphabet=alphabet, distinct=True, budget=exact_budget)
                row |= {"exact_low": rank.exposure_low, "exact_high": rank.exposure_high}
                count(exact_budget)
    return CanaryExposure(
        canaries=tuple(rows),
        words=len(words),
        seed=seed,
    )


def orders_compared(canaries: Sequence[Canary], references: int) -> int:
    """Phrases in other orders that `canary_exposure` scores at most."""
    number = sum(map(_has_orders, canaries))
    return number * _orders_each(number, references)


class _Subject(NamedTuple):
    """A canary, its words between blanks, the same in another order, and its references' group."""

    canary: Canary
    text: str
    other: str | None
    group: int

    @classmethod
    def of(cls, number: int, canary: Canary, vocabulary: Vocabulary, *, listed: bool) -> "_Subject":
        canary_ids(number, canary, vocabulary)
        words = split_phrase(canary.phrase, vocabulary)
        group = 0 if listed else len(words)
        return cls(canary, " ".join(words), other_order(words, vocabulary), group)


def _reordered(
    subjects: Sequence[_Subject], references: int, most: int, seed: int
) -> list[tuple[str, ...]]:
    """Other orders of each canary, no more in all than references."""
    asked = [_has_orders(one.canary) for one in subjects]
    number = min(most, _orders_each(sum(asked), references))
    generator = np.random.default_rng([seed, 1])  # independent of the references
    return [
        other_orders(one.text.split(), number=number, generator=generator) if some and most else ()
        for one, some in zip(subjects, asked, strict=True)
    ]


def _has_orders(canary: Canary) -> bool:
    """Controls have orders only if those of the planted canaries were not random."""
    return canary.pattern in ORDERED and (canary.planted or canary.pattern not in RANDOM_ORDER)


def _orders_each(canaries: int, references: int) -> int:
    return min(ORDERS, max(FEWEST_ORDERS, references // max(1, canaries)))


def _spaces(
    subjects: Sequence[_Subject],
    words: Sequence[str],
    number: int,
    seed: int,
) -> dict[int, References]:
    """The references of each group."""
    generator = np.random.default_rng(seed)
    planted = frozenset(one.text for one in subjects if one.canary.planted)
    groups = {one.group for one in subjects}
    return {
        length: word_references(
            words, length=length, number=number, exclude=planted, generator=generator
        )
        for length in sorted(groups)
    }


def _rank(
    own: Sequence[tuple[dict[str, Any], _Subject]], scores: Scores, drawn: References
) -> None:
    """Write the exposures of a group, and of its other orders, into its rows."""
    known = np.array([scores[phrase] for phrase in drawn.phrases])

    def exposures(phrases: Sequence[str]) -> list[dict[str, Any]]:
        """Exposures of phrases among the references."""
        bits = np.array([scores[phrase] for phrase in phrases])
        if drawn.whole:
            ranked = whole_exposure(bits, known, inside=np.isin(phrases, drawn.phrases))
        else:
            ranked = sampled_exposure(bits, known, space_bits=drawn.bits)
        columns = {"log_perplexity": bits, **{name: getattr(ranked, name) for name in _RANKED}}
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]

    for (row, _), columns in zip(own, exposures([one.text for _, one in own]), strict=True):
        row |= columns
        row |= {"references": len(known), "whole": drawn.whole}
        row |= {"space_bits": drawn.bits, **{f"shuffled_{name}": None for name in _SHUFFLED}}
    turned = [(row, one.other) for row, one in own if one.other is not None]
    found = exposures([other for _, other in turned]) if turned else []
    for (row, _), columns in zip(turned, found, strict=True):
        row |= {f"shuffled_{name}": columns[name] for name in _SHUFFLED}


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
