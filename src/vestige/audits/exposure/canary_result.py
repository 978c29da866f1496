"""Exposure of canaries by number of copies, with two exact tests and a verdict.

Memory: controls were made like the planted canaries and never planted. A model that remembers
nothing ranks both alike, even if it prefers their words, so the test compares these two samples.
It does not use the references: a model may prefer the words of canaries to those of references
without remembering a canary.

Order: tested only if memory is significant, so the two tests need no correction for each other. A
model that knows only the words gives a random order of them (`RANDOM_ORDER`) a uniform rank among
all orders. A model may prefer an order with a pattern without training on it, so such orders are
compared with those of controls with the same pattern. Phrases from a list and phrases that a
language model wrote have no such test.

Estimates are medians, because an exposure at the ceiling of its sample is only bounded from below.
Their intervals (Thompson, 1936) are for canaries of this one model, not for another training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import comb, inf, isfinite, log2
from statistics import fmean, median
from typing import Any

from vestige import claims
from vestige.claims import Check, Claim, Test
from vestige.claims.effects import EXPOSURE_BITS
from vestige.data.canaries.phrases import PATTERNS
from vestige.data.canaries.texts import RANDOM_ORDER
from vestige.metrics.estimates import median_interval
from vestige.metrics.exposure import UNPLANTED_MEAN
from vestige.metrics.tests import combined_p_value, least_combined_p_value, permutation_test
from vestige.results import Measurement

Row = Mapping[str, Any]
Ends = tuple[float, float]  # low and high

LEVEL = 0.05
"""Significance level of each test."""

ORDERED = (*RANDOM_ORDER, *PATTERNS)
"""Patterns whose order can be tested."""

NOT_SAMPLED = (
    " Their words were not sampled like those of the references: compare with a model that never "
    "read them."
)


@dataclass(frozen=True, kw_only=True)
class CanaryExposure(Measurement):
    """Exposure of the canaries of a manifest under one model.

    Attributes:
        canaries: one row per planted canary and control, in their order in the manifest. In bits:
            log_perplexity and per_token; exposure by rank among `references` phrases and its 95%
            interval, low to high (at_ceiling, only low is known); shuffled_... for its words in
            another order; exact_low to exact_high, proven bounds or None. order_rank is the rank
            among `orders` orders of its words, including its own.
        words: different words of the references; 0 if these are a list.
        seed: of the references and the orders.
        checks: of the model and the canaries that it can read; a verdict needs them.
    """

    canaries: tuple[Row, ...]
    words: int
    seed: int
    checks: tuple[Check, ...] = ()

    @property
    def planted(self) -> list[Row]:
        """The planted canaries."""
        return [row for row in self.canaries if row["copies"]]

    @property
    def controls(self) -> list[Row]:
        """The controls, which were never planted."""
        return [row for row in self.canaries if not row["copies"]]

    @property
    def space(self) -> str:
        """The kind of references: "candidates", "whole" or "sampled"."""
        if not self.words:
            return "candidates"
        return "whole" if all(row["whole"] for row in self.canaries) else "sampled"

    @property
    def ceiling(self) -> float:
        """The largest possible exposure by rank, in bits."""
        return log2(self.references)

    @property
    def references(self) -> int:
        """The least number of references of a canary."""
        return min(int(row["references"]) for row in self.canaries)

    @property
    def resolution(self) -> str:
        """A sentence: do the references resolve the planted canaries?"""
        if self.space != "sampled":
            return "Ranks are exact: every phrase of the space was scored."
        number = sum(row["at_ceiling"] for row in self.planted)
        if not number:
            return f"All ranks are below the ceiling of {self.ceiling:.1f} bits."
        return (
            f"{number} of {len(self.planted)} planted canaries are more probable than all "
            f"{self.references:,} references, so their exposure is a lower bound (≥, 97.5% "
            "confidence). Pass more --references, or --exact."
        )

    @cached_property
    def test(self) -> Test:
        """Whether planted canaries are more probable than controls."""
        planted, controls = (
            [-row["exposure"] for row in rows] for rows in (self.planted, self.controls)
        )
        return _permutation_test([(planted, controls)], "unplanted controls")

    @cached_property
    def order(self) -> Test | None:
        """Whether planted canaries are more probable than other orders of their words.

        None before memory is shown, or if no order can be tested.
        """
        if not self.test.significant:
            return None
        ordered = [row for row in self.canaries if row["orders"] > 1]
        random = [row for row in ordered if row["copies"] and row["pattern"] in RANDOM_ORDER]
        if random:
            sizes = [row["orders"] for row in random]
            p = combined_p_value([row["order_rank"] / row["orders"] for row in random], sizes)
            return Test(p, least_combined_p_value(sizes), LEVEL, "other orders of their words")
        strata = []
        for pattern in PATTERNS:
            ranks = [
                (bool(row["copies"]), row["order_rank"] / row["orders"])
                for row in ordered
                if row["pattern"] == pattern
            ]
            planted = [rank for is_planted, rank in ranks if is_planted]
            controls = [rank for is_planted, rank in ranks if not is_planted]
            if planted and controls:
                strata.append((planted, controls))
        return _permutation_test(strata, "the word orders of controls") if strata else None

    @cached_property
    def claim(self) -> Claim:
        """The verdict, with its test and checks; "no leak shown" excludes `EXPOSURE_BITS`.

        Raises:
            ValueError: there are no checks of the model.
        """
        planted, controls = (
            [row["exposure"] for row in rows] for rows in (self.planted, self.controls)
        )
        powerful = claims.powerful(
            self.test,
            # the permutation test runs two tests at half the level (`metrics.tests`)
            detectable=claims.detectable_difference(planted, controls, alpha=LEVEL / 2),
            wanted=EXPOSURE_BITS,
            effect="an exposure of {} bits above controls",
        )
        value, is_bound, low, high = _median("median", *_ranges(self.planted)).values()
        name = f"median exposure of planted canaries{' (lower bound)' if is_bound else ''}"
        estimate = claims.Estimate(name, value, low, high, "bits")
        return Claim("exposure", self.test, (*self.checks, powerful), estimate)

    @property
    def verdict(self) -> claims.Verdict:
        """The verdict of the claim."""
        return self.claim.verdict

    @property
    def sentence(self) -> str:
        """The verdict on the canaries in a sentence."""
        number = len(self.planted)
        planted = "1 canary" if number == 1 else f"{number} canaries"
        if self.verdict == claims.UNDECIDED and not self.test.possible:
            return (
                f"{planted} can be tested with {controls_needed(number)} controls or more; there "
                f"are {len(self.controls)}. Plant more."
            )
        if self.verdict == claims.UNDECIDED:
            return "A check of the audit did not pass."
        if self.verdict == claims.NO_LEAK:
            return "Planted canaries are not more exposed than controls."
        patterns = {row["pattern"] for row in self.planted}
        sampled = patterns <= {*RANDOM_ORDER}
        return f"{_order_sentence(planted, self.order)}{'' if sampled else NOT_SAMPLED}"

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {**self.claim.summary(), "sentence": self.sentence, **self.figures()}

    def figures(self) -> dict[str, object]:
        """The summary without the verdict."""
        exact = [row for row in self.canaries if row["exact_low"] is not None]
        low, high = ([row[name] for row in exact] for name in ("exact_low", "exact_high"))
        figures: dict[str, object] = {
            "resolution": self.resolution,
            "space": self.space,
            "space_bits": min(row["space_bits"] for row in self.canaries),
            "words": self.words,
            "references": self.references,
            "ceiling": self.ceiling,
            "expected_by_chance": UNPLANTED_MEAN,
            "order_probability": self.order.p if self.order else None,
            "least_order_probability": self.order.least if self.order else None,
            "exact_asked": len(exact),
            "exact_decided": sum(row["exact_low"] == row["exact_high"] for row in exact),
            "exact_exposure_low": fmean(low) if exact else None,
            "exact_exposure_high": fmean(high) if exact else None,
        }
        groups = {"planted": self.planted, "controls": self.controls}
        for copies in sorted({row["copies"] for row in self.planted}):
            groups[f"{copies}_copies"] = [r for r in self.planted if r["copies"] == copies]
        for name, rows in groups.items():
            figures[f"canaries_{name}"] = len(rows)
            figures[f"at_ceiling_{name}"] = sum(row["at_ceiling"] for row in rows)
            figures |= _median(f"exposure_{name}", *_ranges(rows))
            shuffled = [_shuffled_range(r) for r in rows if r["shuffled_exposure"] is not None]
            figures |= _median(f"shuffled_exposure_{name}", shuffled)
        return figures

    def rows(self) -> Iterator[dict[str, object]]:
        """One row per canary."""
        for number, row in enumerate(self.canaries):
            yield {"canary_number": number, **row}


def known_range(row: Row) -> Ends:
    """Lower and upper bound of a canary's exposure; equal if the exposure is known.

    At the ceiling the lower bound has 97.5% confidence, or is proven by an exact search.
    """
    low, high = row.get("exact_low"), row.get("exact_high")
    if low is not None and low == high:
        return low, high
    if not row["at_ceiling"]:
        return row["exposure"], row["exposure"]
    return (row["low"], inf) if low is None or high is None else (max(row["low"], low), high)


def interval_of(row: Row) -> Ends:
    """95% confidence interval of a canary's exposure; at the ceiling the high end is infinite."""
    exact = row.get("exact_low") is not None and row["exact_low"] == row["exact_high"]
    return known_range(row) if exact or row["at_ceiling"] else (row["low"], row["high"])


def controls_needed(planted: int) -> int:
    """The fewest controls with which this number of canaries can be significant.

    Example:
        >>> controls_needed(1), controls_needed(4), controls_needed(20)
        (19, 4, 2)
    """
    tests = 1 if planted == 1 else 2  # as in `permutation_test`
    return next(n for n in count(1) if tests / comb(planted + n, n) <= LEVEL)


def _permutation_test(strata: Sequence[tuple[list[float], list[float]]], against: str) -> Test:
    result = permutation_test(strata)
    return Test(result.p, result.least, LEVEL, against)


def _ranges(rows: Sequence[Row]) -> tuple[list[Ends], Ends | None]:
    """The known range of each canary, and the interval of a single one."""
    return [known_range(row) for row in rows], interval_of(rows[0]) if len(rows) == 1 else None


def _shuffled_range(row: Row) -> Ends:
    value = row["shuffled_exposure"]
    at_ceiling = not row["whole"] and value >= log2(row["references"])
    return value, inf if at_ceiling else value


def _median(name: str, ranges: Sequence[Ends], interval: Ends | None = None) -> dict[str, Any]:
    """The median of some ranges, whether it is a lower bound, and its 95% interval.

    An end is None if it is infinite, or if there are too few canaries for an interval.
    """
    if not ranges:
        return {f"{name}{end}": None for end in ("", "_is_bound", "_low", "_high")}
    least, most = zip(*ranges, strict=True)
    value, ends = median(least), interval
    if ends is None:
        low, high = median_interval(least), median_interval(most)
        ends = None if low is None or high is None else (low.low, high.high)
    low_end, high_end = ends or (None, None)
    return {
        name: value,
        f"{name}_is_bound": median(most) > value,
        f"{name}_low": low_end,
        f"{name}_high": high_end if high_end is not None and isfinite(high_end) else None,
    }


def _order_sentence(planted: str, order: Test | None) -> str:
    words = "The model knows the words of the canaries"
    if order is None:
        return f"{words}. Their order cannot be tested."
    if not order.possible:
        longer = order.against == "other orders of their words"
        return (
            f"{words}. Their order cannot be tested with {planted}: the least p-value is "
            f"{order.least:.2g}. Plant more {'or longer ' if longer else ''}canaries."
        )
    p = f"{order.p:.2g}" if order.p >= 1e-3 else f"{order.p:.0e}"
    test = f"(p = {p} compared with {order.against})"
    if not order.significant:
        return f"{words}. It is not shown to know their order {test}."
    return f"The model remembers the canaries and the order of their words {test}."
