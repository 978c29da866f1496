"""The two tasks that some verbs know, and what happens to options of the other one."""

from collections.abc import Mapping
from enum import StrEnum

import typer


class Task(StrEnum):
    """What the model learns, or will learn."""

    text = "text"
    nlu = "nlu"


def given(context: typer.Context, parameter: str) -> bool:
    """Whether a parameter was given, and does not have its default only."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"


def refuse_others(context: typer.Context, task: Task, homes: Mapping[str, Task]) -> None:
    """Raise ValueError where an option was given that belongs to the other task.

    Args:
        context: of the verb.
        task: the one that was asked for.
        homes: parameters that only one task has.
    """
    for parameter in context.command.params:
        name = parameter.name or ""
        home = homes.get(name, task)
        if home is not task and given(context, name):
            raise ValueError(
                f"{parameter.opts[0]} must be left out with --task {task}: it is an option of "
                f"--task {home}"
            )
