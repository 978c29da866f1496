"""Whether more is extracted of texts than of a reference: summary, rows and claim.

A text counts for the verdict with the share of its passages that are sampled, each compared at the
same position (`metrics.tests`); a permutation test compares independent units. Every
interval counts units as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import comb
from typing import Any

import numpy as np

from vestige import claims
from vestige.audits.extraction.memorization import Extracted, Table
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

ALPHA = 0.05
"""Level of the test."""

PERMUTATIONS = 9999

OF_TOKENS = ("strength", "exact")
"""Shares of a text's tokens."""

_PUBLIC = {"prefix": "prefix_tokens", "suffix": "suffix_tokens"}
"""Names of settings that elsewhere name texts, which are withheld."""

_COLUMNS = (
    *("length", "passages", "greedy", "sampled", "log_prob", "tries"),
    *("strength", "exact", "longest"),
)


def memorization_result(
    texts: Table,
    reference: Table | None,
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
    sides = {"": texts} if reference is None else {"": texts, "reference_": reference}
    measured: dict[str, Estimate | None] = {}
    for name in ("greedy", "sampled"):
        measured |= _compared(name, {side: _rate(own, name) for side, own in sides.items()})
        each = {side: measured[f"{side}{name}"] for side in sides}
        each = {side: one and one.scaled(1e4 / how.suffix) for side, one in each.items()}
        measured |= _compared(f"{name}_per_10000", each)
    for name in ("texts_sampled", *OF_TOKENS):
        measured |= _compared(name, {side: _share(own, name) for side, own in sides.items()})
    test, p_value, apart = None, None, measured["sampled_difference"]
    if reference is not None:
        p_value = more_extracted(texts, reference, seed=seed)
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
    claim = Claim("extract texts", test, (*checks, powerful), apart)
    counts = {"reference_": {"texts": 0}, **{side: _counts(own) for side, own in sides.items()}}
    longest = [int(side["longest"].max()) for side in sides.values()]
    return Result(
        kind="TextMemorization",
        summary={
            **claim.summary(),
            "p_value": p_value,
            **{_PUBLIC.get(name, name): value for name, value in asdict(how).items()},
            **{f"{side}{name}": n for side, own in counts.items() for name, n in own.items()},
            **{key: n for name, one in measured.items() for key, n in columns(name, one).items()},
            "longest_of_all": longest[0],
            "reference_longest_of_all": None if reference is None else longest[1],
        },
        rows=(*_rows("text", texts, excerpts), *_rows("reference", reference)),
        claim=claim,
    )


def _compared(name: str, sides: Mapping[str, Estimate | None]) -> dict[str, Estimate | None]:
    """An estimate of the texts, of the reference, and their difference, where there is one."""
    own, rest = sides[""], sides.get("reference_")
    apart = difference_of(own, rest) if own and rest else None
    return {name: own, f"reference_{name}": rest, f"{name}_difference": apart}


def _counts(table: Table) -> dict[str, int]:
    return {
        "texts": len(table),
        "texts_with_passages": len(_with_passages(table)),
        "units": _with_passages(table)["unit"].nunique(),
        "passages": int(table["passages"].sum()),
        "texts_tokens": int(table["length"].sum()),
        "greedy_passages": int(table["greedy"].sum()),
        "sampled_passages": int(table["sampled"].sum()),
    }


def _rows(kind: str, table: Table | None, excerpts: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """One row a text."""
    if table is None:
        return
    known = table[[*_COLUMNS]].astype(object).where(table[[*_COLUMNS]].notna(), None)
    for number, row in enumerate(known.to_dict("records"), 1):
        excerpt = excerpts[number - 1] if excerpts else None
        yield {"kind": kind, "number": number, **row, "text": excerpt}


def compared_tokens(texts: Table, reference: Table, how: Extracted) -> int:
    """Tokens of texts whose passages are compared, with those before them and a rest."""
    reached = how.prefix + (_passages_compared(texts, reference) + 1) * how.suffix
    return int(_with_passages(texts)["length"].clip(upper=reached).sum())


def more_extracted(texts: Table, reference: Table, *, seed: int) -> float:
    """The p-value that as many passages of the reference are sampled."""
    lengths, owners, hits = (
        np.concatenate([texts[name], reference[name]]) for name in ("passages", "unit", "hits")
    )
    cut = _passages_compared(texts, reference)
    means = above_position_mean(np.concatenate(hits), lengths, owners, cut=cut)
    asked, n = lengths > 0, len(texts)
    own, rest = (
        means_by_group(means[part][asked[part]], owners[part][asked[part]])
        for part in (slice(n), slice(n, None))
    )
    return unit_permutation_test(own, rest, seed=seed, permutations=PERMUTATIONS)


def _passages_compared(texts: Table, reference: Table) -> int:
    """Passages of a text that are compared."""
    sides = _with_passages(texts), _with_passages(reference)
    lengths, owners = (
        np.concatenate([side[name] for side in sides]) for name in ("passages", "unit")
    )
    return common_length(lengths, owners, len(sides[0]))


def _with_passages(table: Table) -> Table:
    return table[table["passages"] > 0]


def _rate(table: Table, name: str) -> Estimate:
    """The share of passages; clusters are units, each with the mean of its texts."""
    own = _with_passages(table)
    hits, trials = (means_by_group(own[one], own["unit"]) for one in (name, "passages"))
    return clustered_rate(hits.tolist(), trials.tolist())


def _share(table: Table, name: str) -> Estimate | None:
    """The mean of a share of each text, units with the same weight; None if none was measured.

    A share of tokens has as many trials as a text has tokens on average: where all are 0 its
    interval still has a width.
    """
    if name == "texts_sampled":
        values = (table["sampled"] > 0)[table["passages"] > 0]
    else:
        values = table[name]
    if values.empty:
        return None
    means = means_by_group(values, table["unit"][values.index])
    trials = round(float(table["length"].mean())) if name in OF_TOKENS else 1
    return clustered_rate((means * trials).tolist(), [trials] * means.size)
