"""Training of an intent-and-slot model from labelled utterances."""

from dataclasses import asdict
from typing import Any

from vestige.data.read_records import ReadRecords
from vestige.models.white_box import IntentSlotNetwork
from vestige.training.precision import settled
from vestige.training.scored_utterances import IntentSlotTraining, score_with_intervals
from vestige.training.utterances import UtteranceTask
from vestige.training_runs import RUN
from vestige.workflows.privacy_plan import Lineages
from vestige.workflows.train import Trained, TrainingRequest
from vestige.workflows.training_directory import claimed
from vestige.workflows.training_plan import provenance_of, read_by
from vestige.workflows.training_run import finished, learn, save
from vestige.workflows.utterance_plan import Parts, prepare, read_parts, stop_of

UNUSED = ("sequence_length", "batching", "evaluate_every")
"""Settings that a training of utterances does not look at."""


def run(request: TrainingRequest) -> Trained:
    """Read, train, score, save, and tell what came of it."""
    request.nlu.check(request.model, request.start)
    with claimed(request.out, request.resume):
        parts = read_parts(request)
        stop = stop_of(request, validated=len(parts.validation) > 0)
        model, config = prepare(request, parts)
        provenance = _provenance(request, model, parts)
        own = ReadRecords.of_texts(
            [one.text for one in parts.training], [one.text for one in parts.validation]
        )
        lineages = Lineages.of(request, own)
        held = parts.validation if len(parts.validation) else None
        lesson = UtteranceTask(model.encode(parts.training), held)
        history = learn(request, model, lesson, config, lineages=lineages, stop=stop)
        if not (request.out / RUN).exists():  # else it was finished before, and knows what it cost
            habits = request.nlu.habits
            scored = score_with_intervals(model, parts.test) if len(parts.test) else None
            trained = IntentSlotTraining(history=history, habits=habits, test=scored)
            used = asdict(settled(config, model.device))
            settings = {name: value for name, value in used.items() if name not in UNUSED}
            save(request, trained, {**settings, **habits}, provenance)
    found = finished(request, history)
    _log_kept(found.saved, request)
    return found


def _provenance(request: TrainingRequest, model: IntentSlotNetwork, parts: Parts) -> dict[str, Any]:
    held, test = (part if len(part) else None for part in (parts.validation, parts.test))
    found = provenance_of(request, model, read_by(request, parts.training, held, test))
    if parts.planted is not None:
        found["data"]["planted"] = {"sha256": parts.planted.sha256}
    return found


def _log_kept(summary: dict[str, Any], request: TrainingRequest) -> None:
    log, loss = request.monitor.log, summary.get("loss")
    if summary["stopped"]:
        log(f"Stopped after {summary['steps']:,} steps: no better epoch came for long enough")
    shown = "" if loss is None else f", validation loss {loss:.3g} nats an utterance"
    log(f"Epoch {summary['epoch']:.3g} kept{shown}")
