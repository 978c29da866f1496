"""Measurements of trained models on one set of canaries and one test text.

What the data do not allow is a note, and no error.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

from vestige.errors import VestigeError
from vestige.monitor import Step
from vestige.workflows.trained_models import TrainedModel, by_frequencies

if TYPE_CHECKING:
    from vestige.attacks.exposure.canary_audit import CanaryAudit
    from vestige.data.canary import Canary
    from vestige.data.encoded import EncodedCorpus
    from vestige.defences.measured import Guarantee, MeasuredTraining
    from vestige.metrics.f_dp_epsilon import CurveFamily
    from vestige.models.protocols import LanguageModel

DELTA = 1e-5
"""δ of the measured ε of a training that claims none."""

PIECE = 64
"""Tokens of the test text that are read at once, where a model reads so many."""

PARTS = 3
"""Parts of the progress on a model: exposure, completion, and the rest."""


def measure_models(
    trainings: Sequence[TrainedModel],
    *,
    canaries: "Sequence[Canary]",
    test: "EncodedCorpus | None",
    seed: int,
    progress: Step,
) -> "tuple[list[MeasuredTraining], list[str]]":
    """Exposure, completion, measured ε, utility and cost of every model.

    Args:
        trainings: whose models share a vocabulary.
        canaries: with the ids that the models read; none leaves leakage out.
        test: the test text; None leaves utility out.
        seed: draws the phrases that canaries are compared with.

    Returns:
        (measurements in the same order; notes).
    """
    found, notes, names = [], list[str](), list[str]()
    for place, one in enumerate(trainings):

        def bar(share: float, place: int = place) -> None:
            progress(place + share, len(trainings))

        first = one.name not in names
        names.append(one.name)
        measured, told = _measured(one, canaries, test, seed, bar, audited=first)
        found.append(measured)
        notes += [note for note in told if note not in notes]
    stuck = sum(any(one.bits.stuck()) for one in found if one.bits)
    if stuck:
        notes.append(
            f"In {stuck} of {len(found)} trainings some canaries are likelier than every phrase "
            "that they were compared with: their exposure counts as the most that ranks resolve."
        )
    if len(set(names)) < len(names) and any(one.audit for one in found):
        notes.append("Measured ε speaks of the first training of each name.")
    return found, notes


def _measured(
    one: TrainedModel,
    canaries: "Sequence[Canary]",
    test: "EncodedCorpus | None",
    seed: int,
    bar: Callable[[float], None],
    *,
    audited: bool,
) -> "tuple[MeasuredTraining, list[str]]":
    from vestige.attacks.exposure.canary_exposure import canary_exposure
    from vestige.attacks.exposure.completion import complete
    from vestige.attacks.model_checks import alive_of, information_by_samples
    from vestige.defences.measured import (
        Guarantee,
        MeasuredTraining,
        TrainingCost,
        canary_bits,
    )
    from vestige.training.evaluate import score_documents

    def part(number: int) -> Step:
        return lambda done, total: bar((number + done / max(total, 1)) / PARTS)

    notes: list[str] = []
    claim = Guarantee.of(one.summary)
    information = information_by_samples(one.model, seed=seed)
    alive = alive_of(information, who=one.name)
    if information is not None and not isfinite(information):  # there is nothing to measure
        bar(1.0)
        cost = TrainingCost.of(one.summary)
        return MeasuredTraining(
            name=one.name, defence=one.defence, guarantee=claim, cost=cost, alive=alive
        ), notes
    exposure = completion = audit = None
    if canaries:
        with _noted("Exposure", notes):
            exposure = canary_exposure(one.model, canaries, seed=seed, progress=part(0))
        with _noted("Completion", notes):
            completion = complete(one.model, canaries, progress=part(1))
        with _noted("Measured ε", notes):
            audit = _audit(one.model, canaries, claim) if audited else None
    if audit is not None and claim is not None and audit.claimed is None:
        notes.append(
            f"Measured ε of {one.name} speaks of {audit.unit} and does not test its claim, which "
            f"is for each {claim.unit}."
        )
    length = min(PIECE, getattr(one.model, "longest", None) or PIECE)
    scores = None if test is None else score_documents(one.model, test, sequence_length=length)
    bar(1.0)
    if not one.summary:
        notes.append(f"Cost of {one.name}: {one.where} has no run/summary.json of a training.")
    measured = MeasuredTraining(
        name=one.name,
        frequency_perplexity=None if test is None else by_frequencies(one, test),
        defence=one.defence,
        scores=scores,
        bits=None if exposure is None else canary_bits(exposure),
        completion=completion,
        audit=audit,
        guarantee=claim,
        cost=TrainingCost.of(one.summary),
        alive=alive,
    )
    return measured, notes


def _audit(
    model: "LanguageModel", canaries: "Sequence[Canary]", claim: "Guarantee | None"
) -> "CanaryAudit | None":
    """Lower bounds of ε from coin-flip canaries; None where there are none.

    Of those that a language model wrote, its log-probabilities are taken off: they say which were
    likely before anybody read them, and coins do not ask for them.
    """
    from vestige.attacks.exposure.canary_audit import audit_canaries
    from vestige.data.canary import BY_COIN

    flipped = [canary for canary in canaries if canary.pattern in BY_COIN]
    if not flipped:
        return None
    copies = max(canary.copies for canary in flipped)
    unread = [canary.log_prob for canary in flipped if canary.log_prob is not None]
    claimed = claim.of_group(copies) if claim and copies else None
    return audit_canaries(
        model,
        flipped,
        delta=claim.delta if claim else DELTA,
        reference=unread if len(unread) == len(flipped) else None,
        claimed=claimed,
        claimed_copies=copies,
        mechanism=_mechanism(claim) if claim and claimed is not None and copies == 1 else None,
    )


def _mechanism(claim: "Guarantee") -> "CurveFamily | None":
    """The trade-off curves of DP-SGD, where the claim says how it was done."""
    from vestige.defences.noise_schedule import NoiseSchedule
    from vestige.metrics.f_dp_epsilon import SubsampledGaussianCurves

    if not claim.noise_multiplier or claim.sample_rate is None or not claim.steps:
        return None
    noise = claim.noise_multiplier
    if not isinstance(noise, NoiseSchedule):
        return SubsampledGaussianCurves(claim.sample_rate, claim.steps)
    stages = tuple((one / noise.first, steps) for one, steps in noise.stages())
    return SubsampledGaussianCurves(claim.sample_rate, claim.steps, stages)


@contextmanager
def _noted(what: str, notes: list[str]) -> Iterator[None]:
    """Turn an error about the data into a note."""
    try:
        yield
    except VestigeError as error:
        notes.append(f"{what}: {error}")
    except ValueError as error:
        notes.append(f"{what}: {error}.")
