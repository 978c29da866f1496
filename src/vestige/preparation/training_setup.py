"""Set up the training of a language model or of a model of text pairs: model, data, settings."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode, encode_pairs, sources_of
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary, WordVocabulary, load_vocabulary
from vestige.defences.registry import Defence, in_backticks
from vestige.models.checkpoints import SOURCE, load_model, load_seq2seq
from vestige.models.folders import model_folder
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel, choose_device
from vestige.models.recurrent_network import GRUConfig, LSTMConfig, RecurrentConfig
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.transformer import TransformerConfig
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.preparation.texts import Texts
from vestige.session import Session
from vestige.training.config import TrainingConfig
from vestige.training.directory import DATA, IDENTITY
from vestige.training.evaluate import bleu, score_pairs
from vestige.training.history import EarlyStopping, StopAtPerplexity
from vestige.training.new_models import new_model, new_seq2seq
from vestige.training.presets import Preset, Shape, gentle, preset_of
from vestige.training.presets import preset as preset_by_name
from vestige.training.tasks import PairTask, TextTask
from vestige.training.word_frequencies import FREQUENCIES, JUDGED_BY, frequency_perplexity

KINDS: dict[str | None, Any] = {
    "lstm": LSTMConfig,
    "gru": GRUConfig,
    "transformer": TransformerConfig,
}
BPE_SIZE = 4096


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """A model before its first step, and the inputs of its training.

    Attributes:
        kind: kind of the result.
        model: the model on its device.
        task: the encoded texts with their loss.
        config: settings of the training.
        measure: measures entries of the summary after the training.
        defence: the defence; None for a task without defences.
        stop: rule for stopping early; None for none.
        unused: settings of `config` that the task does not use.
        recorded: further settings for the record.
    """

    kind: str
    model: Any
    task: Any
    config: TrainingConfig
    measure: Callable[[], Mapping[str, object]]
    defence: Defence | None = None
    stop: StopAtPerplexity | EarlyStopping | None = None
    unused: Sequence[str] = ()
    recorded: Mapping[str, object] = field(default_factory=dict)


def model_to_continue(start: Any, load: Callable[..., Any], device: str) -> Any:
    """Load the model to continue, or copy a loaded one, because training changes its weights."""
    return load(fspath(start), device=device) if is_path(start) else deepcopy(start)


def is_path(model: object) -> bool:
    """Whether a model is given as a path."""
    return isinstance(model, str | PathLike)


def _learn_vocabulary(
    corpus: Corpus,
    model: ModelOptions,
    default_size: int | None,
    required_texts: Sequence[str] = (),
) -> Vocabulary:
    """Learn a vocabulary from a corpus; it also has all words of `required_texts`."""
    if model.tokenizer == "bpe":
        return SubwordVocabulary.train_bpe(corpus, size=model.vocab_size or BPE_SIZE)
    return WordVocabulary.build(
        corpus,
        size=model.vocab_size or default_size,
        tokenise=model.tokenizer or "whitespace",
        keep=tuple(required_texts),
    )


# Running text, or the texts of users one by one


def text_setup(
    run: Session,
    texts: Texts,
    start: Any,
    *,
    task: str,
    preset: str | None,
    model: ModelOptions,
    training: TrainingOptions,
    defence: Defence,
) -> TrainingSetup:
    """Set up a language model and its text, which is encoded into the training directory."""
    stop = training.stop(validated=len(texts.validation) > 0)
    if start is None:
        plan = _preset_with_sizes(task, preset, model)
        network, config = _new_text_model(run, plan, model, texts), plan.training
    elif preset is not None:
        config = _preset_with_sizes(task, preset, model).training
        network = _continued_model(run, start, model)
    else:
        network = _continued_model(run, start, model)
        config = gentle(network)
    config = replace(config, seed=run.seed)
    if task == "next-word":  # a defence changes a stream to its own batches
        config = replace(config, batching="documents" if defence.name == "none" else "stream")
    config = replace(config, **training.chosen)
    if network.longest is not None and config.sequence_length > network.longest:
        raise ValueError(
            f"`sequence_length` must be at most {network.longest}, the context of the model, got "
            f"{config.sequence_length}"
        )
    config = defence.suited(config, training.given)
    data = _encode(run, texts.training, network, "training")
    has_validation = len(texts.validation) > 0
    validation = _encode(run, texts.validation, network, "validation") if has_validation else None
    return TrainingSetup(
        kind="DefendedTraining",
        model=network,
        task=TextTask(data, validation),
        config=config,
        defence=defence,
        stop=stop,
        measure=partial(_word_frequency_scores, data, validation, len(network.vocabulary)),
    )


def _preset_with_sizes(task: str, name: str | None, model: ModelOptions) -> Preset[Shape]:
    """The preset with the sizes of the options."""
    if task == "next-word":
        name = "next-word"
    elif name is None:
        name = "reddit-transformer" if model.architecture == "transformer" else "ptb-lstm"
    with in_backticks("preset"):
        plan = preset_by_name(name)
    network, kind = plan.model, KINDS.get(model.architecture, type(plan.model))
    if issubclass(kind, RecurrentConfig) and isinstance(network, RecurrentConfig):
        network = kind(**asdict(network))
    elif not isinstance(network, kind):
        network = kind()
    shape = model.shape
    if task == "next-word" and "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    return replace(plan, model=replace(network, **shape))


def _new_text_model(
    run: Session, plan: Preset[Shape], model: ModelOptions, texts: Texts
) -> LanguageModel:
    """A new model. A learned vocabulary has all words of the canaries."""
    source: Any = model.vocabulary
    if source is not None:
        vocabulary = load_vocabulary(model_folder(source)) if is_path(source) else source.vocabulary
    else:
        assert texts.division is not None
        canaries: Sequence[Any] = texts.planted.canaries if texts.planted else ()
        corpus, phrases = texts.division.within_cap, [canary.phrase for canary in canaries]
        vocabulary = _learn_vocabulary(corpus, model, plan.vocabulary_size, phrases)
    return new_model(vocabulary, plan.model, seed=run.seed).to(choose_device(run.device))


def _continued_model(run: Session, start: Any, options: ModelOptions) -> LanguageModel:
    """The model to continue, with a new adapter if `lora_rank` is set."""
    model: LanguageModel = model_to_continue(start, load_model, run.device)
    name = fspath(start) if is_path(start) else type(start).__name__
    if model.adapted:
        raise ValueError(
            f"`from_` must be a model whose weights can be trained, got the adapter {name}. "
            "Give its base with `lora_rank`, or merge the adapter into its base"
        )
    if options.lora_rank is None:
        return model
    if not isinstance(model, HuggingFaceLanguageModel):
        raise ValueError(f"`lora_rank` needs a Hugging Face model in `from_`, got {name}")
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        return add_lora(model, rank=options.lora_rank, alpha=options.lora_alpha)


def _encode(run: Session, corpus: Corpus, model: LanguageModel, part: str) -> EncodedCorpus:
    """Encode a part of the text into the training directory; a resumed training reads it there."""
    out = Path(run.arguments["out"])
    with run.progress("encoding") as step:
        return encode(
            corpus,
            model.vocabulary,
            out / DATA / part,
            replace=not (out / IDENTITY).exists(),
            progress=lambda done: step(done, len(corpus)),
        )


def _word_frequency_scores(
    training: EncodedCorpus, validation: EncodedCorpus | None, size: int
) -> dict[str, object]:
    """Perplexity of word frequencies on the validation text, else on the training text."""
    name, text = ("training", training) if validation is None else ("validation", validation)
    return {FREQUENCIES: frequency_perplexity(training, text, size=size), JUDGED_BY: name}


# Pairs of texts


def pair_setup(
    run: Session,
    texts: Texts,
    start: Any,
    *,
    task: str,
    model: ModelOptions,
    training: TrainingOptions,
) -> TrainingSetup:
    """Set up an encoder-decoder that translates or answers, and its text pairs."""
    validation = texts.validation if len(texts.validation) else None
    plan: Preset[Seq2SeqConfig] = preset_of(task)
    config = replace(plan.training, seed=run.seed, **training.chosen)
    stop = training.stop(validated=validation is not None)
    if start is not None:
        network = model_to_continue(start, load_seq2seq, run.device)
    else:
        network = _new_pair_model(run, plan, model, texts)
    vocabularies = (network.source_vocabulary, network.vocabulary)
    pairs = PairTask(
        encode_pairs(texts.training, *vocabularies),
        None if validation is None else encode_pairs(validation, *vocabularies),
        tuple(validation) if validation is not None and task == "translation" else None,
    )

    def measure() -> dict[str, object]:
        summary: dict[str, object] = {"task": task, "cell": network.config.cell}
        summary["attention"] = network.config.attention
        if pairs.validation is None:
            return summary
        data, length = pairs.validation, config.sequence_length
        scores = score_pairs(network, data, length=length).summary(data.targets.users)
        if pairs.references is not None:
            sources, references = data.sources, pairs.references
            result = bleu(network, sources, references, length=length, seed=config.seed)
            interval = {"bleu_low": result.score.low, "bleu_high": result.score.high}
            scores |= {"bleu": result.score.value, **interval, "bleu_signature": result.signature}
        return summary | {f"validation_{name}": value for name, value in scores.items()}

    return TrainingSetup(
        kind="PairTraining", model=network, task=pairs, config=config, stop=stop, measure=measure
    )


def _new_pair_model(
    run: Session, plan: Preset[Seq2SeqConfig], model: ModelOptions, texts: Texts
) -> Seq2SeqModel:
    shape = model.shape
    if "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    if model.architecture is not None:
        shape["cell"] = model.architecture
    vocabularies = _vocabularies_of(model.vocabulary)
    if vocabularies is None:
        assert texts.division is not None
        corpus = texts.division.within_cap
        vocabularies = (
            _learn_vocabulary(sources_of(corpus), model, plan.vocabulary_size),
            _learn_vocabulary(corpus, model, plan.vocabulary_size),
        )
    network = new_seq2seq(*vocabularies, replace(plan.model, **shape), seed=run.seed)
    return network.to(choose_device(run.device))


def _vocabularies_of(model: Any) -> tuple[Vocabulary, Vocabulary] | None:
    """The source and target vocabularies of a model."""
    if model is None:
        return None
    if not is_path(model) and hasattr(model, "source_vocabulary"):
        return model.source_vocabulary, model.vocabulary
    if is_path(model):
        folder = model_folder(fspath(model))
        if (folder / SOURCE).is_dir() or not folder.is_dir():
            return load_vocabulary(folder / SOURCE), load_vocabulary(folder)
    raise ValueError(
        "`vocabulary` must be a model of `task` translation or dialogue, which also has a "
        f"vocabulary of sources, got {model if is_path(model) else type(model).__name__}"
    )
