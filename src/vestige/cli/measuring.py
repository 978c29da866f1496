"""Every training of `vestige compare` is asked the same; what the data do not allow is a note."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from vestige.cli.terminal import Progress
from vestige.cli.trainings import Training
from vestige.errors import VestigeError

if TYPE_CHECKING:
    from vestige.attacks.canary_audit import CanaryAudit
    from vestige.attacks.exposure_result import CanaryExposure
    from vestige.data.canary import Canary
    from vestige.data.encoded import EncodedCorpus
    from vestige.defences.measured import Guarantee, MeasuredTraining
    from vestige.models.protocols import LanguageModel

COIN_FLIP = "coin-flip"
DELTA = 1e-5
"""Of the measured ε of a training that claims none."""

PIECE = 64
"""Tokens of the test text that are read at once, where a model reads so many."""

PARTS = 3
"""Of the work on a training: the canaries' exposure, their completion, and the rest."""


def measure(
    trainings: Sequence[Training],
    *,
    canaries: "Sequence[Canary]",
    test: "EncodedCorpus | None",
    seed: int,
    progress: Progress,
) -> "tuple[list[MeasuredTraining], list[str]]":
    """Ask every training the same.

    Args:
        trainings: whose models share a vocabulary.
        canaries: with the ids that the models read; none leaves leakage out.
        test: the test text; None leaves utility out.
        seed: draws the phrases that canaries are compared with.
        progress: told (trainings done, all).

    Returns:
        (what was measured, what could not be, and why).
    """
    from vestige.defences.measured import canary_bits, common_estimate

    found, exposures, notes = [], [], list[str]()
    for place, one in enumerate(trainings):

        def bar(share: float, place: int = place) -> None:
            progress(place + share, len(trainings))

        measured, exposure, told = _measured(one, canaries, test, seed, bar)
        found.append(measured)
        exposures.append(exposure)
        notes += [note for note in told if note not in notes]
    known = [exposure for exposure in exposures if exposure is not None]
    if len(known) < len(found):
        return found, notes
    estimate = common_estimate(known)
    if estimate == "fit":
        notes.append(
            "Some canaries are likelier than every phrase that they were compared with: all "
            "exposures are read off a skew-normal fit, which extrapolates."
        )
    pairs = zip(found, known, strict=True)
    return [replace(one, bits=canary_bits(bits, estimate=estimate)) for one, bits in pairs], notes


def _measured(
    one: Training,
    canaries: "Sequence[Canary]",
    test: "EncodedCorpus | None",
    seed: int,
    bar: Callable[[float], None],
) -> "tuple[MeasuredTraining, CanaryExposure | None, list[str]]":
    from vestige.attacks.canary_exposure import canary_exposure
    from vestige.attacks.completion import complete
    from vestige.defences.measured import Guarantee, MeasuredTraining, TrainingCost
    from vestige.training.evaluate import score_documents

    def part(number: int) -> Progress:
        return lambda done, total: bar((number + done / max(total, 1)) / PARTS)

    notes: list[str] = []
    claim = Guarantee.of(one.summary)
    exposure = completion = audit = None
    if canaries:
        with _noted("Exposure", notes):
            exposure = canary_exposure(one.model, canaries, seed=seed, progress=part(0))
        with _noted("Completion", notes):
            completion = complete(one.model, canaries, progress=part(1))
        with _noted("Measured ε", notes):
            audit = _audit(one.model, canaries, claim)
    if audit is not None and claim is not None and audit.claimed is None:
        notes.append(
            f"Measured ε of {one.name} speaks of {audit.unit} and does not test its claim, which "
            f"is for each {claim.unit}."
        )
    length = min(PIECE, getattr(one.model, "longest", None) or PIECE)
    scores = None if test is None else score_documents(one.model, test, sequence_length=length)
    bar(1.0)
    if not one.summary:
        notes.append(f"Cost of {one.name}: {one.path} has no run/summary.json of a training.")
    measured = MeasuredTraining(
        name=one.name,
        defence=one.defence,
        scores=scores,
        completion=completion,
        audit=audit,
        guarantee=claim,
        cost=TrainingCost.of(one.summary),
    )
    return measured, exposure, notes


def _audit(
    model: "LanguageModel", canaries: "Sequence[Canary]", claim: "Guarantee | None"
) -> "CanaryAudit | None":
    """Bounds from canaries that were planted by the fall of a coin, where there are any."""
    from vestige.attacks.canary_audit import audit_canaries

    flipped = [canary for canary in canaries if canary.pattern == COIN_FLIP]
    if not flipped:
        return None
    copies = max(canary.copies for canary in flipped)
    return audit_canaries(
        model,
        flipped,
        delta=claim.delta if claim else DELTA,
        claimed=claim.of_group(copies) if claim and copies else None,
        claimed_copies=copies,
    )


@contextmanager
def _noted(what: str, notes: list[str]) -> Iterator[None]:
    """What the data do not allow is a note, not an end to the comparison."""
    try:
        yield
    except VestigeError as error:
        notes.append(f"{what}: {error}")
    except ValueError as error:
        notes.append(f"{what}: {error}.")
