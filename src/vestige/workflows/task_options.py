"""Options that only some tasks of a verb have, declared beside the option (`Only`)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from vestige._markers import Only
from vestige.workflows.parameters import Option, Parameter, parameters_of

__all__ = ["Only", "check_task", "refuse_others"]


def check_task(option: Option, task: object) -> None:
    """Raise ValueError where an option that was given belongs to another task."""
    _check(option.parameter, option.tasks, task)


def refuse_others(workflow: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Raise ValueError where an argument belongs to another task than `task`.

    Args:
        workflow: has a parameter `task`, and others, or fields of configuration classes, with the
            marker `Only`.
        arguments: of the call, by name; what has its default counts as not given.

    Example:
        >>> from typing import Annotated
        >>> def plant(task: str = "text", slot: Annotated[str | None, Only("nlu")] = None): ...
        >>> refuse_others(plant, {"task": "text", "slot": "pin"})
        Traceback (most recent call last):
        ValueError: `slot` must be left out with `task` text: it is an option of `task` nlu
    """
    for each, value in _given(parameters_of(workflow), arguments):
        if value != each.default:
            _check(each.name, each.tasks, arguments["task"])


def _check(name: str, tasks: tuple[str, ...], task: object) -> None:
    if tasks and task not in tasks:
        raise ValueError(
            f"`{name}` must be left out with `task` {task}: it is an option of `task` "
            f"{' or '.join(tasks)}"
        )


def _given(
    declared: Mapping[str, Parameter], values: Mapping[str, object]
) -> Iterator[tuple[Parameter, object]]:
    """Every parameter, and every field of a configuration class, with its value."""
    for name, each in declared.items():
        value: Any = values.get(name, each.default)
        if isinstance(each.type, type) and is_dataclass(each.type):
            yield from _given(parameters_of(each.type), vars(value))
        else:
            yield each, value
