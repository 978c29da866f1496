"""What a signature cannot say about an option, and the parameters that several workflows share.

Bounds are those of `annotated_types` (`Ge`, `Gt`, `Le`, `Lt`, `Interval`); choices are `Literal`.

Example:
    >>> from typing import Annotated
    >>> from annotated_types import Ge
    >>> Layers = Annotated[int | None, Ge(1), Group("Model")]
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel

    ModelLike = str | PathLike[str] | LanguageModel
    CorpusLike = str | PathLike[str] | Corpus
else:
    # What a command line or a configuration file can give, found without importing torch.
    ModelLike = str
    CorpusLike = str
    """What a workflow takes for a corpus."""


class Flag:
    """The spelling of an option, where it is not the parameter's name; then its aliases.

    On a positional parameter: an option of that spelling in place of an argument.

    Args:
        *names: such as "--from".
    """

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclass(frozen=True)
class Group:
    """The panel of the help in which an option stands.

    Attributes:
        title: its heading.
    """

    title: str


@dataclass(frozen=True)
class Metavar:
    """What stands for the value in help, such as DIR.

    Attributes:
        text: in capitals.
    """

    text: str


@dataclass(frozen=True)
class Kinds:
    """A parameter whose value is one of several configuration classes, chosen by name.

    On the command line the parameter is the name; the flags beside it are the fields of all
    classes, and the help of each says which kinds have it.

    Attributes:
        registered: gives the class of each name; called only when options are needed.
        nothing: the name that stands for None.
    """

    registered: Callable[[], Mapping[str, type]]
    nothing: str = "none"


class PythonOnly:
    """A parameter that only Python can give: a callback, an object."""


@dataclass(frozen=True)
class Help:
    """What help says of a shared option, where the docstring of the workflow does not.

    Attributes:
        text: a sentence or two.
    """

    text: str


DATA = Group("Reading the data")

Seed = Annotated[int, Ge(0), Help("Decides everything that is drawn.")]
Device = Annotated[str, Help("`auto` (a GPU where there is one), `cpu` or `cuda`.")]
Directory = Annotated[Path, Metavar("DIR")]
DataFormat = Annotated[
    str, DATA, Help("How DATA is to be read; `auto` goes by the name and what stands in it.")
]
TextColumn = Annotated[str, DATA, Help("The column or field with the text.")]
UserColumn = Annotated[str | None, DATA, Help("The column or field with the user.")]
SourceColumn = Annotated[
    str | None, DATA, Help("The column or field with what the text answers or translates.")
]
TokensColumn = Annotated[str, DATA, Help("The column or field with an utterance's words.")]
TagsColumn = Annotated[str, DATA, Help("The column or field with their tags.")]
IntentColumn = Annotated[str, DATA, Help("The column or field with its intent.")]
Limit = Annotated[int | None, Ge(1), DATA, Help("Read only so many documents.")]
