"""What was found of each canary, and what does it come to by number of copies?

The intervals of means speak of canaries, as if each were drawn anew, and of one trained model:
they do not say how another training would come out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log2
from statistics import fmean

from vestige.metrics.exposure import CHANCE, chance_probability
from vestige.metrics.intervals import Interval, mean_interval


@dataclass(frozen=True, kw_only=True)
class ExposedCanary:
    """One canary. Exposures are in bits.

    Attributes:
        phrase: its words.
        pattern: how it was made.
        user: whose it is, or empty.
        copies: how often it was planted; 0 for a control.
        length: its tokens.
        log_perplexity: bits; -log2 of its probability.
        per_token: the same for each of its tokens.
        references: phrases that it was compared with.
        whole: whether these are the whole space.
        space_bits: log2 of the size of the space.
        rank: 1 + the others at least as likely.
        exposure: by the rank.
        low: the true exposure is no less, with 95% confidence; with `whole`, the same.
        high: it is no more; of a sample at its ceiling, the bits of the space.
        at_ceiling: no reference is as likely: the exposure is a lower bound.
        fit_exposure: by the skew-normal fit, or None where nothing could be fitted.
        extrapolated: whether the fit was read beyond all references.
        shuffled_log_perplexity: bits; of the same words in another order, or None.
        shuffled_exposure: of that, by its rank.
        shuffled_fit_exposure: of that, by the fit.
        exact_low: proven bound of the exposure in the whole space, or None if not asked for.
        exact_high: the other bound; where the two agree, the exposure itself.
    """

    phrase: str
    pattern: str
    user: str
    copies: int
    length: int
    log_perplexity: float
    per_token: float
    references: int
    whole: bool
    space_bits: float
    rank: int
    exposure: float
    low: float
    high: float
    at_ceiling: bool
    fit_exposure: float | None
    extrapolated: bool | None
    shuffled_log_perplexity: float | None
    shuffled_exposure: float | None
    shuffled_fit_exposure: float | None
    exact_low: float | None = None
    exact_high: float | None = None

    @property
    def planted(self) -> bool:
        return self.copies > 0


@dataclass(frozen=True, kw_only=True)
class Group:
    """Canaries taken together: means in bits, each with its interval where there is one.

    Attributes:
        name: "planted", "controls" or, for example, "5_copies".
        copies: how often each was planted; 0 for controls, None for all planted ones.
        canaries: how many they are.
        at_ceiling: how many are likelier than every reference.
        exposure: mean by rank, or None of no canaries.
        exposure_interval: of that mean; of one canary, its own.
        shuffled: mean of the same words in another order.
        shuffled_interval: of that mean.
        fit: mean by the skew-normal fit.
        fit_interval: of that mean.
    """

    name: str
    copies: int | None
    canaries: int
    at_ceiling: int
    exposure: float | None
    exposure_interval: Interval | None
    shuffled: float | None
    shuffled_interval: Interval | None
    fit: float | None
    fit_interval: Interval | None

    @classmethod
    def of(cls, name: str, copies: int | None, canaries: Sequence[ExposedCanary]) -> "Group":
        """The means of some canaries."""
        exposure, interval = _mean([canary.exposure for canary in canaries])
        shuffled, shuffled_interval = _mean([canary.shuffled_exposure for canary in canaries])
        fit, fit_interval = _mean([canary.fit_exposure for canary in canaries])
        if len(canaries) == 1:
            interval = Interval(canaries[0].low, canaries[0].high)
        return cls(
            name=name,
            copies=copies,
            canaries=len(canaries),
            at_ceiling=sum(canary.at_ceiling for canary in canaries),
            exposure=exposure,
            exposure_interval=interval,
            shuffled=shuffled,
            shuffled_interval=shuffled_interval,
            fit=fit,
            fit_interval=fit_interval,
        )

    def summary(self) -> dict[str, object]:
        """Scalars, each named after the group."""
        found: dict[str, object] = {
            f"canaries_{self.name}": self.canaries,
            f"at_ceiling_{self.name}": self.at_ceiling,
        }
        for measure, mean, interval in (
            ("exposure", self.exposure, self.exposure_interval),
            ("shuffled_exposure", self.shuffled, self.shuffled_interval),
            ("fit_exposure", self.fit, self.fit_interval),
        ):
            low, high = interval or (None, None)
            found |= {f"{measure}_{self.name}": mean}
            found |= {f"{measure}_{self.name}_low": low, f"{measure}_{self.name}_high": high}
        return found


@dataclass(frozen=True, kw_only=True)
class CanaryExposure:
    """How well a model knows what was planted in its training text.

    Attributes:
        canaries: planted ones and controls, in the order given.
        words: different words that references are made of; 0 where they were given as a list.
        fit_distance: how far the worst skew-normal fit is off, in [0, 1]; None without a fit.
        seed: decided the references.
    """

    canaries: tuple[ExposedCanary, ...]
    words: int
    fit_distance: float | None
    seed: int

    @property
    def planted(self) -> Group:
        """All planted canaries."""
        return Group.of("planted", None, [c for c in self.canaries if c.planted])

    @property
    def controls(self) -> Group:
        """Those never planted."""
        return Group.of("controls", 0, [c for c in self.canaries if not c.planted])

    def by_copies(self) -> tuple[Group, ...]:
        """The planted canaries by how often they were planted, rising."""
        numbers = sorted({c.copies for c in self.canaries if c.planted})
        return tuple(
            Group.of(f"{n}_copies", n, [c for c in self.canaries if c.copies == n]) for n in numbers
        )

    @property
    def space(self) -> str:
        """What the canaries were compared with."""
        if not self.words:
            return "candidates"
        return "whole" if all(canary.whole for canary in self.canaries) else "sampled"

    @property
    def ceiling(self) -> float:
        """Bits; the most that the rank of a planted canary could say."""
        return min(log2(canary.references) for canary in self.canaries)

    @property
    def estimate(self) -> str:
        """Which estimate to read: "rank", or "fit" where ranks are lower bounds."""
        return "fit" if self.planted.at_ceiling and self.planted.fit is not None else "rank"

    @property
    def why(self) -> str:
        """Why this estimate and not the other."""
        if self.space != "sampled":
            return "every phrase of the space was scored, so that ranks are exact"
        stuck, number = self.planted.at_ceiling, self.planted.canaries
        if not stuck:
            return (
                f"no planted canary stands at the ceiling of {self.ceiling:.1f} bits, so that "
                "the ranks need no extrapolation"
            )
        beyond = sum((c.fit_exposure or 0.0) > c.space_bits for c in self.canaries if c.planted)
        return (
            f"{stuck} of {number} planted canaries are likelier than every reference: their rank "
            f"says {self.ceiling:.1f} bits or more, and the fit goes on by extrapolation"
            + (
                f", for {beyond} of them past the {self._space_bits:.1f} bits of all phrases"
                if beyond
                else ""
            )
        )

    @property
    def _space_bits(self) -> float:
        return min(canary.space_bits for canary in self.canaries)

    @property
    def order_gain(self) -> tuple[float | None, Interval | None]:
        """Bits that a planted canary has over its own words in another order, and its interval."""
        return _mean(
            [
                canary.exposure - canary.shuffled_exposure
                for canary in self.canaries
                if canary.planted and canary.shuffled_exposure is not None
            ]
        )

    @property
    def chance(self) -> float:
        """How often as many phrases that were never planted would be as exposed by chance.

        A phrase that was never planted is taken to reach what the controls do, or
        `expected_by_chance` where that is more.
        """
        mean = max(self.controls.exposure or 0.0, CHANCE)
        return chance_probability([c.exposure for c in self.canaries if c.planted], mean=mean)

    @property
    def verdict(self) -> str:
        """What the numbers come to, in one sentence."""
        planted, controls = self.planted, self.controls
        means = (
            f"{_bits(planted.exposure, planted.exposure_interval, planted.at_ceiling)} for the "
            f"planted canaries, {_bits(controls.exposure, controls.exposure_interval)} for those "
            "never planted"
        )
        if self.chance > 0.05:
            return f"No memory of the canaries shows: {means}."
        gain, interval = self.order_gain
        others = _bits(planted.shuffled, planted.shuffled_interval)
        if gain is None or interval is None:
            return (
                f"The model remembers the canaries: {means}, {others} for the same words in "
                "another order."
            )
        if interval.low <= 0:
            return (
                f"The model knows the words of the canaries, and that it knows their order does "
                f"not show: {means}, {others} for the same words in another order."
            )
        return (
            f"The model remembers the canaries: {means}; {gain:.1f} bits ({interval.low:.1f} to "
            f"{interval.high:.1f}) are more than the same words reach in another order."
        )

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        gain, interval = self.order_gain
        low, high = interval or (None, None)
        exact = [c for c in self.canaries if c.exact_low is not None]
        found: dict[str, object] = {
            "verdict": self.verdict,
            "space": self.space,
            "space_bits": self._space_bits,
            "words": self.words,
            "references": min(canary.references for canary in self.canaries),
            "ceiling": self.ceiling,
            "estimate": self.estimate,
            "why": self.why,
            "fit_distance": self.fit_distance,
            "expected_by_chance": CHANCE,
            "chance_probability": self.chance,
            "order_gain": gain,
            "order_gain_low": low,
            "order_gain_high": high,
            "exact_asked": len(exact),
            "exact_decided": sum(c.exact_low == c.exact_high for c in exact),
            "exact_exposure_low": _mean([c.exact_low for c in exact])[0],
            "exact_exposure_high": _mean([c.exact_high for c in exact])[0],
        }
        for group in (self.planted, self.controls, *self.by_copies()):
            found |= group.summary()
        return found

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a canary."""
        for number, canary in enumerate(self.canaries):
            yield {"canary_number": number, **asdict(canary)}


def _mean(values: Sequence[float | None]) -> tuple[float | None, Interval | None]:
    known = [value for value in values if value is not None]
    return (fmean(known), mean_interval(known)) if known else (None, None)


def _bits(mean: float | None, interval: Interval | None, stuck: int = 0) -> str:
    if mean is None:
        return "nothing known"
    ends = f" ({interval.low:.1f} to {interval.high:.1f})" if interval else ""
    return f"{mean:.1f} bits{' or more' if stuck else ''}{ends}"
