"""Exact tests of memory of canaries, and of memory of their order.

A canary drawn at random could have been any of its references: its rank among them is an exact
p-value. Where controls, which were made alike and never planted, stand out among the references
themselves, references say nothing, and the planted are compared with the controls, as two samples.
A model that knows the words only ranks a canary anywhere among the orders of its own words, where
that was drawn at random (`DRAWN`). Phrases made to a pattern have an order that a model may prefer
unread: how high theirs ranks is compared with their controls', made to the same pattern. Given
phrases have no such test, and neither have texts sampled from a language model, which are compared
with their controls, as two samples, since coins alone tell the two apart.

The second question is asked only after the first has been answered with yes, so that "memory of
the order" is said wrongly no more often than either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vestige.attacks.exposure.exposed_canary import ExposedCanary
from vestige.data.canaries import PATTERNS
from vestige.data.canary import COIN_FLIP, SAMPLED
from vestige.metrics.exact_tests import least_together, standing_out, together
from vestige.metrics.permutation import permutation_test

LEVEL = 0.05
"""What is shown is shown at this level."""

LEAN = 0.1
"""Controls whose p-value is this small are no longer taken for references."""

DRAWN = ("random", COIN_FLIP)
"""Patterns whose words stand in an order drawn at random."""

ORDERED = (*DRAWN, *PATTERNS)
"""Patterns whose order can be asked about."""

_RULED_OUT = 1e300

Against = Literal["references", "controls", "sampled controls", "orders", "controls' orders"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One question put to all planted canaries.

    Attributes:
        against: what the canaries are compared with.
        p: how often canaries of which it is not true would look as much like it.
        least: the least p that so many of them could have reached.
        alone: canaries that show it by themselves among the references (Holm).
    """

    against: Against
    p: float
    least: float
    alone: int = 0

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
        return _among_sampled(planted, controls)
    if _among_references(controls).p > LEAN:
        return _among_references(planted)
    # low is what the test looks for
    bits, never = ([-c.exposure for c in some] for some in (planted, controls))
    found = permutation_test([(bits, never)])
    return Evidence(against="controls", p=found.p_value, least=found.least)


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
    return Evidence(against="controls' orders", p=found.p_value, least=found.least)


def _among_sampled(planted: Sequence[ExposedCanary], controls: Sequence[ExposedCanary]) -> Evidence:
    """By log-perplexities; a text that the model rules out stands behind all others."""
    own, never = (
        np.nan_to_num([c.log_perplexity for c in some], posinf=_RULED_OUT)
        for some in (planted, controls)
    )
    found = permutation_test([(own, never)])
    alone = standing_out([c.p_value for c in planted], LEVEL / 2)
    return Evidence(
        against="sampled controls", p=found.p_value, least=found.least, alone=int(alone.sum())
    )


def _among_references(canaries: Sequence[ExposedCanary]) -> Evidence:
    p_values, places = [c.p_value for c in canaries], [c.places for c in canaries]
    shared = None if all(c.whole for c in canaries) else min(c.references for c in canaries)
    return Evidence(
        against="references",
        p=together(p_values, places, shared=shared),
        least=least_together(places, shared=shared),
        alone=int(standing_out(p_values, LEVEL / 2).sum()),
    )
