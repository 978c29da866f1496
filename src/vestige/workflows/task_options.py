"""Options that only one task of a verb has, declared beside the option."""

import inspect
from collections.abc import Callable, Mapping
from typing import get_args


class Only:
    """Marks a parameter of a workflow that only some tasks have.

    Args:
        *tasks: their names.

    Example:
        >>> from typing import Annotated
        >>> def plant(task: str = "text", slot: Annotated[str | None, Only("nlu")] = None): ...
        >>> refuse_others(plant, {"task": "text", "slot": "pin"})
        Traceback (most recent call last):
        ValueError: `slot` must be left out with `task` text: it is an option of `task` nlu
    """

    def __init__(self, *tasks: str) -> None:
        self.tasks = tasks


def refuse_others(workflow: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Raise ValueError where an argument belongs to another task than `task`.

    Args:
        workflow: has a parameter `task`, and others with the marker `Only`.
        arguments: of the call, by name.
    """
    task = arguments["task"]
    for name, parameter in inspect.signature(workflow).parameters.items():
        for only in (one for one in get_args(parameter.annotation) if isinstance(one, Only)):
            if task not in only.tasks and arguments.get(name) != parameter.default:
                raise ValueError(
                    f"`{name}` must be left out with `task` {task}: it is an option of `task` "
                    f"{' or '.join(only.tasks)}"
                )
