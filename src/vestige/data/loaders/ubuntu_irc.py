"""Ubuntu's chat: JSON lines `log time user text`, and who answers whom in them.

Stands in for Lowe et al. (2015), "The Ubuntu Dialogue Corpus", who find conversations in the
same logs by the nickname that a message begins with.

Differs from the paper: a pair of messages is kept wherever it stands, not only in conversations
of two; the message that is answered is the last one of the addressed user, whenever it was said.
"""

import re
from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, ROWS, CorpusFormat, ReadOptions
from vestige.data.loaders.tables import SUFFIXES, first_row, read_table
from vestige.data.text_file import ending, not_empty
from vestige.errors import DataError

COLUMNS = ("log", "time", "user", "text")
_ADDRESSED = re.compile(r"([^\s:,]+)[:,]\s+(.*)", re.DOTALL)


def read_ubuntu_irc(path: str | Path, *, replies: bool = True) -> Corpus:
    """The replies that are addressed to a nickname ("ann: try this"), or every message.

    A reply's source is the last message of that nickname in the same log; the nickname is no
    part of the text. It counts as one only where someone of that name spoke before.

    Args:
        path: a file of messages, gzip or not, or a folder of such files.
        replies: documents are replies with sources; else all messages, without sources.

    Returns:
        users are nicknames, labels the logs.

    Raises:
        DataError: naming file and line, and what is wrong there.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if ending(file) in SUFFIXES)
    if not files:
        raise DataError(f"{path} has no messages", remedy="Pass the file messages.jsonl.gz.")
    parts = [read_table(file, user_column="user", label_column="log") for file in files]
    messages = Corpus.concatenate(parts)
    return not_empty(_replies(messages), path) if replies else messages


def _replies(messages: Corpus) -> Corpus:
    last: dict[tuple[str, str], str] = {}  # by log and nickname in lower case
    places: list[int] = []
    texts: list[str] = []
    sources: list[str] = []
    rows = zip(messages, messages.users or [], messages.labels or [], strict=True)
    for place, (text, user, log) in enumerate(rows):
        addressed = _ADDRESSED.fullmatch(text.strip())
        named = addressed and (log, addressed[1].lower())
        said = text.strip()
        if addressed and named in last:
            said = addressed[2].strip()
            if said and addressed[1].lower() != user.lower():
                places.append(place)
                texts.append(said)
                sources.append(last[named])
        last[log, user.lower()] = said or text.strip()
    kept = messages.take(places)
    return Corpus.from_texts(texts, users=kept.users, labels=kept.labels, sources=sources)


def _recognised(source: str, options: ReadOptions) -> bool:
    return not options.names_columns and first_row(source).keys() == set(COLUMNS)


CORPUS_FORMATS.add(
    "ubuntu-irc",
    CorpusFormat(
        read=lambda source, _: read_ubuntu_irc(source), recognised=_recognised, stage=ROWS
    ),
)
