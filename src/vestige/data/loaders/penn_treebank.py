"""Penn Treebank in Mikolov's form: `ptb.train.txt` and its fellows, a tokenised sentence a line.

Marcus et al. (1993), "Building a Large Annotated Corpus of English: The Penn Treebank";
preprocessed as in Mikolov et al. (2010), "Recurrent neural network based language model".
"""

import re
from pathlib import Path

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.loaders.plain_text import read_plain_text
from vestige.data.loaders.registry import CORPUS_FORMATS, path_format
from vestige.errors import DataError

SPLITS = ("train", "valid", "test")


def read_penn_treebank(path: str | Path, *, split: str = "train") -> Corpus:
    """One part of the corpus, a sentence a document; `<unk>` and `N` stay as they are.

    Args:
        path: the folder, or one of its files.
        split: "train", "valid" or "test"; ignored if `path` is a file.

    Raises:
        ValueError: there is no such split.
        DataError: the folder lacks the file, or the file cannot be read.
    """
    _validate.one_of(SPLITS, split=split)
    path = Path(path)
    if not path.is_dir():
        return read_plain_text(path)
    files = sorted(path.glob(f"ptb*.{split}.txt")) or sorted(path.glob(f"{split}.txt"))
    if not files:
        raise DataError(
            f"{path} has no ptb.{split}.txt",
            remedy="Pass the folder of ptb.train.txt, ptb.valid.txt and ptb.test.txt.",
        )
    return read_plain_text(files[0])


def _recognised(path: Path) -> bool:
    names = [file.name for file in path.glob("ptb*.txt")] if path.is_dir() else []
    return any(re.fullmatch(r"ptb.*\.(train|valid|test)\.txt", name) for name in names)


CORPUS_FORMATS.add("penn-treebank", path_format(read_penn_treebank, _recognised))
