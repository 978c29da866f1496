"""Leakage, utility and cost of trained models, measured on the same canaries and test text.

A measurement that the data do not allow becomes a note.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from vestige.audits.comparison.trainings import TrainedModel
from vestige.audits.exposure.canaries import canary_exposure
from vestige.audits.exposure.epsilon import CanaryAudit, audit_canaries
from vestige.audits.extraction.canaries import Completion, complete
from vestige.claims import Check
from vestige.claims.model_checks import alive_of, information_by_samples
from vestige.data.canaries.texts import COIN_FLIP, Canary
from vestige.data.encoded import EncodedCorpus
from vestige.errors import VestigeError
from vestige.metrics.f_dp_epsilon import Curves
from vestige.models.protocols import LanguageModel
from vestige.monitor import Step
from vestige.privacy.accounting import Mechanism
from vestige.training.evaluate import DocumentScores, score_documents
from vestige.training.word_frequencies import frequency_perplexity

Row = Mapping[str, Any]

DELTA = 1e-5
"""δ of the measured ε of a training without a guarantee."""
PIECE = 64
"""Tokens of the test text to read at once, if the model reads as many."""
PARTS = 3
"""Parts of the progress on a model: exposure, completion, and the rest."""
COST = ("steps", "tokens", "epoch", "seconds", "peak_memory_mib")
"""Of a training, by the names in its summary. Seconds depend on the load of the machine, so no
trainings are compared by them."""


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A claim of differential privacy.

    Attributes:
        epsilon: at least 0.
        delta: probability that the guarantee fails, in (0, 1).
        unit: what is protected, "sequence" or "user".
        mechanism: of the training; None if it is unknown, or if several trainings add up.
    """

    epsilon: float
    delta: float
    unit: str
    mechanism: Mechanism | None = None

    @classmethod
    def of(cls, summary: Row) -> "Guarantee | None":
        """The claim in a training's summary, for every record; None unless it is finite.

        With ancestors that read the same records, epsilon is of all of them together.
        """
        alone, delta = summary.get("epsilon"), summary.get("delta")
        epsilon = summary.get("epsilon_with_ancestors", alone)
        if epsilon is None or alone is None or delta is None or not isfinite(epsilon):
            return None
        noise, rate = summary.get("noise_multiplier"), summary.get("sample_rate")
        steps, mechanism = summary.get("steps_planned", summary.get("steps")), None
        if epsilon == alone and noise is not None and rate is not None and steps is not None:
            mechanism = Mechanism(noise_multiplier=noise, sample_rate=rate, steps=steps)
        unit = str(summary.get("unit", "sequence"))
        return cls(epsilon=epsilon, delta=delta, unit=unit, mechanism=mechanism)

    def of_group(self, copies: int) -> float | None:
        """Epsilon for several copies of one text; None if the claim does not cover them.

        A claim for users bounds the influence of a whole user. Canaries among a user's other texts
        cannot refute it, and several canaries of one user are not independent.
        """
        if self.unit == "user":
            return None
        if copies == 1:
            return self.epsilon
        one = self.mechanism
        return None if one is None else replace(one, copies=copies).epsilon(self.delta)

    @property
    def curves(self) -> Curves | None:
        """The trade-off curves of the mechanism, if it is known and private."""
        made = self.mechanism
        if made is None or not made.noise_multiplier or not made.steps:
            return None
        return Curves(made.sample_rate, made.steps)

    def __str__(self) -> str:
        text = f"ε = {self.epsilon:.3g} at δ = {self.delta:.1g} per {self.unit}"
        return text.replace("e-0", "e-")


@dataclass(frozen=True, kw_only=True)
class MeasuredTraining:
    """A training and its measurements; None for what was not measured.

    A canary is a row with phrase, copies (0: never planted), exposure in bits, shuffled_exposure
    (of its words in another order, or None), and at_ceiling (more probable than every reference).
    """

    name: str  # trainings of one name differ in their seed alone
    defence: str = "none"
    canaries: tuple[Row, ...] | None = None
    scores: DocumentScores | None = None  # of each test document
    completion: Completion | None = None  # of the canaries
    audit: CanaryAudit | None = None  # lower bounds on ε, from canaries of fair coins
    guarantee: Guarantee | None = None
    cost: Mapping[str, float | None] = field(default_factory=dict)  # by the names of `COST`
    frequency_perplexity: float | None = None  # of the test text, by the training's word counts
    alive: Check | None = None  # whether the model predicts text

    def bits(self, name: str, *, planted: bool) -> list[Any]:
        """A column of the planted canaries, or of those never planted."""
        return [row[name] for row in self.canaries or () if bool(row["copies"]) is planted]

    def same_as(self, other: "MeasuredTraining") -> bool:
        """Whether both have the same losses and exposures, up to rounding."""
        pairs: list[tuple[Any, Any]] = []
        if self.scores is not None and other.scores is not None:
            pairs.append((self.scores.loss, other.scores.loss))
        if self.canaries is not None and other.canaries is not None:
            for kind in (True, False):
                own, rest = (one.bits("exposure", planted=kind) for one in (self, other))
                pairs.append((own, rest))
        return bool(pairs) and all(
            np.allclose(own, rest, rtol=1e-6, atol=1e-6, equal_nan=True) for own, rest in pairs
        )


def measure_models(
    trainings: Sequence[TrainedModel],
    *,
    canaries: Sequence[Canary],
    test: EncodedCorpus | None,
    seed: int,
    progress: Step,
) -> tuple[list[MeasuredTraining], list[str]]:
    """Exposure, completion, measured ε, utility and cost of every model.

    Args:
        trainings: models with one vocabulary.
        canaries: with the models' ids; without any, leakage is not measured.
        test: the test text; None: utility is not measured.
        seed: of the phrases that canaries are compared with.
        progress: called with the number of models so far, and of all.

    Returns:
        (measurements in the same order; notes).
    """
    found, notes = list[MeasuredTraining](), list[str]()
    names = [one.name for one in trainings]
    flipped = [canary for canary in canaries if canary.pattern == COIN_FLIP]
    for place, one in enumerate(trainings):

        def step(done: float, total: float = 1.0, *, part: int = 0, place: int = place) -> None:
            share = (part + done / max(total, 1)) / PARTS
            progress(place + share, len(trainings))

        audited = flipped if one.name not in names[:place] else []
        found.append(_measured(one, canaries, audited, test, seed, step, notes))
        step(1.0, part=PARTS - 1)
    saturated = sum(any(one.bits("at_ceiling", planted=True)) for one in found)
    if saturated:
        notes.append(
            f"In {saturated} of {len(found)} trainings some canaries are more probable than every "
            "phrase they were compared with: their exposure counts as the largest measurable one."
        )
    if len(set(names)) < len(names) and any(one.audit for one in found):
        notes.append("Measured ε is of the first training of each name.")
    return found, list(dict.fromkeys(notes))


def _measured(
    one: TrainedModel,
    canaries: Sequence[Canary],
    flipped: Sequence[Canary],
    test: EncodedCorpus | None,
    seed: int,
    step: Any,
    notes: list[str],
) -> MeasuredTraining:
    """One training; measured ε of canaries that coins flipped."""
    model, claim = one.model, Guarantee.of(one.summary)
    information = information_by_samples(model, seed=seed)
    whole = information is None or isfinite(information)  # its weights are not broken
    known: dict[str, Any] = {}
    if whole and canaries:
        with _noted("Exposure", notes):
            known["canaries"] = canary_exposure(model, canaries, seed=seed, progress=step).canaries
        with _noted("Completion", notes):
            known["completion"] = complete(model, canaries, progress=partial(step, part=1))
        with _noted("Measured ε", notes):
            known["audit"] = _audit(model, flipped, claim)
    audit = known.get("audit")
    if audit is not None and claim is not None and audit.claimed is None:
        notes.append(
            f"Measured ε of {one.name} is for each {audit.unit} and does not test its guarantee, "
            f"which is for each {claim.unit}."
        )
    if whole and test is not None:
        length = min(PIECE, model.longest or PIECE)
        known["scores"] = score_documents(model, test, sequence_length=length)
        if (data := one.encoded("training")) is not None:
            size = len(model.vocabulary)
            known["frequency_perplexity"] = frequency_perplexity(data, test, size=size)
    if whole and not one.summary:
        notes.append(f"Cost of {one.name}: {one.where} has no run/summary.json of a training.")
    return MeasuredTraining(
        name=one.name,
        defence=one.defence,
        guarantee=claim,
        cost={name: one.summary.get(name) for name in COST},
        alive=alive_of(information, who=one.name),
        **known,
    )


def _audit(
    model: LanguageModel, flipped: Sequence[Canary], claim: Guarantee | None
) -> CanaryAudit | None:
    """Lower bounds of ε from coin-flip canaries; None if there are none."""
    if not flipped:
        return None
    copies = max(canary.copies for canary in flipped)
    claimed = claim.of_group(copies) if claim and copies else None
    return audit_canaries(
        model,
        flipped,
        delta=claim.delta if claim else DELTA,
        claimed=claimed,
        claimed_copies=copies,
        mechanism=claim.curves if claim and claimed is not None and copies == 1 else None,
    )


@contextmanager
def _noted(what: str, notes: list[str]) -> Iterator[None]:
    """Turn an error about the data into a note."""
    try:
        yield
    except VestigeError as error:
        notes.append(f"{what}: {error}")
    except ValueError as error:
        notes.append(f"{what}: {error}.")
