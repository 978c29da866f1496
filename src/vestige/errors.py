"""Every error that Vestige raises on purpose.

VestigeError
├── DataError              a corpus, file, column or vocabulary cannot be used
│   └── ManifestError      a canary manifest is malformed or was changed
├── ModelError             a model or checkpoint cannot be loaded or saved
│   ├── IncompatibleModels two models cannot be compared
│   └── AccessDenied       the attack needs more access than the model gives
├── TrainingError          a training cannot start, go on or resume
├── ClusterError           a cluster cannot be used, or has lost too many workers
└── RunError               a run directory cannot be written or read

Bad argument values raise plain ValueError, naming argument, requirement and value.
"""

from functools import partial
from typing import Any


class VestigeError(Exception):
    """Base of all errors raised by this package.

    Args:
        problem: what is wrong, naming the file, line or argument.
        remedy: what the reader can do about it; a message never comes without one.
    """

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem.rstrip('.')}. {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is made anew in another process, from its positional arguments alone.
        return partial(type(self), remedy=self.remedy), (self.problem,)


class DataError(VestigeError):
    """A corpus, file, column or vocabulary cannot be used."""


class ManifestError(DataError):
    """A canary manifest is malformed or was changed."""


class ModelError(VestigeError):
    """A model or checkpoint cannot be loaded or saved."""


class IncompatibleModels(ModelError):
    """Two models cannot be compared."""


class AccessDenied(ModelError):
    """The attack needs more access than the model gives."""


class TrainingError(VestigeError):
    """A training cannot start, go on or resume."""


class ClusterError(VestigeError):
    """A cluster cannot be used, or has lost too many workers."""


class RunError(VestigeError):
    """A run directory cannot be written or read."""
