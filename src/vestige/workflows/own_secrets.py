"""Secrets that were never planted: one syntax and one way of reading them for all verbs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.monitor import SILENT, Monitor
from vestige.workflows.inputs import read_lines
from vestige.workflows.manifests import in_turn

if TYPE_CHECKING:
    from vestige.attacks.exposure.secret_completion import SecretCompletion
    from vestige.attacks.exposure.secret_rank import SecretRank
    from vestige.attacks.exposure.secret_result import SecretExposure
    from vestige.data.secret_lines import SecretList
    from vestige.models.protocols import NextToken
    from vestige.workflows.inputs import Lines

MOST = 10_000
REFERENCES = 2**12


def exposure_of(
    model: "NextToken",
    secrets: "Lines",
    *,
    question: str | None,
    references: int | None,
    seed: int,
    monitor: Monitor,
) -> "SecretExposure":
    """Exposure of secrets under a loaded model; see `vestige.exposure`.

    Raises:
        ValueError: there are none, or too many.
        VestigeError: the file cannot be read, or no secret in it can be used.
    """
    from vestige.attacks.exposure.secret_exposure import secret_exposure

    listed = read_own_secrets(secrets, monitor=monitor)
    audited = model if question is None else in_turn(model, "assistant", question)
    with monitor.progress("comparing secrets") as step, _naming(secrets):
        found = secret_exposure(
            audited, listed, seed=seed, references=references or REFERENCES, progress=step
        )
    _log_skipped(found.skipped, listed, monitor)
    return found


def ranks_of(
    models: "Mapping[str, NextToken]",
    secrets: "Lines",
    *,
    question: str | None,
    samples: int,
    seed: int,
    monitor: Monitor,
) -> "SecretRank":
    """Ranks of secrets under the models "before" and "after"; see `vestige.rank`.

    Raises:
        ValueError: there are none, or too many, or no samples.
        VestigeError: the file cannot be read, or no secret in it can be used.
    """
    from vestige.attacks.exposure.secret_rank import secret_rank

    if not samples:
        raise ValueError("`samples` must be at least 1 with `secrets`, got 0")
    listed = read_own_secrets(secrets, monitor=monitor)
    before, after = (
        models[role] if question is None else in_turn(models[role], "assistant", question)
        for role in ("before", "after")
    )
    with monitor.progress("ranking secrets") as step, _naming(secrets):
        found = secret_rank(before, after, listed, seed=seed, samples=samples, progress=step)
    _log_skipped(found.skipped, listed, monitor)
    return found


def completion_of(
    model: "NextToken", secrets: "Lines", *, question: str | None, beam: int, monitor: Monitor
) -> "SecretCompletion":
    """Completion of secrets by a loaded model; see `vestige.complete`.

    Raises:
        ValueError: there are none, or too many.
        VestigeError: the file cannot be read, or no secret in it can be used.
    """
    from vestige.attacks.exposure.secret_completion import complete_secrets

    listed = read_own_secrets(secrets, monitor=monitor)
    audited = model if question is None else in_turn(model, "assistant", question)
    with monitor.progress("completing secrets") as step, _naming(secrets):
        found = complete_secrets(audited, listed, beam=beam, progress=step)
    _log_skipped(found.skipped, listed, monitor)
    return found


def require_alone(given: Mapping[str, Any], others: Sequence[str]) -> None:
    """Require secrets, and none of the options for something else.

    Args:
        others: the option that secrets replace, and those that go with it.

    Raises:
        ValueError: there is neither the first of the others nor secrets, or there are both.
    """
    if given["secrets"] is None:
        raise ValueError(f"`{others[0]}` must be given, or `secrets`, got neither")
    for name in others:
        if given[name] is not None:
            raise ValueError(f"`{name}` must be left out with `secrets`, got both")


def read_own_secrets(secrets: "Lines", *, monitor: Monitor = SILENT) -> "SecretList":
    """Secrets of a file with one on each line, or of texts; a notice names those left out.

    Raises:
        ValueError: there are none, or too many.
        DataError: the file cannot be read, or no secret in it can be used.
    """
    from vestige.data.secret_lines import read_secret_lines

    if isinstance(secrets, str | PathLike):
        lines = read_lines(Path(secrets), one="secret")
    else:
        lines = list(secrets)
    if not 1 <= (number := sum(bool(line.strip()) for line in lines)) <= MOST:
        raise ValueError(f"`secrets` must hold 1 to {MOST:,}, got {number:,}")
    with _naming(secrets):
        listed = read_secret_lines(lines)
    if listed.notice:
        monitor.log(f"{listed.notice[:1].upper()}{listed.notice[1:]}.")
    return listed


def _log_skipped(
    skipped: "Sequence[tuple[int, str]]", listed: "SecretList", monitor: Monitor
) -> None:
    """Name what the model could not read; the reader of the lines has named the others."""
    from vestige.data.secret_lines import left_out

    if notice := left_out(skipped[len(listed.skipped) :]):
        monitor.log(f"{notice[:1].upper()}{notice[1:]}.")


@contextmanager
def _naming(secrets: "Lines") -> Iterator[None]:
    """Name the file in an error about a secret in it."""
    from vestige.errors import DataError

    try:
        yield
    except DataError as error:
        where = f"{secrets}: " if isinstance(secrets, str | PathLike) else ""
        raise DataError(f"{where}{error.problem}", remedy=error.remedy) from error
