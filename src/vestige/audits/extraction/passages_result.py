"""Whether more is extracted of texts than of a reference: summary, rows and claim.

The verdict is about the share of a text's passages that are sampled, each compared with passages at
the same position (`metrics.tests`), by a permutation test of independent units. Intervals are over
units as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import comb
from typing import Any

import numpy as np

from vestige import claims
from vestige.audits.extraction.memorization import ExtractionCriterion, Table
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

TOKEN_SHARES = ("strength", "exact")
"""Shares of a text's tokens."""

_SETTING_NAMES = {
    "prefix": "prefix_tokens",
    "suffix": "suffix_tokens",
    "samples": "tries",
    "probability": "chance",
}
"""Names of settings in the summary."""

_COLUMNS = (
    *("length", "passages", "greedy", "sampled", "log_prob", "tries"),
    *("strength", "exact", "longest"),
)


def memorization_result(
    texts: Table,
    reference: Table | None,
    criterion: ExtractionCriterion,
    *,
    seed: int,
    checks: tuple[Check, ...],
    excerpts: Sequence[str] = (),
) -> Result:
    """The result of texts and of a reference that the model did not read.

    Args:
        texts: a `memorization_table`.
        reference: likewise, of other units; None if there is none.
        criterion: when a passage counts as extracted.
        seed: of the permutations.
        checks: all that the claim requires but "powerful".
        excerpts: the beginning of each text.
    """
    sides = {"": texts} if reference is None else {"": texts, "reference_": reference}
    estimates: dict[str, Estimate | None] = {}
    for name in ("greedy", "sampled"):
        rates = {side: _rate(table, name) for side, table in sides.items()}
        estimates |= _with_difference(name, rates)
        per_10000 = {side: rate.scaled(1e4 / criterion.suffix) for side, rate in rates.items()}
        estimates |= _with_difference(f"{name}_per_10000", per_10000)
    for name in ("texts_sampled", *TOKEN_SHARES):
        shares = {side: _share(table, name) for side, table in sides.items()}
        estimates |= _with_difference(name, shares)
    test, p_value, difference = None, None, estimates["sampled_difference"]
    if reference is not None:
        p_value = extraction_p_value(texts, reference, seed=seed)
        n, m = (_with_passages(side)["unit"].nunique() for side in (texts, reference))
        least = max(1 / (PERMUTATIONS + 1), 1 / comb(n + m, n))
        test = Test(p_value, min(1.0, least), ALPHA, "reference texts")
    if difference is not None:
        difference = replace(difference, name="share of passages extracted, beyond the reference")
    powerful = claims.bounded(
        test,
        None if difference is None else difference.high,
        limit=EXTRACTED_SHARE,
        what="of the passages, beyond the reference",
    )
    claim = Claim("extract texts", test, (*checks, powerful), difference)
    counts = {"reference_texts": 0}
    for side, table in reversed(sides.items()):
        counts |= {f"{side}{name}": count for name, count in _counts(table).items()}
    return Result(
        kind="TextMemorization",
        summary={
            **claim.summary(),
            "p_value": p_value,
            **{_SETTING_NAMES.get(name, name): value for name, value in asdict(criterion).items()},
            **counts,
            **{
                column: value
                for name, estimate in estimates.items()
                for column, value in columns(name, estimate).items()
            },
            "longest_of_all": int(texts["longest"].max()),
            "reference_longest_of_all": (
                None if reference is None else int(reference["longest"].max())
            ),
        },
        rows=(*_rows("text", texts, excerpts), *_rows("reference", reference)),
        claim=claim,
    )


def _with_difference(name: str, sides: Mapping[str, Estimate | None]) -> dict[str, Estimate | None]:
    """The estimates of texts and reference, and their difference if there are both."""
    texts, reference = sides[""], sides.get("reference_")
    difference = difference_of(texts, reference) if texts and reference else None
    return {name: texts, f"reference_{name}": reference, f"{name}_difference": difference}


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
    saved = table[[*_COLUMNS]]
    saved = saved.astype(object).where(saved.notna(), None)
    for number, row in enumerate(saved.to_dict("records"), 1):
        excerpt = excerpts[number - 1] if excerpts else None
        yield {"kind": kind, "number": number, **row, "text": excerpt}


def compared_tokens(texts: Table, reference: Table, criterion: ExtractionCriterion) -> int:
    """Tokens of texts up to the end of the passages that are compared, and of a rest."""
    limit = criterion.prefix + (_compared_passages(texts, reference) + 1) * criterion.suffix
    return int(_with_passages(texts)["length"].clip(upper=limit).sum())


def extraction_p_value(texts: Table, reference: Table, *, seed: int) -> float:
    """How often as many passages are sampled without training on the texts."""
    lengths, units, hits = (
        np.concatenate([texts[name], reference[name]]) for name in ("passages", "unit", "hits")
    )
    limit = _compared_passages(texts, reference)
    means = above_position_mean(np.concatenate(hits), lengths, units, cut=limit)
    has_passages = lengths > 0
    text_means, reference_means = (
        means_by_group(means[side][has_passages[side]], units[side][has_passages[side]])
        for side in (slice(len(texts)), slice(len(texts), None))
    )
    return unit_permutation_test(text_means, reference_means, seed=seed, permutations=PERMUTATIONS)


def _compared_passages(texts: Table, reference: Table) -> int:
    """Most passages of a text that are compared."""
    sides = _with_passages(texts), _with_passages(reference)
    lengths, units = (
        np.concatenate([side[name] for side in sides]) for name in ("passages", "unit")
    )
    return common_length(lengths, units, len(sides[0]))


def _with_passages(table: Table) -> Table:
    return table[table["passages"] > 0]


def _rate(table: Table, name: str) -> Estimate:
    """A share of the passages; clusters are units, each with the mean of its texts."""
    rows = _with_passages(table)
    hits, trials = (means_by_group(rows[column], rows["unit"]) for column in (name, "passages"))
    return clustered_rate(hits.tolist(), trials.tolist())


def _share(table: Table, name: str) -> Estimate | None:
    """The mean of a share over texts; units have the same weight. None if no text has the share.

    A share of tokens has as many trials as a text has tokens on average, so that its interval has a
    width even if all shares are 0.
    """
    if name == "texts_sampled":
        values = (table["sampled"] > 0)[table["passages"] > 0]
    else:
        values = table[name]
    if values.empty:
        return None
    means = means_by_group(values, table["unit"][values.index])
    trials = round(float(table["length"].mean())) if name in TOKEN_SHARES else 1
    return clustered_rate((means * trials).tolist(), [trials] * means.size)
