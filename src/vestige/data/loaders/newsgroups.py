"""Newsgroup folders: one raw message a file, without headers, quotes and signature.

Lang (1995), "NewsWeeder: Learning to Filter Netnews", the 20 Newsgroups data.
"""

import re
from collections.abc import Iterator, Sequence
from email.utils import parseaddr
from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, MESSAGES, path_format
from vestige.data.text_file import not_empty
from vestige.errors import DataError

_QUOTE = re.compile(
    r"\s*(?:"
    r"[A-Za-z@%+]{0,4}[>|]"  # "> ", ">>", "|> ", and "ED> " with the quoted writer's initials
    r"|:(?:[\s>|:]|$)"  # ": "
    r"|[#}]\s*[>|]"  # "# |> "
    r")"
)
_WRITES = re.compile(
    r".*\b(?:writes|wrote)\s*[:.\]]{0,3}\s*|.*@.*\b(?:says|said)\s*:\s*", re.IGNORECASE
)
_IN_ARTICLE = re.compile(r"(?:In|From) (?:.*\b)?article\b.*[<@].*|In <.*", re.IGNORECASE)
_SIGNATURE = re.compile(r"-{2,3}\s*")
_LONGEST_SIGNATURE = 15  # lines; further up, dashes separate parts of the message


def read_newsgroups(path: str | Path) -> Corpus:
    """The messages of a group, or of every group in a folder, in order of their names.

    Messages of which nothing is left are skipped.

    Args:
        path: a folder of messages, or a folder of such folders.

    Returns:
        a message a document; users are the writers' addresses, labels the groups' names.

    Raises:
        DataError: there is no such folder, it holds no message, or a file is no message.
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path} is not a folder", remedy="Pass the folder of a newsgroup.")
    texts: list[str] = []
    users: list[str] = []
    labels: list[str] = []
    for file in _files(path):
        headers, body = _parts(file)
        text = own_words(body)
        if text:
            texts.append(text)
            users.append(_writer(headers))
            labels.append(file.parent.name)
    return not_empty(Corpus.from_texts(texts, users=users, labels=labels), path)


def is_message(file: Path) -> bool:
    """Whether a file begins with a header block that names a sender."""
    head = file.read_bytes()[:8192].split(b"\n\n", 1)[0]
    return re.search(rb"^From:", head, re.MULTILINE | re.IGNORECASE) is not None


def own_words(body: str) -> str:
    """A message's body without quotes, the lines that introduce them, and the signature.

    Example:
        >>> own_words("In article <1@x> a@b (Al) writes:\\n> Is it?\\n\\nIt is.\\n-- \\nBea")
        'It is.'
    """
    rows = _unsigned([row.rstrip() for row in body.splitlines()])
    kept = [
        row
        for row, following in zip(rows, [*rows[1:], ""], strict=True)
        if not (_QUOTE.match(row) or _introduces(row, following))
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _introduces(row: str, following: str) -> bool:
    if _WRITES.fullmatch(row) or _IN_ARTICLE.fullmatch(row):
        return True
    # An introduction may be broken over two lines: "In article ... (Al\nBee) writes:".
    return row.startswith("In ") and "@" in row and bool(_WRITES.fullmatch(following))


def _unsigned(rows: Sequence[str]) -> Sequence[str]:
    dashes = [index for index, row in enumerate(rows) if _SIGNATURE.fullmatch(row)]
    for index in dashes:
        if sum(bool(row) for row in rows[index + 1 :]) <= _LONGEST_SIGNATURE:
            return rows[:index]
    return rows


def _files(path: Path) -> Iterator[Path]:
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if entry.is_dir():
            yield from _files(entry)
        else:
            yield entry


def _parts(file: Path) -> tuple[str, str]:
    if not is_message(file):
        raise DataError(
            f"{file} is not a newsgroup message: no header with a From: line",
            remedy="Remove the file, or choose another format.",
        )
    message = file.read_bytes().decode("latin-1").replace("\r\n", "\n")
    headers, _, body = message.partition("\n\n")
    return headers, body


def _writer(headers: str) -> str:
    line = re.search(r"^From:(.*)$", headers, re.MULTILINE | re.IGNORECASE)
    name, address = parseaddr(line[1]) if line else ("", "")
    return (address or name).lower()


def _recognised(path: Path) -> bool:
    files = sorted(path.rglob("*")) if path.is_dir() else []
    first = next((file for file in files if file.is_file()), None)
    return first is not None and is_message(first)


CORPUS_FORMATS.add("newsgroups", path_format(read_newsgroups, _recognised, stage=MESSAGES))
