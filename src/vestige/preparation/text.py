"""Training on running text or on users' texts one by one, under any defence."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import Vocabulary
from vestige.defences.registry import Defence, in_backticks
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel, choose_device
from vestige.models.recurrent_network import GRUConfig, LSTMConfig, RecurrentConfig
from vestige.models.transformer import TransformerConfig
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.preparation.recipe import Prepared
from vestige.preparation.texts import Texts
from vestige.session import Session
from vestige.training import presets
from vestige.training.config import TrainingConfig
from vestige.training.directory import DATA, IDENTITY
from vestige.training.presets import Preset, Shape, gentle, new_model
from vestige.training.training_task import TextTask
from vestige.training.vocabularies import borrow, learn_vocabulary
from vestige.training.word_frequencies import FREQUENCIES, JUDGED_BY, frequency_perplexity

KINDS: dict[str | None, Any] = {
    "lstm": LSTMConfig,
    "gru": GRUConfig,
    "transformer": TransformerConfig,
}


def prepared_text(
    run: Session,
    texts: Texts,
    *,
    task: str,
    start: Any,
    preset: str | None,
    model: ModelOptions,
    training: TrainingOptions,
    defence: Defence,
) -> Prepared:
    """A language model and its text, encoded in the directory of the training.

    Args:
        run: the call, with `out`.
        texts: what it reads.
        task: "text", or "next-word" for texts one by one.
        start: the model to continue, or None.
        preset: by name; None for the one that suits.
        model: of a new model, or an adapter.
        training: how it is trained.
        defence: `NoDefence` for none.

    Raises:
        ValueError: options exclude each other, or do not go with the model.
        VestigeError: the model or its vocabulary cannot be read.
    """
    stop = training.stop(validated=len(texts.held) > 0)
    plan = _chosen_preset(task, preset, model) if start is None or preset is not None else None
    if start is None and plan is not None:
        network = _new(run, plan, model, texts)
    else:
        network = _continued(run, start, model)
    config = replace(gentle(network) if plan is None else plan.training, seed=run.seed)
    if task == "next-word":  # a defence turns a stream into the batches that it needs
        config = replace(config, batching="documents" if defence.name == "none" else "stream")
    config = replace(config, **training.chosen)
    _check_window(config, network)
    config = defence.suited(config, training.given)
    data = _encoded(run, texts.training, network, "training")
    held = _encoded(run, texts.held, network, "validation") if len(texts.held) else None
    return Prepared(
        kind="DefendedTraining",
        model=network,
        task=TextTask(data, held),
        config=config,
        defence=defence,
        stop=stop,
        scores=partial(word_frequencies, data, held, len(network.vocabulary)),
    )


def _check_window(config: TrainingConfig, model: LanguageModel) -> None:
    longest = model.longest
    if longest is not None and config.sequence_length > longest:
        raise ValueError(
            f"`sequence_length` must be at most {longest}, the context of the model, got "
            f"{config.sequence_length}"
        )


def _chosen_preset(task: str, name: str | None, model: ModelOptions) -> Preset[Shape]:
    """The preset, with the sizes that were given."""
    if task == "next-word":
        name = "next-word"
    elif name is None:
        name = "reddit-transformer" if model.architecture == "transformer" else "ptb-lstm"
    with in_backticks("preset"):
        plan = presets.preset(name)
    config, kind = plan.model, KINDS.get(model.architecture, type(plan.model))
    if issubclass(kind, RecurrentConfig) and isinstance(config, RecurrentConfig):
        config = kind(**asdict(config))
    elif not isinstance(config, kind):
        config = kind()
    shape = model.shape
    if task == "next-word" and "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    return replace(plan, model=replace(config, **shape))


def _new(run: Session, plan: Preset[Shape], model: ModelOptions, texts: Texts) -> LanguageModel:
    """A new model; a vocabulary that is learned has all words of the canaries."""
    if model.vocabulary is not None:
        vocabulary = vocabulary_of(model.vocabulary)
    else:
        assert texts.division is not None
        canaries: Sequence[Any] = texts.planted.canaries if texts.planted else ()
        vocabulary = learn_vocabulary(
            texts.division.within_cap,
            model.tokenizer,
            size=model.vocab_size,
            usual=plan.vocabulary_size,
            keep=tuple(one.phrase for one in canaries),
        )
    return new_model(vocabulary, plan.model, seed=run.seed).to(choose_device(run.device))


def vocabulary_of(model: Any) -> Vocabulary:
    """The vocabulary of a model, or of the model in a folder."""
    if isinstance(model, str | PathLike):
        return borrow(fspath(model))
    return model.vocabulary  # type: ignore[no-any-return]


def _continued(run: Session, start: Any, options: ModelOptions) -> LanguageModel:
    """The model to continue; a copy of a loaded one, because training changes the weights.

    Raises:
        ValueError: it is an adapter, or no Hugging Face model where an adapter is wanted.
    """
    path = isinstance(start, str | PathLike)
    model = load_model(fspath(start), device=run.device) if path else deepcopy(start)
    named = fspath(start) if path else type(start).__name__
    if model.adapted:
        raise ValueError(
            f"`from_` must be a model whose weights can be trained, got the adapter {named}. "
            "Give its base with `lora_rank`, or merge the adapter into its base"
        )
    if options.lora_rank is None:
        return model
    if not isinstance(model, HuggingFaceLanguageModel):
        raise ValueError(f"`lora_rank` needs a Hugging Face model in `from_`, got {named}")
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        return add_lora(model, rank=options.lora_rank, alpha=options.lora_alpha)


def _encoded(run: Session, corpus: Corpus, model: LanguageModel, part: str) -> EncodedCorpus:
    """A part of the text as token ids, kept in the directory; a resumed training reads them."""
    out = Path(run.arguments["out"])
    with run.progress("encoding") as step:
        return encode(
            corpus,
            model.vocabulary,
            out / DATA / part,
            replace=not (out / IDENTITY).exists(),
            progress=lambda done: step(done, len(corpus)),
        )


def word_frequencies(
    training: EncodedCorpus, held: EncodedCorpus | None, size: int
) -> dict[str, object]:
    """Perplexity of word frequencies on the validation text, or else on the training text."""
    alone = frequency_perplexity(training, training if held is None else held, size=size)
    return {FREQUENCIES: alone, JUDGED_BY: "training" if held is None else "validation"}
