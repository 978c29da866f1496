"""Which model `vestige train` begins with, and how it is trained: options in, both out."""

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import TrainingConfig
    from vestige.training.history import StopAtPerplexity
    from vestige.training.presets import Preset

Tokenizer = Literal["words", "whitespace", "bpe"]
Architecture = Literal["lstm", "gru", "transformer"]
BPE_SIZE = 4096


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What was asked for; None where the preset decides.

    Attributes:
        start: the model to continue.
        shape: settings of the network by name.
        training: settings of `TrainingConfig` by name.
        keep: texts whose words a fresh vocabulary must have, such as canaries.
    """

    start: str | None
    preset: str | None
    architecture: Architecture | None
    tokenizer: Tokenizer | None
    vocabulary: Path | None
    vocab_size: int | None
    lora_rank: int | None
    lora_alpha: float
    seed: int
    device: str
    shape: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()


def prepare(wanted: Wanted, corpus: "Corpus") -> "tuple[LanguageModel, TrainingConfig]":
    """The model to train, on its device, and the configuration.

    Raises:
        ValueError: options contradict each other.
        VestigeError: model or vocabulary cannot be had.
    """
    _check(wanted)
    if wanted.start is None:
        plan = _plan(wanted)
        model, config = _fresh(wanted, plan, corpus), plan.training
    else:
        model = _continued(wanted, wanted.start)
        config = _gentle(model) if wanted.preset is None else _plan(wanted).training
    config = replace(config, seed=wanted.seed, **_given(wanted.training))
    longest: int | None = getattr(model, "longest", None)  # a transformer's
    if longest is not None and config.sequence_length > longest:
        raise ValueError(
            f"--sequence-length must be at most {longest}, all that the model reads at once, got "
            f"{config.sequence_length}"
        )
    return model, config


def _check(wanted: Wanted) -> None:
    """Refuse options that only a fresh model, or only a continued one, can follow."""
    fresh_only = {
        "--architecture": wanted.architecture,
        "--layers": wanted.shape.get("layers"),
        "--hidden-size": wanted.shape.get("hidden_size"),
        "--embedding-size": wanted.shape.get("embedding_size"),
        "--tokenizer": wanted.tokenizer,
        "--vocabulary": wanted.vocabulary,
        "--vocab-size": wanted.vocab_size,
    }
    given = [option for option, value in fresh_only.items() if value is not None]
    if wanted.start is not None and given:
        raise ValueError(f"{given[0]} must not be given with --from, whose model has its own")
    if wanted.start is None and wanted.lora_rank is not None:
        raise ValueError("--lora-rank must come with --from, a Hugging Face model to adapt")
    borrowed = [option for option in given if option in ("--tokenizer", "--vocab-size")]
    if wanted.vocabulary is not None and borrowed:
        raise ValueError(f"{borrowed[0]} must not be given with --vocabulary, which has its own")


def _plan(wanted: Wanted) -> "Preset":
    """The preset with the network's settings that were asked for."""
    from vestige.models.gru import GRUConfig
    from vestige.models.lstm import LSTMConfig
    from vestige.models.recurrent_network import RecurrentConfig
    from vestige.models.transformer import TransformerConfig
    from vestige.training.presets import preset

    suits = "reddit-transformer" if wanted.architecture == "transformer" else "ptb-lstm"
    plan = preset(wanted.preset or suits)
    kinds: dict[str | None, Any] = {
        None: type(plan.model),
        "lstm": LSTMConfig,
        "gru": GRUConfig,
        "transformer": TransformerConfig,
    }
    config, kind = plan.model, kinds[wanted.architecture]
    if issubclass(kind, RecurrentConfig) and isinstance(config, RecurrentConfig):
        config = kind(**asdict(config))
    elif not isinstance(config, kind):
        config = kind()
    return replace(plan, model=replace(config, **_given(wanted.shape)))


def _fresh(wanted: Wanted, plan: "Preset", corpus: "Corpus") -> "LanguageModel":
    from vestige.models.protocols import choose_device
    from vestige.training.presets import new_model

    where = choose_device(wanted.device)
    if wanted.vocabulary is not None:
        vocabulary = borrow(wanted.vocabulary)
    else:
        vocabulary = learn_vocabulary(
            corpus,
            wanted.tokenizer,
            size=wanted.vocab_size,
            usual=plan.vocabulary_size,
            keep=wanted.keep,
        )
    return new_model(vocabulary, plan.model, seed=wanted.seed).to(where)


def borrow(model: Path) -> "Vocabulary":
    """The vocabulary of a saved model or of a training's directory."""
    from vestige.data.vocabulary import load_vocabulary
    from vestige.models.folders import model_folder

    return load_vocabulary(model_folder(model))


def learn_vocabulary(
    corpus: "Corpus",
    tokenizer: Tokenizer | None,
    *,
    size: int | None,
    usual: int | None,
    keep: tuple[str, ...] = (),
) -> "Vocabulary":
    """A vocabulary of a corpus, by what `--tokenizer` says.

    Args:
        corpus: read once.
        tokenizer: None splits at blanks.
        size: tokens at most; None: as many words as usual, or BPE_SIZE pieces.
        usual: words that the preset keeps; None: all.
        keep: texts whose words it must have.
    """
    if tokenizer == "bpe":
        from vestige.data.subwords import SubwordVocabulary

        return SubwordVocabulary.train_bpe(corpus, size=size or BPE_SIZE)
    from vestige.data.vocabulary import WordVocabulary

    return WordVocabulary.build(
        corpus, size=size or usual, tokenise=tokenizer or "whitespace", keep=keep
    )


def _continued(wanted: Wanted, start: str) -> "LanguageModel":
    import torch

    from vestige.models.checkpoints import load_model

    model = load_model(start, device=wanted.device)
    if wanted.lora_rank is None:
        return model
    from vestige.models.hugging_face import HuggingFaceLanguageModel
    from vestige.models.lora import add_lora

    if not isinstance(model, HuggingFaceLanguageModel):
        raise ValueError(f"--lora-rank needs a Hugging Face model in --from, got {start}")
    with torch.random.fork_rng():
        torch.manual_seed(wanted.seed)
        return add_lora(model, rank=wanted.lora_rank, alpha=wanted.lora_alpha)


def _gentle(model: "LanguageModel") -> "TrainingConfig":
    """A training that adds to what a model knows more than it overwrites."""
    from vestige.models.hugging_face import HuggingFaceLanguageModel
    from vestige.training.config import TrainingConfig

    if not isinstance(model, HuggingFaceLanguageModel):
        return TrainingConfig(seed=0, epochs=3)
    return TrainingConfig(
        seed=0,
        epochs=3,
        batch_size=8,
        sequence_length=min(128, model.longest or 128),
        learning_rate=1e-3 if model.adapted else 5e-5,
        schedule="cosine",
        max_grad_norm=1.0,
    )


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def stop_at(perplexity: float | None, *, validated: bool) -> "StopAtPerplexity | None":
    """When to end, if not after the last epoch.

    Raises:
        ValueError: the perplexity makes no sense, or nothing is there to judge an epoch by.
    """
    from vestige.training.history import StopAtPerplexity

    if perplexity is None:
        return None
    if not 1 < perplexity < math.inf:
        raise ValueError(f"--stop-at-perplexity must be above 1 and finite, got {perplexity}")
    if not validated:
        raise ValueError(
            "--stop-at-perplexity must come with text to validate on: --validation or --hold-out"
        )
    return StopAtPerplexity(perplexity)
