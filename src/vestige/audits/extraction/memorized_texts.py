"""Whether more is extracted of texts than of a reference: summary, rows and claim.

A text counts for the verdict with the share of its passages that are sampled, each compared at the
same position (`positions`); a permutation test compares independent units. Every interval counts
units as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vestige import claims
from vestige.audits.extraction.memorization import Extracted, Floats
from vestige.claims import Check, Claim, Estimate, Test
from vestige.claims.effects import EXTRACTED_SHARE
from vestige.metrics.estimates import clustered_rate, columns, difference_of
from vestige.metrics.tests import (
    above_position_mean,
    common_length,
    means_by_group,
    unit_permutation_test,
)
from vestige.results import Result

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

ALPHA = 0.05
"""Level of the test."""

PERMUTATIONS = 9999

APPROXIMATE = 0.75
"""Least BLEU of an approximately memorized continuation (Ippolito et al. 2022)."""

OF_TOKENS = ("strength", "exact", "edit")
"""Shares of a text's tokens."""

_PUBLIC = {"prefix": "prefix_tokens", "suffix": "suffix_tokens"}
"""Names of settings that elsewhere name texts, which are withheld."""

_COLUMNS = (
    *("length", "passages", "greedy", "sampled", "log_prob", "tries"),
    *("strength", "exact", "longest", "edit", "bleu"),
)


class Pair(NamedTuple):
    """An estimate of the texts, and of the reference; None where nothing was measured."""

    own: Estimate | None
    other: Estimate | None

    @property
    def difference(self) -> Estimate | None:
        return difference_of(self.own, self.other) if self.own and self.other else None

    def scaled(self, factor: float) -> "Pair":
        return Pair(*(one and one.scaled(factor) for one in self))

    def columns(self, name: str) -> dict[str, float | None]:
        """Both and their difference, each with its interval."""
        return {
            **columns(name, self.own),
            **columns(f"reference_{name}", self.other),
            **columns(f"{name}_difference", self.difference),
        }


def memorization_result(
    texts: "pandas.DataFrame",
    reference: "pandas.DataFrame | None",
    how: Extracted,
    *,
    seed: int,
    checks: tuple[Check, ...],
    excerpts: Sequence[str] = (),
) -> Result:
    """The result of texts and of a reference that the model did not read.

    Args:
        texts: as of `memorized`.
        reference: likewise, of other units; None if there is none.
        how: when a passage counts as extracted.
        seed: of the permutations.
        checks: all that the claim requires but "powerful".
        excerpts: the beginning of each text.
    """
    p_value = None if reference is None else more_extracted(texts, reference, seed=seed)
    texts, reference = _with_shares(texts), None if reference is None else _with_shares(reference)
    rates = {name: _both(_rate, texts, reference, name) for name in ("greedy", "sampled")}
    claim = _claim(texts, reference, p_value, rates["sampled"].difference, checks)
    settings = {_PUBLIC.get(name, name): value for name, value in asdict(how).items()}
    measured: dict[str, float | None] = {}
    for name, pair in rates.items():
        measured |= pair.columns(name)
        measured |= pair.scaled(1e4 / how.suffix).columns(f"{name}_per_10000")
    for name in ("texts_sampled", *OF_TOKENS, "approximate"):
        measured |= _both(_share, texts, reference, name).columns(name)
    return Result(
        kind="TextMemorization",
        summary={
            **claim.summary(),
            "p_value": p_value,
            **settings,
            **_counts("", texts),
            **({"reference_texts": 0} if reference is None else _counts("reference_", reference)),
            **measured,
            "longest_of_all": int(texts["longest"].max()),
            "reference_longest_of_all": (
                None if reference is None else int(reference["longest"].max())
            ),
        },
        rows=tuple(_rows("text", texts, excerpts)) + tuple(_rows("reference", reference)),
        claim=claim,
    )


def _claim(
    texts: "pandas.DataFrame",
    reference: "pandas.DataFrame | None",
    p_value: float | None,
    apart: Estimate | None,
    checks: tuple[Check, ...],
) -> Claim:
    """Whether more is extracted than of the reference."""
    test = None
    if p_value is not None and reference is not None:
        n, m = (_with_passages(side)["unit"].nunique() for side in (texts, reference))
        least = max(1 / (PERMUTATIONS + 1), 1 / comb(n + m, n))
        test = Test(p_value, min(1.0, least), ALPHA, "reference texts")
    if apart is not None:
        apart = replace(apart, name="share of passages extracted, beyond the reference")
    powerful = claims.bounded(
        test,
        None if apart is None else apart.high,
        limit=EXTRACTED_SHARE,
        what="of the passages, beyond the reference",
    )
    return Claim("extract texts", test, (*checks, powerful), apart)


def _counts(before: str, table: "pandas.DataFrame") -> dict[str, object]:
    return {
        f"{before}texts": len(table),
        f"{before}texts_with_passages": len(_with_passages(table)),
        f"{before}units": _with_passages(table)["unit"].nunique(),
        f"{before}passages": int(table["passages"].sum()),
        f"{before}texts_tokens": int(table["length"].sum()),
        f"{before}greedy_passages": int(table["greedy"].sum()),
        f"{before}sampled_passages": int(table["sampled"].sum()),
        f"{before}generated": int(table["bleu"].notna().sum()),
    }


def _rows(
    kind: str, table: "pandas.DataFrame | None", excerpts: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """One row a text."""
    if table is None:
        return
    for number, row in enumerate(table[[*_COLUMNS]].itertuples(index=False), 1):
        known = {name: one if one == one else None for name, one in row._asdict().items()}
        excerpt = excerpts[number - 1] if excerpts else None
        yield {"kind": kind, "number": number, **known, "text": excerpt}


def compared_tokens(
    texts: "pandas.DataFrame", reference: "pandas.DataFrame", how: Extracted
) -> int:
    """Tokens of texts whose passages are compared, with those before them and a rest."""
    reached = how.prefix + (_compared(texts, reference) + 1) * how.suffix
    return int(_with_passages(texts)["length"].clip(upper=reached).sum())


def more_extracted(
    texts: "pandas.DataFrame", reference: "pandas.DataFrame", *, seed: int
) -> float | None:
    """The p-value that as many passages of the reference are sampled; None without passages."""
    sides = (texts, reference)
    if not all(side["passages"].any() for side in sides):
        return None
    lengths, owners = (_of_both(*sides, name) for name in ("passages", "unit"))
    values = np.concatenate([hits for side in sides for hits in side["hits"]])
    means = above_position_mean(values, lengths, owners, cut=_compared(*sides))
    asked, n = lengths > 0, len(texts)
    own, rest = (
        means_by_group(means[part][asked[part]], owners[part][asked[part]])
        for part in (slice(n), slice(n, None))
    )
    return unit_permutation_test(own, rest, seed=seed, permutations=PERMUTATIONS)


def _compared(texts: "pandas.DataFrame", reference: "pandas.DataFrame") -> int:
    """Passages of a text that are compared."""
    sides = _with_passages(texts), _with_passages(reference)
    lengths, owners = (_of_both(*sides, name) for name in ("passages", "unit"))
    return common_length(lengths, owners, len(sides[0]))


def _with_passages(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """The texts with a passage."""
    return table[table["passages"] > 0]


def _of_both(texts: "pandas.DataFrame", reference: "pandas.DataFrame", name: str) -> Floats:
    return np.concatenate([texts[name], reference[name]])


def _both(
    measure: Any, texts: "pandas.DataFrame", reference: "pandas.DataFrame | None", name: str
) -> Pair:
    return Pair(measure(texts, name), None if reference is None else measure(reference, name))


def _rate(table: "pandas.DataFrame", name: str) -> Estimate | None:
    """The share of passages; clusters are units, each with the mean of its texts."""
    own = _with_passages(table)
    if own.empty:
        return None
    hits, trials = (means_by_group(own[one], own["unit"]) for one in (name, "passages"))
    return clustered_rate(hits.tolist(), trials.tolist())


def _with_shares(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """The table with what holds of a whole text: 1 or 0, or NaN where it was not measured."""
    sampled = np.where(table["passages"] > 0, table["sampled"] > 0, np.nan)
    approximate = np.where(table["bleu"].isna(), np.nan, table["bleu"] >= APPROXIMATE)
    return table.assign(texts_sampled=sampled, approximate=approximate)


def _share(table: "pandas.DataFrame", name: str) -> Estimate | None:
    """The mean of a share of each text, units with the same weight; None if none was measured.

    A share of tokens has as many trials as a text has tokens on average: where all are 0 its
    interval still has a width.
    """
    known = table[table[name].notna()]
    if known.empty:
        return None
    means = means_by_group(known[name], known["unit"])
    trials = round(float(table["length"].mean())) if name in OF_TOKENS else 1
    return clustered_rate((means * trials).tolist(), [trials] * means.size)
