"""Formats of corpora and of labelled utterances: a format is one file that registers itself.

Another package adds formats through the entry-point groups `vestige.formats` and
`vestige.utterance_formats`: an entry point names a module that registers when it is imported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.text_file import fitting
from vestige.data.utterances import UtteranceSplits
from vestige.errors import DataError
from vestige.registry import Registry

NAMES, ROWS, TABLE, TEXT, MESSAGES = range(5)
"""Stages of recognition, asked in this order: by names of files, by the first row, by endings."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a reader may ask of a corpus.

    Attributes:
        text_column: the documents' column, in tables; the ending of the target's files in SATED.
        user_column: the users' column, in tables.
        source_column: what documents answer or translate, in tables; the ending of the source's
            files in SATED.
        limit: largest number of documents wanted; a format may read more.
    """

    text_column: str = "text"
    user_column: str | None = None
    source_column: str | None = None
    limit: int | None = None

    @property
    def names_text(self) -> bool:
        """Whether the reader named a column of documents."""
        return self.text_column != "text"

    @property
    def names_columns(self) -> bool:
        """Whether the reader named any column, and so means a plain table."""
        return bool(self.names_text or self.user_column or self.source_column)


@dataclass(frozen=True, kw_only=True)
class CorpusFormat:
    """A format of corpora.

    Attributes:
        read: (source, options) -> corpus; the source is a path or a name.
        recognised: (source, options) -> whether the source looks like this format.
        stage: when `recognised` is asked, so that a telling format comes before a general one.
    """

    read: Callable[[str, ReadOptions], Corpus]
    recognised: Callable[[str, ReadOptions], bool]
    stage: int = NAMES


def path_format(
    read: Callable[[Path], Corpus], recognised: Callable[[Path], bool], *, stage: int = NAMES
) -> CorpusFormat:
    """A format that is read by its path alone; see `CorpusFormat`."""
    return CorpusFormat(
        read=lambda source, _: read(Path(source)),
        recognised=lambda source, _: recognised(Path(source)),
        stage=stage,
    )


@dataclass(frozen=True, kw_only=True)
class UtteranceColumns:
    """Columns of labelled utterances in tables.

    Attributes:
        tokens: the words.
        tags: a BIO tag for each word.
        intent: the intent.
    """

    tokens: str = "tokens"
    tags: str = "tags"
    intent: str = "intent"


@dataclass(frozen=True, kw_only=True)
class UtteranceFormat:
    """A format of labelled utterances.

    Attributes:
        read: (path, columns) -> the parts.
        recognised: whether what stands at a path looks like this format.
        stage: see `CorpusFormat`.
    """

    read: Callable[[Path, UtteranceColumns], UtteranceSplits]
    recognised: Callable[[Path], bool]
    stage: int = NAMES


CORPUS_FORMATS: Registry[CorpusFormat] = Registry(
    "format", package="vestige.data.loaders", group="vestige.formats"
)
UTTERANCE_FORMATS: Registry[UtteranceFormat] = Registry(
    "format", package="vestige.data.loaders", group="vestige.utterance_formats"
)


def read_files(
    source: str | Path, suffixes: tuple[str, ...], read: Callable[[Path], Corpus]
) -> Corpus:
    """One file, or the files of a folder that have one of the endings, in order.

    Raises:
        DataError: the folder holds no such file.
    """
    path = Path(source)
    files = fitting(path, suffixes) if path.is_dir() else [path]
    if not files:
        raise DataError(
            f"{path} has no file ending in {', '.join(filter(None, suffixes))}",
            remedy="Pass a file, or a folder with such files.",
        )
    return Corpus.concatenate([read(file) for file in files])
