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
from vestige.metrics.exposure import CHANCE
from vestige.results import Measurement


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
            return "Ranks are exact: every phrase of the space was scored."
        planted, references = self.planted, min(canary.references for canary in self.canaries)
        if not planted.at_ceiling:
            return f"All ranks are below the ceiling of {self.ceiling:.1f} bits."
        more = "Pass more --references, or --exact."
        if self.space == "controls":
            more = "Plant more canaries: their controls are the references."
        return (
            f"{planted.at_ceiling} of {planted.canaries} planted canaries are more probable than "
            f"all {references:,} references, so their exposure is a lower bound (≥, 97.5% "
            f"confidence). {more}"
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
            effect="an exposure of {} bits above controls",
        )
        checks = (*self.checks, powerful)
        return Claim("exposure", self.test, checks, _estimate(self.planted.exposure))

    @property
    def verdict(self) -> claims.Verdict:
        """What the test and the checks allow to say."""
        return self.claim.verdict

    @property
    def sentence(self) -> str:
        """What the verdict says of the canaries; the numbers are in the claim."""
        number, verdict = self.planted.canaries, self.verdict
        if verdict == claims.UNDECIDED and not self.test.possible:
            return (
                f"{_canaries(number)} can be tested with {exposure_tests.controls_needed(number)} "
                f"controls or more; there are {self.controls.canaries}. Plant more."
            )
        if verdict == claims.UNDECIDED:
            return "A check of the audit did not pass."
        if verdict == claims.NO_LEAK:
            return "Planted canaries are not more exposed than controls."
        patterns = {c.pattern for c in self.canaries if c.planted}
        if patterns == {SAMPLED}:
            return "The model remembers the canaries."
        drawn = patterns <= {*exposure_tests.DRAWN, SAMPLED}
        return f"{_order(number, self.order)}{'' if drawn else NOT_DRAWN}"

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
    "controls": "unplanted controls",
    "sampled controls": "unplanted controls of the same model",
    "orders": "other orders of their words",
    "controls' orders": "the word orders of controls",
}

NOT_DRAWN = (
    " Their words were not sampled like those of the references: compare with a model that never "
    "read them."
)


def _order(planted: int, order: Evidence | None) -> str:
    words = "The model knows the words of the canaries"
    if order is None:
        return f"{words}. Their order cannot be tested."
    if not order.possible:
        more = "more or longer canaries" if order.against == "orders" else "more canaries"
        return (
            f"{words}. Their order cannot be tested with {_canaries(planted)}: the least p-value "
            f"is {order.least:.2g}. Plant {more}."
        )
    if not order.shown:
        return f"{words}. It is not shown to know their order ({_p(order)})."
    return f"The model remembers the canaries and the order of their words ({_p(order)})."


def _estimate(middle: Median | None) -> claims.Estimate | None:
    if middle is None:
        return None
    low, high = (
        None if end is None or not isfinite(end) else end for end in middle.interval or (None, None)
    )
    name = "median exposure of planted canaries" + (" (lower bound)" if middle.bound else "")
    return claims.Estimate(name, middle.value, low=low, high=high, unit="bits")


def _p(found: Evidence) -> str:
    p = f"{found.p:.2g}" if found.p >= 1e-3 else f"{found.p:.0e}"
    return f"p = {p} compared with {_AMONG[found.against]}"


def _canaries(number: int) -> str:
    return "1 canary" if number == 1 else f"{number} canaries"
