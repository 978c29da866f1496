"""Reddit comments: JSON lines with `author`, `body` and `subreddit`, as in the Pushshift dumps.

Baumgartner et al. (2020), "The Pushshift Reddit Dataset".
"""

from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, ROWS, CorpusFormat, ReadOptions
from vestige.data.loaders.tables import first_row, read_table
from vestige.errors import DataError

COLUMNS = ("author", "body", "subreddit")


def read_reddit(path: str | Path) -> Corpus:
    """Comments in the order of the file; users are authors, labels subreddits.

    Args:
        path: a `.jsonl` or `.jsonl.gz` file, or a folder with one or more of them.

    Raises:
        DataError: there is no such file, or a line is at fault.
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} has no .jsonl file", remedy="Pass the folder of the comments.")
    author, body, subreddit = COLUMNS
    parts = [
        read_table(file, text_column=body, user_column=author, label_column=subreddit)
        for file in files
    ]
    return Corpus.concatenate(parts)


def _recognised(source: str, options: ReadOptions) -> bool:
    row = {} if options.names_text else first_row(source)
    return "text" not in row and row.keys() >= set(COLUMNS)


CORPUS_FORMATS.add(
    "reddit",
    CorpusFormat(read=lambda source, _: read_reddit(source), recognised=_recognised, stage=ROWS),
)
