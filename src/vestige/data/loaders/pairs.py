"""Pairs of utterances in two files: line n of `NAME.dec` answers line n of `NAME.enc`.

Tutorials of sequence-to-sequence models keep the Cornell Movie-Dialogs in this form. It does not
say who speaks.
"""

from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, path_format
from vestige.data.text_file import ending, not_empty, parallel_lines
from vestige.errors import DataError

ENDINGS = (".enc", ".dec")


def read_pairs(path: str | Path) -> Corpus:
    """The answers as documents, what they answer as sources, in the order of the files.

    Pairs of which one half is blank are left out.

    Args:
        path: a `.enc` or `.dec` file, whose other half stands beside it, or a folder of such
            files, whose pairs follow one another in the order of their names.

    Raises:
        DataError: a half is missing, or the halves differ in their numbers of lines.
    """
    path = Path(path)
    named = [path]
    if path.is_dir():
        named = sorted(
            {file.with_suffix(ENDINGS[0]) for end in ENDINGS for file in path.glob(f"*{end}")}
        )
    if not named or any(file.suffix not in ENDINGS for file in named):
        raise DataError(
            f"{path} has no pairs of a .enc and a .dec file",
            remedy="Pass a folder with both, or one file next to the other.",
        )
    pairs = [pair for file in named for pair in parallel_lines(_halves(file)) if all(pair)]
    sources, texts = ([pair[half] for pair in pairs] for half in (0, 1))
    return not_empty(Corpus.from_texts(texts, sources=sources), path)


def _halves(file: Path) -> list[Path]:
    halves = [file.with_suffix(end) for end in ENDINGS]
    missing = [half for half in halves if not half.is_file()]
    if missing:
        raise DataError(
            f"{missing[0]} does not exist; it is half of a pair",
            remedy="Put NAME.enc and NAME.dec into one folder; line n answers line n.",
        )
    return halves


def _recognised(path: Path) -> bool:
    if path.is_dir():
        return any(entry.name.endswith(ENDINGS) for entry in path.glob("[!.]*"))
    return path.exists() and ending(path) in ENDINGS


CORPUS_FORMATS.add("pairs", path_format(read_pairs, _recognised))
