"""Settings of `train` that travel together, as configuration classes without torch."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from vestige._markers import Metavar, Only
from vestige.workflows.options import ModelLike

if TYPE_CHECKING:
    from vestige.training.history import StopAtPerplexity

Task = Literal["text", "next-word", "translation", "dialogue", "nlu"]
TEXT = Only("text")
RUNNING = Only("text", "next-word")
PAIRS = Only("translation", "dialogue")
TEXTS = Only(*RUNNING.tasks, *PAIRS.tasks)
NLU = Only("nlu")
SIZES = ("layers", "hidden_size", "embedding_size")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Model.

    Attributes:
        architecture: In place of the preset's. Sources and targets: `lstm` or `gru`.
        layers: Layers.
        hidden_size: Width of a layer.
        embedding_size: Numbers in a word's vector, where --vectors does not decide it. Default:
            that of the preset, or --hidden-size; with --task nlu 50.
        tokenizer: `whitespace` (the default) splits at blanks, `words` splits off punctuation too,
            `bpe` learns subwords.
        vocabulary: Take this model's vocabulary: only snapshots that share one can be compared,
            and a vocabulary learnt from DATA tells what stands in it.
        vocab_size: Tokens at most.
        lora_rank: With --from a Hugging Face model: train an adapter of this rank.
        lora_alpha: Scale of the adapter.
    """

    architecture: Annotated[Literal["lstm", "gru", "transformer"] | None, TEXTS] = None
    layers: Annotated[int | None, Ge(1), Only(*RUNNING.tasks, *NLU.tasks)] = None
    hidden_size: Annotated[int | None, Ge(1)] = None
    embedding_size: Annotated[int | None, Ge(1), Only("next-word", *PAIRS.tasks, *NLU.tasks)] = None
    tokenizer: Annotated[Literal["words", "whitespace", "bpe"] | None, TEXTS] = None
    vocabulary: Annotated[ModelLike | None, Metavar("MODEL"), TEXTS] = None
    vocab_size: Annotated[int | None, Ge(3), TEXTS] = None
    lora_rank: Annotated[int | None, Ge(1), RUNNING] = None
    lora_alpha: Annotated[float, RUNNING] = 16.0

    @property
    def shape(self) -> dict[str, int]:
        """Sizes of the network that were asked for, by name."""
        sizes = {name: getattr(self, name) for name in SIZES}
        return {name: size for name, size in sizes.items() if size is not None}

    def check_start(self, start: object | None) -> None:
        """Refuse what only a fresh model, or only a continued one, can follow.

        Raises:
            ValueError: naming the parameters.
        """
        names = ("architecture", *SIZES, "tokenizer", "vocabulary", "vocab_size")
        fresh_only = {name: getattr(self, name) for name in names}
        refuse_with_start(start, fresh_only)
        if start is None and self.lora_rank is not None:
            raise ValueError("`lora_rank` must come with `start`, a Hugging Face model to adapt")
        for name in ("tokenizer", "vocab_size"):
            if self.vocabulary is not None and fresh_only[name] is not None:
                raise ValueError(f"`{name}` must not be given with `vocabulary`, which has its own")


def refuse_with_start(start: object | None, settings: Mapping[str, object]) -> None:
    """Raise ValueError where settings of a fresh model come with a model to continue."""
    given = [name for name, value in settings.items() if value not in (None, False)]
    if start is not None and given:
        raise ValueError(f"`{given[0]}` must not be given with `start`, whose model has its own")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Training.

    Attributes:
        epochs: Passes over the data.
        batch_size: Rows read together.
        sequence_length: Tokens per window; of sources and targets, how many are read at most.
        learning_rate: Before the schedule.
        optimizer: `adam` or `sgd`.
        momentum: With `sgd`: the share of the step before that each step keeps. Default: 0.
        precision: `float32` or `bfloat16`; `auto` is float32, on a GPU that multiplies it
            bfloat16.
        checkpoint_every: Steps between two.
        batching: `stream`: all text in one row after the other. The others read each document by
            itself: `documents` mixed, `users` one user at a time, `poisson` and `poisson-users`
            by Poisson sampling. Default: what suits the defence.
        stop_at_perplexity: End once the validation perplexity is this low, so that models of equal
            utility can be compared.
        evaluate_every: Steps between two looks at the validation text; default: an epoch.
    """

    epochs: Annotated[int | None, Ge(1)] = None
    batch_size: Annotated[int | None, Ge(1)] = None
    sequence_length: Annotated[int | None, Ge(1), TEXTS] = None
    learning_rate: float | None = None
    optimizer: str | None = None
    momentum: float | None = None
    precision: str | None = None
    checkpoint_every: Annotated[int | None, Ge(1)] = None
    batching: Annotated[
        Literal["stream", "documents", "users", "poisson", "poisson-users"] | None, RUNNING
    ] = None
    stop_at_perplexity: Annotated[float | None, TEXTS] = None
    evaluate_every: Annotated[int | None, Ge(1), TEXTS] = None

    @property
    def chosen(self) -> dict[str, Any]:
        """Settings of `TrainingConfig` that were asked for, by name."""
        return {name: value for name, value in self.given.items() if value is not None}

    @property
    def given(self) -> dict[str, Any]:
        """All settings of `TrainingConfig`; None stands for what was not asked for."""
        own = asdict(self)
        del own["stop_at_perplexity"]
        return own

    def stop(self, *, validated: bool) -> "StopAtPerplexity | None":
        """When to end, if not after the last epoch.

        Raises:
            ValueError: the perplexity makes no sense, or there is no such text.
        """
        from vestige.training.history import StopAtPerplexity

        perplexity = self.stop_at_perplexity
        if perplexity is None:
            return None
        if not 1 < perplexity < math.inf:
            raise ValueError(f"`stop_at_perplexity` must be above 1 and finite, got {perplexity}")
        if not validated:
            raise ValueError(
                "`stop_at_perplexity` must come with text to validate on: `validation` or "
                "`hold_out`"
            )
        return StopAtPerplexity(perplexity)


@dataclass(frozen=True, kw_only=True)
class NluSettings:
    """With --task nlu.

    Attributes:
        vectors: First vectors of the words: a GloVe or fastText file (`.txt`, `.vec`, `.bin`), or
            `glove-6b-50d`, which `vestige[nlu]` installs. Default: drawn at random.
        vectors_frozen: The vectors are not trained further.
        dropout: Training drops 20 % of the words' vectors and 10 % of the layers' outputs: the
            paper's defence D.
        early_stopping: Keep the epoch of the lowest validation loss, and end --patience epochs
            after it: the paper's defence ES. Without it the last epoch is kept.
        patience: With --early-stopping: epochs without a better one. Default: 20.
        char_embeddings: A convolution of 30 filters over each word's letters beside its vector:
            the paper's defence CE.
        lowercase: Read all words in lower case.
    """

    vectors: Annotated[str | None, Metavar("FILE"), NLU] = None
    vectors_frozen: Annotated[bool, NLU] = False
    dropout: Annotated[bool, NLU] = False
    early_stopping: Annotated[bool, NLU] = False
    patience: Annotated[int | None, Ge(1), NLU] = None
    char_embeddings: Annotated[bool, NLU] = False
    lowercase: Annotated[bool, NLU] = False

    @property
    def habits(self) -> dict[str, object]:
        """What may protect or expose, as a summary names it."""
        names = ("dropout", "early_stopping", "char_embeddings", "vectors", "vectors_frozen")
        return {name: getattr(self, name) for name in names}

    def check(self, model: ModelSettings, start: object | None) -> None:
        """Raise ValueError where settings contradict each other."""
        if self.vectors_frozen and self.vectors is None:
            raise ValueError("`vectors_frozen` must come with `vectors`, which it freezes")
        if self.patience is not None and not self.early_stopping:
            raise ValueError("`patience` must come with `early_stopping`, which it belongs to")
        names = ("vectors", "dropout", "char_embeddings", "lowercase")
        fresh_only = {**{name: getattr(self, name) for name in names}, **model.shape}
        refuse_with_start(start, fresh_only)
