"""Measurements of a memorization analysis, and their summary.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5, Figures 5, 6 and 7.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from vestige.results import Measurement

Figure = Literal["log-probabilities", "means", "ranks", "ablation"]
"""log-probabilities: Figure 5. means: of its panels. ranks: Figure 6. ablation: Figure 7."""

Text = Literal["seen", "unseen", "gap", "null"]
"""gap: seen less unseen. null: a half of the unseen text less the other half."""

SIDES: tuple[Text, ...] = ("seen", "unseen")
DIFFERENCES: tuple[tuple[Text, str], ...] = (("gap", ""), ("null", "_null"))
HALF = 0.5
"""The part of the units at which an ablation is summed up, or the nearest that was asked."""

GROUPS = ("frequent", "rest", "frequent, same words", "rest, same words")
"""frequent: the commonest words. rest: all others. same words: those that stand in both texts, each
counted as often in one as in the other. Only these are compared fairly where the seen text says
how frequent words are: the others differ in which words they are, for any model."""


@dataclass(frozen=True)
class Measured:
    """One number with its interval.

    Attributes:
        figure: which of the paper's figures it belongs to.
        text: whose words, or the difference of two.
        words: "all", one of `GROUPS`, "frequent - rest" or "bin".
        measure: "share" of words, "log_prob" (mean, natural), "rank" (mean), "median_rank",
            "log_rank" (mean, natural), "accuracy" (share of words of rank 1), "kept" (accuracy
            over that of the whole model), "log_prob_lost" and "log_rank_lost" (how much worse
            than under the whole model).
        start: where the cell begins: a log-probability in "log-probabilities", a share of the
            silenced units in "ablation", a place in the table of frequencies (1 is the commonest
            word) elsewhere.
        stop: where it ends.
        value: None where no word was there.
        low: end of the interval; None where nothing is known of the spread.
        high: likewise.
        n: words behind the value; for a difference, of the smaller side.
    """

    figure: Figure
    text: Text
    words: str
    measure: str
    start: float
    stop: float
    value: float | None
    low: float | None
    high: float | None
    n: int


def measured(
    cell: tuple[Figure, Text, str, str],
    span: tuple[float, float],
    estimate: tuple[float, float, float],
    *,
    n: int,
) -> Measured:
    """A number from floats that may be NaN, which become None.

    Args:
        cell: figure, text, words and measure.
        span: start and stop.
        estimate: value, low and high.
        n: words behind it.
    """
    start, stop = map(float, span)
    value, low, high = (None if math.isnan(number) else float(number) for number in estimate)
    return Measured(*cell, start, stop, value, low, high, int(n))


@dataclass(frozen=True, kw_only=True)
class Anatomy(Measurement):
    """Measurements of a model's memorization, by words and hidden units.

    Attributes:
        measured: every number, by figure.
        unit: what intervals draw anew: "users" or "texts".
        counted: whose words the frequencies count: "seen text" or "given text".
        frequent: the share of the table that counts as frequent; in the ablation, see
            `ablated_frequent`.
        ablated_frequent: likewise for the ablation.
        table_words: words in the table of frequencies.
        units: (seen, unseen).
        texts: (seen, unseen).
        words: (seen, unseen) that the vocabulary knows.
        texts_in_both: unseen texts that stand in the seen text as well.
        orders: random orders of the ablation; 0: none was made.
        hidden_units: that could be silenced; None without an ablation.
        confidence: of the intervals.
    """

    measured: tuple[Measured, ...]
    unit: str
    counted: str
    frequent: float
    ablated_frequent: float
    table_words: int
    units: tuple[int, int]
    texts: tuple[int, int]
    words: tuple[int, int]
    texts_in_both: int
    orders: int
    hidden_units: int | None
    confidence: float = 0.95

    def find(
        self, figure: Figure, text: Text, words: str, measure: str, *, start: float | None = None
    ) -> Measured | None:
        """The first such number; None where it was not measured."""
        return next(
            (
                one
                for one in self.measured
                if (one.figure, one.text, one.words, one.measure) == (figure, text, words, measure)
                and (start is None or one.start == start)
            ),
            None,
        )

    @property
    def half(self) -> float | None:
        """The share of silenced units that is nearest to a half; None without an ablation."""
        shares = {one.start for one in self.measured if one.figure == "ablation"} - {0.0}
        return min(shares, key=lambda share: (abs(share - HALF), share), default=None)

    def summary(self) -> dict[str, object]:
        """One row of a results table; differences are seen less unseen, natural logs."""
        sizes: dict[str, object] = {
            f"{side}_{name}": getattr(self, name)[place]
            for place, side in enumerate(SIDES)
            for name in ("units", "texts", "words")
        }
        return {
            "unit": self.unit,
            **sizes,
            "texts_in_both": self.texts_in_both,
            "table_words": self.table_words,
            "counted": self.counted,
            "frequent": self.frequent,
            **self._perplexities(),
            **self._gaps(),
            **self._ablation(),
            "confidence": self.confidence,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a number."""
        yield from (asdict(one) for one in self.measured)

    def _perplexities(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for text in SIDES:
            mean = self.find("means", text, "all", "log_prob")
            found[f"perplexity_{text}"] = None if mean is None else _exp(mean.value, -1)
        gap = self.find("means", "gap", "all", "log_prob")
        found |= _times("perplexity_ratio", gap, sign=1)
        for text in SIDES:
            part = self.find("means", text, "frequent", "share")
            found[f"frequent_share_{text}"] = None if part is None else part.value
        return found

    def _gaps(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for words in GROUPS:
            name = words.replace(", ", "_").replace(" ", "_")
            for text, ending in DIFFERENCES:
                gap = self.find("means", text, words, "log_prob")
                found |= _ends(f"log_prob_gap_{name}{ending}", gap)
                times = self.find("means", text, words, "log_rank")
                found |= _times(f"rank_ratio_{name}{ending}", times, sign=-1)
        return found

    def _ablation(self) -> dict[str, object]:
        found: dict[str, object] = {
            "orders": self.orders,
            "hidden_units": self.hidden_units,
            "ablated_frequent": self.ablated_frequent,
            "silenced": self.half,
        }
        if self.half is None:
            return found
        for text in SIDES:
            for words in ("frequent", "rest"):
                kept = self._silenced(text, words, "kept")
                found |= _ends(f"kept_{words}_{text}", kept)
                fall = self._silenced(text, words, "log_rank_lost")
                found |= _times(f"rank_fall_{words}_{text}", fall, sign=1)
        found |= _ends("kept_difference", self._silenced("seen", "frequent - rest", "kept"))
        for text, ending in DIFFERENCES:
            fall = self._silenced(text, "rest", "log_rank_lost")
            found |= _times(f"rank_fall_rest{ending or '_ratio'}", fall, sign=1)
        return found

    def _silenced(self, text: Text, words: str, measure: str) -> Measured | None:
        return self.find("ablation", text, words, measure, start=self.half)


def _ends(name: str, one: Measured | None) -> dict[str, object]:
    values = (None, None, None) if one is None else (one.value, one.low, one.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _times(name: str, one: Measured | None, *, sign: int) -> dict[str, object]:
    """A difference of logs as a ratio; the ends change places where the sign does."""
    value, low, high = (None, None, None) if one is None else (one.value, one.low, one.high)
    if sign < 0:
        low, high = high, low
    ends = (_exp(value, sign), _exp(low, sign), _exp(high, sign))
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def _exp(value: float | None, sign: int) -> float | None:
    """exp of the signed value; None beyond what a float holds."""
    return math.exp(sign * value) if value is not None and sign * value < 700 else None
