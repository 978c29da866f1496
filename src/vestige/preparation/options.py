"""Options of `vestige train` about its model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le
from cyclopts import Parameter

from vestige.arguments import Count, Few, ModelLike, Number, Whole, Width

SIZES = ("layers", "hidden_size", "embedding_size")
Words = Annotated[Whole, Ge(3)]


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
    vocab_size: Words | None = None
    lora_rank: Annotated[Count, Le(2**14)] | None = None
    lora_alpha: Number = 16.0

    @property
    def shape(self) -> dict[str, int]:
        """The sizes that were given, by name."""
        sizes = {name: getattr(self, name) for name in SIZES}
        return {name: size for name, size in sizes.items() if size is not None}

    def check(self, start: object | None) -> None:
        """Raise ValueError for options that exclude each other, or the model to continue."""
        names = ("architecture", *SIZES, "tokenizer", "vocabulary", "vocab_size")
        reject_with_start(start, {name: getattr(self, name) for name in names})
        if start is None and self.lora_rank is not None:
            raise ValueError("`lora_rank` needs `from_`, a Hugging Face model to adapt")
        for name in ("tokenizer", "vocab_size"):
            if self.vocabulary is not None and getattr(self, name) is not None:
                raise ValueError(f"`{name}` does not go with `vocabulary`. Leave out one of them")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NluOptions:
    """What only a model of intents and slots has.

    Attributes:
        vectors: Initial word vectors: a GloVe or fastText file (.txt, .vec, .bin), or
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
        """The options that may protect or expose, as a summary names them."""
        names = ("dropout", "early_stopping", "char_embeddings", "vectors", "vectors_frozen")
        return {name: getattr(self, name) for name in names}

    def check(self, model: ModelOptions, start: object | None) -> None:
        """Raise ValueError for options that exclude each other, or the model to continue."""
        if self.vectors_frozen and self.vectors is None:
            raise ValueError("`vectors_frozen` needs `vectors`")
        if self.patience is not None and not self.early_stopping:
            raise ValueError("`patience` needs `early_stopping`")
        names = ("vectors", "dropout", "char_embeddings", "lowercase")
        reject_with_start(start, {**{name: getattr(self, name) for name in names}, **model.shape})


def reject_with_start(start: object | None, options: Mapping[str, object]) -> None:
    """Raise ValueError for options of a new model next to a model to continue."""
    given = [name for name, value in options.items() if value not in (None, False)]
    if start is not None and given:
        raise ValueError(f"`{given[0]}` does not go with `from_`. Leave out one of them")
