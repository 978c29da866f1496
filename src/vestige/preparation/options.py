"""Option groups of `vestige train`, and checks of options."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from cyclopts import Parameter

from vestige.arguments import Count, Few, ModelLike, Number, Positive, Whole, Width
from vestige.session import Session, flat_options
from vestige.training.config import Batching, TrainingConfig

if TYPE_CHECKING:
    from vestige.training.history import EarlyStopping, StopAtPerplexity

SIZE_OPTIONS = ("layers", "hidden_size", "embedding_size")
NEW_MODEL_OPTIONS = (
    *("architecture", *SIZE_OPTIONS, "tokenizer", "vocabulary", "vocab_size"),
    *("vectors", "dropout", "char_embeddings", "lowercase"),
)
"""Options of a new model, which exclude a model to continue."""
DEFAULT_PATIENCE = 20
"""Default number of epochs without improvement before early stopping."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """Options of every training; None takes the default of the preset or model.

    Attributes:
        epochs: Passes over the data.
        batch_size: Texts or rows per step.
        sequence_length: Tokens per window; longer texts are cut into several.
        learning_rate: Learning rate before the schedule.
    """

    epochs: Count | None = None
    batch_size: Width | None = None
    sequence_length: Width | None = None
    learning_rate: Positive | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The settings of `TrainingConfig` among the options; None for unset ones."""
        settings = {option.name for option in fields(TrainingConfig)}
        names = [option.name for option in fields(self) if option.name in settings]
        return {name: getattr(self, name) for name in names}

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings of `TrainingConfig` that are set."""
        return {name: value for name, value in self.given.items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions(LearningOptions):
    """Options of `vestige train`.

    Attributes:
        optimizer: Optimizer.
        momentum: Momentum of sgd. Default: 0.
        precision: Precision of the computation. auto uses bfloat16 on GPUs that support it, and
            float32 elsewhere.
        checkpoint_every: Steps between two checkpoints.
        batching: stream reads all text as one. The others read each document by itself: documents
            in random order, users one user per batch, poisson and poisson-users by Poisson
            sampling of sequences or users. Default: what suits the defence.
        stop_at_perplexity: Stop once the validation perplexity is this low, to compare models of
            equal utility.
        evaluate_every: Steps between two evaluations. Default: one evaluation per epoch.
    """

    optimizer: Literal["adam", "sgd"] | None = None
    momentum: Annotated[Number, Ge(0), Lt(1)] | None = None
    precision: Literal["auto", "float32", "bfloat16"] | None = None
    checkpoint_every: Count | None = None
    batching: Batching | None = None
    stop_at_perplexity: Annotated[Number, Gt(1)] | None = None
    evaluate_every: Count | None = None

    def stop(self, *, validated: bool) -> "StopAtPerplexity | None":
        """The rule for stopping early; ValueError without validation text."""
        from vestige.training.history import StopAtPerplexity

        if self.stop_at_perplexity is None:
            return None
        if not validated:
            raise ValueError(
                "`stop_at_perplexity` needs validation text, and none was held out. Pass "
                "`validation`, or a larger `hold_out`"
            )
        return StopAtPerplexity(self.stop_at_perplexity)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The shape and vocabulary of a new model, or an adapter.

    Attributes:
        architecture: Architecture. Default: the preset's.
        layers: Layers.
        hidden_size: Units per layer.
        embedding_size: Width of word vectors. Default: the preset's or --hidden-size; 50 with
            --task nlu, or the width of --vectors.
        tokenizer: whitespace splits at blanks, words also separates punctuation, bpe learns
            subwords. Default: whitespace.
        vocabulary: Use this model's vocabulary. Only models with one vocabulary can be compared,
            and a vocabulary that is learned from DATA reveals words of DATA.
        vocab_size: Largest size of a new vocabulary.
        lora_rank: Train an adapter of this rank; needs --from with a Hugging Face model.
        lora_alpha: Scale of the adapter.
    """

    architecture: Literal["lstm", "gru", "transformer"] | None = None
    layers: Few | None = None
    hidden_size: Width | None = None
    embedding_size: Width | None = None
    tokenizer: Literal["words", "whitespace", "bpe"] | None = None
    vocabulary: Annotated[ModelLike | None, Parameter(metavar="MODEL")] = None
    vocab_size: Annotated[Whole, Ge(3)] | None = None
    lora_rank: Annotated[Count, Le(2**14)] | None = None
    lora_alpha: Number = 16.0

    @property
    def shape(self) -> dict[str, Any]:
        """The sizes that are set, by name."""
        sizes = {name: getattr(self, name) for name in SIZE_OPTIONS}
        return {name: size for name, size in sizes.items() if size is not None}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NluOptions:
    """Options of models of intents and slots.

    Attributes:
        vectors: Initial word vectors: a GloVe or fastText file (.txt, .vec), or
            glove-6b-50d, which vestige[nlu] installs. Default: random.
        vectors_frozen: Keep the word vectors fixed.
        dropout: Drop 20% of the word vectors and 10% of the layers' outputs (defence D of the
            paper).
        early_stopping: Keep the epoch with the lowest validation loss, and stop --patience epochs
            after it (defence ES). Without it the last epoch is kept.
        patience: Epochs without improvement before early stopping. Default: 20.
        char_embeddings: Add a convolution over the letters of each word (defence CE).
        lowercase: Read all words in lower case.
    """

    vectors: Annotated[str | None, Parameter(metavar="FILE")] = None
    vectors_frozen: bool = False
    dropout: bool = False
    early_stopping: bool = False
    patience: Count | None = None
    char_embeddings: bool = False
    lowercase: bool = False

    @property
    def recorded(self) -> dict[str, object]:
        """The options that affect privacy, for the summary."""
        names = ("dropout", "early_stopping", "char_embeddings", "vectors", "vectors_frozen")
        return {name: getattr(self, name) for name in names}

    def stop(self, *, validated: bool) -> "EarlyStopping | None":
        """The rule for stopping early; ValueError without validation utterances."""
        from vestige.training.history import EarlyStopping

        if not self.early_stopping:
            return None
        if not validated:
            raise ValueError("`early_stopping` needs validation utterances. Pass `validation`")
        return EarlyStopping(DEFAULT_PATIENCE if self.patience is None else self.patience)


def reject_other_tasks(
    run: Session, task: str, options: Mapping[tuple[str, ...], tuple[str, ...]]
) -> None:
    """Raise ValueError if an option was given that only other tasks have."""
    changed = changed_options(run)
    for tasks, names in options.items():
        for name in names if task not in tasks else ():
            if name in changed:
                raise ValueError(f"`{name}` needs `task` {' or '.join(tasks)}")


def changed_options(run: Session) -> set[str]:
    """The options whose values differ from their defaults."""
    defaults = dict(flat_options(run.defaults))
    return {
        name
        for name, value in flat_options(run.arguments)
        if value is not (default := defaults.get(name)) and value != default
    }


def check_combinations(run: Session) -> None:
    """Raise ValueError for options of `train` that require or exclude others."""
    changed = changed_options(run)
    for name in NEW_MODEL_OPTIONS if "from" in changed else ():
        if name in changed:
            raise ValueError(f"`{name}` does not go with `from_`. Leave out one of them")
    if "lora_rank" in changed and "from" not in changed:
        raise ValueError("`lora_rank` needs `from_`, a Hugging Face model to adapt")
    for name in ("tokenizer", "vocab_size"):
        if {name, "vocabulary"} <= changed:
            raise ValueError(f"`{name}` does not go with `vocabulary`. Leave out one of them")
    for name, required in (("vectors_frozen", "vectors"), ("patience", "early_stopping")):
        if name in changed and required not in changed:
            raise ValueError(f"`{name}` needs `{required}`")
