"""A model before its first step, with its data: of text, or of pairs of texts."""

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
from vestige.training.presets import preset as preset_named
from vestige.training.tasks import PairTask, TextTask
from vestige.training.word_frequencies import FREQUENCIES, JUDGED_BY, frequency_perplexity

KINDS: dict[str | None, Any] = {
    "lstm": LSTMConfig,
    "gru": GRUConfig,
    "transformer": TransformerConfig,
}
BPE_SIZE = 4096


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model before its first step, and all that its training needs.

    Attributes:
        kind: of the result.
        model: on its device.
        task: the encoded texts with their loss.
        config: of the training.
        scores: entries of the summary that are measured after the training.
        defence: of the training; None for a task without defences.
        stop: when to stop before the last epoch; None for never.
        unused: settings of `config` that the task does not have.
        recorded: further settings for the record.
    """

    kind: str
    model: Any
    task: Any
    config: TrainingConfig
    scores: Callable[[], Mapping[str, object]]
    defence: Defence | None = None
    stop: StopAtPerplexity | EarlyStopping | None = None
    unused: Sequence[str] = ()
    recorded: Mapping[str, object] = field(default_factory=dict)


def loaded(start: Any, load: Callable[..., Any], device: str) -> Any:
    """The model to continue: read from a path, or a copy, because training changes the weights."""
    return load(fspath(start), device=device) if is_path(start) else deepcopy(start)


def is_path(given: object) -> bool:
    """Whether a model is given by its path."""
    return isinstance(given, str | PathLike)


def _learned(
    corpus: Corpus, model: ModelOptions, usual: int | None, keep: Sequence[str] = ()
) -> Vocabulary:
    """A vocabulary of a corpus, with all words of the texts to `keep`."""
    if model.tokenizer == "bpe":
        return SubwordVocabulary.train_bpe(corpus, size=model.vocab_size or BPE_SIZE)
    return WordVocabulary.build(
        corpus,
        size=model.vocab_size or usual,
        tokenise=model.tokenizer or "whitespace",
        keep=tuple(keep),
    )


# Running text, or users' texts one by one


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
    """A language model and its text, encoded in the directory of the training."""
    stop = training.stop(validated=len(texts.held) > 0)
    plan = _chosen_preset(task, preset, model) if start is None or preset is not None else None
    if start is None and plan is not None:
        network = _new_text_model(run, plan, model, texts)
    else:
        network = _continued(run, start, model)
    config = replace(gentle(network) if plan is None else plan.training, seed=run.seed)
    if task == "next-word":  # a defence turns a stream into the batches that it needs
        config = replace(config, batching="documents" if defence.name == "none" else "stream")
    config = replace(config, **training.chosen)
    if network.longest is not None and config.sequence_length > network.longest:
        raise ValueError(
            f"`sequence_length` must be at most {network.longest}, the context of the model, got "
            f"{config.sequence_length}"
        )
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
        scores=partial(_word_frequencies, data, held, len(network.vocabulary)),
    )


def _chosen_preset(task: str, name: str | None, model: ModelOptions) -> Preset[Shape]:
    """The preset, with the sizes that were given."""
    if task == "next-word":
        name = "next-word"
    elif name is None:
        name = "reddit-transformer" if model.architecture == "transformer" else "ptb-lstm"
    with in_backticks("preset"):
        plan = preset_named(name)
    config, kind = plan.model, KINDS.get(model.architecture, type(plan.model))
    if issubclass(kind, RecurrentConfig) and isinstance(config, RecurrentConfig):
        config = kind(**asdict(config))
    elif not isinstance(config, kind):
        config = kind()
    shape = model.shape
    if task == "next-word" and "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    return replace(plan, model=replace(config, **shape))


def _new_text_model(
    run: Session, plan: Preset[Shape], model: ModelOptions, texts: Texts
) -> LanguageModel:
    """A new model; a vocabulary that is learned has all words of the canaries."""
    given: Any = model.vocabulary
    if given is not None:
        vocabulary = load_vocabulary(model_folder(given)) if is_path(given) else given.vocabulary
    else:
        assert texts.division is not None
        canaries: Sequence[Any] = texts.planted.canaries if texts.planted else ()
        corpus, phrases = texts.division.within_cap, [one.phrase for one in canaries]
        vocabulary = _learned(corpus, model, plan.vocabulary_size, phrases)
    return new_model(vocabulary, plan.model, seed=run.seed).to(choose_device(run.device))


def _continued(run: Session, start: Any, options: ModelOptions) -> LanguageModel:
    """The model to continue, with an adapter if one is trained."""
    model: LanguageModel = loaded(start, load_model, run.device)
    named = fspath(start) if is_path(start) else type(start).__name__
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


def _word_frequencies(
    training: EncodedCorpus, held: EncodedCorpus | None, size: int
) -> dict[str, object]:
    """Perplexity of word frequencies on the validation text, or else on the training text."""
    alone = frequency_perplexity(training, training if held is None else held, size=size)
    return {FREQUENCIES: alone, JUDGED_BY: "training" if held is None else "validation"}


# Pairs of texts


def prepared_pairs(
    run: Session,
    texts: Texts,
    *,
    task: str,
    start: Any,
    model: ModelOptions,
    training: TrainingOptions,
) -> Prepared:
    """An encoder-decoder that translates or answers, and its pairs."""
    held = texts.held if len(texts.held) else None
    plan: Preset[Seq2SeqConfig] = preset_of(task)
    config = replace(plan.training, seed=run.seed, **training.chosen)
    stop = training.stop(validated=held is not None)
    if start is not None:
        network = loaded(start, load_seq2seq, run.device)
    else:
        network = _new_pair_model(run, plan, model, texts)
    both = (network.source_vocabulary, network.vocabulary)
    pairs = PairTask(
        encode_pairs(texts.training, *both),
        None if held is None else encode_pairs(held, *both),
        tuple(held) if held is not None and task == "translation" else None,
    )

    def scores() -> dict[str, object]:
        found: dict[str, object] = {"task": task, "cell": network.config.cell}
        found["attention"] = network.config.attention
        if pairs.validation is None:
            return found
        data, length = pairs.validation, config.sequence_length
        scored = score_pairs(network, data, length=length).summary(data.targets.users)
        if pairs.references is not None:
            sources, written = data.sources, pairs.references
            own = bleu(network, sources, written, length=length, seed=config.seed)
            ends = {"bleu_low": own.score.low, "bleu_high": own.score.high}
            scored |= {"bleu": own.score.value, **ends, "bleu_signature": own.signature}
        return found | {f"validation_{name}": value for name, value in scored.items()}

    return Prepared(
        kind="PairTraining", model=network, task=pairs, config=config, stop=stop, scores=scores
    )


def _new_pair_model(
    run: Session, plan: Preset[Seq2SeqConfig], model: ModelOptions, texts: Texts
) -> Seq2SeqModel:
    shape = model.shape
    if "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    if model.architecture is not None:
        shape["cell"] = model.architecture
    both = _pair_vocabularies(model.vocabulary)
    if both is None:
        assert texts.division is not None
        corpus = texts.division.within_cap
        source, target = (
            _learned(part, model, plan.vocabulary_size) for part in (sources_of(corpus), corpus)
        )
        both = source, target
    network = new_seq2seq(*both, replace(plan.model, **shape), seed=run.seed)
    return network.to(choose_device(run.device))


def _pair_vocabularies(given: Any) -> tuple[Vocabulary, Vocabulary] | None:
    """The vocabularies of sources and of targets of the model that is given."""
    if given is None:
        return None
    if not is_path(given) and hasattr(given, "source_vocabulary"):
        return given.source_vocabulary, given.vocabulary
    if is_path(given):
        folder = model_folder(fspath(given))
        if (folder / SOURCE).is_dir() or not folder.is_dir():
            return load_vocabulary(folder / SOURCE), load_vocabulary(folder)
    raise ValueError(
        "`vocabulary` must be a model of `task` translation or dialogue, which also has a "
        f"vocabulary of sources, got {given if is_path(given) else type(given).__name__}"
    )
