"""Whether texts were used in a model's training: from scores to claims about each and about all.

Four questions, of scores that are high for used texts and of a reference that was never used:

- each text: a conformal p-value against the reference, both cut to as many tokens (`cut_scores`);
- which texts to name: Benjamini and Hochberg's procedure (`metrics.conformal`);
- the list as a whole: a permutation test of whole texts, or of whole authors where texts of one
  stand together (`metrics.unit_permutation`), of -ln of each one's rank among all, which a few very
  high ones move as well as many that are a little higher;
- how many were used, at least and at most (`metrics.share_used`).

They stand under one error: nothing is claimed to be used unless the smaller p-value of the list and
of the most outstanding texts (Simes 1986), doubled, is within `rate`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.texts.cut_scores import Compared, CutScores, compare
from vestige.attacks.texts.shift import LengthShift, WordShift, length_shift
from vestige.errors import DataError
from vestige.metrics.conformal import benjamini_hochberg, calibration_needed
from vestige.metrics.share_used import ShareUsed, share_used
from vestige.metrics.unit_permutation import means_by_group, unit_permutation_test
from vestige.result import Result

DOUBT = 0.025
"""Level at which texts differ from the reference under a model that never saw either."""

MANY = 20_000
"""Texts of both sides above which a tenth as many divisions are drawn, each of which takes long.

The p-value is exact for any number of them; only the smallest that can come out is 0.001 then."""

Verdict = Literal["not decided", "used", "not shown"]
Floats = NDArray[np.float64]


class Scored(NamedTuple):
    """Texts with their scores.

    Attributes:
        cut: over their first tokens.
        authors: of each; None where every text stands by itself.
    """

    cut: CutScores
    authors: Sequence[str] | None = None

    def owners(self) -> NDArray[np.str_]:
        """(n,) the author, or the place, of each."""
        return np.asarray(self.authors or [str(place) for place in range(len(self.cut))])

    def one_each(self, generator: np.random.Generator) -> CutScores:
        """A text of every author, drawn at random."""
        if self.authors is None:
            return self.cut
        order = generator.permutation(len(self.cut))
        _, first = np.unique(self.owners()[order], return_index=True)
        return self.cut.take(np.sort(order[first]))


@dataclass(frozen=True, kw_only=True)
class BaseCheck:
    """The same list test of a model that never saw the texts, such as the target's base.

    Attributes:
        p_value: two-sided: the texts are easier or harder for it than the reference.
        easier: in which direction.
    """

    p_value: float
    easier: bool

    @property
    def differs(self) -> bool:
        """Whether texts and reference differ in more than membership."""
        return self.p_value <= DOUBT


@dataclass(frozen=True, kw_only=True)
class TextAudit(Result):
    """What can be claimed about each text, and about all of them.

    Attributes:
        texts: the audited, in their order.
        reference: texts that were never used, each against the rest of them.
        named: (n,) the audited texts that are said to have been used.
        list_p_value: that never-used texts are as high, as a whole.
        p_value: the same, of the list and of single texts together.
        share: bounds on the number used, of `units`.
        units: what they count: "texts", or "authors", of whom one text each was drawn.
        longest: tokens that texts are compared over at most.
        known_used: how many texts known to have been used there were.
        rate: limit of errors, in (0, 1).
        lengths: how much longer or shorter the texts are than the reference.
        shift: what the words alone tell; None where texts are too few to ask.
        base: what a model says that never saw the texts; None where there was none.
        authors: of the audited texts and of the reference, how many; None where not told.
        numbers: of the audited texts in their file, from 1.
        tokens: of each audited text.
        excerpts: the beginning of each audited text.
        statistics: what else is known of the audit, such as the score.
    """

    texts: Compared
    reference: Compared
    named: NDArray[np.bool_]
    list_p_value: float
    p_value: float
    share: ShareUsed
    units: Literal["texts", "authors"]
    longest: int
    known_used: int
    rate: float
    lengths: LengthShift
    authors: tuple[int, int] | None = None
    shift: WordShift | None = None
    base: BaseCheck | None = None
    numbers: Sequence[int] = ()
    tokens: Sequence[int] = ()
    excerpts: Sequence[str] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Whether use is shown, or cannot be told since the texts differ in more than that."""
        told_apart = self.shift is not None and self.shift.told_apart
        by_base = self.base is not None and self.base.differs
        if told_apart or by_base or self.lengths.unlike:
            return "not decided"
        return "used" if self.p_value <= self.rate else "not shown"

    def summary(self) -> dict[str, object]:
        """Scalars: verdict, number named, p-values, bounds, and what they rest on."""
        shift, base = self.shift, self.base
        n, m = len(self.texts.p_values), len(self.reference.p_values)
        of_list, of_reference = self.authors or (None, None)
        return {
            "verdict": self.verdict,
            "texts": n,
            "named": int(self.named.sum()),
            "p_value": self.p_value,
            "list_p_value": self.list_p_value,
            "smallest_p_value": float(self.texts.p_values.min()),
            "units": self.units,
            "listed": self.share.listed,
            "at_least": self.share.at_least,
            "at_most": self.share.at_most,
            "consistent": self.share.consistent,
            "known_used": self.known_used,
            "reference": m,
            "reference_needed": calibration_needed(self.rate, tested=n),
            "authors": of_list,
            "reference_authors": of_reference,
            "rate": self.rate,
            "longest": self.longest,
            "length_auc": self.lengths.auc,
            "length_unlike": self.lengths.unlike,
            "shift_auc": None if shift is None else shift.auc,
            "shift_by_chance": None if shift is None else shift.by_chance,
            "shift_p_value": None if shift is None else shift.p_value,
            "shift_words": None if shift is None else shift.words,
            "shift_told_apart": None if shift is None else shift.told_apart,
            "base_p_value": None if base is None else base.p_value,
            "base_easier": None if base is None else base.easier,
            "base_differs": None if base is None else base.differs,
            **self.statistics,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row an audited text, in their order; then one a text of the reference."""
        told = ("p_value", "score", "compared_tokens", "compared_with")
        for kind, side in (("audited", self.texts), ("reference", self.reference)):
            audited = kind == "audited"
            for place, values in enumerate(zip(*(c.tolist() for c in side), strict=True)):
                yield {
                    "kind": kind,
                    "number": self.numbers[place] if audited and self.numbers else place + 1,
                    "named": bool(self.named[place]) if audited else None,
                    **dict(zip(told, values, strict=True)),
                    "length": self.tokens[place] if audited and self.tokens else None,
                    "text": self.excerpts[place] if audited and self.excerpts else None,
                }


def audit_scores(
    texts: Scored,
    reference: Scored,
    used: CutScores | None = None,
    *,
    rate: float = 0.05,
    seed: int = 0,
) -> TextAudit:
    """Claims from scores alone.

    Args:
        texts: the audited.
        reference: never used, of the same kind.
        used: known to have been used, as the audited would have been.
        rate: limit of errors: of the share of wrong ones among the texts that are named, and of
            each of the other claims, in (0, 1).
        seed: of the divisions that the list test draws.

    Raises:
        ValueError: the rate is out of range.
        DataError: the reference is too small for any claim, or an author stands on both sides.
    """
    _validate.open_fraction(rate=rate)
    _require_apart(texts, reference)
    counted = len(set(reference.owners()))
    _require_enough(counted, rate, of="texts" if reference.authors is None else "authors")
    most = _last_rung(reference.cut, rate)
    each = compare(texts.cut, reference.cut, most=most, authors=reference.owners())
    of_list = _list_p_value(texts, reference, most=most, seed=seed)
    ordered = np.sort(each.p_values)
    simes = float((ordered * ordered.size / np.arange(1, ordered.size + 1)).min())
    together = min(1.0, 2 * min(of_list, simes))
    shown = together <= rate
    share = _share(texts, reference, used, most=most, rate=rate, seed=seed)
    # Before anything is shown, nobody is named; after it, at least one was used.
    share = ShareUsed(
        listed=share.listed,
        at_least=max(1, share.at_least) if shown else 0,
        at_most=share.at_most,
    )
    return TextAudit(
        texts=each,
        reference=compare(reference.cut, reference.cut, most=most, among=True),
        named=benjamini_hochberg(each.p_values, rate) & shown,
        list_p_value=of_list,
        p_value=together,
        share=share,
        units="texts" if texts.authors is None else "authors",
        longest=int(texts.cut.rungs[most]),
        known_used=0 if used is None else len(used),
        rate=rate,
        lengths=length_shift(
            texts.cut.lengths,
            reference.cut.lengths,
            (texts.owners(), reference.owners()),
            seed=seed,
        ),
        authors=None if texts.authors is None else (len(set(texts.authors)), counted),
    )


def base_check(texts: Scored, reference: Scored, *, rate: float, seed: int) -> BaseCheck:
    """Whether texts differ from the reference under a model that never saw either.

    Args:
        texts: scored by that model alone.
        reference: likewise.
        rate: as the audit's; it decides how long the compared texts are.
        seed: as of the audit.
    """
    most = _last_rung(reference.cut, rate)
    easier = _list_p_value(texts, reference, most=most, seed=seed)
    harder = _list_p_value(texts, reference, most=most, seed=seed, lower=True)
    return BaseCheck(p_value=min(1.0, 2 * min(easier, harder)), easier=easier < harder)


def _require_apart(texts: Scored, reference: Scored) -> None:
    if (texts.authors is None) != (reference.authors is None):
        raise ValueError("authors must be told of both texts and reference, or of neither")
    both = set(texts.owners()) & set(reference.owners()) if texts.authors is not None else ()
    if both:
        raise DataError(
            f"{len(both)} authors stand in both the texts and the reference: whole authors cannot "
            "be compared",
            remedy="Leave them out of one, or leave out `author`: then each text stands by itself.",
        )


def _require_enough(counted: int, rate: float, *, of: str) -> None:
    needed = calibration_needed(rate)
    if counted < needed:
        raise DataError(
            f"the reference has {counted} {of}: even the highest score of all would come up by "
            f"chance once in {counted + 1} audits, and the limit is {rate:g}",
            remedy=f"Add {needed - counted} never-used {of} or more to `reference`; "
            "hundreds are better.",
        )


def _last_rung(reference: CutScores, rate: float) -> int:
    """The last rung: half of the reference has as many tokens, and enough for a p-value."""
    return reference.last_rung(max(calibration_needed(rate), -(-len(reference) // 2)))


def _list_p_value(
    texts: Scored, reference: Scored, *, most: int, seed: int, lower: bool = False
) -> float:
    """The list test: every text by its rank among all with as many tokens, both sides alike."""
    pool = texts.cut + reference.cut
    if lower:
        pool = CutScores(lengths=pool.lengths, rungs=pool.rungs, scores=-pool.scores)
    values = -np.log(compare(pool, pool, most=most, among=True).p_values)
    own, rest = values[: len(texts.cut)], values[len(texts.cut) :]
    return unit_permutation_test(
        means_by_group(own, texts.owners()),
        means_by_group(rest, reference.owners()),
        seed=seed,
        permutations=9999 if len(pool) <= MANY else 999,
    )


def _share(
    texts: Scored,
    reference: Scored,
    used: CutScores | None,
    *,
    most: int,
    rate: float,
    seed: int,
) -> ShareUsed:
    """Bounds on the number used; of several texts of an author one is drawn."""
    generator = np.random.default_rng([seed, 1])
    never, asked = reference.one_each(generator), texts.one_each(generator)

    def reached(cut: CutScores, *, among: bool = False) -> Floats:
        return -compare(cut, never, most=most, among=among).p_values

    known = None if used is None else reached(used)
    return share_used(reached(asked), reached(never, among=True), known, confidence=1 - rate)
