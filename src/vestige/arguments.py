"""Types of the arguments of verbs, with their bounds, their help and their group in the help.

Python may give a path or a loaded object. The command line gives a path; so at run time, where
cyclopts reads the types, only paths remain, and no model code is imported.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from annotated_types import Ge, Gt, Le, Lt
from cyclopts import Group, Parameter

from vestige.monitor import Monitor

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Manifest
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.corpus import Corpus
    from vestige.data.utterances import Utterances
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import LanguageModel
    from vestige.models.white_box import IntentSlotNetwork

    PathTo: TypeAlias = str | PathLike[str]
    ModelLike: TypeAlias = PathTo | LanguageModel
    ModelsLike: TypeAlias = ModelLike | Sequence[ModelLike]
    IntentSlotLike: TypeAlias = PathTo | IntentSlotNetwork
    CorpusLike: TypeAlias = PathTo | Corpus
    TextLike: TypeAlias = PathTo | Corpus | Utterances
    ManifestLike: TypeAlias = PathTo | Manifest
    SecretManifestLike: TypeAlias = PathTo | SecretManifest
    VocabularyLike: TypeAlias = PathTo | LanguageModel | Vocabulary
    Lines: TypeAlias = PathTo | Sequence[str]
    Several: TypeAlias = str | Sequence[str]
else:
    PathTo = ManifestLike = SecretManifestLike = VocabularyLike = Lines = Path
    ModelLike = IntentSlotLike = CorpusLike = TextLike = str
    ModelsLike = Several = Sequence[str]


def _whole(_: Any, tokens: Sequence[Any]) -> int:
    """A whole number as written; cyclopts would round 2.7 and read "none" as None."""
    return int(tokens[-1].value)


def _number(_: Any, tokens: Sequence[Any]) -> float:
    return float(tokens[-1].value)


LARGEST = 10**9
"""The largest count that an option takes. A larger one is a typing error."""

Whole = Annotated[int, Le(LARGEST), Parameter(converter=_whole, n_tokens=1)]
Number = Annotated[float, Parameter(converter=_number, n_tokens=1)]
Count = Annotated[Whole, Ge(1)]
Natural = Annotated[Whole, Ge(0)]
"""A count that may be 0."""
Few = Annotated[Whole, Ge(1), Le(1_000)]
Many = Annotated[Whole, Ge(1), Le(10**6)]
"""Things that are made one by one, such as canaries."""
Draws = Annotated[Whole, Ge(1), Le(2**24)]
"""Samples or alternatives that are scored together."""
Width = Annotated[Whole, Ge(1), Le(2**20)]
"""Units, tokens or rows side by side."""

Positive = Annotated[Number, Gt(0)]
Probability = Annotated[Number, Gt(0), Lt(1)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1), Parameter(converter=_whole, n_tokens=1)]


def group(title: str, *, place: int = 5) -> Parameter:
    """The group of an option in the help; groups of one place are sorted by title."""
    return Parameter(group=Group(title, sort_key=place))


DATA, RUN = group("Columns", place=8), group("Run", place=9)

Format = Annotated[str, DATA, Parameter(help="Format of the data; auto detects it.")]
TextColumn = Annotated[str, DATA, Parameter(help="Column with the text.")]
UserColumn = Annotated[str | None, DATA, Parameter(help="Column with the user.")]
AuthorColumn = Annotated[str | None, DATA, Parameter(help="Column with the author.")]
SourceColumn = Annotated[
    str | None, DATA, Parameter(help="Column with what the text answers or translates.")
]
TokensColumn = Annotated[str, DATA, Parameter(help="Column with the words of an utterance.")]
TagsColumn = Annotated[str, DATA, Parameter(help="Column with the tags of the words.")]
IntentColumn = Annotated[str, DATA, Parameter(help="Column with the intent.")]
Limit = Annotated[Count | None, DATA, Parameter(help="Read at most this many texts.")]


class Watched(TypedDict, total=False):
    """Keyword arguments of a verb that runs no model; `vestige.session` reads them."""

    monitor: Annotated[Monitor, Parameter(parse=False)]


class Seeded(Watched, total=False):
    """Keyword arguments of a verb that runs a model and has an `out` of its own."""

    seed: Annotated[Seed, RUN, Parameter(help="Random seed.")]
    device: Annotated[
        str, RUN, Parameter(help="auto, cpu, cuda, or balanced (layers over all GPUs).")
    ]


class Common(Seeded, total=False):
    """Keyword arguments of a verb that runs a model and makes one run folder."""

    out: Annotated[PathTo | None, RUN, Parameter(help="Run folder to make (required).")]


class Resumable(Common, total=False):
    """Keyword arguments of a verb that resumes: `Session.store` is kept beside `out`."""

    out: Annotated[PathTo | None, RUN, Parameter(help="Run folder (required). Rerun to resume.")]
