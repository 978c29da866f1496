"""Exposure of canaries under a model of next tokens.

Carlini et al. (2019), "The Secret Sharer", sections 4 and 5, as Mireshghallah et al. (2021) use it,
"Privacy Regularization: Joint Privacy-Utility Optimization in Language Models", appendix A.5.

Differs from the papers: every planted canary of random words is ranked among other orders of its
own words, too, one of which is shown beside it. A model that has merely learnt that these words are
frequent makes those likelier as well; a canary that stands before them is memory of the sequence.
Beside the planted canaries stand controls that never were. Canaries sampled from a language model
are ranked among their controls, which it wrote as well and coins left out: no other phrases could
have stood in their place, and no other order of their words is as likely.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import isfinite
from typing import get_args

import numpy as np

from vestige import _validate
from vestige.attacks.exposure.exact_rank import exact_rank
from vestige.attacks.exposure.exposed_canary import ExposedCanary
from vestige.attacks.exposure.exposure_result import CanaryExposure
from vestige.attacks.exposure.exposure_tests import DRAWN, ORDERED
from vestige.attacks.exposure.phrase_exposure import (
    FEWEST,
    KnownReferences,
    ScoredPhrases,
    canary_ids,
    order_rank,
)
from vestige.attacks.exposure.reference_space import (
    ORDERS,
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
from vestige.data.canary import SAMPLED, Canary
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError
from vestige.models.protocols import NextToken

Progress = Callable[[int, int], None]
Done = Callable[[int], None]

_FEWEST_ORDERS = 19
_SAMPLED = -1
"""Group of the canaries that a language model wrote."""


def canary_exposure(  # noqa: PLR0913 - who measures often leaves orders out
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
        seed: decides the references, and the orders of words where not all are taken.
        references: phrases in a sample, at least 100; its log2 is the ceiling of exposure by rank.
        space: "sampled", "whole", or "auto": whole where that is no more work.
        candidates: what the canaries could have been; takes the place of random words.
        exact_budget: prefixes to read for each planted canary's exact rank; None: no exact rank.
        orders: other orders of its words that a canary is compared with at most; 0: none.
        progress: told (phrases and prefixes done, all).

    Raises:
        ValueError: an argument is out of range.
        DataError: there is no planted canary, no control, or a word that the vocabulary lacks.
        IncompatibleModels: the canaries' ids are those of another vocabulary.
    """
    _validate.at_least(FEWEST, references=references)
    _validate.one_of(get_args(Space), space=space)
    made = [canary for canary in canaries if canary.pattern != SAMPLED]
    _check_exact(exact_budget, made, candidates, model.vocabulary)
    _check_kinds(canaries)
    subjects = _subjects(canaries, model.vocabulary, candidates is not None)
    _validate.at_least(0, orders=orders)
    subjects = _with_orders(subjects, references, seed, orders)
    words: tuple[str, ...] = ()
    if candidates is None:
        words = space_words(model.vocabulary, made) if made else ()
        spaces = _spaces(words, subjects, references, space, np.random.default_rng(seed))
        if len(made) < len(canaries):
            spaces[_SAMPLED] = _of_controls(subjects, model.vocabulary)
    else:
        spaces = {0: listed_references(candidates)}
        _check_candidates(spaces[0].phrases, model.vocabulary)
    phrases = [
        *_phrases(subjects),
        *chain.from_iterable(drawn.phrases for drawn in spaces.values()),
    ]
    done = _counting(progress, phrases, subjects, exact_budget)
    scored = ScoredPhrases.of(model, phrases, done)
    found: dict[int, ExposedCanary] = {}
    distances = []
    for length, drawn in spaces.items():
        group = {i: subject for i, subject in enumerate(subjects) if subject.group == length}
        known = KnownReferences.of(scored, drawn)
        found |= dict(zip(group, _measured(scored, list(group.values()), known), strict=True))
        distances += [known.fit.distance] if known.fit else []
    exposed = [found[index] for index in range(len(subjects))]
    if exact_budget is not None:
        exposed = [_ranked(model, words, canary, exact_budget, done) for canary in exposed]
    return CanaryExposure(
        canaries=tuple(exposed),
        words=len(words),
        fit_distance=max(distances, default=None),
        seed=seed,
    )


def orders_asked(canaries: Sequence[Canary], references: int) -> int:
    """Phrases in other orders that `canary_exposure` asks about at most."""
    asked = sum(map(_has_orders, canaries))
    return asked * _orders_each(asked, references)


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """A canary, its words between blanks, the same in other orders, and its length group."""

    canary: Canary
    phrase: str
    other: str | None
    group: int
    orders: tuple[str, ...] = ()


def _phrases(subjects: Sequence[_Subject]) -> Iterator[str]:
    """Each canary's phrase and its other orders."""
    for subject in subjects:
        yield subject.phrase
        yield from subject.orders
        if subject.other is not None:
            yield subject.other


def _counting(
    progress: Progress | None,
    phrases: Sequence[str],
    subjects: Sequence[_Subject],
    budget: int | None,
) -> Done:
    """Progress in phrases and prefixes, told how many more are done."""
    done = 0
    total = len(phrases) + sum(s.canary.planted for s in subjects) * (budget or 0)

    def add(number: int) -> None:
        nonlocal done
        done += number
        if progress:
            progress(done, total)

    return add


def _subjects(
    canaries: Sequence[Canary], vocabulary: Vocabulary, one_group: bool
) -> list[_Subject]:
    found = []
    for number, canary in enumerate(canaries, start=1):
        canary_ids(number, canary, vocabulary)
        words = split_phrase(canary.phrase, vocabulary)
        sampled = canary.pattern == SAMPLED
        other = None if sampled else other_order(words, vocabulary)
        group = 0 if one_group else _SAMPLED if sampled else len(words)
        found.append(_Subject(canary=canary, phrase=" ".join(words), other=other, group=group))
    return found


def _with_orders(subjects: list[_Subject], references: int, seed: int, most: int) -> list[_Subject]:
    """Canaries whose order can be asked about get others, no more in all than references.

    Controls do only where the planted ones' order was not drawn at random.
    """
    drawn = [_has_orders(one.canary) for one in subjects]
    if not most:
        return subjects
    number = min(most, _orders_each(sum(drawn), references))
    generator = np.random.default_rng([seed, 1])  # apart from the references' own
    return [
        replace(one, orders=other_orders(one.phrase.split(), number=number, generator=generator))
        if asked
        else one
        for one, asked in zip(subjects, drawn, strict=True)
    ]


def _has_orders(canary: Canary) -> bool:
    return canary.pattern in ORDERED and (canary.planted or canary.pattern not in DRAWN)


def _orders_each(canaries: int, references: int) -> int:
    return min(ORDERS, max(_FEWEST_ORDERS, references // max(1, canaries)))


def _spaces(
    words: Sequence[str],
    subjects: Sequence[_Subject],
    number: int,
    space: Space,
    generator: np.random.Generator,
) -> dict[int, References]:
    exclude = frozenset(subject.phrase for subject in subjects if subject.canary.planted)
    of = partial(
        word_references, words, number=number, space=space, exclude=exclude, generator=generator
    )
    return {n: of(length=n) for n in sorted({subject.group for subject in subjects} - {_SAMPLED})}


def _of_controls(subjects: Sequence[_Subject], vocabulary: Vocabulary) -> References:
    """The controls that a language model wrote, as references."""
    never = [one.phrase for one in subjects if one.group == _SAMPLED and one.canary.control]
    lengths = map(len, vocabulary.encode_batch(never))
    return control_references(never, len(vocabulary), max(lengths, default=1))


def _measured(
    scored: ScoredPhrases, subjects: Sequence[_Subject], known: KnownReferences
) -> Iterator[ExposedCanary]:
    """Canaries of one group, each with its rank among other orders of its words."""
    among = [one.group == _SAMPLED and one.canary.control for one in subjects]
    planted, never = (
        iter(known.measure(scored, _of(subjects, among, inside), inside=inside))
        for inside in (False, True)
    )
    turned = iter(known.measure(scored, [one.other for one in subjects if one.other is not None]))
    for subject, inside in zip(subjects, among, strict=True):
        phrase = next(never if inside else planted)
        other = None if subject.other is None else next(turned)
        names = ("phrase", "pattern", "user", "copies")
        yield ExposedCanary(
            **{name: getattr(subject.canary, name) for name in names},
            **vars(phrase),
            per_token=phrase.log_perplexity / phrase.length,
            references=len(known.drawn.phrases) - inside,
            whole=known.drawn.whole,
            space_bits=known.drawn.bits,
            shuffled_log_perplexity=None if other is None else other.log_perplexity,
            shuffled_exposure=None if other is None else other.exposure,
            shuffled_fit_exposure=None if other is None else other.fit_exposure,
            orders=1 + len(subject.orders),
            order_rank=order_rank(scored, subject.phrase, subject.orders),
        )


def _of(subjects: Sequence[_Subject], among: Sequence[bool], inside: bool) -> list[str]:
    return [one.phrase for one, own in zip(subjects, among, strict=True) if own is inside]


def _ranked(
    model: NextToken, words: Sequence[str], canary: ExposedCanary, budget: int, done: Done
) -> ExposedCanary:
    """A planted canary with its exact rank, or its bounds."""
    if not canary.planted or canary.pattern == SAMPLED or not isfinite(canary.log_perplexity):
        return canary
    vocabulary = model.vocabulary
    ranked = exact_rank(
        model,
        vocabulary.encode(canary.phrase),
        alphabet=vocabulary.encode(" ".join(words)),
        distinct=True,
        budget=budget,
    )
    done(budget)
    return replace(canary, exact_low=ranked.exposure_low, exact_high=ranked.exposure_high)


def _check_kinds(canaries: Sequence[Canary]) -> None:
    planted = sum(canary.planted for canary in canaries)
    for number, kind in [(planted, "planted canary"), (len(canaries) - planted, "control")]:
        if not number:
            raise DataError(
                f"there is no {kind} among {len(canaries)} canaries; planted ones are compared "
                "with controls",
                remedy="Pass the manifest of `vestige plant`, which makes both.",
            )


def _check_candidates(phrases: Sequence[str], vocabulary: Vocabulary) -> None:
    for number, ids in enumerate(vocabulary.encode_batch(list(phrases)), start=1):
        if vocabulary.unk_id in ids:
            raise DataError(
                f"candidate {number} has words that the model's vocabulary of {len(vocabulary)} "
                "tokens lacks",
                remedy="List only phrases that the model can read.",
            )


def _check_exact(
    budget: int | None,
    made: Sequence[Canary],
    candidates: Sequence[str] | None,
    vocabulary: Vocabulary,
) -> None:
    if budget is None:
        return
    if not made:
        raise ValueError(
            "exact_budget must be None where a language model wrote all canaries, which are ranked "
            f"among their controls, got {budget}"
        )
    _validate.positive(exact_budget=budget)
    if candidates is not None or not isinstance(vocabulary, WordVocabulary):
        raise ValueError(
            "exact_budget needs a word vocabulary and no candidates, since it counts phrases of "
            f"words, got {budget} with a {type(vocabulary).__name__}"
        )
