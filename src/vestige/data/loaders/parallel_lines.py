"""Parallel files: which lines belong together, where line n of each file says one thing of it?"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.data.loaders.plain_text import lines
from vestige.errors import DataError


def parallel_lines(files: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Line n of every file, together, without the blanks at their ends.

    Blank lines at the files' ends are of no account, whichever of them have some.

    Args:
        files: of one folder.

    Raises:
        DataError: a file is missing, no UTF-8, or has other lines than the others.
    """
    columns = [[line.strip() for line in lines(file)] for file in files]
    wanted = max(map(_filled, columns))
    if any(len(column) < wanted for column in columns):
        counts = [_filled(column) for column in columns]
        said = ", ".join(f"{file.name} {count}" for file, count in zip(files, counts, strict=True))
        raise DataError(
            f"{files[0].parent}: the files differ in their numbers of lines ({said}), the first "
            f"line that one of them lacks is line {min(counts) + 1}",
            remedy="Line n of each file must belong together; fetch or write them again.",
        )
    return zip(*(column[:wanted] for column in columns), strict=True)


def _filled(column: Sequence[str]) -> int:
    """How many lines there are up to the last one that is not blank."""
    return max((number for number, line in enumerate(column, start=1) if line), default=0)
