"""Leakage, utility and cost of trained models, measured on the same canaries and test text.

A measurement that the data do not allow becomes a note.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any

from vestige.errors import VestigeError
from vestige.monitor import Step

if TYPE_CHECKING:
    from vestige.audits.comparison.groups import MeasuredTraining
    from vestige.audits.comparison.guarantee import Guarantee
    from vestige.audits.comparison.trainings import TrainedModel
    from vestige.audits.exposure.epsilon import CanaryAudit
    from vestige.data.encoded import EncodedCorpus
    from vestige.data.manifest import Canary
    from vestige.models.protocols import LanguageModel

DELTA = 1e-5
"""δ of the measured ε of a training without a guarantee."""
PIECE = 64
"""Tokens of the test text to read at once, if the model reads as many."""
PARTS = 3
"""Parts of the progress on a model: exposure, completion, and the rest."""


def measure_models(
    trainings: "Sequence[TrainedModel]",
    *,
    canaries: "Sequence[Canary]",
    test: "EncodedCorpus | None",
    seed: int,
    progress: Step,
) -> "tuple[list[MeasuredTraining], list[str]]":
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
    found, notes, names = list["MeasuredTraining"](), list[str](), list[str]()
    for place, one in enumerate(trainings):

        def step(share: float, place: int = place) -> None:
            progress(place + share, len(trainings))

        audited = canaries if one.name not in names else ()
        found.append(_measured(one, canaries, audited, test, seed, step, notes))
        step(1.0)
        names.append(one.name)
    saturated = sum(
        any(r["at_ceiling"] for r in one.canaries or () if r["copies"]) for one in found
    )
    if saturated:
        notes.append(
            f"In {saturated} of {len(found)} trainings some canaries are more probable than every "
            "phrase they were compared with: their exposure counts as the largest measurable one."
        )
    if len(set(names)) < len(names) and any(one.audit for one in found):
        notes.append("Measured ε is of the first training of each name.")
    return found, list(dict.fromkeys(notes))


def _measured(
    one: "TrainedModel",
    canaries: "Sequence[Canary]",
    audited: "Sequence[Canary]",
    test: "EncodedCorpus | None",
    seed: int,
    step: Callable[[float], None],
    notes: list[str],
) -> "MeasuredTraining":
    """One training; measured ε of `audited`."""
    from vestige.audits.comparison.groups import COST, MeasuredTraining
    from vestige.audits.comparison.guarantee import Guarantee
    from vestige.claims.model_checks import alive_of, information_by_samples
    from vestige.training.evaluate import score_documents
    from vestige.training.word_frequencies import frequency_perplexity

    claim = Guarantee.of(one.summary)
    information = information_by_samples(one.model, seed=seed)
    known: dict[str, Any] = {}
    if information is None or isfinite(information):  # its weights are not broken
        if canaries:
            known |= _leakage(one, canaries, audited, claim, seed, step, notes)
        if test is not None:
            length = min(PIECE, getattr(one.model, "longest", None) or PIECE)
            known["scores"] = score_documents(one.model, test, sequence_length=length)
            if (data := one.encoded("training")) is not None:
                size = len(one.model.vocabulary)
                known["frequency_perplexity"] = frequency_perplexity(data, test, size=size)
        if not one.summary:
            where = f"{one.where} has no run/summary.json of a training"
            notes.append(f"Cost of {one.name}: {where}.")
    return MeasuredTraining(
        name=one.name,
        defence=one.defence,
        guarantee=claim,
        cost={name: one.summary.get(key) for name, key in COST.items()},
        alive=alive_of(information, who=one.name),
        **known,
    )


def _leakage(
    one: "TrainedModel",
    canaries: "Sequence[Canary]",
    audited: "Sequence[Canary]",
    claim: "Guarantee | None",
    seed: int,
    step: Callable[[float], None],
    notes: list[str],
) -> dict[str, Any]:
    """Measurements of the canaries, by attribute of `MeasuredTraining`."""
    from vestige.audits.exposure.canaries import canary_exposure
    from vestige.audits.extraction.canaries import complete

    def part(number: int) -> Step:
        return lambda done, total: step((number + done / max(total, 1)) / PARTS)

    found: dict[str, Any] = {}
    with _noted("Exposure", notes):
        exposure = canary_exposure(one.model, canaries, seed=seed, progress=part(0))
        found["canaries"] = exposure.canaries
    with _noted("Completion", notes):
        found["completion"] = complete(one.model, canaries, progress=part(1))
    with _noted("Measured ε", notes):
        found["audit"] = audit = _audit(one.model, audited, claim)
        if audit is not None and claim is not None and audit.claimed is None:
            notes.append(
                f"Measured ε of {one.name} is for each {audit.unit} and does not test its "
                f"guarantee, which is for each {claim.unit}."
            )
    return found


def _audit(
    model: "LanguageModel", canaries: "Sequence[Canary]", claim: "Guarantee | None"
) -> "CanaryAudit | None":
    """Lower bounds of ε from coin-flip canaries; None if there are none.

    If a language model wrote the canaries, its log-probabilities are subtracted: they say which
    canaries were probable before any training, and the coins do not depend on them.
    """
    from vestige.audits.comparison.guarantee import mechanism_of
    from vestige.audits.exposure.epsilon import audit_canaries
    from vestige.data.manifest import BY_COIN

    flipped = [canary for canary in canaries if canary.pattern in BY_COIN]
    if not flipped:
        return None
    copies = max(canary.copies for canary in flipped)
    before = [canary.log_prob for canary in flipped if canary.log_prob is not None]
    claimed = claim.of_group(copies) if claim and copies else None
    return audit_canaries(
        model,
        flipped,
        delta=claim.delta if claim else DELTA,
        reference=before if len(before) == len(flipped) else None,
        claimed=claimed,
        claimed_copies=copies,
        mechanism=mechanism_of(claim) if claim and claimed is not None and copies == 1 else None,
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
