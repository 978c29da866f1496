"""Options that only some tasks of a verb have."""

from collections.abc import Mapping

from vestige.session import Session, flat

Tasks = Mapping[tuple[str, ...], tuple[str, ...]]
"""Tasks, and the options that only they have."""


def reject_others(run: Session, task: str, options: Tasks) -> None:
    """Raise ValueError if an option was given that only other tasks have.

    An option with its default value counts as not given.
    """
    defaults = dict(flat(run.defaults))
    given = {name for name, one in flat(run.arguments) if differs(one, defaults.get(name))}
    for tasks, names in options.items():
        for name in names:
            if name in given and task not in tasks:
                raise ValueError(f"`{name}` needs `task` {' or '.join(tasks)}")


def differs(value: object, default: object) -> bool:
    """Whether an option has another value than its default."""
    return value is not default and bool(value != default)
