"""From scores of texts to p-values, flags, bounds and the claim.

Scores are high for members; the reference was never used. Four questions:

- each text: a conformal p-value against the reference over as many tokens (`metrics.listed`);
- which texts to flag: Benjamini and Hochberg's procedure (`metrics.tests`);
- the list: a permutation test of whole texts, or of whole authors if there are any
  (`metrics.tests`), of -ln of each one's rank among all, which a few very high ones move as
  well as many that are a little higher;
- how many were used, at least and at most (`metrics.listed`).

They share one level: nothing is claimed to be used unless the smaller p-value of the list and of
single texts (Simes 1986), doubled, is at most `rate`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige import _validate, claims
from vestige.claims import Check, Claim, Test
from vestige.claims.effects import LIST_AUC
from vestige.errors import DataError
from vestige.metrics.estimates import auc, columns
from vestige.metrics.listed import Compared, CutScores, compare, share_used
from vestige.metrics.tests import (
    calibration_needed,
    discoveries,
    means_by_group,
    simes,
    unit_permutation_test,
)
from vestige.results import Result

MANY = 20_000
"""Texts of both sides above which a tenth as many permutations are computed. The p-value is exact
for any number of them; the smallest is then 0.001."""

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
        """(n,) the author, or the position, of each."""
        return np.asarray(self.authors or [str(place) for place in range(len(self.cut))])

    def one_each(self, generator: np.random.Generator) -> CutScores:
        """A random text of every author."""
        if self.authors is None:
            return self.cut
        order = generator.permutation(len(self.cut))
        _, first = np.unique(self.owners()[order], return_index=True)
        return self.cut.take(np.sort(order[first]))


def audit_scores(
    texts: Scored,
    reference: Scored,
    used: Scored | None = None,
    *,
    checks: Sequence[Check],
    based: bool = False,
    rate: float = 0.05,
    seed: int = 0,
    more_columns: Mapping[str, Sequence[Any]] | None = None,
    facts: Mapping[str, object] | None = None,
) -> Result:
    """The result of scores: one row per audited text, in their order, then one per reference text.

    Args:
        texts: the audited.
        reference: never used, of the same kind.
        used: known members, trained on as the audited would have been.
        checks: all that the claim requires, but "powerful".
        based: whether there was a base, which saw none of the texts.
        rate: false discovery rate of flags, and error rate of each other claim, in (0, 1).
        seed: of the permutations.
        more_columns: of the audited texts: "number", "length" and "text".
        facts: further entries of the summary, such as the score.

    Raises:
        ValueError: the rate is out of range.
        DataError: the reference is too small for any claim, or an author is on both sides.
    """
    _validate.open_fraction(rate=rate)
    _require_apart(texts, reference)
    units, owners = _units(reference), (texts.owners(), reference.owners())
    most = _last_rung(reference, rate)
    each = compare(texts.cut, reference.cut, most=most, authors=owners[1])
    among = compare(reference.cut, reference.cut, most=most, authors=owners[1], among=True)
    own, rest = map(means_by_group, ranked(texts, reference, rate=rate), owners)
    area = auc(own, rest)
    permutations = 9999 if len(texts.cut) + len(reference.cut) <= MANY else 999
    of_list = unit_permutation_test(own, rest, seed=seed, permutations=permutations)
    divisions = min(permutations + 1, comb(own.size + rest.size, own.size))
    test = joint_test(
        of_list, each.p_values, divisions, rest.size, rate=rate, against=f"reference {units}"
    )
    powerful = claims.powerful(
        test,
        detectable=claims.detectable_auc(own.size, rest.size, alpha=rate / 2),
        wanted=LIST_AUC,
        high=area.high,
        effect="an AUC of {}",
    )
    claim = Claim(f"membership{' --base' * based}", test, (*checks, powerful), area)
    # One random text of each author on every list.
    generator = np.random.default_rng([seed, 1])
    never, listed = reference.one_each(generator), texts.one_each(generator)

    def reached(cut: CutScores) -> Floats:
        return -compare(cut, never, most=most, among=cut is never).p_values

    known = None if used is None else reached(used.one_each(generator))
    share = share_used(reached(listed), reached(never), known, confidence=1 - rate)
    # Unless anything is shown, none is bounded or flagged; if it is, at least one was used.
    share = replace(share, at_least=max(1, share.at_least) if test.significant else 0)
    flagged = discoveries(each.p_values, rate) & test.significant
    rows = [
        *_rows("audited", each, named=flagged.tolist(), **(more_columns or {})),
        *_rows("reference", among),
    ]
    by_author = units == "authors"
    summary = {
        **claim.summary(),
        "texts": len(texts.cut),
        "named": int(flagged.sum()),
        "p_value": test.p,
        "list_p_value": of_list,
        "smallest_p_value": float(each.p_values.min()),
        **columns("auc", area),
        "units": units,
        "listed": share.listed,
        "at_least": share.at_least,
        "at_most": share.at_most,
        "consistent": share.consistent,
        "known_used": 0 if used is None else len(set(used.owners())),
        "reference": len(reference.cut),
        "reference_needed": calibration_needed(rate, tested=len(texts.cut)),
        "authors": own.size if by_author else None,
        "reference_authors": rest.size if by_author else None,
        "rate": rate,
        "longest": int(texts.cut.rungs[most]),
        **(facts or {}),
    }
    return Result(kind="TextAudit", summary=summary, rows=rows, claim=claim)


def joint_test(
    of_list: float | None,
    p_values: Floats,
    divisions: int,
    compared: int,
    *,
    rate: float,
    against: str,
) -> Test:
    """The smaller p-value of the list and of single units (Simes), doubled.

    Without a p-value of the list there is one unit, and nothing to double. The smallest possible
    p-value depends on how many divisions of the list are counted, and on how many units the single
    ones are compared with.
    """
    of_each, least = simes(p_values), 1 / (1 + compared)
    if of_list is None:
        return Test(of_each, least, rate, against)
    together, possible = (
        min(1.0, 2 * min(pair)) for pair in ((of_list, of_each), (1 / divisions, least))
    )
    return Test(together, possible, rate, against)


def ranked(texts: Scored, reference: Scored, *, rate: float) -> tuple[Floats, Floats]:
    """The minus log of each text's rank among all with as many tokens, by side.

    The rate is the audit's; it determines how long the compared texts are.
    """
    pool = texts.cut + reference.cut
    owners = [np.unique(one.owners(), return_inverse=True)[1] for one in (texts, reference)]
    every = np.concatenate([owners[0], owners[1] + owners[0].size])
    most = _last_rung(reference, rate)
    values = -np.log(compare(pool, pool, most=most, authors=every, among=True).p_values)
    return values[: len(texts.cut)], values[len(texts.cut) :]


def _rows(
    kind: str, compared: Compared, **more_columns: Sequence[Any]
) -> Iterator[dict[str, object]]:
    names = ("p_value", "score", "compared_tokens", "compared_with")
    for place, values in enumerate(zip(*(one.tolist() for one in compared), strict=True)):
        row: dict[str, object] = {"kind": kind, "number": place + 1, "named": None}
        row |= dict(zip(names, values, strict=True)) | {"length": None, "text": None}
        yield row | {name: column[place] for name, column in more_columns.items()}


def _require_apart(texts: Scored, reference: Scored) -> None:
    if (texts.authors is None) != (reference.authors is None):
        raise ValueError("authors must be given for texts and reference, or for neither")
    both = set(texts.owners()) & set(reference.owners()) if texts.authors is not None else ()
    if both:
        raise DataError(
            f"{len(both)} authors are in both texts and reference",
            remedy="Remove them from one, or leave out `author`: then each text is a unit.",
        )


def _units(side: Scored) -> str:
    return "texts" if side.authors is None else "authors"


def _last_rung(reference: Scored, rate: float) -> int:
    """The last rung: half of the reference has as many tokens, and enough for a p-value."""
    count, needed = len(set(reference.owners())), calibration_needed(rate)
    if count < needed:
        units = _units(reference)
        raise DataError(
            f"the reference has {count} independent {units}: its least p-value is 1/{count + 1}, "
            f"above {rate:g}",
            remedy=(
                f"Add {needed - count} or more unused {units} to `reference`; hundreds are better."
            ),
        )
    cut = reference.cut
    return cut.last_rung(max(needed, -(-len(cut) // 2)))
