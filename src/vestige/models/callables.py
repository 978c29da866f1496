"""Python callables by name: `package.module:function`."""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from vestige.errors import ModelError
from vestige.models.service import Ask

CALLABLE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")


def is_callable_name(name: str) -> bool:
    """Whether a text is `package.module:function`, and no file of that name exists."""
    return CALLABLE.fullmatch(name) is not None and not Path(name).exists()


def import_callable(name: str) -> Ask:
    """Import the function that `package.module:function` names.

    Raises:
        ModelError: there is no such thing, or it cannot be called.
    """
    remedy = "Write it as package.module:function. Modules in this directory are found, too."
    found = CALLABLE.fullmatch(name)
    if found is None:
        raise ModelError(f"{name} names no callable", remedy=remedy)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = import_module(found["module"])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a stranger's module may do
        raise ModelError(
            f"{name}: importing {found['module']} raised {type(error).__name__}: {error}",
            remedy=remedy,
        ) from error
    for part in found["name"].split("."):
        if not hasattr(value, part):
            raise ModelError(f"{name}: {found['module']} has no {part!r}", remedy=remedy)
        value = getattr(value, part)
    if not callable(value):
        raise ModelError(f"{name} is {type(value).__name__} and cannot be called", remedy=remedy)
    asked: Ask = value
    return asked
