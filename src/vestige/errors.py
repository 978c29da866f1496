"""Errors that Vestige raises on purpose. Bad arguments raise ValueError, which names them.

No message quotes a phrase, a user's name, or text of a corpus, manifest, model or service: it may
be secret, and messages go to logs. Messages name the file and line instead.
"""

import json
from functools import partial
from typing import Any


class VestigeError(Exception):
    """Base of all errors of this package.

    Args:
        problem: what is wrong, with the file, line or argument.
        remedy: what the user can do.
    """

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem.rstrip('.')}. {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling in another process passes only positional arguments.
        return partial(type(self), remedy=self.remedy), (self.problem,)


def reason(error: BaseException) -> str:
    """Reason of an error, without the texts that messages of other libraries may quote.

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
        byte = getattr(error, "start", None)
        return "not UTF-8" if byte is None else f"not UTF-8 at byte {byte + 1}"
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
    """A model returns NaN or infinite scores: its weights are broken."""

    def __init__(self, problem: str = "the model's scores are not finite (NaN)", **_: str) -> None:
        remedy = "Its training diverged: pass an earlier checkpoint, or train again."
        super().__init__(problem, remedy=remedy)


class AccessDenied(ModelError):
    """An attack needs more access than the model allows."""


class TrainingError(VestigeError):
    """A training cannot start, continue or resume."""


class ClusterError(VestigeError):
    """A cluster cannot be used, or lost too many workers."""


class RunError(VestigeError):
    """A run folder cannot be written or read."""
