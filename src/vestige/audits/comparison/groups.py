"""Trainings, and groups of them that differ in their seed alone.

Two trainings with different seeds differ by bits of exposure, so one training says nothing about
the next. The trainings were sampled independently; so were the canaries and the documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.audits.comparison.guarantee import Guarantee
from vestige.audits.exposure.epsilon import CanaryAudit
from vestige.audits.extraction.canaries import Completion
from vestige.claims import Check
from vestige.metrics.comparison import rate_of_trainings
from vestige.metrics.estimates import Estimate
from vestige.training.evaluate import DocumentScores
from vestige.training.word_frequencies import is_useless, useless_words

Floats = NDArray[np.float64]
Row = Mapping[str, Any]

COST = {
    "steps": "steps",
    "tokens": "tokens",
    "epochs": "epoch",
    "seconds": "seconds",
    "peak_memory_mib": "peak_memory_mib",
}
"""The cost of a training, and its name in the training's summary. Seconds depend on the load of the
machine, so no trainings are compared by them."""


@dataclass(frozen=True, kw_only=True)
class MeasuredTraining:
    """A training and its measurements; None for what was not measured.

    Attributes:
        name: trainings of one name differ in their seed alone.
        defence: such as "goldfish"; "none" without one.
        canaries: a row per canary with phrase, copies (0: never planted), exposure in bits,
            shuffled_exposure (of its words in another order, or None) and at_ceiling (whether it is
            more probable than every reference).
        scores: of each test document.
        completion: of the canaries.
        audit: lower bounds on epsilon, from canaries of fair coins.
        guarantee: claimed by the training.
        cost: by the names of `COST`.
        frequency_perplexity: of the test text, by the word frequencies of the training text.
        alive: the check that the model predicts text.
    """

    name: str
    defence: str = "none"
    canaries: tuple[Row, ...] | None = None
    scores: DocumentScores | None = None
    completion: Completion | None = None
    audit: CanaryAudit | None = None
    guarantee: Guarantee | None = None
    cost: Mapping[str, float | None] = field(default_factory=dict)
    frequency_perplexity: float | None = None
    alive: Check | None = None

    @property
    def phrases(self) -> tuple[str, ...] | None:
        """The planted canaries."""
        if self.canaries is None:
            return None
        return tuple(row["phrase"] for row in self.canaries if row["copies"])

    def bits(self, name: str, *, planted: bool) -> list[Any]:
        """A column of the planted canaries, or of those never planted."""
        return [row[name] for row in self.canaries or () if bool(row["copies"]) is planted]

    def same_as(self, other: "MeasuredTraining") -> bool:
        """Whether both have the same losses and exposures, up to rounding."""
        pairs: list[tuple[ArrayLike, ArrayLike]] = []
        if self.scores is not None and other.scores is not None:
            pairs.append((self.scores.loss, other.scores.loss))
        if self.canaries is not None and other.canaries is not None:
            pairs += [
                (self.bits("exposure", planted=kind), other.bits("exposure", planted=kind))
                for kind in (True, False)
            ]
        return bool(pairs) and all(
            np.allclose(own, rest, rtol=1e-6, atol=1e-6, equal_nan=True) for own, rest in pairs
        )


@dataclass(frozen=True)
class Group:
    """The trainings of one name, at least one, on the same canaries and documents.

    Arrays have a row per training. They are empty (0, 0) if one training was not measured.
    """

    trainings: tuple[MeasuredTraining, ...]

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
    def has_canaries(self) -> bool:
        return all(one.canaries is not None for one in self.trainings)

    @cached_property
    def exposure(self) -> Floats:
        """(k, m) bits of each planted canary."""
        return self._canaries("exposure")

    @cached_property
    def never(self) -> Floats:
        """(k, c) bits of each canary that was never planted."""
        return self._canaries("exposure", planted=False)

    @cached_property
    def shuffled(self) -> Floats:
        """(k, o) bits of the words in another order, for the planted canaries that have one."""
        return np.ascontiguousarray(self._canaries("shuffled_exposure")[:, self.ordered])

    @cached_property
    def orders(self) -> Floats:
        """(k, o) bits of each planted canary above its words in another order."""
        return self.exposure[:, self.ordered] - self.shuffled

    @cached_property
    def ordered(self) -> NDArray[np.bool_]:
        """(m,) whether a planted canary has another order."""
        known = self.first.bits("shuffled_exposure", planted=True) if self.has_canaries else []
        return np.array([value is not None for value in known], bool)

    @cached_property
    def at_ceiling(self) -> NDArray[np.bool_]:
        """(k, m) whether a planted canary is more probable than every reference."""
        return self._canaries("at_ceiling").astype(bool)

    @cached_property
    def copies(self) -> NDArray[np.int64]:
        """(m,) how often each canary was planted."""
        return np.array(self.first.bits("copies", planted=True) if self.has_canaries else [], int)

    @cached_property
    def loss(self) -> Floats:
        """(k, d) summed loss of each test document, in nats."""
        scores = [one.scores.loss for one in self.trainings if one.scores is not None]
        return _table(scores if len(scores) == len(self) else [])

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
        scores = [one.scores for one in self.trainings if one.scores is not None]
        if len(scores) < len(self) or not (tokens := int(self.tokens.sum())):
            return None
        return float(np.mean([one.right.sum() / tokens for one in scores]))

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
        for name in ("steps", "tokens"):
            value = means[name]
            means[name] = None if value is None else round(value)
        return means

    @property
    def guarantee(self) -> Guarantee | None:
        """The weakest claim; None if a training claims nothing."""
        claims = [one.guarantee for one in self.trainings if one.guarantee is not None]
        return max(claims, key=lambda c: c.epsilon) if len(claims) == len(self) else None

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

    def _canaries(self, name: str, *, planted: bool = True) -> Floats:
        if not self.has_canaries:
            return _table([])
        return _table([one.bits(name, planted=planted) for one in self.trainings])


def by_name(measured: Sequence[MeasuredTraining]) -> tuple[Group, ...]:
    """Groups in the order of their first trainings."""
    groups: dict[str, list[MeasuredTraining]] = {}
    for one in measured:
        groups.setdefault(one.name, []).append(one)
    return tuple(Group(tuple(group)) for group in groups.values())


def _table(rows: Sequence[object]) -> Floats:
    return np.array(rows, dtype=np.float64) if rows else np.zeros((0, 0))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
