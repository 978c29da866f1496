"""Options that only some tasks of a verb have, declared beside the option (`Only`)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from vestige._markers import Only
from vestige.workflows.parameters import Parameter, parameters_of

__all__ = ["Only", "refuse_others"]


def refuse_others(workflow: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Raise ValueError where an argument belongs to another task than `task`.

    Args:
        workflow: has a parameter `task`, and others, or fields of configuration classes, with the
            marker `Only`.
        arguments: of the call, by name.

    Example:
        >>> from typing import Annotated
        >>> def plant(task: str = "text", slot: Annotated[str | None, Only("nlu")] = None): ...
        >>> refuse_others(plant, {"task": "text", "slot": "pin"})
        Traceback (most recent call last):
        ValueError: `slot` must be left out with `task` text: it is an option of `task` nlu
    """
    task = arguments["task"]
    for each, value in _given(parameters_of(workflow), arguments):
        only = each.marker(Only)
        if only is not None and task not in only.tasks and value != each.default:
            raise ValueError(
                f"`{each.name}` must be left out with `task` {task}: it is an option of `task` "
                f"{' or '.join(only.tasks)}"
            )


def _given(
    declared: Mapping[str, Parameter], values: Mapping[str, object]
) -> Iterator[tuple[Parameter, object]]:
    """Every parameter, and every field of a configuration class, with its value."""
    for name, each in declared.items():
        value: Any = values.get(name, each.default)
        yield each, value
        if isinstance(each.type, type) and is_dataclass(each.type):
            yield from _given(parameters_of(each.type), vars(value))
