"""Training on pairs of texts: a model that translates, or that answers."""

from copy import deepcopy
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from vestige.data.encoded import encode_pairs, sources_of
from vestige.data.vocabulary import Vocabulary
from vestige.models.checkpoints import SOURCE, load_seq2seq
from vestige.models.folders import model_folder
from vestige.models.protocols import choose_device
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.preparation.recipe import Prepared
from vestige.preparation.texts import Texts
from vestige.session import Session
from vestige.training.evaluate import score_pairs
from vestige.training.pairs import PairTask
from vestige.training.presets import Preset, new_seq2seq, pair_preset
from vestige.training.scored_texts import with_intervals
from vestige.training.translations import bleu
from vestige.training.vocabularies import borrow, learn_vocabulary


def prepared_pairs(
    run: Session,
    texts: Texts,
    *,
    task: str,
    start: Any,
    model: ModelOptions,
    training: TrainingOptions,
) -> Prepared:
    """An encoder-decoder and its pairs; the trained model is scored on the validation text.

    Args:
        run: the call.
        texts: what it reads, with their sources.
        task: "translation" or "dialogue".
        start: the model to continue, or None.
        model: of a new model.
        training: how it is trained.

    Raises:
        ValueError: options exclude each other.
        VestigeError: the model or its vocabulary cannot be read.
    """
    learned, held = texts.training, texts.held if len(texts.held) else None
    plan = pair_preset(task)
    config = replace(plan.training, seed=run.seed, **training.chosen)
    stop = training.stop(validated=held is not None)
    network = _beginning(run, plan, model, texts, start)
    both = (network.source_vocabulary, network.vocabulary)
    pairs = PairTask(
        encode_pairs(learned, *both),
        None if held is None else encode_pairs(held, *both),
        tuple(held) if held is not None and task == "translation" else None,
    )

    def scores() -> dict[str, object]:
        settings = {"cell": network.config.cell, "attention": network.config.attention}
        found = _scores(network, pairs, length=config.sequence_length, seed=config.seed)
        return {"task": task, **settings, **found}

    return Prepared(
        kind="PairTraining", model=network, task=pairs, config=config, stop=stop, scores=scores
    )


def _beginning(
    run: Session, plan: Preset[Seq2SeqConfig], model: ModelOptions, texts: Texts, start: Any
) -> Seq2SeqModel:
    """The model before the first step, on its device."""
    if isinstance(start, str | PathLike):
        return load_seq2seq(fspath(start), device=run.device)
    if start is not None:
        return deepcopy(start)  # type: ignore[no-any-return]
    shape = model.shape
    if "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    if model.architecture is not None:
        shape["cell"] = model.architecture
    source, target = _vocabularies(model, plan, texts)
    network = new_seq2seq(source, target, replace(plan.model, **shape), seed=run.seed)
    return network.to(choose_device(run.device))


def _vocabularies(
    model: ModelOptions, plan: Preset[Seq2SeqConfig], texts: Texts
) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of sources and of targets."""
    given: Any = model.vocabulary
    if given is None:
        assert texts.division is not None
        corpus = texts.division.within_cap
        source, target = (
            learn_vocabulary(
                part, model.tokenizer, size=model.vocab_size, usual=plan.vocabulary_size
            )
            for part in (sources_of(corpus), corpus)
        )
        return source, target
    path = isinstance(given, str | PathLike)
    folder = model_folder(fspath(given)) if path else None
    if folder is not None and ((folder / SOURCE).is_dir() or not folder.is_dir()):
        return borrow(folder / SOURCE), borrow(folder)
    if folder is None and hasattr(given, "source_vocabulary"):
        return given.source_vocabulary, given.vocabulary
    raise ValueError(
        "`vocabulary` must be a model of `task` translation or dialogue, which also has a "
        f"vocabulary of sources, got {given if path else type(given).__name__}"
    )


def _scores(model: Seq2SeqModel, pairs: PairTask, *, length: int, seed: int) -> dict[str, Any]:
    """Accuracy, perplexity and BLEU on the validation text, with intervals."""
    held = pairs.validation
    if held is None:
        return {}
    found = None
    if pairs.references is not None:
        found = bleu(model, held.sources, pairs.references, length=length, seed=seed)
    scored = with_intervals(score_pairs(model, held, length=length), held.targets.users, bleu=found)
    return {f"validation_{name}": value for name, value in scored.summary().items()}
