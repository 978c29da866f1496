"""Exposure of planted canaries, and of controls that were never planted.

Carlini et al. (2019), "The Secret Sharer", sections 4 and 5, as in Mireshghallah et al. (2021),
"Privacy Regularization: Joint Privacy-Utility Optimization in Language Models", appendix A.5.

Differs from the papers: every canary is also ranked among other orders of its own words, which
separates memory of the sequence from frequent words. Controls are measured in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, log
from typing import Any, NamedTuple, get_args

import numpy as np

from vestige import _validate
from vestige.audits.exposure.canary_result import ORDERED, CanaryExposure
from vestige.audits.exposure.exact_rank import exact_rank
from vestige.audits.exposure.references import (
    References,
    Space,
    control_references,
    listed_references,
    other_order,
    other_orders,
    space_words,
    split_phrase,
    word_references,
)
from vestige.data.manifest import RANDOM_ORDER, SAMPLED, Canary, canary_ids
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError, NotFinite
from vestige.metrics.exposure import (
    SkewNormalFit,
    fit_skew_normal,
    sampled_exposure,
    whole_exposure,
)
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import NextToken

Progress = Callable[[int, int], None]

FEWEST = 100
"""References that a sample, and a fit, must have."""

FEWEST_ORDERS, ORDERS = 19, 719
"""Other orders of its words that a canary is compared with; 719 are all of six words."""

_WRITTEN = -1
"""Group of the canaries that a language model wrote."""

_RANKED = ("rank", "exposure", "low", "high", "at_ceiling")
_SHUFFLED = ("log_perplexity", "exposure", "fit_exposure")


def canary_exposure(
    model: NextToken,
    canaries: Sequence[Canary],
    *,
    seed: int,
    references: int = 2**14,
    space: Space = "auto",
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
        space: "sampled", "whole", or "auto": whole if a sample has no fewer phrases.
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
    _validate.one_of(get_args(Space), space=space)
    made = [canary for canary in canaries if canary.pattern != SAMPLED]
    _check_exact(exact_budget, made, vocabulary, listed=listed)
    _check_kinds(canaries)
    subjects = _subjects(canaries, vocabulary, listed=listed)
    _validate.at_least(0, orders=orders)
    reordered = _reordered(subjects, references, orders, seed)
    words = () if listed or not made else space_words(vocabulary, made)
    if candidates is not None:
        spaces = {0: _checked(listed_references(candidates), vocabulary)}
    else:
        spaces = _spaces(subjects, words, vocabulary, references, space, seed)

    phrases = [one for some in (*reordered, *(s.phrases for s in spaces.values())) for one in some]
    own = [text for one in subjects for text in (one.text, one.other) if text is not None]
    phrases = list(dict.fromkeys([*own, *phrases]))
    planted = [place for place, canary in enumerate(canaries) if canary.planted]
    count = _counter(progress, len(phrases) + len(planted) * (exact_budget or 0))
    scores = _log_perplexities(model, phrases, count)

    fits = {group: _fit(scores, drawn) for group, drawn in spaces.items()}
    rows: list[dict[str, Any]] = [
        {name: getattr(canary, name) for name in ("phrase", "pattern", "user", "copies")}
        for canary in canaries
    ]
    for group, drawn in spaces.items():
        _rank(rows, subjects, group, scores, drawn, fits[group])
    for row, one, some in zip(rows, subjects, reordered, strict=True):
        row["length"] = len(vocabulary.encode(one.text))
        row["per_token"] = row["log_perplexity"] / row["length"]
        row |= {"exact_low": None, "exact_high": None, "orders": 1 + len(some)}
        row["order_rank"] = 1 + sum(scores[other] <= scores[one.text] for other in some)
    if exact_budget is not None:
        _rank_exactly(model, [rows[place] for place in planted], words, exact_budget, count)
    return CanaryExposure(
        canaries=tuple(rows),
        words=len(words),
        fit_distance=max((fit.distance for fit in fits.values() if fit), default=None),
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

    @property
    def is_reference(self) -> bool:
        return self.group == _WRITTEN and self.canary.control


def _subjects(
    canaries: Sequence[Canary], vocabulary: Vocabulary, *, listed: bool
) -> list[_Subject]:
    found = []
    for number, canary in enumerate(canaries, start=1):
        canary_ids(number, canary, vocabulary)
        words, written = split_phrase(canary.phrase, vocabulary), canary.pattern == SAMPLED
        other = None if written else other_order(words, vocabulary)
        group = 0 if listed else _WRITTEN if written else len(words)
        found.append(_Subject(canary, " ".join(words), other, group))
    return found


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
    vocabulary: Vocabulary,
    number: int,
    space: Space,
    seed: int,
) -> dict[int, References]:
    """The references of each group."""
    generator = np.random.default_rng(seed)
    planted = frozenset(one.text for one in subjects if one.canary.planted)
    groups = {one.group for one in subjects}
    found = {
        length: word_references(
            words, length=length, number=number, space=space, exclude=planted, generator=generator
        )
        for length in sorted(groups - {_WRITTEN})
    }
    if _WRITTEN in groups:
        never = [one.text for one in subjects if one.is_reference]
        found[_WRITTEN] = control_references(never, vocabulary)
    return found


def _log_perplexities(
    model: NextToken, phrases: Sequence[str], count: Callable[[int], None]
) -> dict[str, float]:
    """-log2 of the probability of each phrase at the beginning of a text."""
    bits = text_log_probs(model, model.vocabulary.encode_batch(list(phrases)), count) / -log(2)
    if np.isnan(bits).any():
        raise NotFinite
    return dict(zip(phrases, bits.tolist(), strict=True))


def _fit(scores: Mapping[str, float], drawn: References) -> SkewNormalFit | None:
    bits = np.array([scores[phrase] for phrase in drawn.phrases])
    fits = len(bits) >= FEWEST and np.isfinite(bits).all() and bits.min() < bits.max()
    return fit_skew_normal(bits) if fits else None


def _rank(
    rows: Sequence[dict[str, Any]],
    subjects: Sequence[_Subject],
    group: int,
    scores: Mapping[str, float],
    drawn: References,
    fit: SkewNormalFit | None,
) -> None:
    """Write the exposures of a group's canaries, and of their other orders, into their rows."""
    own = [(row, one) for row, one in zip(rows, subjects, strict=True) if one.group == group]
    for inside in (False, True):
        some = [(row, one.text) for row, one in own if one.is_reference is inside]
        found = _exposures([text for _, text in some], scores, drawn, fit, inside=inside)
        for (row, _), columns in zip(some, found, strict=True):
            row |= columns
            row |= {"references": len(drawn.phrases) - inside, "whole": drawn.whole}
            row |= {"space_bits": drawn.bits, **{f"shuffled_{name}": None for name in _SHUFFLED}}
    turned = [(row, one.other) for row, one in own if one.other is not None]
    found = _exposures([other for _, other in turned], scores, drawn, fit)
    for (row, _), columns in zip(turned, found, strict=True):
        row |= {f"shuffled_{name}": columns[name] for name in _SHUFFLED}


def _exposures(
    phrases: Sequence[str],
    scores: Mapping[str, float],
    drawn: References,
    fit: SkewNormalFit | None,
    *,
    inside: bool = False,
) -> list[dict[str, Any]]:
    """Exposures of phrases among the references; of those `inside`, among the others."""
    if not phrases:
        return []
    own, known = (np.array([scores[one] for one in some]) for some in (phrases, drawn.phrases))
    if drawn.whole:
        ranked = whole_exposure(own, known, inside=np.isin(phrases, drawn.phrases))
    else:
        ranked = sampled_exposure(own, known, space_bits=drawn.bits, inside=inside)
    columns = {"log_perplexity": own.tolist()}
    columns |= {name: getattr(ranked, name).tolist() for name in _RANKED}
    # The fit extrapolates beyond the references, but no exposure exceeds the space.
    nothing = [None] * len(phrases)
    columns["fit_exposure"] = np.minimum(fit.exposure(own), drawn.bits).tolist() if fit else nothing
    columns["extrapolated"] = fit.extrapolated(own).tolist() if fit else nothing
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _rank_exactly(
    model: NextToken,
    rows: Sequence[dict[str, Any]],
    words: Sequence[str],
    budget: int,
    count: Callable[[int], None],
) -> None:
    """Write the exact ranks of planted canaries, or proven bounds of them, into their rows."""
    alphabet = model.vocabulary.encode(" ".join(words))
    for row in rows:
        if row["pattern"] == SAMPLED or not isfinite(row["log_perplexity"]):
            continue
        own = model.vocabulary.encode(row["phrase"])
        found = exact_rank(model, own, alphabet=alphabet, distinct=True, budget=budget)
        row |= {"exact_low": found.exposure_low, "exact_high": found.exposure_high}
        count(budget)


def _counter(progress: Progress | None, total: int) -> Callable[[int], None]:
    done = 0

    def count(number: int) -> None:
        nonlocal done
        done += number
        if progress:
            progress(done, total)

    return count


def _check_kinds(canaries: Sequence[Canary]) -> None:
    planted = sum(canary.planted for canary in canaries)
    for number, kind in ((planted, "planted canary"), (len(canaries) - planted, "control")):
        if not number:
            raise DataError(
                f"there is no {kind} among {len(canaries)} canaries; planted ones are compared "
                "with controls",
                remedy="Pass the manifest of `vestige plant`, which makes both.",
            )


def _checked(listed: References, vocabulary: Vocabulary) -> References:
    for number, ids in enumerate(vocabulary.encode_batch(list(listed.phrases)), start=1):
        if vocabulary.unk_id in ids:
            raise DataError(
                f"candidate {number} has words that the model's vocabulary of {len(vocabulary)} "
                "tokens lacks",
                remedy="List only phrases that the model can read.",
            )
    return listed


def _check_exact(
    budget: int | None, made: Sequence[Canary], vocabulary: Vocabulary, *, listed: bool
) -> None:
    if budget is None:
        return
    if not made:
        raise ValueError(
            "exact_budget must be None if a language model wrote all canaries, which are ranked "
            f"among their controls, got {budget}"
        )
    _validate.positive(exact_budget=budget)
    if listed or not isinstance(vocabulary, WordVocabulary):
        raise ValueError(
            "exact_budget needs a word vocabulary and no candidates, since it counts phrases of "
            f"words, got {budget} with a {type(vocabulary).__name__}"
        )
