"""Secrets that one already has, as a verb is given them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.monitor import Monitor
from vestige.workflows.inputs import read_lines
from vestige.workflows.manifests import in_turn

if TYPE_CHECKING:
    from vestige.attacks.exposure.secret_completion import SecretCompletion
    from vestige.attacks.exposure.secret_rank import SecretRank
    from vestige.attacks.exposure.secret_result import SecretExposure
    from vestige.data.secret_shapes import Secret
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
        VestigeError: the file, or a secret in it, cannot be read.
    """
    from vestige.attacks.exposure.secret_exposure import secret_exposure

    read = read_own_secrets(secrets)
    asked = model if question is None else in_turn(model, "assistant", question)
    with monitor.progress("comparing secrets") as step, _naming(secrets):
        return secret_exposure(
            asked, read, seed=seed, references=references or REFERENCES, progress=step
        )


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
        VestigeError: the file, or a secret in it, cannot be read.
    """
    from vestige.attacks.exposure.secret_rank import secret_rank

    if not samples:
        raise ValueError("`samples` must be at least 1 with `secrets`, got 0")
    read = read_own_secrets(secrets)
    before, after = (
        models[role] if question is None else in_turn(models[role], "assistant", question)
        for role in ("before", "after")
    )
    with monitor.progress("ranking secrets") as step, _naming(secrets):
        return secret_rank(before, after, read, seed=seed, samples=samples, progress=step)


def completion_of(
    model: "NextToken", secrets: "Lines", *, question: str | None, beam: int, monitor: Monitor
) -> "SecretCompletion":
    """Completion of secrets by a loaded model; see `vestige.complete`.

    Raises:
        ValueError: there are none, or too many.
        VestigeError: the file, or a secret in it, cannot be read.
    """
    from vestige.attacks.exposure.secret_completion import complete_secrets

    read = read_own_secrets(secrets)
    asked = model if question is None else in_turn(model, "assistant", question)
    with monitor.progress("completing secrets") as step, _naming(secrets):
        return complete_secrets(asked, read, beam=beam, progress=step)


def require_alone(given: Mapping[str, Any], others: Sequence[str]) -> None:
    """Require secrets, and none of the options that speak of something else.

    Args:
        others: the option that secrets stand in place of, and those that go with it.

    Raises:
        ValueError: there is neither the first of the others nor secrets, or there are both.
    """
    if given["secrets"] is None:
        raise ValueError(f"`{others[0]}` must be given, or `secrets`, got neither")
    for name in others:
        if given[name] is not None:
            raise ValueError(f"`{name}` must be left out with `secrets`, got both")


def read_own_secrets(secrets: "Lines") -> "list[Secret]":
    """Secrets of a file with one a line, or as they are given; empty ones are left out."""
    from vestige.data.secret_shapes import read_secret

    if isinstance(secrets, str | PathLike):
        lines = read_lines(Path(secrets), one="secret")
    else:
        lines = list(secrets)
    texts = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    if not 1 <= len(texts) <= MOST:
        raise ValueError(f"`secrets` must hold 1 to {MOST:,}, got {len(texts):,}")
    with _naming(secrets):
        return [read_secret(line, number) for number, line in texts.items()]


@contextmanager
def _naming(secrets: "Lines") -> Iterator[None]:
    """Name the file in an error about a secret that stands in it."""
    from vestige.errors import DataError

    try:
        yield
    except DataError as error:
        where = f"{secrets}: " if isinstance(secrets, str | PathLike) else ""
        raise DataError(f"{where}{error.problem}", remedy=error.remedy) from error
