"""Types of verb arguments, with bounds, help texts and help groups.

Python callers may pass a path or a loaded object; the command line passes a path. At run time,
when cyclopts reads the types, they are therefore paths only, and no model code is imported.
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


def _parse_int(_: Any, tokens: Sequence[Any]) -> int:
    """Parse strictly; cyclopts would round 2.7 and read "none" as None."""
    return int(tokens[-1].value)


def _parse_float(_: Any, tokens: Sequence[Any]) -> float:
    return float(tokens[-1].value)


LARGEST = 10**9
"""Largest count that an option accepts; a larger one is probably a typing error."""

Whole = Annotated[int, Le(LARGEST), Parameter(converter=_parse_int, n_tokens=1)]
Number = Annotated[float, Parameter(converter=_parse_float, n_tokens=1)]
Count = Annotated[Whole, Ge(1)]
Natural = Annotated[Whole, Ge(0)]
"""A count that may be 0."""
Few = Annotated[Whole, Ge(1), Le(1_000)]
Many = Annotated[Whole, Ge(1), Le(10**6)]
"""A count of objects that are made one by one, such as canaries."""
Draws = Annotated[Whole, Ge(1), Le(2**24)]
"""A count of samples or alternatives that are scored together."""
Width = Annotated[Whole, Ge(1), Le(2**20)]
"""A count of units, tokens or rows of one tensor dimension."""

Positive = Annotated[Number, Gt(0)]
Probability = Annotated[Number, Gt(0), Lt(1)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1), Parameter(converter=_parse_int, n_tokens=1)]


def group(title: str, *, order: int = 5) -> Parameter:
    """Help group of an option. Groups are sorted by order, then by title."""
    return Parameter(group=Group(title, sort_key=order))


DATA, RUN = group("Columns", order=8), group("Run", order=9)

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
    """Keyword arguments of a verb without a model; `vestige.session` reads them."""

    monitor: Annotated[Monitor, Parameter(parse=False)]


class Seeded(Watched, total=False):
    """Keyword arguments of a verb that runs a model and declares `out` itself."""

    seed: Annotated[Seed, RUN, Parameter(help="Random seed.")]
    device: Annotated[
        str, RUN, Parameter(help="auto, cpu, cuda, or balanced (layers over all GPUs).")
    ]


class Common(Seeded, total=False):
    """Keyword arguments of a verb that runs a model and writes one run folder."""

    out: Annotated[PathTo | None, RUN, Parameter(help="Run folder to make (required).")]


class Resumable(Common, total=False):
    """Keyword arguments of a verb that resumes: `Session.store` is a file next to `out`."""

    out: Annotated[PathTo | None, RUN, Parameter(help="Run folder (required). Rerun to resume.")]
