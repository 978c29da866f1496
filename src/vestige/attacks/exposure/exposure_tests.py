"""Exact tests of memory of canaries, and of memory of their order.

Controls were made as the planted canaries were, and never planted: a model that remembers nothing
ranks the two alike, even where it prefers the words of both to those of other phrases. So the two
are always compared, as two samples. References say how exposed a canary is, and decide nothing: a
test on the controls whether they can be trusted passes most often where there are few controls,
and then takes liked words for memory. What so few controls can show is the test's least p-value:
of 20 canaries against one control 0.1, of one canary against 19 controls 0.05.

A model that knows the words only ranks a canary anywhere among the orders of its own words, where
that was drawn at random (`DRAWN`). Phrases made to a pattern have an order that a model may prefer
unread: how high theirs ranks is compared with their controls', made to the same pattern. Given
phrases have no such test, and neither have texts sampled from a language model, since coins alone
tell them from their controls.

The second question is asked only after the first has been answered with yes, so that "memory of
the order" is said wrongly no more often than either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import comb
from typing import Literal

import numpy as np

from vestige.attacks.exposure.exposed_canary import ExposedCanary
from vestige.data.canaries import PATTERNS
from vestige.data.canary import COIN_FLIP, SAMPLED
from vestige.metrics.permutation import permutation_test
from vestige.metrics.tests import least_together, together

LEVEL = 0.05
"""Of each test."""

DRAWN = ("random", COIN_FLIP)
"""Patterns whose words stand in an order drawn at random."""

ORDERED = (*DRAWN, *PATTERNS)
"""Patterns whose order can be asked about."""

_RULED_OUT = 1e300

Against = Literal["controls", "sampled controls", "orders", "controls' orders"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One question put to all planted canaries.

    Attributes:
        against: what the canaries are compared with.
        p: how often canaries of which it is not true would look as much like it.
        least: the least p that so many of them could have reached.
    """

    against: Against
    p: float
    least: float

    @property
    def shown(self) -> bool:
        return self.p <= LEVEL

    @property
    def possible(self) -> bool:
        """Whether the test could have shown it at all."""
        return self.least <= LEVEL


def memory(canaries: Sequence[ExposedCanary]) -> Evidence:
    """Test whether planted canaries are likelier than what was never planted."""
    planted, controls = ([c for c in canaries if c.planted is kind] for kind in (True, False))
    if all(c.pattern == SAMPLED for c in canaries):
        # a text that the model rules out stands behind all others
        own, never = (
            np.nan_to_num([c.log_perplexity for c in some], posinf=_RULED_OUT).tolist()
            for some in (planted, controls)
        )
        against: Against = "sampled controls"
    else:  # low is what the test looks for
        own, never = ([-c.exposure for c in some] for some in (planted, controls))
        against = "controls"
    found = permutation_test([(own, never)])
    return Evidence(against=against, p=found.p, least=found.least)


def controls_needed(planted: int) -> int:
    """The fewest controls beside which so many canaries can be significant.

    Example:
        >>> controls_needed(1), controls_needed(4), controls_needed(20)
        (19, 4, 2)
    """
    times = 1 if planted == 1 else 2  # as `permutation_test` has it
    return next(n for n in count(1) if times / comb(planted + n, n) <= LEVEL)


def order(canaries: Sequence[ExposedCanary]) -> Evidence | None:
    """Test whether planted canaries are likelier than their own words in other orders.

    None where no planted canary has an order that was drawn, or made as a control's was.
    """
    known = [c for c in canaries if c.orders > 1]
    drawn = [c for c in known if c.planted and c.pattern in DRAWN]
    if drawn:
        p_values, places = [c.order_p_value for c in drawn], [c.orders for c in drawn]
        return Evidence(
            against="orders",
            p=together(p_values, places),
            least=least_together(places),
        )
    strata = []
    for pattern in PATTERNS:
        own, others = (
            [c.order_p_value for c in known if c.pattern == pattern and c.planted is planted]
            for planted in (True, False)
        )
        if own and others:
            strata.append((own, others))
    if not strata:
        return None
    found = permutation_test(strata)
    return Evidence(against="controls' orders", p=found.p, least=found.least)
