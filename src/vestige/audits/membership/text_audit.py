"""From scores of texts to p-values, flags, bounds and the claim.

Scores are high for members; the reference was never used. Four questions:

- each text: a conformal p-value against the reference over as many tokens (`metrics.listed`);
- which texts to flag: Benjamini and Hochberg's procedure (`metrics.tests`);
- the list: a permutation test of whole texts, or of whole authors if there are any
  (`metrics.tests`). The statistic is -ln of each one's rank among all: a few very high scores move
  it as much as many scores that are a little higher;
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

MANY_TEXTS = 20_000
"""Texts of both sides above which a tenth as many permutations are computed. The p-value is exact
for any number of them; the smallest is then 0.001."""

Floats = NDArray[np.float64]


class ScoredTexts(NamedTuple):
    """Texts with their scores.

    Attributes:
        scores: over their first tokens.
        authors: of each text; None if each text is a unit.
    """

    scores: CutScores
    authors: Sequence[str] | None = None

    def units(self) -> NDArray[np.str_]:
        """(n,) the author of each text, or its position."""
        return np.asarray(self.authors or [str(index) for index in range(len(self.scores))])

    def sample_per_author(self, rng: np.random.Generator) -> CutScores:
        """Scores of one random text of each author."""
        if self.authors is None:
            return self.scores
        order = rng.permutation(len(self.scores))
        _, first = np.unique(self.units()[order], return_index=True)
        return self.scores.take(np.sort(order[first]))

    @property
    def unit_name(self) -> str:
        return "texts" if self.authors is None else "authors"


def audit_scores(
    texts: ScoredTexts,
    reference: ScoredTexts,
    used: ScoredTexts | None = None,
    *,
    checks: Sequence[Check],
    has_base: bool = False,
    rate: float = 0.05,
    seed: int = 0,
    text_columns: Mapping[str, Sequence[Any]] | None = None,
    facts: Mapping[str, object] | None = None,
) -> Result:
    """The result of scores: one row per audited text, in their order, then one per reference text.

    Args:
        texts: the audited texts.
        reference: never used, of the same kind.
        used: known members, trained on as the audited texts would have been.
        checks: all that the claim requires, but "powerful".
        has_base: whether the scores compare with a base, which saw none of the texts.
        rate: false discovery rate of flags, and error rate of each other claim, in (0, 1).
        seed: of the permutations.
        text_columns: of the audited texts: "number", "length" and "text".
        facts: further entries of the summary, such as the score.

    Raises:
        ValueError: the rate is out of range.
        DataError: the reference is too small for any claim, or an author is on both sides.
    """
    _validate.open_fraction(rate=rate)
    _require_disjoint_authors(texts, reference)
    units = texts.units(), reference.units()
    last_rung = _last_rung(reference, rate)
    compared = compare(texts.scores, reference.scores, most=last_rung, authors=units[1])
    ranks, reference_ranks = map(means_by_group, rank_scores(texts, reference, rate=rate), units)
    area = auc(ranks, reference_ranks)
    many = len(texts.scores) + len(reference.scores) > MANY_TEXTS
    permutations = 999 if many else 9999
    list_p = unit_permutation_test(ranks, reference_ranks, seed=seed, permutations=permutations)
    divisions = min(permutations + 1, comb(ranks.size + reference_ranks.size, ranks.size))
    test = joint_test(
        list_p, compared.p_values, divisions, reference_ranks.size,
        rate=rate, against=f"reference {reference.unit_name}",
    )  # fmt: skip
    powerful = claims.powerful(
        test,
        detectable=claims.detectable_auc(ranks.size, reference_ranks.size, alpha=rate / 2),
        wanted=LIST_AUC,
        high=area.high,
        effect="an AUC of {}",
    )
    claim = Claim(f"membership{' --base' * has_base}", test, (*checks, powerful), area)

    # One random text of each author on every list.
    rng = np.random.default_rng([seed, 1])
    reference_sample, text_sample = reference.sample_per_author(rng), texts.sample_per_author(rng)

    def evidence(scores: CutScores) -> Floats:
        among = scores is reference_sample
        return -compare(scores, reference_sample, most=last_rung, among=among).p_values

    used_evidence = None if used is None else evidence(used.sample_per_author(rng))
    share = share_used(
        evidence(text_sample), evidence(reference_sample), used_evidence, confidence=1 - rate
    )
    # Without a significant test, none is bounded or flagged; with one, at least one was used.
    at_least = max(1, share.at_least) if test.significant else 0
    share = replace(share, at_least=at_least)
    flagged = discoveries(compared.p_values, rate) & test.significant
    compared_reference = compare(
        reference.scores, reference.scores, most=last_rung, authors=units[1], among=True
    )
    has_authors = reference.authors is not None
    summary = {
        **claim.summary(),
        "texts": len(texts.scores),
        "named": int(flagged.sum()),
        "p_value": test.p,
        "list_p_value": list_p,
        "smallest_p_value": float(compared.p_values.min()),
        **columns("auc", area),
        "units": reference.unit_name,
        "listed": share.listed,
        "at_least": share.at_least,
        "at_most": share.at_most,
        "consistent": share.consistent,
        "known_used": 0 if used is None else len(set(used.units())),
        "reference": len(reference.scores),
        "reference_needed": calibration_needed(rate, tested=len(texts.scores)),
        "authors": ranks.size if has_authors else None,
        "reference_authors": reference_ranks.size if has_authors else None,
        "rate": rate,
        "longest": int(texts.scores.rungs[last_rung]),
        **(facts or {}),
    }
    rows = [
        *_rows("audited", compared, named=flagged.tolist(), **(text_columns or {})),
        *_rows("reference", compared_reference),
    ]
    return Result(kind="TextAudit", summary=summary, rows=rows, claim=claim)


def joint_test(
    list_p: float | None,
    p_values: Floats,
    divisions: int,
    compared: int,
    *,
    rate: float,
    against: str,
) -> Test:
    """The smaller p-value of the list and of single units (Simes), doubled.

    Args:
        list_p: p-value of the list; None if there is one unit: then nothing is doubled.
        p_values: of the single units.
        divisions: divisions of the units into two sides that the test of the list counts. They
            limit its smallest p-value.
        compared: units that each single one is compared with. They limit its smallest p-value.
        rate: level of the test.
        against: what the units are compared with.
    """
    simes_p, least_p = simes(p_values), 1 / (1 + compared)
    if list_p is None:
        return Test(simes_p, least_p, rate, against)
    p = min(1.0, 2 * min(list_p, simes_p))
    least = min(1.0, 2 * min(1 / divisions, least_p))
    return Test(p, least, rate, against)


def rank_scores(
    texts: ScoredTexts, reference: ScoredTexts, *, rate: float
) -> tuple[Floats, Floats]:
    """The minus log of each text's rank among all with as many tokens, by side.

    The rate is the audit's; it determines over how many tokens texts are compared at most.
    """
    pool = texts.scores + reference.scores
    units, reference_units = (
        np.unique(side.units(), return_inverse=True)[1] for side in (texts, reference)
    )
    authors = np.concatenate([units, reference_units + units.size])
    last_rung = _last_rung(reference, rate)
    p_values = compare(pool, pool, most=last_rung, authors=authors, among=True).p_values
    values = -np.log(p_values)
    return values[: len(texts.scores)], values[len(texts.scores) :]


def _rows(
    kind: str, compared: Compared, **more_columns: Sequence[Any]
) -> Iterator[dict[str, object]]:
    names = ("p_value", "score", "compared_tokens", "compared_with")
    for index, values in enumerate(zip(*(array.tolist() for array in compared), strict=True)):
        row: dict[str, object] = {"kind": kind, "number": index + 1, "named": None}
        row |= dict(zip(names, values, strict=True)) | {"length": None, "text": None}
        yield row | {name: column[index] for name, column in more_columns.items()}


def _require_disjoint_authors(texts: ScoredTexts, reference: ScoredTexts) -> None:
    if (texts.authors is None) != (reference.authors is None):
        raise ValueError("authors must be given for texts and reference, or for neither")
    if shared := set(texts.authors or ()) & set(reference.authors or ()):
        raise DataError(
            f"{len(shared)} authors are in both texts and reference",
            remedy="Remove them from one, or leave out `author`: then each text is a unit.",
        )


def _last_rung(reference: ScoredTexts, rate: float) -> int:
    """The last rung that half of the reference reaches, and enough texts for a p-value of `rate`.

    Raises:
        DataError: the reference is too small for such a p-value.
    """
    count, needed = len(set(reference.units())), calibration_needed(rate)
    if count < needed:
        units = reference.unit_name
        raise DataError(
            f"the reference has {count} independent {units}: its least p-value is 1/{count + 1}, "
            f"above {rate:g}",
            remedy=(
                f"Add {needed - count} or more unused {units} to `reference`; hundreds are better."
            ),
        )
    return reference.scores.last_rung(max(needed, -(-len(reference.scores) // 2)))
