"""Every training of `vestige compare` is asked the same; what the data do not allow is a note."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vestige.cli.terminal import Progress
from vestige.cli.trainings import Training, by_frequencies
from vestige.errors import VestigeError

if TYPE_CHECKING:
    from vestige.attacks.exposure.canary_audit import CanaryAudit
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
    one: Training,
    canaries: "Sequence[Canary]",
    test: "EncodedCorpus | None",
    seed: int,
    bar: Callable[[float], None],
    *,
    audited: bool,
) -> "tuple[MeasuredTraining, list[str]]":
    from vestige.attacks.exposure.canary_exposure import canary_exposure
    from vestige.attacks.exposure.completion import complete
    from vestige.defences.measured import (
        Guarantee,
        MeasuredTraining,
        TrainingCost,
        canary_bits,
    )
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
        notes.append(f"Cost of {one.name}: {one.path} has no run/summary.json of a training.")
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
    )
    return measured, notes


def _audit(
    model: "LanguageModel", canaries: "Sequence[Canary]", claim: "Guarantee | None"
) -> "CanaryAudit | None":
    """Bounds from canaries that were planted by the fall of a coin, where there are any."""
    from vestige.attacks.exposure.canary_audit import audit_canaries

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
