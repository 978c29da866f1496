"""Options of `vestige membership`: shadow models, and which words of users Vestige queries."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from cyclopts import Group, Parameter

from vestige.arguments import Count, Natural, PathTo, Positive, Whole, Width

Select = Literal["all", "random", "rare", "informative"]
ServiceTask = Literal["next-word", "translation", "dialogue"]

TRAINING = ("epochs", "batch_size", "sequence_length", "learning_rate")
SHADOWS_OF_USERS = ("other_shapes", "hidden_size", "processes")
"""Options of shadow models that only `unit` user has."""
OF_SERVICE = ("task", "vocabulary_size", "tokenizer")
"""Options of queries that only a remote model has."""


@dataclass(frozen=True)
class Options:
    """A group of options."""

    def changed(self, among: tuple[str, ...] | None = None) -> dict[str, Any]:
        """The options that were set, of all or of some."""
        given = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        return {
            name: value
            for name, (value, usual) in given.items()
            if value != usual and (among is None or name in among)
        }


@Parameter(name="*", group=Group("Shadow models", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class ShadowOptions(Options):
    """Shadow models.

    Attributes:
        shadows: Models to train, each on half of the shadow texts; for users, of the reference
            users that Vestige does not compare with. 0 for none. Default: 4 for texts, 10 for
            users.
        shadow_dir: Folder of shadow models, reused by later audits. Default: OUT.shadows.
        epochs: Passes over the data. Default: those of MODEL if known, else the preset's.
        batch_size: Texts per step. Default: as for epochs.
        learning_rate: Highest learning rate. Default: as for epochs.
        sequence_length: Most tokens of a text read at once. Default: as for epochs.
        other_shapes: Use GRUs of 64 to 352 units, if the architecture of MODEL is unknown. For
            users only.
        hidden_size: Units of a layer. Default: those of MODEL if known. For users only.
        processes: Models to train at a time. For users only.
    """

    shadows: Annotated[Natural, Le(10_000)] | None = None
    shadow_dir: PathTo | None = None
    epochs: Count | None = None
    batch_size: Width | None = None
    learning_rate: Positive | None = None
    sequence_length: Width | None = None
    other_shapes: bool = False
    hidden_size: Width | None = None
    processes: Annotated[Count, Le(1024)] = 1

    def __post_init__(self) -> None:
        if self.other_shapes and self.hidden_size is not None:
            raise ValueError("`hidden_size` does not go with `other_shapes`, which has its own")


@Parameter(name="*", group=Group("Queries", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class QueryOptions(Options):
    """Queries about users' words.

    Attributes:
        top_k: Most probable words that MODEL shows. Default: all; a remote model needs it.
        queries: Texts of each user to query, every word of them.
        calls: Single words of each user to query.
        select: Which texts or words: random, rare (by mean frequency), or informative (those that
            training can move into the top k). Default: informative for `calls` with shadow models,
            else random.
        task: What a function does. Default: next-word.
        vocabulary_size: Words of a remote model: the most frequent ones of `reference`.
        tokenizer: Split texts for a remote model at whitespace, or also at punctuation (words).
    """

    top_k: Width | None = None
    queries: Count | None = None
    calls: Count | None = None
    select: Select | None = None
    task: ServiceTask | None = None
    vocabulary_size: Annotated[Whole, Ge(3), Le(2**24)] = 5000
    tokenizer: Literal["whitespace", "words"] = "whitespace"
