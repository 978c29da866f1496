"""Model and configuration with which a training of running text begins."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from os import PathLike, fspath
from typing import Any

import torch

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import Vocabulary
from vestige.models import provenance
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel, choose_device
from vestige.models.recurrent_network import GRUConfig, LSTMConfig, RecurrentConfig
from vestige.models.transformer import TransformerConfig
from vestige.training.config import TrainingConfig
from vestige.training.presets import Preset, Shape, gentle, new_model, preset
from vestige.training.vocabularies import borrow, learn_vocabulary
from vestige.workflows.train import TrainingRequest


def prepare(
    request: TrainingRequest, corpus: Corpus, keep: tuple[str, ...] = ()
) -> tuple[LanguageModel, TrainingConfig]:
    """The model to train, on its device, and the configuration.

    Args:
        keep: texts whose words a fresh vocabulary must have, such as canaries.

    Raises:
        ValueError: parameters contradict each other.
        VestigeError: model or vocabulary cannot be had.
    """
    request.model.check_start(request.start)
    one_by_one = request.task == "next-word"
    if request.start is None:
        plan = _plan(request)
        model, config = _fresh(request, plan, corpus, keep), plan.training
    else:
        model = _continued(request, request.start)
        config = gentle(model) if request.preset is None else _plan(request).training
    if one_by_one:  # a defence turns a stream into the batches that it needs
        undefended = request.defence.name == "none"
        config = replace(config, batching="documents" if undefended else "stream")
    config = replace(config, seed=request.seed, **request.training.chosen)
    longest: int | None = getattr(model, "longest", None)  # a transformer's
    if longest is not None and config.sequence_length > longest:
        raise ValueError(
            f"`sequence_length` must be at most {longest}, all that the model reads at once, got "
            f"{config.sequence_length}"
        )
    return model, config


def _plan(request: TrainingRequest) -> Preset[Shape]:
    """The preset with the network's settings that were asked for."""
    asked, one_by_one = request.model, request.task == "next-word"
    suits = "reddit-transformer" if asked.architecture == "transformer" else "ptb-lstm"
    plan = preset("next-word" if one_by_one else request.preset or suits)
    kinds: dict[str | None, Any] = {
        None: type(plan.model),
        "lstm": LSTMConfig,
        "gru": GRUConfig,
        "transformer": TransformerConfig,
    }
    config, kind = plan.model, kinds[asked.architecture]
    if issubclass(kind, RecurrentConfig) and isinstance(config, RecurrentConfig):
        config = kind(**asdict(config))
    elif not isinstance(config, kind):
        config = kind()
    shape: dict[str, Any] = asked.shape
    if one_by_one and "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    return replace(plan, model=replace(config, **shape))


def _fresh(
    request: TrainingRequest, plan: Preset[Shape], corpus: Corpus, keep: tuple[str, ...]
) -> LanguageModel:
    where, asked = choose_device(request.device), request.model
    if asked.vocabulary is not None:
        vocabulary = vocabulary_of(asked.vocabulary)
    else:
        vocabulary = learn_vocabulary(
            corpus,
            asked.tokenizer,
            size=asked.vocab_size,
            usual=plan.vocabulary_size,
            keep=keep,
        )
    return new_model(vocabulary, plan.model, seed=request.seed).to(where)


def vocabulary_of(model: Any) -> Vocabulary:
    """The vocabulary of a model: of its path, or of a loaded one."""
    if isinstance(model, str | PathLike):
        return borrow(fspath(model))
    vocabulary: Vocabulary = model.vocabulary
    return vocabulary


def _continued(request: TrainingRequest, start: Any) -> LanguageModel:
    """The model to go on with; of a loaded one a copy, since training moves the weights.

    Raises:
        ValueError: it is no Hugging Face model and an adapter is asked for, or it is an adapter,
            whose weights are frozen.
    """
    path = isinstance(start, str | PathLike)
    model = load_model(fspath(start), device=request.device) if path else deepcopy(start)
    named = fspath(start) if path else type(start).__name__
    rank = request.model.lora_rank
    if getattr(model, "adapted", False):
        raise ValueError(
            f"`start` must name a model whose weights can be trained, got {named}, an adapter, "
            "which is frozen: give its base with `lora_rank`, or merge the adapter into its base"
        )
    if rank is None:
        return model
    if not isinstance(model, HuggingFaceLanguageModel):
        raise ValueError(f"`lora_rank` needs a Hugging Face model in `start`, got {named}")
    with torch.random.fork_rng():
        torch.manual_seed(request.seed)
        return add_lora(model, rank=rank, alpha=request.model.lora_alpha)


def read_by(
    request: TrainingRequest, training: Any, validation: Any = None, test: Any = None
) -> dict[str, tuple[object, Any]]:
    """Where each role's text was read, and the text; None for a text there is not."""
    other = request.data if request.validation is None else request.validation
    read = {
        "training": (request.data, training),
        "validation": (other, validation),
        "test": (request.data, test),
    }
    return {role: one for role, one in read.items() if one[1] is not None}


def provenance_of(
    request: TrainingRequest, model: Any, data: Mapping[str, tuple[object, Any]]
) -> dict[str, Any]:
    """What a run records of the models and texts of a training; see `read_by`."""
    models = {"trained": provenance.of_network(model)}
    if request.start is not None:
        path = isinstance(request.start, str | PathLike)
        models["from"] = provenance.of_model(request.start, model if path else request.start)
    found = {role: provenance.of_corpus(*one) for role, one in data.items()}
    return {"models": models, "data": found}
