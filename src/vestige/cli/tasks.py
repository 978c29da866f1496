"""The tasks that some verbs know, and what happens to options of another one."""

from collections.abc import Mapping
from enum import StrEnum

import typer


class Task(StrEnum):
    """What the model learns, or will learn."""

    text = "text"
    nlu = "nlu"


class TrainedTask(StrEnum):
    """What `vestige train` teaches a model."""

    text = "text"
    next_word = "next-word"
    translation = "translation"
    dialogue = "dialogue"
    nlu = "nlu"


def given(context: typer.Context, parameter: str) -> bool:
    """Whether a parameter was given, and does not have its default only."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"


def refuse_others(
    context: typer.Context, task: str, homes: Mapping[str, str | tuple[str, ...]]
) -> None:
    """Raise ValueError where an option was given that belongs to another task.

    Args:
        context: of the verb.
        task: the one that was asked for.
        homes: parameters that not every task has, and the task or tasks that have them.
    """
    for parameter in context.command.params:
        name = parameter.name or ""
        home = homes.get(name, task)
        tasks = (home,) if isinstance(home, str) else home
        if task not in tasks and given(context, name):
            raise ValueError(
                f"{parameter.opts[0]} must be left out with --task {task}: it is an option of "
                f"--task {' or '.join(tasks)}"
            )
