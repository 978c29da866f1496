"""Word vectors read from a text file, line by line.

A line is a word and its numbers with blanks between them (Pennington et al. 2014, "GloVe: Global
Vectors for Word Representation"); word2vec and fastText write "words dimensions" on a first line
(Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their
Compositionality"). A word may hold blanks, as a few of GloVe's 840 billion tokens do.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vestige.data.text_file import raw_lines
from vestige.errors import DataError

_REMEDY = "Download or write the file again; a line is a word and its numbers, separated by blanks."


def read_vector_text(
    path: Path, wanted: frozenset[bytes] | None
) -> tuple[list[str], NDArray[np.float32]]:
    """Words and vectors of a file, all or the wanted ones, in its order.

    Lines of words that are not wanted are checked for how many fields they have, no further.

    Args:
        path: the file, gzip when the name ends in `.gz`.
        wanted: words as UTF-8, or None for all.

    Returns:
        (w words, float32 (w, d) vectors); of a word that comes twice, the first.

    Raises:
        DataError: naming file and line, and what is wrong there.
    """
    kept: dict[bytes, int] = {}
    buffer = bytearray()  # grows in place: 400,000 rows never become Python objects
    width = 0
    for number, word, numbers in _rows(path):
        width = len(numbers)
        if (wanted is None or word in wanted) and word not in kept:
            kept[word] = number
            buffer += _vector(numbers, f"{path}, line {number}").tobytes()
    words = [_decoded(word, path, number) for word, number in kept.items()]
    return words, np.frombuffer(buffer, dtype=np.float32).reshape(len(words), width)


def _rows(path: Path) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """(line number, word, its numbers as text), all with as many numbers as the first."""
    rows = ((number, line.split()) for number, line in enumerate(raw_lines(path), start=1))
    _, first = next(rows, (0, []))
    if not first:
        raise DataError(f"{path} is empty or begins with a blank line", remedy=_REMEDY)
    header = [int(field) for field in first] if _is_header(first) else None
    width = header[1] if header else len(first) - 1
    if width < 1:
        raise DataError(
            f"{path}, line 1: a word without numbers, or an invalid header", remedy=_REMEDY
        )
    count = 0
    for number, line in enumerate(raw_lines(path), start=1):
        if (header and number == 1) or not line.strip():
            continue
        count += 1
        parts = line.rsplit(None, width)
        _check_width(parts, width, f"{path}, line {number}", said=header is not None)
        yield number, parts[0], parts[1:]
    if header and count != header[0]:
        raise DataError(
            f"{path} has {count} words; line 1 states {header[0]}",
            remedy="It may be incomplete: download it again, or fix the number.",
        )


def _is_header(fields: list[bytes]) -> bool:
    return len(fields) == 2 and all(field.isdigit() for field in fields)


def _check_width(parts: list[bytes], width: int, where: str, *, said: bool) -> None:
    source = "the header says" if said else "line 1 has"
    if len(parts) <= width:
        raise DataError(
            f"{where} has {len(parts) - 1} numbers after its word; {source} {width}",
            remedy=_REMEDY,
        )
    if b" " in parts[0] and _is_number(parts[0].split()[-1]):
        raise DataError(
            f"{where} has more numbers after its word than the {width} that {source}",
            remedy=_REMEDY,
        )


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _vector(numbers: list[bytes], where: str) -> NDArray[np.float32]:
    try:
        exact = np.array(list(map(float, numbers)))
    except ValueError:
        broken = [_is_number(number) for number in numbers].index(False)
        raise DataError(f"{where}: field {broken + 2} is not a number", remedy=_REMEDY) from None
    with np.errstate(over="ignore"):
        vector = exact.astype(np.float32)
    if not np.isfinite(vector).all():
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise DataError(
            f"{where}: number {place + 1} is {exact[place]}, not finite in 32 bits",
            remedy="Remove the word, or train the vectors again.",
        )
    return vector


def _decoded(word: bytes, path: Path, number: int) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: the word is not UTF-8",
            remedy="Convert the file, or pass the words that are needed.",
        ) from error
