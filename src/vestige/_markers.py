"""What a type cannot say about an option: markers for `Annotated`, without any import of ours.

A configuration class of any room may use them; `vestige.workflows` reads them.

Example:
    >>> from typing import Annotated
    >>> from annotated_types import Ge
    >>> Layers = Annotated[int | None, Ge(1), Group("Model")]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


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


class Only:
    """Tasks that have the option, of a workflow with a parameter `task`.

    Args:
        *tasks: their names; an option without this marker belongs to all.
    """

    def __init__(self, *tasks: str) -> None:
        self.tasks = tasks


@dataclass(frozen=True)
class Choices:
    """Words that an option accepts, where a registry knows them and no `Literal` can.

    Attributes:
        names: gives them; called only when options are needed.
    """

    names: Callable[[], Sequence[str]]
