"""Repeated trainings, alike but for their seeds: leakage and utility together.

One training says nothing of the next: two that differ in their seed alone differ by bits of
exposure. What was drawn independently is the training, and canaries and documents beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.audits.comparison.measured import CanaryBits, Guarantee, MeasuredTraining, TrainingCost
from vestige.audits.exposure.epsilon import CanaryAudit
from vestige.claims import Check
from vestige.metrics.estimates import Estimate
from vestige.metrics.rates import rate_of_trainings
from vestige.training.word_frequencies import is_useless, useless_words

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Repeated:
    """The trainings of one name, at least one.

    Attributes:
        trainings: in the order given; all were asked the same.
    """

    trainings: tuple[MeasuredTraining, ...]

    def __len__(self) -> int:
        return len(self.trainings)

    @property
    def name(self) -> str:
        return self.trainings[0].name

    @property
    def defence(self) -> str:
        return self.trainings[0].defence

    @property
    def bits(self) -> tuple[CanaryBits, ...]:
        """Of each training; empty where it was not measured of all."""
        found = tuple(one.bits for one in self.trainings if one.bits is not None)
        return found if len(found) == len(self) else ()

    @property
    def exposure(self) -> Floats:
        """(k, m) bits of each canary under each training; (0, 0) where not measured."""
        return _table([bits.exposure for bits in self.bits])

    @property
    def never(self) -> Floats:
        """(k, c) the same of what was never planted."""
        return _table([bits.never for bits in self.bits])

    @property
    def orders(self) -> Floats:
        """(k, o) what each canary has more than its words in another order, where there is one."""
        return _table([tuple(bits.orders().values()) for bits in self.bits])

    @property
    def shuffled(self) -> Floats:
        """(k, o) bits of the words in another order."""
        return _table([tuple(v for v in b.shuffled if v is not None) for b in self.bits])

    @property
    def at_ceiling(self) -> NDArray[np.bool_]:
        """(m,) canaries that are likelier than every reference under every training."""
        stuck = [all(one) for one in zip(*(bits.stuck() for bits in self.bits), strict=True)]
        return np.array(stuck, dtype=bool)

    @property
    def loss(self) -> Floats:
        """(k, d) summed loss of each test document, in nats; (0, 0) where not measured."""
        scores = [one.scores for one in self.trainings]
        if any(one is None for one in scores):
            return _table([])
        return _table([one.loss for one in scores if one is not None])

    @property
    def tokens(self) -> NDArray[np.int64]:
        """(d,) predicted tokens of each test document."""
        [*_, scores] = [one.scores for one in self.trainings]
        return np.zeros(0, np.int64) if scores is None else scores.tokens

    @property
    def perplexity(self) -> float | None:
        """Geometric mean over the trainings, which is exp of the mean loss."""
        if not self.loss.size or not (tokens := int(self.tokens.sum())):
            return None
        return float(np.exp(min(self.loss.mean(0).sum() / tokens, 700.0)))

    @property
    def alive(self) -> Check:
        """The first check that failed; else the first that was made."""
        made = [one.alive for one in self.trainings if one.alive is not None]
        never = Check("alive", "could not run", f"{self.name} was not tested for prediction.")
        return next((check for check in made if check.state == "failed"), (made or [never])[0])

    @property
    def useless(self) -> str:
        """A warning where they predict no better than word frequencies, or nothing; else empty."""
        if self.alive.state == "failed":
            return self.alive.sentence
        alone = _mean([one.frequency_perplexity for one in self.trainings])
        if alone is None or not is_useless(self.perplexity, alone):
            return ""
        return useless_words(self.perplexity, alone, who=self.name)

    @property
    def accuracy(self) -> float | None:
        """Mean share of the test text's tokens that were the first choice."""
        return _mean([one.accuracy for one in self.trainings])

    @property
    def cost(self) -> TrainingCost:
        """The mean of what each took."""
        means: dict[str, Any] = {}
        for name in (part.name for part in fields(TrainingCost)):
            mean = _mean([getattr(one.cost, name) for one in self.trainings])
            whole = name in ("steps", "tokens")
            means[name] = round(mean) if whole and mean is not None else mean
        return TrainingCost(**means)

    @property
    def guarantee(self) -> Guarantee | None:
        """The weakest claim; None where a training claims nothing."""
        claims = [one.guarantee for one in self.trainings]
        known = [claim for claim in claims if claim is not None]
        return max(known, key=lambda c: c.epsilon) if len(known) == len(claims) else None

    @property
    def audit(self) -> CanaryAudit | None:
        """Of the first training: the best of several bounds would need a level of its own."""
        return self.trainings[0].audit

    def completed(self, kind: str = "canary", copies: int | None = None) -> Estimate | None:
        """The share of canaries completed, all trainings together; None without one.

        Args:
            kind: "canary", "control" or "shuffled".
            copies: of those planted so often; None: all.
        """
        found = [_completed(one, kind, copies) for one in self.trainings]
        known = [one for one in found if one is not None]
        if len(known) < len(self):
            return None
        return rate_of_trainings([one.count for one in known], [one.n for one in known])


def by_name(measured: Sequence[MeasuredTraining]) -> tuple[Repeated, ...]:
    """Trainings of one name together, names in the order in which they first came."""
    groups: dict[str, list[MeasuredTraining]] = {}
    for one in measured:
        groups.setdefault(one.name, []).append(one)
    return tuple(Repeated(tuple(group)) for group in groups.values())


def _completed(one: MeasuredTraining, kind: str, copies: int | None) -> Estimate | None:
    if one.completion is None:
        return None
    return one.completion.rate(kind) if copies is None else one.completion.by_copies().get(copies)


def _table(rows: Sequence[object]) -> Floats:
    return np.array(rows, dtype=np.float64) if rows else np.zeros((0, 0))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
