"""Every error that Vestige raises on purpose. Bad arguments raise ValueError, which names them.

No message quotes text of a corpus, a manifest, a model or a service, nor a phrase or a user's name:
it may be secret, and messages go to logs. They name the place: file, line, number.
"""

import json
from functools import partial
from typing import Any


class VestigeError(Exception):
    """Base of all errors raised by this package.

    Args:
        problem: what is wrong, naming the file, line or argument.
        remedy: what the reader can do about it.
    """

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem.rstrip('.')}. {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process makes an exception again from its positional arguments alone.
        return partial(type(self), remedy=self.remedy), (self.problem,)


def reason(error: BaseException) -> str:
    """Reason of an error, without text that the message of another library may quote.

    Example:
        >>> try:
        ...     json.loads('{"phrase": "my secret')
        ... except ValueError as error:
        ...     reason(error)
        'Unterminated string starting at line 1, column 12'
        >>> try:
        ...     float("my secret")
        ... except ValueError as error:
        ...     reason(error)
        'ValueError'
    """
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeError):
        place = getattr(error, "start", None)
        return "not UTF-8" if place is None else f"not UTF-8 at byte {place + 1}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


class DataError(VestigeError):
    """A corpus, file, column or vocabulary cannot be used."""


class ManifestError(DataError):
    """A canary manifest is malformed or was changed."""


class ModelError(VestigeError):
    """A model or checkpoint cannot be loaded or saved."""


class IncompatibleModels(ModelError):
    """Two models cannot be compared."""


class NotFinite(ModelError):
    """Scores of a model are no numbers, or infinite: its weights are broken."""

    def __init__(self, problem: str = "the model's scores are not finite (NaN)", **_: str) -> None:
        remedy = "Its training diverged: give an earlier checkpoint, or train again."
        super().__init__(problem, remedy=remedy)


class AccessDenied(ModelError):
    """The attack needs more access than the model gives."""


class TrainingError(VestigeError):
    """A training cannot start, go on or resume."""


class ClusterError(VestigeError):
    """A cluster cannot be used, or has lost too many workers."""


class RunError(VestigeError):
    """A run folder cannot be written or read."""
