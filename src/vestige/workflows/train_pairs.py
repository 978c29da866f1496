"""Training of a model that predicts texts from their sources: a translation, or an answer."""

from copy import deepcopy
from dataclasses import asdict, replace
from os import PathLike, fspath
from typing import Any

from vestige.data.corpus import Corpus
from vestige.data.encoded_pairs import encode_pairs, sources_of
from vestige.data.read_records import ReadRecords
from vestige.data.vocabulary import Vocabulary
from vestige.models.checkpoints import SOURCE, load_seq2seq
from vestige.models.folders import model_folder
from vestige.models.protocols import choose_device
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.training.config import TrainingConfig
from vestige.training.pairs import PairTask, score_pairs
from vestige.training.precision import settled
from vestige.training.presets import Preset, new_seq2seq, pair_preset
from vestige.training.scored_texts import PairTraining, ScoredTexts, with_intervals
from vestige.training.translations import bleu
from vestige.training.vocabularies import borrow, learn_vocabulary
from vestige.training_runs import RUN
from vestige.workflows.privacy_plan import Lineages
from vestige.workflows.train import Trained, TrainingRequest
from vestige.workflows.training_data import read_texts, stop_of
from vestige.workflows.training_directory import claimed
from vestige.workflows.training_plan import provenance_of, read_by
from vestige.workflows.training_run import finished, learn, log_kept, save


def run(request: TrainingRequest) -> Trained:
    """Read, train, score, save, and tell what came of it."""
    stop = stop_of(request)
    if request.model.architecture == "transformer":
        raise ValueError(
            f"`architecture` must be lstm or gru with `task` {request.task}, got transformer"
        )
    request.model.check_start(request.start)
    with claimed(request.out, request.resume):
        columns: dict[str, Any] = {"user": request.user, "source_column": request.source}
        texts = read_texts(request, stop, **columns)
        training, held = texts.division.training, texts.held
        model, config = _prepare(request, texts.division.within_cap)
        provenance = provenance_of(
            request, model, read_by(request, training, held if len(held) else None)
        )
        own = {"source_vocabulary": model.source_vocabulary.fingerprint()}
        provenance["models"]["trained"] |= own
        lesson = _lesson(request, model, training, held)
        lineages = Lineages.of(request, ReadRecords.of(training, held))
        history = learn(request, model, lesson, config, lineages=lineages, stop=stop)
        if not (request.out / RUN).exists():  # else it was finished before, and knows what it cost
            shape = {"cell": model.config.cell, "attention": model.config.attention}
            scored = _scored(model, lesson, config)
            trained = PairTraining(
                history=history, task=request.task, settings=shape, validation=scored
            )
            used = asdict(settled(config, model.device))
            save(request, trained, used, provenance, division=texts.division.summary())
        found = finished(request, history)
        log_kept(found.saved, len(model.vocabulary), stop, request.monitor)
    return found


def _prepare(request: TrainingRequest, corpus: Corpus) -> tuple[Seq2SeqModel, TrainingConfig]:
    """The model to train, on its device, and the configuration."""
    plan, start = pair_preset(request.task), request.start
    config = replace(plan.training, seed=request.seed, **request.training.chosen)
    if isinstance(start, str | PathLike):
        return load_seq2seq(fspath(start), device=request.device), config
    if start is not None:
        return deepcopy(start), config
    where = choose_device(request.device)
    shape: dict[str, Any] = dict(request.model.shape)
    if "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    if request.model.architecture is not None:
        shape["cell"] = request.model.architecture
    settings = replace(plan.model, **shape)
    vocabularies = _vocabularies(request, plan, corpus)
    return new_seq2seq(*vocabularies, settings, seed=request.seed).to(where), config


def _vocabularies(
    request: TrainingRequest, plan: Preset[Seq2SeqConfig], corpus: Corpus
) -> tuple[Vocabulary, Vocabulary]:
    """Vocabularies of sources and of targets."""
    asked = request.model
    given: Any = asked.vocabulary
    if isinstance(given, str | PathLike):
        folder = model_folder(fspath(given))
        if folder.is_dir() and not (folder / SOURCE).is_dir():
            raise _without_sources(given)
        return borrow(folder / SOURCE), borrow(folder)
    if given is not None:
        if not hasattr(given, "source_vocabulary"):
            raise _without_sources(type(given).__name__)
        return given.source_vocabulary, given.vocabulary
    source, target = (
        learn_vocabulary(part, asked.tokenizer, size=asked.vocab_size, usual=plan.vocabulary_size)
        for part in (sources_of(corpus), corpus)
    )
    return source, target


def _without_sources(given: object) -> ValueError:
    return ValueError(
        "`vocabulary` must be a model of `task` translation or dialogue, which has one for "
        f"sources too, got {given}"
    )


def _lesson(
    request: TrainingRequest, model: Seq2SeqModel, training: Corpus, held: Corpus
) -> PairTask:
    both = (model.source_vocabulary, model.vocabulary)
    return PairTask(
        encode_pairs(training, *both),
        encode_pairs(held, *both) if len(held) else None,
        tuple(held) if request.task == "translation" and len(held) else None,
    )


def _scored(model: Seq2SeqModel, lesson: PairTask, config: TrainingConfig) -> ScoredTexts | None:
    held, length = lesson.validation, config.sequence_length
    if held is None:
        return None
    found = None
    if lesson.references is not None:
        found = bleu(model, held.sources, lesson.references, length=length, seed=config.seed)
    scores = score_pairs(model, held, length=length)
    return with_intervals(scores, held.targets.users, bleu=found)
