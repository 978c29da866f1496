"""Plain text: a document a line, blank lines skipped; gzip when the name ends in `.gz`."""

from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, TEXT, path_format, read_files
from vestige.data.text_file import ending, fitting, lines, not_empty

SUFFIXES = (".txt", ".text", "")


def read_plain_text(path: str | Path) -> Corpus:
    """Every line that is not blank, without the blanks around it, as a document.

    Raises:
        DataError: the file is missing, holds no text, or is not UTF-8 (with the line).
    """
    texts = (line.strip() for line in lines(Path(path)))
    return not_empty(Corpus.from_texts(text for text in texts if text), path)


def _recognised(path: Path) -> bool:
    if path.is_dir():
        return bool(fitting(path, SUFFIXES[:2]))
    return path.exists() and ending(path) in SUFFIXES


CORPUS_FORMATS.add(
    "text",
    path_format(lambda path: read_files(path, SUFFIXES, read_plain_text), _recognised, stage=TEXT),
)
