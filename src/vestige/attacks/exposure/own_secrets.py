"""Secrets of the user, one per line: one syntax and one way of reading them for all verbs."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from vestige.data.regular_file import read_lines
from vestige.data.secret_lines import SecretList, left_out, read_secret_lines
from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor

MOST = 10_000


def read_own_secrets(
    secrets: "str | PathLike[str] | Sequence[str]",
    *,
    name: str = "secrets",
    monitor: Monitor = SILENT,
) -> SecretList:
    """Secrets of a file with one per line, or of texts.

    Args:
        name: of the argument, for messages.
        monitor: gets one line about secrets that were left out.

    Raises:
        ValueError: there are none, or too many.
        DataError: the file cannot be read, or no secret in it can be used.
    """
    if isinstance(secrets, str | PathLike):
        lines, where = read_lines(Path(secrets), one="secret"), f"{secrets}: "
    else:
        lines, where = list(secrets), ""
    if not 1 <= (number := sum(bool(line.strip()) for line in lines)) <= MOST:
        raise ValueError(f"`{name}` must hold 1 to {MOST:,}, got {number:,}")
    try:
        listed = read_secret_lines(lines)
    except DataError as error:
        raise DataError(f"{where}{error.problem}", remedy=error.remedy) from error
    _log(listed.notice, monitor)
    return listed


def log_unread(skipped: Sequence[tuple[int, str]], listed: SecretList, monitor: Monitor) -> None:
    """Show which secrets the model could not read, besides those that the list left out."""
    _log(left_out(skipped[len(listed.skipped) :]), monitor)


def _log(notice: str, monitor: Monitor) -> None:
    if notice:
        monitor.log(f"{notice[:1].upper()}{notice[1:]}.")
