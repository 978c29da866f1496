"""Trainings of one defence that differ only in their seed.

Trainings with different seeds differ by bits of exposure, so one training does not predict the
next. The trainings were sampled independently, and so were the canaries and the documents.
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

    def values(group: "SeedGroup") -> Floats:
        if any(training.canaries is None for training in group.trainings):
            return np.zeros((0, 0))
        rows = [training.bits(name, planted=planted) for training in group.trainings]
        return np.array(rows, np.float64)

    return cached_property(values)


@dataclass(frozen=True)
class SeedGroup:
    """The trainings of one name, at least one, on the same canaries and documents.

    Arrays have a row per training. They are empty (0, 0) if one training was not measured.
    """

    trainings: tuple[MeasuredTraining, ...]

    exposure = _column("exposure")
    """(k, m) bits of each planted canary."""
    never_planted = _column("exposure", planted=False)
    """(k, c) bits of each canary that was never planted."""
    shuffled = _column("shuffled_exposure")
    """(k, m) bits of each planted canary's words in another order; NaN without one."""
    at_ceiling = _column("at_ceiling")
    """(k, m) 1 for a planted canary that is more probable than every reference."""
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
        different: list[MeasuredTraining] = []
        for training in self.trainings:
            if not any(training.same_as(other) for other in different):
                different.append(training)
        return len(different)

    @property
    def has_shuffled(self) -> NDArray[np.bool_]:
        """(m,) whether a planted canary has another order of its words."""
        return ~np.isnan(self.shuffled[0]) if self.shuffled.size else np.zeros(0, bool)

    @property
    def exposure_over_shuffled(self) -> Floats:
        """(k, o) bits of planted canaries minus those of their words in another order."""
        return (self.exposure - self.shuffled)[:, self.has_shuffled]

    @cached_property
    def loss(self) -> Floats:
        """(k, d) summed loss of each test document, in nats."""
        losses = [training.scores.loss for training in self.trainings if training.scores]
        return np.array(losses) if len(losses) == len(self) else np.zeros((0, 0))

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
        right = [training.scores.right for training in self.trainings if training.scores]
        if len(right) < len(self) or not (tokens := int(self.tokens.sum())):
            return None
        return float(np.mean([counts.sum() / tokens for counts in right]))

    @property
    def alive(self) -> Check:
        """The first check that failed; otherwise the first one."""
        checks = [training.alive for training in self.trainings if training.alive is not None]
        if not checks:
            return Check("alive", "could not run", f"{self.name} was not tested for prediction.")
        return next((check for check in checks if check.state == "failed"), checks[0])

    @cached_property
    def useless(self) -> str:
        """A warning if the models predict nothing, or no better than word frequencies."""
        if self.alive.state == "failed":
            return self.alive.sentence
        frequencies = _mean([training.frequency_perplexity for training in self.trainings])
        if frequencies is None or not is_useless(self.perplexity, frequencies):
            return ""
        return useless_words(self.perplexity, frequencies, who=self.name)

    @cached_property
    def cost(self) -> dict[str, float | None]:
        """The mean cost of a training."""
        means = {name: _mean([t.cost.get(name) for t in self.trainings]) for name in COST}
        for name in ("steps", "tokens"):
            value = means[name]
            means[name] = None if value is None else round(value)
        return means

    @property
    def guarantee(self) -> Guarantee | None:
        """The weakest claim; None if a training claims nothing."""
        claims = [training.guarantee for training in self.trainings if training.guarantee]
        if len(claims) < len(self):
            return None
        return max(claims, key=lambda claim: claim.epsilon)

    def completed(self, kind: str = "canary", copies: int | None = None) -> Estimate | None:
        """The share of canaries that all trainings together completed.

        Args:
            kind: "canary", "control" or "shuffled".
            copies: only canaries with this number of copies; None: all.
        """
        completions = [t.completion for t in self.trainings if t.completion is not None]
        rates = [
            completion.rate(kind) if copies is None else completion.by_copies().get(copies)
            for completion in completions
        ]
        known = [rate for rate in rates if rate is not None]
        if len(known) < len(self):
            return None
        return rate_of_trainings([rate.count for rate in known], [rate.n for rate in known])


def by_name(measured: Sequence[MeasuredTraining]) -> tuple[SeedGroup, ...]:
    """Groups in the order of their first trainings."""
    groups: dict[str, list[MeasuredTraining]] = {}
    for training in measured:
        groups.setdefault(training.name, []).append(training)
    return tuple(SeedGroup(tuple(trainings)) for trainings in groups.values())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
