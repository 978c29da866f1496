"""Leakage, utility and cost of trained models, measured on the same canaries and test text.

A measurement that the data do not allow is replaced by a note.
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
SEQUENCE_LENGTH = 64
"""Tokens of the test text in one pass, if the model reads as many."""
PARTS = 3
"""Parts of the progress on a model: exposure, completion, and the rest."""
COST = ("steps", "tokens", "epoch", "seconds", "peak_memory_mib")
"""Costs in a training's summary. Seconds depend on the load of the machine, so trainings are not
compared by them."""


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A claim of differential privacy.

    Attributes:
        epsilon: at least 0.
        delta: probability that the guarantee fails, in (0, 1).
        unit: what is protected, "sequence" or "user".
        mechanism: of the training; None if it is unknown, or if several trainings compose.
    """

    epsilon: float
    delta: float
    unit: str
    mechanism: Mechanism | None = None

    @classmethod
    def of(cls, summary: Row) -> "Guarantee | None":
        """The claim in a training's summary, for every record; None unless it is finite.

        If ancestors read the same records, epsilon is that of all of them together.
        """
        own_epsilon, delta = summary.get("epsilon"), summary.get("delta")
        epsilon = summary.get("epsilon_with_ancestors", own_epsilon)
        if epsilon is None or own_epsilon is None or delta is None or not isfinite(epsilon):
            return None
        noise, rate = summary.get("noise_multiplier"), summary.get("sample_rate")
        steps, mechanism = summary.get("steps_planned", summary.get("steps")), None
        if epsilon == own_epsilon and noise is not None and rate is not None and steps is not None:
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
        if self.mechanism is None:
            return None
        return replace(self.mechanism, copies=copies).epsilon(self.delta)

    @property
    def curves(self) -> Curves | None:
        """The trade-off curves of the mechanism, if it is known and private."""
        mechanism = self.mechanism
        if mechanism is None or not mechanism.noise_multiplier or not mechanism.steps:
            return None
        return Curves(mechanism.sample_rate, mechanism.steps)

    def __str__(self) -> str:
        text = f"ε = {self.epsilon:.3g} at δ = {self.delta:.1g} per {self.unit}"
        return text.replace("e-0", "e-")


@dataclass(frozen=True, kw_only=True)
class MeasuredTraining:
    """A training and its measurements; None for what was not measured.

    Attributes:
        name: trainings of one name differ only in their seed.
        defence: of the training; "none" without one.
        canaries: rows with phrase, copies (0: never planted), exposure in bits, shuffled_exposure
            (of its words in another order, or None), and at_ceiling (whether it is more probable
            than every reference).
        scores: of each test document.
        completion: of the canaries.
        audit: lower bounds on ε, from canaries planted by fair coins.
        guarantee: the training's claim.
        cost: by the names of `COST`.
        frequency_perplexity: of the test text, by the training's word frequencies.
        alive: whether the model predicts text.
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

    def bits(self, name: str, *, planted: bool) -> list[Any]:
        """A column of the planted canaries, or of those never planted."""
        return [row[name] for row in self.canaries or () if bool(row["copies"]) is planted]

    def same_as(self, other: "MeasuredTraining") -> bool:
        """Whether both have the same losses and exposures, up to rounding."""
        pairs: list[tuple[Any, Any]] = []
        if self.scores is not None and other.scores is not None:
            pairs.append((self.scores.loss, other.scores.loss))
        if self.canaries is not None and other.canaries is not None:
            for planted in (True, False):
                exposures = self.bits("exposure", planted=planted)
                pairs.append((exposures, other.bits("exposure", planted=planted)))
        return bool(pairs) and all(
            np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True) for a, b in pairs
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
        canaries: with the models' ids; without canaries, leakage is not measured.
        test: the test text; None: utility is not measured.
        seed: of the phrases that canaries are compared with.
        progress: called with (models measured, all models).

    Returns:
        (measurements in the same order; notes).
    """
    measured, notes = list[MeasuredTraining](), list[str]()
    names = [training.name for training in trainings]
    flipped = [canary for canary in canaries if canary.pattern == COIN_FLIP]
    for index, training in enumerate(trainings):

        def step(done: float, total: float = 1.0, *, part: int = 0, index: int = index) -> None:
            share = (part + done / max(total, 1)) / PARTS
            progress(index + share, len(trainings))

        is_first = training.name not in names[:index]
        measured.append(
            _measured(training, canaries, flipped if is_first else [], test, seed, step, notes)
        )
        step(1.0, part=PARTS - 1)
    saturated = sum(any(training.bits("at_ceiling", planted=True)) for training in measured)
    if saturated:
        notes.append(
            f"In {saturated} of {len(measured)} trainings some canaries are more probable than "
            "every phrase they were compared with: their exposure counts as the largest measurable "
            "one."
        )
    if len(set(names)) < len(names) and any(training.audit for training in measured):
        notes.append("Measured ε is of the first training of each name.")
    return measured, list(dict.fromkeys(notes))


def _measured(
    training: TrainedModel,
    canaries: Sequence[Canary],
    flipped: Sequence[Canary],
    test: EncodedCorpus | None,
    seed: int,
    step: Any,
    notes: list[str],
) -> MeasuredTraining:
    """One training; ε is measured by the `flipped` canaries."""
    model, claim = training.model, Guarantee.of(training.summary)
    information = information_by_samples(model, seed=seed)
    is_finite = information is None or isfinite(information)
    results: dict[str, Any] = {}
    if is_finite and canaries:
        with _noted("Exposure", notes):
            exposure = canary_exposure(model, canaries, seed=seed, progress=step)
            results["canaries"] = exposure.canaries
        with _noted("Completion", notes):
            results["completion"] = complete(model, canaries, progress=partial(step, part=1))
        with _noted("Measured ε", notes):
            results["audit"] = _audit(model, flipped, claim)
    audit = results.get("audit")
    if audit is not None and claim is not None and audit.claimed is None:
        notes.append(
            f"Measured ε of {training.name} is for each {audit.unit} and does not test its "
            f"guarantee, which is for each {claim.unit}."
        )
    if is_finite and test is not None:
        length = min(SEQUENCE_LENGTH, model.longest or SEQUENCE_LENGTH)
        results["scores"] = score_documents(model, test, sequence_length=length)
        if (data := training.encoded("training")) is not None:
            size = len(model.vocabulary)
            results["frequency_perplexity"] = frequency_perplexity(data, test, size=size)
    if is_finite and not training.summary:
        notes.append(
            f"Cost of {training.name}: {training.where} has no run/summary.json of a training."
        )
    return MeasuredTraining(
        name=training.name,
        defence=training.defence,
        guarantee=claim,
        cost={name: training.summary.get(name) for name in COST},
        alive=alive_of(information, who=training.name),
        **results,
    )


def _audit(
    model: LanguageModel, flipped: Sequence[Canary], claim: Guarantee | None
) -> CanaryAudit | None:
    """Lower bounds of ε from coin-flip canaries; None without canaries."""
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
def _noted(measurement: str, notes: list[str]) -> Iterator[None]:
    """Turn an error about the data into a note."""
    try:
        yield
    except VestigeError as error:
        notes.append(f"{measurement}: {error}")
    except ValueError as error:
        notes.append(f"{measurement}: {error}.")
