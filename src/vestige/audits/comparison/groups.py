"""Trainings that differ in their seed alone.

Two trainings with different seeds differ by bits of exposure, so one training says nothing about
the next. The trainings were sampled independently; so were the canaries and the documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vestige.audits.comparison.measurements import COST, Guarantee, MeasuredTraining
from vestige.claims import Check
from vestige.metrics.comparison import rate_of_trainings
from vestige.metrics.estimates import Estimate, Floats
from vestige.training.word_frequencies import is_useless, useless_words


def _column(name: str, *, planted: bool = True) -> "cached_property[Floats]":
    """(k, n) a column of the canaries."""

    def of(group: "Group") -> Floats:
        if any(one.canaries is None for one in group.trainings):
            return np.zeros((0, 0))
        return np.array([one.bits(name, planted=planted) for one in group.trainings], np.float64)

    return cached_property(of)


@dataclass(frozen=True)
class Group:
    """The trainings of one name, at least one, on the same canaries and documents.

    Arrays have a row per training. They are empty (0, 0) if one training was not measured.
    """

    trainings: tuple[MeasuredTraining, ...]

    exposure = _column("exposure")
    """(k, m) bits of each planted canary."""
    never = _column("exposure", planted=False)
    """(k, c) bits of each canary that was never planted."""
    shuffled = _column("shuffled_exposure")
    """(k, m) bits of the words of each planted canary in another order; NaN without one."""
    at_ceiling = _column("at_ceiling")
    """(k, m) 1 where a planted canary is more probable than every reference."""
    copies = _column("copies")
    """(k, m) how often each canary was planted."""

    def __len__(self) -> int:
        return len(self.trainings)

    @property
    def name(self) -> str:
        return self.trainings[0].name

    @property
    def first(self) -> MeasuredTraining:
        return self.trainings[0]

    @cached_property
    def distinct(self) -> int:
        """Number of trainings with different measurements."""
        found: list[MeasuredTraining] = []
        for one in self.trainings:
            if not any(one.same_as(other) for other in found):
                found.append(one)
        return len(found)

    @property
    def ordered(self) -> NDArray[np.bool_]:
        """(m,) whether a planted canary has another order."""
        return ~np.isnan(self.shuffled[0]) if self.shuffled.size else np.zeros(0, bool)

    @property
    def orders(self) -> Floats:
        """(k, o) bits of each planted canary above its words in another order, where it has one."""
        return (self.exposure - self.shuffled)[:, self.ordered]

    @cached_property
    def loss(self) -> Floats:
        """(k, d) summed loss of each test document, in nats."""
        scores = [one.scores.loss for one in self.trainings if one.scores is not None]
        return np.array(scores) if len(scores) == len(self) else np.zeros((0, 0))

    @property
    def tokens(self) -> NDArray[np.int64]:
        """(d,) predicted tokens of each test document."""
        scores = self.trainings[-1].scores
        return np.zeros(0, np.int64) if scores is None else scores.tokens

    @property
    def perplexity(self) -> float | None:
        """exp of the mean loss: the geometric mean over trainings."""
        if not self.loss.size or not (tokens := int(self.tokens.sum())):
            return None
        return float(np.exp(min(self.loss.mean(0).sum() / tokens, 700.0)))

    @property
    def accuracy(self) -> float | None:
        """Mean share of test tokens that were the model's first choice."""
        right = [one.scores.right for one in self.trainings if one.scores is not None]
        if len(right) < len(self) or not (tokens := int(self.tokens.sum())):
            return None
        return float(np.mean([one.sum() / tokens for one in right]))

    @property
    def alive(self) -> Check:
        """The first check that failed; otherwise the first one."""
        made = [one.alive for one in self.trainings if one.alive is not None]
        never = Check("alive", "could not run", f"{self.name} was not tested for prediction.")
        return next((check for check in made if check.state == "failed"), (made or [never])[0])

    @cached_property
    def useless(self) -> str:
        """A warning if the models predict nothing, or no better than word frequencies."""
        if self.alive.state == "failed":
            return self.alive.sentence
        frequencies = _mean([one.frequency_perplexity for one in self.trainings])
        if frequencies is None or not is_useless(self.perplexity, frequencies):
            return ""
        return useless_words(self.perplexity, frequencies, who=self.name)

    @cached_property
    def cost(self) -> dict[str, float | None]:
        """The mean cost of a training."""
        means = {name: _mean([one.cost.get(name) for one in self.trainings]) for name in COST}
        whole = ("steps", "tokens")
        return {n: round(v) if v is not None and n in whole else v for n, v in means.items()}

    @property
    def guarantee(self) -> Guarantee | None:
        """The weakest claim; None if a training claims nothing."""
        claims = [one.guarantee for one in self.trainings if one.guarantee is not None]
        return max(claims, key=lambda one: one.epsilon) if len(claims) == len(self) else None

    def completed(self, kind: str = "canary", copies: int | None = None) -> Estimate | None:
        """The share of canaries that all trainings together completed.

        Args:
            kind: "canary", "control" or "shuffled".
            copies: of canaries planted so often; None: all.
        """
        made = [one.completion for one in self.trainings if one.completion is not None]
        found = [one.rate(kind) if copies is None else one.by_copies().get(copies) for one in made]
        known = [one for one in found if one is not None]
        if len(known) < len(self):
            return None
        return rate_of_trainings([one.count for one in known], [one.n for one in known])


def by_name(measured: Sequence[MeasuredTraining]) -> tuple[Group, ...]:
    """Groups in the order of their first trainings."""
    names = dict.fromkeys(one.name for one in measured)
    return tuple(Group(tuple(one for one in measured if one.name == name)) for name in names)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
