"""What was found of each canary, and what does it come to by number of copies?

The intervals of medians speak of canaries, as if each were drawn anew, and of one trained model:
they do not say how another training would come out.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from math import log2
from statistics import fmean

from vestige.attacks.exposure import exposure_tests
from vestige.attacks.exposure.exposed_canary import ExposedCanary, Group
from vestige.attacks.exposure.exposure_tests import Evidence
from vestige.attacks.exposure.exposure_words import resolution, verdict
from vestige.metrics.exposure import CHANCE
from vestige.result import Result


@dataclass(frozen=True, kw_only=True)
class CanaryExposure(Result):
    """How well a model knows what was planted in its training text.

    Attributes:
        canaries: planted ones and controls, in the order given.
        words: different words that references are made of; 0 where they were given as a list.
        fit_distance: how far the worst skew-normal fit is off, in [0, 1]; None without a fit.
        seed: decided the references and the orders.
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
    def resolution(self) -> str:
        """What the ranks resolve, in a sentence."""
        references = min(canary.references for canary in self.canaries)
        return resolution(self.planted, self.space, self.ceiling, references)

    @cached_property
    def memory(self) -> Evidence:
        """Whether the planted canaries are likelier than what was never planted."""
        return exposure_tests.memory(self.canaries)

    @cached_property
    def order(self) -> Evidence | None:
        """Whether they are likelier than their words in other orders, once memory is shown.

        None before that, or where no order was drawn at random.
        """
        return exposure_tests.order(self.canaries) if self.memory.shown else None

    @property
    def verdict(self) -> str:
        """What the numbers come to, and what they do not say."""
        drawn = all(c.pattern in exposure_tests.DRAWN for c in self.canaries if c.planted)
        return verdict(self.planted, self.controls, self.memory, self.order, drawn=drawn)

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        exact = [c for c in self.canaries if c.exact_low is not None]
        low, high = ([getattr(c, name) for c in exact] for name in ("exact_low", "exact_high"))
        found: dict[str, object] = {
            "verdict": self.verdict,
            "resolution": self.resolution,
            "space": self.space,
            "space_bits": min(canary.space_bits for canary in self.canaries),
            "words": self.words,
            "references": min(canary.references for canary in self.canaries),
            "ceiling": self.ceiling,
            "fit_distance": self.fit_distance,
            "expected_by_chance": CHANCE,
            "compared_with": self.memory.against,
            "chance_probability": self.memory.p,
            "least_probability": self.memory.least,
            "alone": self.memory.alone,
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
