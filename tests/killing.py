"""Kill a program that a test runs at a chosen function call."""

import os
import signal
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment():
    """Environment variables with which a program can import this module."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def kill_at(moment, functions):
    """Kill this process at `moment` "NAME:N", the Nth call of a function; ignore unknown names.

    `functions` has (owner, attribute) by name.
    """
    name, _, number = moment.partition(":")
    if name in functions:
        owner, attribute = functions[name]
        setattr(owner, attribute, _killed_at(getattr(owner, attribute), int(number)))


def _killed_at(function, count):
    def wrapper(*arguments, **options):
        nonlocal count
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return wrapper
