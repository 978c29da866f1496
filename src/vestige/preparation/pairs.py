"""Training on pairs of texts: a model that translates, or that answers."""

from copy import deepcopy
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from vestige.data.corpus import Corpus
from vestige.data.encoded_pairs import encode_pairs, sources_of
from vestige.data.read_records import ReadRecords
from vestige.data.vocabulary import Vocabulary
from vestige.defences.registry import NoDefence
from vestige.models.checkpoints import SOURCE, load_seq2seq
from vestige.models.folders import model_folder
from vestige.models.protocols import choose_device
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.preparation.lineage import lineage
from vestige.preparation.options import ModelOptions
from vestige.preparation.privacy import entry_of
from vestige.preparation.trained import Trained
from vestige.preparation.training_run import TrainingRun, log_kept, used
from vestige.preparation.training_texts import Texts
from vestige.training.config import TrainingConfig
from vestige.training.history import StopAtPerplexity
from vestige.training.pairs import PairTask, score_pairs
from vestige.training.presets import Preset, new_seq2seq, pair_preset
from vestige.training.scored_texts import PairTraining, ScoredTexts, with_intervals
from vestige.training.translations import bleu
from vestige.training.vocabularies import borrow, learn_vocabulary
from vestige.training_options import TrainingOptions


def train_pairs(
    job: TrainingRun,
    texts: Texts,
    *,
    task: str,
    model: ModelOptions,
    training: TrainingOptions,
    stop: StopAtPerplexity | None,
) -> Trained:
    """Train an encoder-decoder, score it on the validation text, and save its run.

    Args:
        job: the training in its directory.
        texts: what it reads, with their sources.
        task: "translation" or "dialogue".
        model: of a new model.
        training: how it is trained.
        stop: when to stop before the last epoch.

    Raises:
        ValueError: options exclude each other.
        VestigeError: the model or its vocabulary cannot be read, or the training fails.
    """
    learned, held = texts.training, texts.held
    plan = pair_preset(task)
    config = replace(plan.training, seed=job.run.seed, **training.chosen)
    network = _beginning(job, plan, model, texts.division.within_cap)
    job.record(network, learned, held if len(held) else None)
    trained_model: Any = job.run.models["trained"]
    trained_model["source_vocabulary"] = network.source_vocabulary.fingerprint()
    lesson = _encoded(network, learned, held, scored=task == "translation")
    own = ReadRecords.of(learned, held)
    descent = lineage(job.out, own, start=job.start, vocabulary=model.vocabulary)
    entry = entry_of(NoDefence(), None, None, descent)
    history = job.learn(network, lesson, config, lineage=descent, entry=entry, stop=stop)
    if not job.finished:
        shape = {"cell": network.config.cell, "attention": network.config.attention}
        scored = _scored(network, lesson, config)
        trained = PairTraining(history=history, task=task, settings=shape, validation=scored)
        job.save(trained, used(config, network), division=texts.division.summary())
    found = job.found(history)
    log_kept(found.summary, len(network.vocabulary), stop, job.run.monitor)
    return found


def _beginning(
    job: TrainingRun, plan: Preset[Seq2SeqConfig], model: ModelOptions, corpus: Corpus
) -> Seq2SeqModel:
    """The model before the first step, on its device."""
    start = job.start
    if isinstance(start, str | PathLike):
        return load_seq2seq(fspath(start), device=job.run.device)
    if start is not None:
        return deepcopy(start)  # type: ignore[no-any-return]
    device = choose_device(job.run.device)
    shape: dict[str, Any] = model.shape
    if "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    if model.architecture is not None:
        shape["cell"] = model.architecture
    settings = replace(plan.model, **shape)
    source, target = _vocabularies(model, plan, corpus)
    return new_seq2seq(source, target, settings, seed=job.run.seed).to(device)


def _vocabularies(
    model: ModelOptions, plan: Preset[Seq2SeqConfig], corpus: Corpus
) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of sources and of targets."""
    given: Any = model.vocabulary
    if isinstance(given, str | PathLike):
        folder = model_folder(fspath(given))
        if folder.is_dir() and not (folder / SOURCE).is_dir():
            raise _without_sources(given)
        return borrow(folder / SOURCE), borrow(folder)
    if given is not None:
        if not hasattr(given, "source_vocabulary"):
            raise _without_sources(type(given).__name__)
        return given.source_vocabulary, given.vocabulary
    size, usual = model.vocab_size, plan.vocabulary_size
    source, target = (
        learn_vocabulary(part, model.tokenizer, size=size, usual=usual)
        for part in (sources_of(corpus), corpus)
    )
    return source, target


def _without_sources(given: object) -> ValueError:
    return ValueError(
        "`vocabulary` must be a model of `task` translation or dialogue, which also has a "
        f"vocabulary of sources, got {given}"
    )


def _encoded(model: Seq2SeqModel, learned: Corpus, held: Corpus, *, scored: bool) -> PairTask:
    both = (model.source_vocabulary, model.vocabulary)
    return PairTask(
        encode_pairs(learned, *both),
        encode_pairs(held, *both) if len(held) else None,
        tuple(held) if scored and len(held) else None,
    )


def _scored(model: Seq2SeqModel, lesson: PairTask, config: TrainingConfig) -> ScoredTexts | None:
    """Accuracy, perplexity and BLEU on the validation text, with intervals."""
    held, length = lesson.validation, config.sequence_length
    if held is None:
        return None
    found = None
    if lesson.references is not None:
        found = bleu(model, held.sources, lesson.references, length=length, seed=config.seed)
    scores = score_pairs(model, held, length=length)
    return with_intervals(scores, held.targets.users, bleu=found)
