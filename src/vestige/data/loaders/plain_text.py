"""Plain text: a document a line, blank lines skipped; gzip when the name ends in `.gz`."""

from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, TEXT, CorpusFormat, read_files
from vestige.data.text_file import ending, fitting, lines, not_empty

SUFFIXES = (".txt", ".text", "")


def read_plain_text(path: str | Path) -> Corpus:
    """Every line that is not blank, without the blanks around it, as a document.

    Raises:
        DataError: the file is missing, holds no text, or is not UTF-8 (with the line).
    """
    path = Path(path)
    texts = (line.strip() for line in lines(path))
    corpus = Corpus.from_texts(text for text in texts if text)
    return not_empty(corpus, path)


def _recognised(path: Path) -> bool:
    if path.is_dir():
        return bool(fitting(path, SUFFIXES[:2]))
    return path.exists() and ending(path) in SUFFIXES


CORPUS_FORMATS.add(
    "text",
    CorpusFormat(
        read=lambda source, _: read_files(source, SUFFIXES, read_plain_text),
        recognised=lambda source, _: _recognised(Path(source)),
        stage=TEXT,
    ),
)
