"""Training on running text or on users' texts one by one, under any defence."""

from copy import deepcopy
from dataclasses import asdict, replace
from os import PathLike, fspath
from typing import Any

import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.read_records import ReadRecords
from vestige.data.vocabulary import Vocabulary
from vestige.defences.defended_training import DefendedTraining, clip_advice
from vestige.defences.private import PrivacyPlan, PrivateDefence
from vestige.defences.registry import Defence, settings_of
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel, choose_device
from vestige.models.recurrent_network import GRUConfig, LSTMConfig, RecurrentConfig
from vestige.models.transformer import TransformerConfig
from vestige.preparation import privacy
from vestige.preparation.lineage import lineage
from vestige.preparation.options import ModelOptions
from vestige.preparation.trained import Trained
from vestige.preparation.training_run import TrainingRun, log_kept, used
from vestige.preparation.training_texts import Texts
from vestige.training import presets
from vestige.training.checkpoint import LOG
from vestige.training.config import TrainingConfig
from vestige.training.history import StopAtPerplexity
from vestige.training.presets import Preset, Shape, gentle, new_model
from vestige.training.training_task import TextTask
from vestige.training.vocabularies import borrow, learn_vocabulary
from vestige.training.word_frequencies import FREQUENCIES, frequency_perplexity
from vestige.training_options import TrainingOptions
from vestige.training_runs import DATA, JUDGED_BY, RUN

KINDS: dict[str | None, Any] = {
    "lstm": LSTMConfig,
    "gru": GRUConfig,
    "transformer": TransformerConfig,
}


def train_text(
    job: TrainingRun,
    texts: Texts,
    *,
    task: str,
    preset: str | None,
    model: ModelOptions,
    training: TrainingOptions,
    defence: Defence,
    stop: StopAtPerplexity | None,
) -> Trained:
    """Train a language model, and save its run.

    Args:
        job: the training in its directory.
        texts: what it reads.
        task: "text", or "next-word" for texts one by one.
        preset: by name; None for the one that suits.
        model: of a new model, or an adapter.
        training: how it is trained.
        defence: `NoDefence` for none.
        stop: when to stop before the last epoch.

    Raises:
        ValueError: options exclude each other.
        VestigeError: the model or its vocabulary cannot be read, or the training fails.
    """
    own = ReadRecords.of(texts.training, texts.held)
    descent = lineage(job.out, own, start=job.start, vocabulary=model.vocabulary)
    privacy.check_vocabulary(defence, descent, continued=job.start is not None)
    network, config = beginning(job, texts, task=task, preset=preset, model=model)
    config = configured(config, network, task=task, training=training, defence=defence)
    job.record(network, texts.training, texts.held)
    data = _encoded(job, texts.training, network, "training")
    held = _encoded(job, texts.held, network, "validation") if len(texts.held) else None

    plan = _plan(job, data, config, defence)
    entry = privacy.entry_of(defence, plan, config, descent)
    statement = None
    if plan is not None:
        statement = privacy.statement_of(plan, entry, texts, descent)
        privacy.announce(statement, config.batch_size, job.run.monitor)
    used_defence: Defence = defence if plan is None else plan.defence
    history = job.learn(
        network,
        TextTask(data, held),
        config,
        lineage=descent,
        entry=entry,
        step=used_defence.step(network, data, config),
        stop=stop,
        secret=None if plan is None else plan.defence.secret(),
    )
    if plan is not None and statement is not None:
        steps = history.epochs[-1].step
        statement = privacy.conclude(statement, plan, steps, job.out / RUN, job.run.monitor)
    if not job.finished:
        frequencies = word_frequencies(data, held, len(network.vocabulary))
        trained = DefendedTraining(history, used_defence.name, statement, frequencies)
        settings = {**used(config, network), "defence": settings_of(used_defence)}
        terms = {} if statement is None else {"privacy": statement.terms()}
        job.save(trained, settings, division=texts.division.summary(), **terms)
    if statement is not None and (advice := clip_advice(job.out / LOG)) is not None:
        job.run.log(advice)
    found = job.found(history)
    log_kept(found.summary, len(network.vocabulary), stop, job.run.monitor)
    return found


def beginning(
    job: TrainingRun, texts: Texts, *, task: str, preset: str | None, model: ModelOptions
) -> tuple[LanguageModel, TrainingConfig]:
    """The model before the first step, on its device, and the training that suits it.

    Raises:
        ValueError: `lora_rank` does not go with the model.
        VestigeError: the model or its vocabulary cannot be read.
    """
    if job.start is None:
        plan = _chosen_preset(task, preset, model)
        keep = tuple(one.phrase for one in texts.planted.canaries) if texts.planted else ()
        network = _new(job, plan, model, texts.division.within_cap, keep)
        return network, replace(plan.training, seed=job.run.seed)
    network = _continued(job, model)
    suits = gentle(network) if preset is None else _chosen_preset(task, preset, model).training
    return network, replace(suits, seed=job.run.seed)


def configured(
    config: TrainingConfig,
    model: LanguageModel,
    *,
    task: str,
    training: TrainingOptions,
    defence: Defence,
) -> TrainingConfig:
    """The configuration of a training, with the options that were given, suited to the defence.

    Raises:
        ValueError: an option does not go with the model or the defence.
    """
    if task == "next-word":  # a defence turns a stream into the batches that it needs
        config = replace(config, batching="documents" if defence.name == "none" else "stream")
    config = replace(config, **training.chosen)
    longest: int | None = getattr(model, "longest", None)  # of a transformer
    if longest is not None and config.sequence_length > longest:
        raise ValueError(
            f"`sequence_length` must be at most {longest}, the context of the model, got "
            f"{config.sequence_length}"
        )
    return defence.suited(config, training.given)


def _chosen_preset(task: str, name: str | None, model: ModelOptions) -> Preset[Shape]:
    """The preset, with the sizes that were given."""
    if task == "next-word":
        name = "next-word"
    elif name is None:
        name = "reddit-transformer" if model.architecture == "transformer" else "ptb-lstm"
    plan = presets.preset(name)
    config, kind = plan.model, KINDS.get(model.architecture, type(plan.model))
    if issubclass(kind, RecurrentConfig) and isinstance(config, RecurrentConfig):
        config = kind(**asdict(config))
    elif not isinstance(config, kind):
        config = kind()
    shape: dict[str, Any] = model.shape
    if task == "next-word" and "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    return replace(plan, model=replace(config, **shape))


def _new(
    job: TrainingRun,
    plan: Preset[Shape],
    model: ModelOptions,
    corpus: Corpus,
    keep: tuple[str, ...],
) -> LanguageModel:
    """A new model.

    Args:
        job: with seed and device.
        plan: its shape, and its usual vocabulary size.
        model: its vocabulary.
        corpus: from which a vocabulary is learned.
        keep: texts whose words the vocabulary must have, such as canaries.
    """
    device = choose_device(job.run.device)
    if model.vocabulary is not None:
        vocabulary = vocabulary_of(model.vocabulary)
    else:
        vocabulary = learn_vocabulary(
            corpus, model.tokenizer, size=model.vocab_size, usual=plan.vocabulary_size, keep=keep
        )
    return new_model(vocabulary, plan.model, seed=job.run.seed).to(device)


def vocabulary_of(model: Any) -> Vocabulary:
    """The vocabulary of a model, or of the model in a folder."""
    if isinstance(model, str | PathLike):
        return borrow(fspath(model))
    vocabulary: Vocabulary = model.vocabulary
    return vocabulary


def _continued(job: TrainingRun, options: ModelOptions) -> LanguageModel:
    """The model to continue; a copy of a loaded one, because training changes the weights.

    Raises:
        ValueError: it is an adapter, or no Hugging Face model where an adapter is wanted.
    """
    start = job.start
    path = isinstance(start, str | PathLike)
    model = load_model(fspath(start), device=job.run.device) if path else deepcopy(start)
    named = fspath(start) if path else type(start).__name__
    if getattr(model, "adapted", False):
        raise ValueError(
            f"`from_` must be a model whose weights can be trained, got the adapter {named}. "
            "Give its base with `lora_rank`, or merge the adapter into its base"
        )
    if options.lora_rank is None:
        return model
    if not isinstance(model, HuggingFaceLanguageModel):
        raise ValueError(f"`lora_rank` needs a Hugging Face model in `from_`, got {named}")
    with torch.random.fork_rng():
        torch.manual_seed(job.run.seed)
        return add_lora(model, rank=options.lora_rank, alpha=options.lora_alpha)


def _encoded(job: TrainingRun, corpus: Corpus, model: LanguageModel, part: str) -> EncodedCorpus:
    """A part of the text as token ids, kept in the directory; a resumed training reads them."""
    with job.run.progress("encoding") as step:
        return encode(
            corpus,
            model.vocabulary,
            job.out / DATA / part,
            replace=not job.begun,
            progress=lambda done: step(done, len(corpus)),
        )


def _plan(
    job: TrainingRun, data: EncodedCorpus, config: TrainingConfig, defence: Defence
) -> PrivacyPlan | None:
    """A private defence with its noise; None for other defences."""
    if not isinstance(defence, PrivateDefence):
        return None
    with job.run.progress("computing the noise for epsilon") as step:
        return defence.planned(data, config, lambda tried: step(tried))


def word_frequencies(
    training: EncodedCorpus, held: EncodedCorpus | None, size: int
) -> dict[str, object]:
    """Perplexity of word frequencies on the validation text, or else on the training text."""
    alone = frequency_perplexity(training, training if held is None else held, size=size)
    return {FREQUENCIES: alone, JUDGED_BY: "training" if held is None else "validation"}
