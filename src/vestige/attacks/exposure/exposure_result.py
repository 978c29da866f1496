"""Exposure of canaries by number of copies, with tests and a verdict.

The claim tests planted canaries against controls, which takes a model that predicts, canaries that
it can read, and enough of both: "no leak shown" excludes a difference of `claims.effects`.

The intervals of medians speak of canaries, as if each were drawn anew, and of one trained model:
they do not say how another training would come out.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite, log2
from statistics import fmean

from vestige import claims
from vestige.attacks.exposure import exposure_tests
from vestige.attacks.exposure.exposed_canary import ExposedCanary, Group, Median
from vestige.attacks.exposure.exposure_tests import Evidence
from vestige.claims import Check, Claim
from vestige.claims.effects import EXPOSURE_BITS
from vestige.data.canary import SAMPLED
from vestige.measured import Measurement
from vestige.metrics.exposure import CHANCE


@dataclass(frozen=True, kw_only=True)
class CanaryExposure(Measurement):
    """Exposure of the canaries of a manifest under one model.

    Attributes:
        canaries: planted ones and controls, in the order given.
        words: different words that references are made of; 0 where they were given as a list, or
            are the controls.
        fit_distance: how far the worst skew-normal fit is off, in [0, 1]; None without a fit.
        seed: decided the references and the orders.
        checks: of the model and of what it could read, made by a workflow; a verdict takes them.
    """

    canaries: tuple[ExposedCanary, ...]
    words: int
    fit_distance: float | None
    seed: int
    checks: tuple[Check, ...] = ()

    @property
    def planted(self) -> Group:
        """All planted canaries."""
        return Group.of("planted", None, [c for c in self.canaries if c.planted])

    @property
    def controls(self) -> Group:
        """The controls, which were never planted."""
        return Group.of("controls", 0, [c for c in self.canaries if not c.planted])

    def by_copies(self) -> tuple[Group, ...]:
        """The planted canaries by how often they were planted, rising."""
        numbers = sorted({c.copies for c in self.canaries if c.planted})
        return tuple(
            Group.of(f"{n}_copies", n, [c for c in self.canaries if c.copies == n]) for n in numbers
        )

    @property
    def space(self) -> str:
        """The kind of references: "candidates", "controls", "whole" or "sampled"."""
        if not self.words:
            return "candidates" if all(canary.whole for canary in self.canaries) else "controls"
        return "whole" if all(canary.whole for canary in self.canaries) else "sampled"

    @property
    def ceiling(self) -> float:
        """Bits; the most that the rank of a planted canary could say."""
        return min(log2(canary.references) for canary in self.canaries)

    @property
    def resolution(self) -> str:
        """The resolution of the ranks, and what would raise it, in a sentence."""
        if self.space not in ("sampled", "controls"):
            return "Every phrase of the space was scored, so that ranks are exact."
        planted, references = self.planted, min(canary.references for canary in self.canaries)
        if not planted.at_ceiling:
            return (
                f"No planted canary stands at the ceiling of {self.ceiling:.1f} bits: the ranks "
                "resolve them all."
            )
        more = "More references raise it, and exact ranks count where they can."
        if self.space == "controls":
            more = "More canaries raise it: their controls are the references."
        return (
            f"{planted.at_ceiling} of {planted.canaries} planted canaries are likelier than all "
            f"{references:,} references: what is known of them is a bound (≥), with 97.5 % "
            f"confidence. {more}"
        )

    @cached_property
    def memory(self) -> Evidence:
        """Test of the planted canaries against what was never planted."""
        return exposure_tests.memory(self.canaries)

    @cached_property
    def order(self) -> Evidence | None:
        """Test of the planted canaries against other orders of their words.

        None before memory is shown, or where no order was drawn at random.
        """
        return exposure_tests.order(self.canaries) if self.test.significant else None

    @property
    def test(self) -> claims.Test:
        """The test of memory, on which the verdict rests."""
        found = self.memory
        return claims.Test(found.p, found.least, exposure_tests.LEVEL, _AMONG[found.against])

    @property
    def claim(self) -> Claim:
        """The verdict, with its test and checks.

        Raises:
            ValueError: no workflow has made the checks of the model.
        """
        bits = [
            [canary.exposure for canary in self.canaries if canary.planted is planted]
            for planted in (True, False)
        ]
        powerful = claims.powerful(
            self.test,
            # two questions share the level (`metrics.permutation`)
            detectable=claims.detectable_difference(*bits, alpha=exposure_tests.LEVEL / 2),
            wanted=EXPOSURE_BITS,
            effect="an exposure {} bits above that of the controls",
        )
        checks = (*self.checks, powerful)
        return Claim("exposure", self.test, checks, _estimate(self.planted.exposure))

    @property
    def verdict(self) -> claims.Verdict:
        """What the test and the checks allow to say."""
        return self.claim.verdict

    @property
    def sentence(self) -> str:
        """The number, what it means, and what it does not mean, in sentences."""
        planted, known = self.planted, self.memory
        means = (
            f"{_bits(planted.exposure)} for the planted canaries, {_bits(self.controls.exposure)} "
            f"for those never planted (medians; {_p(known)})"
        )
        means = means[:1].upper() + means[1:]
        verdict = self.verdict
        if verdict == claims.UNDECIDED:
            few = "" if self.test.possible else (
                f" {_canaries(planted.canaries)[:1].upper()}{_canaries(planted.canaries)[1:]} "
                f"can be told from {exposure_tests.controls_needed(planted.canaries)} controls or "
                f"more, and there are {self.controls.canaries}: plant more."
            )  # fmt: skip
            return f"{means}.{few}"
        if verdict == claims.NO_LEAK:
            return f"{means}: no memory of the canaries shows; weaker memory would not have."
        patterns = {c.pattern for c in self.canaries if c.planted}
        if patterns == {SAMPLED}:
            return f"{means}: the model remembers the canaries. {NOT_SAID}"
        drawn = patterns <= {*exposure_tests.DRAWN, SAMPLED}
        return f"{means}: {_order(planted, self.order)}{'' if drawn else NOT_DRAWN}"

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {**self.claim.summary(), "sentence": self.sentence, **self.figures()}

    def figures(self) -> dict[str, object]:
        """The summary without the verdict: scalars that need no checks."""
        exact = [c for c in self.canaries if c.exact_low is not None]
        low, high = ([getattr(c, name) for c in exact] for name in ("exact_low", "exact_high"))
        found: dict[str, object] = {
            "resolution": self.resolution,
            "space": self.space,
            "space_bits": min(canary.space_bits for canary in self.canaries),
            "words": self.words,
            "references": min(canary.references for canary in self.canaries),
            "ceiling": self.ceiling,
            "fit_distance": self.fit_distance,
            "expected_by_chance": CHANCE,
            "order_probability": self.order.p if self.order else None,
            "least_order_probability": self.order.least if self.order else None,
            "exact_asked": len(exact),
            "exact_decided": sum(c.exact_low == c.exact_high for c in exact),
            "exact_exposure_low": fmean(low) if exact else None,
            "exact_exposure_high": fmean(high) if exact else None,
        }
        for group in (self.planted, self.controls, *self.by_copies()):
            found |= group.summary()
        return found

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a canary."""
        for number, canary in enumerate(self.canaries):
            yield {"canary_number": number, **asdict(canary)}


_AMONG = {
    "controls": "against the controls, which were made alike and never planted",
    "sampled controls": "against the controls, which the same model wrote",
    "orders": "among the orders of their own words",
    "controls' orders": "against how the orders of the controls' words rank",
}

NOT_DRAWN = (
    " Their words were not drawn as the references' were: a model that never read them may prefer "
    "them, too, and is what to compare with."
)

NOT_SAID = "Whether it generates them is another question: `vestige extract` tries that."


def written(middle: Median | None, digits: int = 2) -> str:
    """A median as a cell of a table: with ≥ where it is a bound, "" where there is none."""
    return "" if middle is None else f"{'≥ ' if middle.bound else ''}{middle.value:.{digits}f}"


def _order(planted: Group, order: Evidence | None) -> str:
    words = "the model knows the words of the canaries"
    if order is None:
        return (
            f"{words}. Whether it knows their order cannot be asked: it was given, or there is no "
            "other."
        )
    if not order.possible:
        return (
            f"{words}. Whether it knows their order {_canaries(planted.canaries)} cannot tell: "
            f"{_AMONG[order.against]} the least p-value is {order.least:.2g}. Plant "
            f"{'more or longer ones' if order.against == 'orders' else 'more, with more controls'}."
        )
    if not order.shown:
        return (
            f"{words}. That it knows their order is not shown ({_p(order)}), nor that it does not."
        )
    return f"the model remembers the canaries, and their order ({_p(order)}). {NOT_SAID}"


def _estimate(middle: Median | None) -> claims.Estimate | None:
    if middle is None:
        return None
    low, high = (
        None if end is None or not isfinite(end) else end for end in middle.interval or (None, None)
    )
    return claims.Estimate(
        "median exposure of planted canaries", middle.value, low=low, high=high, unit="bits"
    )


def _bits(middle: Median | None) -> str:
    if middle is None:
        return "nothing known"
    ends = middle.interval
    inside = "" if ends is None or middle.bound else f" ({ends.low:.1f} to {ends.high:.1f})"
    return f"{written(middle, 1)} bits{inside}".replace("inf", "more")


def _p(found: Evidence) -> str:
    p = f"{found.p:.2g}" if found.p >= 1e-3 else f"{found.p:.0e}"
    return f"p = {p} {_AMONG[found.against]}"


def _canaries(number: int) -> str:
    return "1 canary" if number == 1 else f"{number} canaries"
