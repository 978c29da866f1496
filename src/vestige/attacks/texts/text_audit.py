"""Whether texts were used for training: from scores to claims about each text and about all.

Scores are high for used texts. The reference was never used. Four questions:

- each text: a conformal p-value against the reference, both cut to as many tokens (`cut_scores`);
- which texts to flag: Benjamini and Hochberg's procedure (`metrics.tests`);
- the list: a permutation test of whole texts, or of whole authors if they are named
  (`metrics.permutation`), of -ln of each one's rank among all, which a few very high ones move
  as well as many that are a little higher;
- how many were used, at least and at most (`metrics.share_used`).

They share one level: nothing is claimed to be used unless the smaller p-value of the list and of
single texts (Simes 1986), doubled, is at most `rate`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige import _validate, claims
from vestige.attacks.texts.cut_scores import Compared, CutScores, compare
from vestige.claims import Check, Claim, Estimate, Test
from vestige.claims.effects import LIST_AUC
from vestige.errors import DataError
from vestige.metrics.estimates import auc, columns
from vestige.metrics.permutation import means_by_group, unit_permutation_test
from vestige.metrics.share_used import ShareUsed, share_used
from vestige.metrics.tests import calibration_needed, discoveries, simes
from vestige.results import Measurement

MANY = 20_000
"""Texts of both sides above which a tenth as many permutations are drawn. The p-value is exact for
any number of them; the smallest is then 0.001."""

Floats = NDArray[np.float64]


class Scored(NamedTuple):
    """Texts with their scores.

    Attributes:
        cut: over their first tokens.
        authors: of each; None if each text is a unit.
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
class TextAudit(Measurement):
    """Claims about each text, and about all of them.

    Attributes:
        texts: the audited, in their order.
        reference: texts that were never used, each compared with the others.
        named: (n,) the audited texts that are flagged as used.
        list_p_value: that never-used texts score as high, as a whole.
        test: the same, of the list and of single texts together, at the level `rate`.
        auc: how often an audited text, or author, outranks one of the reference.
        share: bounds on the number used, of `units`.
        units: that they count: "texts", or "authors", one drawn text of each.
        counted: audited units, and those of the reference.
        longest: tokens that texts are compared over at most.
        known_used: texts that are known to have been used.
        based: whether there was a base, which saw none of the texts.
        checks: of models and texts; the verb makes them.
        numbers: of the audited texts in their file, from 1.
        tokens: of each audited text.
        excerpts: the beginning of each audited text.
        statistics: further entries of the summary, such as the score.
    """

    texts: Compared
    reference: Compared
    named: NDArray[np.bool_]
    list_p_value: float
    test: Test
    auc: Estimate
    share: ShareUsed
    units: Literal["texts", "authors"]
    counted: tuple[int, int]
    longest: int
    known_used: int
    based: bool = False
    checks: tuple[Check, ...] = ()
    numbers: Sequence[int] = ()
    tokens: Sequence[int] = ()
    excerpts: Sequence[str] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def claim(self) -> Claim:
        """Whether the list was used, by the test and the checks."""
        least = claims.detectable_auc(*self.counted, alpha=self.test.alpha / 2)
        powerful = claims.powerful(
            self.test, detectable=least, wanted=LIST_AUC, high=self.auc.high, effect="an AUC of {}"
        )
        verb = "membership --base" if self.based else "membership"
        return Claim(verb, self.test, (*self.checks, powerful), self.auc)

    @property
    def verdict(self) -> claims.Verdict:
        """The claim's."""
        return self.claim.verdict

    def summary(self) -> dict[str, object]:
        """Verdict, number flagged, p-values, bounds, and what they depend on."""
        n, m = len(self.texts.p_values), len(self.reference.p_values)
        of_list, of_reference = self.counted if self.units == "authors" else (None, None)
        return {
            **self.claim.summary(),
            "texts": n,
            "named": int(self.named.sum()),
            "p_value": self.test.p,
            "list_p_value": self.list_p_value,
            "smallest_p_value": float(self.texts.p_values.min()),
            **columns("auc", self.auc),
            "units": self.units,
            "listed": self.share.listed,
            "at_least": self.share.at_least,
            "at_most": self.share.at_most,
            "consistent": self.share.consistent,
            "known_used": self.known_used,
            "reference": m,
            "reference_needed": calibration_needed(self.test.alpha, tested=n),
            "authors": of_list,
            "reference_authors": of_reference,
            "rate": self.test.alpha,
            "longest": self.longest,
            **self.statistics,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row per audited text, in their order; then one per reference text."""
        columns = ("p_value", "score", "compared_tokens", "compared_with")
        for kind, side in (("audited", self.texts), ("reference", self.reference)):
            audited = kind == "audited"
            for place, values in enumerate(zip(*(c.tolist() for c in side), strict=True)):
                yield {
                    "kind": kind,
                    "number": self.numbers[place] if audited and self.numbers else place + 1,
                    "named": bool(self.named[place]) if audited else None,
                    **dict(zip(columns, values, strict=True)),
                    "length": self.tokens[place] if audited and self.tokens else None,
                    "text": self.excerpts[place] if audited and self.excerpts else None,
                }


def audit_scores(
    texts: Scored,
    reference: Scored,
    used: Scored | None = None,
    *,
    rate: float = 0.05,
    seed: int = 0,
) -> TextAudit:
    """Claims from scores alone.

    Args:
        texts: the audited.
        reference: never used, of the same kind.
        used: known to have been used, as the audited would have been.
        rate: false discovery rate of flags, and error rate of each other claim, in (0, 1).
        seed: of the permutations.

    Raises:
        ValueError: the rate is out of range.
        DataError: the reference is too small for any claim, or an author is on both sides.
    """
    _validate.open_fraction(rate=rate)
    _require_apart(texts, reference)
    counted = (len(set(texts.owners())), len(set(reference.owners())))
    units: Literal["texts", "authors"] = "texts" if reference.authors is None else "authors"
    _require_enough(counted[1], rate, of=units)
    most = _last_rung(reference.cut, rate)
    each = compare(texts.cut, reference.cut, most=most, authors=reference.owners())
    sides = _by_unit(texts, reference, most=most)
    permutations = 9999 if len(texts.cut) + len(reference.cut) <= MANY else 999
    of_list = unit_permutation_test(*sides, seed=seed, permutations=permutations)
    divisions = min(permutations + 1, comb(sum(counted), counted[0]))
    test = Test(
        p=min(1.0, 2 * min(of_list, simes(each.p_values))),
        least=min(1.0, 2 / max(divisions, counted[1] + 1)),
        alpha=rate,
        against=f"reference {units}",
    )
    share = _share(texts, reference, used, most=most, rate=rate, seed=seed)
    # Before anything is shown, nobody is named; after it, at least one was used.
    share = replace(share, at_least=max(1, share.at_least) if test.significant else 0)
    return TextAudit(
        texts=each,
        reference=compare(
            reference.cut, reference.cut, most=most, authors=reference.owners(), among=True
        ),
        named=discoveries(each.p_values, rate) & test.significant,
        list_p_value=of_list,
        test=test,
        auc=auc(*sides),
        share=share,
        units=units,
        counted=counted,
        longest=int(texts.cut.rungs[most]),
        known_used=0 if used is None else len(set(used.owners())),
    )


def ranked(texts: Scored, reference: Scored, *, rate: float) -> tuple[Floats, Floats]:
    """The minus log of each text's rank among all with as many tokens, by side.

    Args:
        texts: scored by any model.
        reference: likewise.
        rate: as the audit's; it decides how long the compared texts are.
    """
    return _ranked(texts, reference, most=_last_rung(reference.cut, rate))


def _ranked(texts: Scored, reference: Scored, *, most: int) -> tuple[Floats, Floats]:
    pool = texts.cut + reference.cut
    owners = [np.unique(one.owners(), return_inverse=True)[1] for one in (texts, reference)]
    every = np.concatenate([owners[0], owners[1] + owners[0].size])
    values = -np.log(compare(pool, pool, most=most, authors=every, among=True).p_values)
    return values[: len(texts.cut)], values[len(texts.cut) :]


def _by_unit(texts: Scored, reference: Scored, *, most: int) -> tuple[Floats, Floats]:
    own, rest = _ranked(texts, reference, most=most)
    return means_by_group(own, texts.owners()), means_by_group(rest, reference.owners())


def _require_apart(texts: Scored, reference: Scored) -> None:
    if (texts.authors is None) != (reference.authors is None):
        raise ValueError("authors must be given for texts and reference, or for neither")
    both = set(texts.owners()) & set(reference.owners()) if texts.authors is not None else ()
    if both:
        raise DataError(
            f"{len(both)} authors are in both texts and reference",
            remedy="Remove them from one, or leave out `author`: then each text is a unit.",
        )


def _require_enough(counted: int, rate: float, *, of: str) -> None:
    needed = calibration_needed(rate)
    if counted < needed:
        raise DataError(
            f"the reference has {counted} independent {of}: its least p-value is 1/{counted + 1}, "
            f"above {rate:g}",
            remedy=(
                f"Add {needed - counted} or more unused {of} to `reference`; hundreds are better."
            ),
        )


def _last_rung(reference: CutScores, rate: float) -> int:
    """The last rung: half of the reference has as many tokens, and enough for a p-value."""
    return reference.last_rung(max(calibration_needed(rate), -(-len(reference) // 2)))


def _share(
    texts: Scored,
    reference: Scored,
    used: Scored | None,
    *,
    most: int,
    rate: float,
    seed: int,
) -> ShareUsed:
    """Bounds on the number used; of several texts of an author one is drawn, on every list."""
    generator = np.random.default_rng([seed, 1])
    never, asked = reference.one_each(generator), texts.one_each(generator)

    def reached(cut: CutScores, *, among: bool = False) -> Floats:
        return -compare(cut, never, most=most, among=among).p_values

    known = None if used is None else reached(used.one_each(generator))
    return share_used(reached(asked), reached(never, among=True), known, confidence=1 - rate)
