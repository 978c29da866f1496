"""Dialogues: film scripts, chats, comments, and chats in tables.

Like all formats, they raise DataError with file, line or row, fault and remedy.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from vestige.data.corpus import Corpus
from vestige.data.formats.reading import (
    ROWS,
    TABLES,
    add_corpus_format,
    by_columns,
    by_name,
    raw_lines,
    require_documents,
    source_files,
)
from vestige.data.formats.tables import located_rows, read_table
from vestige.errors import DataError

TURNS = ("messages", "conversations")
"""Usual columns with a list of turns."""
PAIRS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "input", "output"),
    ("instruction", "output"),
    ("instruction", "response"),
)
"""Usual columns with a prompt and its answer."""
Chat = list[dict[str, str]]
"""Turns with "role" and "content", as chat templates read them."""

_ROLES = {"human": "user", "gpt": "assistant"}  # of ShareGPT
_ADDRESSED = re.compile(r"([^\s:,]+)[:,]\s+(.*)", re.DOTALL)
_SEPARATOR = re.compile(r" \+\+\+\$\+\+\+(?: |$)")
_MARK_UP = re.compile(r"</?[a-z]+>", re.IGNORECASE)
_NUMBER = re.compile(r"L[0-9]+")
_REMEDY = (
    'Separate fields by " +++$+++ ", and number lines differently; fix or remove the line, or '
    "download the file again."
)


class _Line(NamedTuple):
    character: str
    film: str
    text: str


def read_cornell(path: Path) -> Corpus:
    """The replies of every character in the Cornell Movie-Dialogs, in the order of the script.

    Danescu-Niculescu-Mizil and Lee (2011), "Chameleons in imagined conversations". A document is a
    reply, its source the line before it in the same conversation. Without
    `movie_conversations.txt`, lines of one film are one conversation if their numbers follow each
    other: this joins conversations that follow each other in the script.

    Lines without words are left out, and so is a last line without a line end, since the file was
    cut there. Mark-up (`<u>`) is removed.

    Args:
        path: the folder, or its file of lines, `movie_lines*.txt`.

    Returns:
        users are the characters' ids ("u0"), since films share names; labels are the films'
        titles, or their ids without the characters' file.
    """
    files = source_files(path, (), "movie_lines*.txt")
    if len(files) != 1:
        raise DataError(
            f"{path} has {len(files)} files movie_lines*.txt; one is needed",
            remedy="Pass the file of the lines.",
        )
    script: dict[int, _Line] = {}
    for where, (name, character, film, _, text) in _fields(files[0], 5):
        number = _number(name, where)
        if number in script:
            raise DataError(f"{where}: the line {name} occurs twice", remedy=_REMEDY)
        script[number] = _Line(character.strip(), film.strip(), _MARK_UP.sub("", text).strip())
    conversations = files[0].with_name("movie_conversations.txt")
    numbers = _listed(conversations) if conversations.is_file() else _consecutive(script)
    pairs = [(script[a], script[b]) for a, b in numbers if a in script and b in script]
    pairs = [(a, b) for a, b in pairs if a.text and b.text and a.character != b.character]
    films = files[0].with_name("movie_characters_metadata.txt")
    rows = _fields(films, 6) if films.is_file() else ()
    titles = {row[2].strip(): row[3].strip() for _, row in rows}
    corpus = Corpus.from_texts(
        (reply.text for _, reply in pairs),
        users=(reply.character for _, reply in pairs),
        labels=(titles.get(reply.film, reply.film) for _, reply in pairs),
        sources=(line.text for line, _ in pairs),
    )
    return require_documents(corpus, files[0])


add_corpus_format("cornell", read_cornell, by_name("movie_lines*.txt", inside=["movie_lines*.txt"]))


def _consecutive(script: Mapping[int, _Line]) -> Iterator[tuple[int, int]]:
    for first, second in pairwise(sorted(number for number, line in script.items() if line.text)):
        if second == first + 1 and script[first].film == script[second].film:
            yield first, second


def _listed(file: Path) -> Iterator[tuple[int, int]]:
    for where, row in _fields(file, 4):
        if not re.fullmatch(r"\[('L[0-9]+'(, )?)+\]", row[3].strip()):
            problem = f"{where}: its last field is not a list of lines such as ['L1', 'L2']"
            raise DataError(problem, remedy=_REMEDY)
        yield from pairwise(_number(name, where) for name in _NUMBER.findall(row[3]))


def _number(name: str, where: str) -> int:
    if not _NUMBER.fullmatch(name.strip()):
        raise DataError(f"{where}: expected a line number such as L1045", remedy=_REMEDY)
    return int(name.strip()[1:])


def _fields(file: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """Location and fields of each row; a last row without a line end is left out."""
    for number, line in enumerate(raw_lines(file), start=1):
        if not line.endswith(b"\n") or not line.strip():
            continue
        where = f"{file}, line {number}"
        row = _SEPARATOR.split(_decoded(line).rstrip("\r\n"), maxsplit=count - 1)
        if len(row) < count:
            raise DataError(f"{where}: {len(row)} fields; {count} are needed", remedy=_REMEDY)
        yield where, row


def _decoded(line: bytes) -> str:
    # The corpus is Windows text; copies are UTF-8; a few bytes are neither.
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")


def read_ubuntu_irc(path: Path) -> Corpus:
    """Replies that are addressed to a nickname ("ann: try this").

    Replaces Lowe et al. (2015), "The Ubuntu Dialogue Corpus", who find conversations in the same
    logs by the nickname at the beginning of a message. Differs from the paper: conversations may
    have more than two users, and a reply answers the last message of the addressed user, however
    old it is.

    A reply's source is the last message of that nickname in the same log; its text is without the
    nickname. A word is a nickname only if a user of that name wrote before.

    Args:
        path: a table of messages (`log`, `time`, `user`, `text`), or a folder of such files. Users
            of the corpus are nicknames, labels the logs.
    """
    columns = {"user_column": "user", "label_column": "log"}
    parts = [read_table(file, **columns) for file in source_files(path, TABLES)]
    messages = Corpus.concatenate(parts)
    last: dict[tuple[str, str], str] = {}  # by log and nickname in lower case
    replies: list[int] = []
    texts: list[str] = []
    sources: list[str] = []
    rows = zip(messages, messages.users or [], messages.labels or [], strict=True)
    for index, (message, user, log) in enumerate(rows):
        text = message.strip()
        addressed = _ADDRESSED.fullmatch(text)
        key = addressed and (log, addressed[1].lower())
        answer = text
        if addressed and key in last:
            answer = addressed[2].strip()
            if answer and addressed[1].lower() != user.lower():
                replies.append(index)
                texts.append(answer)
                sources.append(last[key])
        last[log, user.lower()] = answer or text
    kept = messages.take(replies)
    corpus = Corpus.from_texts(texts, users=kept.users, labels=kept.labels, sources=sources)
    return require_documents(corpus, path)


add_corpus_format(
    "ubuntu-irc", read_ubuntu_irc, by_columns("log", "time", "user", "text"), stage=ROWS
)


def read_reddit(path: Path) -> Corpus:
    """Comments in the order of the file; users are authors, labels subreddits.

    Baumgartner et al. (2020), "The Pushshift Reddit Dataset".

    Args:
        path: JSON lines with `author`, `body` and `subreddit`, gzip or not, or a folder of them.
    """
    columns = {"text_column": "body", "user_column": "author", "label_column": "subreddit"}
    files = source_files(path, (), "*.jsonl*")
    return Corpus.concatenate([read_table(file, **columns) for file in files])


add_corpus_format("reddit", read_reddit, by_columns("author", "body", "subreddit"), stage=ROWS)


# Chats in the columns of a table


def chats(path: Path, column: str) -> Iterator[Chat]:
    """The chats in a column of a table: turns with role and content, or with from and value."""
    for where, row in located_rows(path, [column]):
        try:
            yield [_read_turn(turn) for turn in row[column] or ()]
        except (TypeError, ValueError, AttributeError):
            raise DataError(
                f'{where}: "{column}" is not a list of turns with role and content',
                remedy='Write each turn as {"role": "user", "content": "..."}, or pass --text.',
            ) from None


def _read_turn(turn: Mapping[str, Any]) -> dict[str, str]:
    role = turn.get("role") or turn.get("from")
    content = turn.get("content") or turn.get("value") or ""
    if not isinstance(content, str):  # parts; images have no text
        content = "".join(part.get("text") or "" for part in content)
    if not isinstance(role, str):
        raise TypeError
    return {"role": _ROLES.get(role, role), "content": content}


def joined(path: Path, columns: Sequence[str]) -> Iterator[str]:
    """The texts of several columns of each row, a line end between them."""
    for where, row in located_rows(path, columns):
        for name in columns:
            if not isinstance(row[name], str | None):
                raise DataError(
                    f'{where}: "{name}" is {type(row[name]).__name__}, not text',
                    remedy="Convert its values to strings, or pass another --text column.",
                )
        yield "\n".join(row[name] for name in columns if row[name])
