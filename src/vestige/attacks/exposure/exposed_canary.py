"""Exposure of one canary, and medians over groups of canaries, in bits.

A sample of references resolves exposures up to its ceiling. Beyond it there is a bound and no
number: means would hide that, medians do not, and their intervals are exact for whatever
distribution canaries have.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, log2
from statistics import median

from vestige.attacks.exposure.phrase_exposure import PhraseExposure
from vestige.metrics.estimates import Interval, median_interval


@dataclass(frozen=True, kw_only=True)
class ExposedCanary(PhraseExposure):
    """Exposure of one canary, in bits.

    Attributes:
        phrase: its words.
        pattern: how it was made.
        user: whose it is, or empty.
        copies: how often it was planted; 0 for a control.
        per_token: the log-perplexity for each of its tokens.
        references: phrases that it was compared with.
        whole: whether these are the whole space.
        space_bits: log2 of the size of the space, which no exposure exceeds.
        shuffled_log_perplexity: bits; of the same words in another order, or None.
        shuffled_exposure: of that, by its rank.
        shuffled_fit_exposure: of that, by the fit.
        exact_low: proven bound of the exposure in the whole space, or None if not asked for.
        exact_high: the other bound; where the two agree, the exposure itself.
        orders: different orders of its own words that were compared, its own among them; 1 where
            there is no other.
        order_rank: 1 + those at least as likely as its own.
    """

    phrase: str
    pattern: str
    user: str
    copies: int
    per_token: float
    references: int
    whole: bool
    space_bits: float
    shuffled_log_perplexity: float | None
    shuffled_exposure: float | None
    shuffled_fit_exposure: float | None
    exact_low: float | None = None
    exact_high: float | None = None
    orders: int = 1
    order_rank: int = 1

    @property
    def planted(self) -> bool:
        return self.copies > 0

    @property
    def resolved(self) -> Interval:
        """Least and most that its exposure is known to be: its value, if both are the same.

        At the ceiling the least is a bound, with 97.5 % confidence or, where an exact rank was
        searched for, proven.
        """
        if self.exact_low is not None and self.exact_high is not None:
            if self.exact_low == self.exact_high:
                return Interval(self.exact_low, self.exact_high)
            if self.at_ceiling:
                return Interval(max(self.low, self.exact_low), self.exact_high)
        if self.at_ceiling:
            return Interval(self.low, inf)
        return Interval(self.exposure, self.exposure)

    @property
    def interval(self) -> Interval:
        """95 % confidence interval of the exposure; without a high end at the ceiling."""
        if self.at_ceiling or (self.exact_low is not None and self.exact_low == self.exact_high):
            return self.resolved
        return Interval(self.low, self.high)

    @property
    def shuffled_resolved(self) -> Interval | None:
        """The same of its words in another order."""
        value = self.shuffled_exposure
        if value is None:
            return None
        stuck = not self.whole and value >= log2(self.references)
        return Interval(value, inf if stuck else value)

    @property
    def p_value(self) -> float:
        """Exact p-value of the rank for a phrase that was never planted; see `places`."""
        return self.rank / self.places

    @property
    def places(self) -> int:
        """Ranks that a phrase could have, all alike for one that was never planted."""
        return max(self.references + (not self.whole), self.rank)

    @property
    def order_p_value(self) -> float:
        """Exact p-value of the rank among the orders of its own words."""
        return self.order_rank / self.orders


@dataclass(frozen=True, kw_only=True)
class Median:
    """A median in bits that may be known from below only.

    Attributes:
        value: the median, or the bound.
        bound: it is no less than this, and no sample told by how much.
        interval: that covers it 19 times of 20, of one canary its own; the high end is infinite
            where nothing was resolved above. None where so few canaries have none.
    """

    value: float
    bound: bool
    interval: Interval | None

    @classmethod
    def of(cls, known: Sequence[Interval]) -> "Median | None":
        """Of what is known of each canary; None of none."""
        if not known:
            return None
        least, most = ([ends[i] for ends in known] for i in (0, 1))
        low, high = median_interval(least), median_interval(most)
        value = median(least)
        return cls(
            value=value,
            bound=median(most) > value,
            interval=None if low is None or high is None else Interval(low.low, high.high),
        )

    def summary(self, name: str) -> dict[str, float | None]:
        """The median and its ends as entries of a summary; None for an end that is not known."""
        low, high = self.interval or (None, None)
        return {
            name: self.value,
            f"{name}_is_bound": self.bound,
            f"{name}_low": low,
            f"{name}_high": None if high is None or not isfinite(high) else high,
        }


@dataclass(frozen=True, kw_only=True)
class Group:
    """Canaries taken together.

    Attributes:
        name: "planted", "controls" or, for example, "5_copies".
        copies: how often each was planted; 0 for controls, None for all planted ones.
        canaries: how many they are.
        at_ceiling: how many are likelier than every reference.
        exposure: median by rank, or None of no canaries.
        shuffled: median of the same words in another order.
    """

    name: str
    copies: int | None
    canaries: int
    at_ceiling: int
    exposure: Median | None
    shuffled: Median | None

    @classmethod
    def of(cls, name: str, copies: int | None, canaries: Sequence[ExposedCanary]) -> "Group":
        """The medians of some canaries."""
        exposure = Median.of([canary.resolved for canary in canaries])
        if exposure is not None and len(canaries) == 1:
            exposure = replace(exposure, interval=canaries[0].interval)
        others = [canary.shuffled_resolved for canary in canaries]
        return cls(
            name=name,
            copies=copies,
            canaries=len(canaries),
            at_ceiling=sum(canary.at_ceiling for canary in canaries),
            exposure=exposure,
            shuffled=Median.of([other for other in others if other is not None]),
        )

    def summary(self) -> dict[str, object]:
        """Scalars, each named after the group."""
        found: dict[str, object] = {
            f"canaries_{self.name}": self.canaries,
            f"at_ceiling_{self.name}": self.at_ceiling,
        }
        nothing = ("", "_is_bound", "_low", "_high")
        for measure, middle in (("exposure", self.exposure), ("shuffled_exposure", self.shuffled)):
            name = f"{measure}_{self.name}"
            found |= middle.summary(name) if middle else {name + end: None for end in nothing}
        return found
