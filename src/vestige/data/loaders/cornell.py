"""The Cornell Movie-Dialogs: replies in the scripts of 617 films.

Danescu-Niculescu-Mizil and Lee (2011), "Chameleons in imagined conversations". A character is a
user, a document a reply, its source the line before it in the same conversation.

Where `movie_conversations.txt` is missing, lines of one film belong to one conversation when
their numbers follow each other. This joins conversations that follow each other in the script.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, path_format
from vestige.data.text_file import ending, not_empty, raw_lines
from vestige.errors import DataError

LINES = "movie_lines"
_CHARACTERS = "movie_characters_metadata.txt"
_CONVERSATIONS = "movie_conversations.txt"
_SEPARATOR = re.compile(r" \+\+\+\$\+\+\+(?: |$)")
_MARK_UP = re.compile(r"</?[a-z]+>", re.IGNORECASE)
_NUMBER = re.compile(r"L[0-9]+")


@dataclass(frozen=True)
class _Utterance:
    character: str
    film: str
    text: str


def read_cornell(path: str | Path) -> Corpus:
    """The replies of every character, in the order of the script.

    Lines without words take no part. The last line takes none either where it has no line end:
    then the file was cut, and so is the line. Mark-up (`<u>`) is taken out.

    Args:
        path: the folder, or its file of lines, `movie_lines*.txt`.

    Returns:
        users are the characters' ids ("u0"), since films share names; labels are the films'
        titles, or their ids where the characters' file is missing; sources are what is answered.

    Raises:
        DataError: there is no such file, or a line of it is at fault.
    """
    path = Path(path)
    file = _file_of_lines(path)
    spoken = _spoken(file)
    conversations = file.parent / _CONVERSATIONS
    asked = _listed(conversations) if conversations.is_file() else _consecutive(spoken)
    pairs = [
        (spoken[first], spoken[second])
        for first, second in asked
        if first in spoken and second in spoken
    ]
    pairs = [(said, reply) for said, reply in pairs if said.character != reply.character]
    titles = _titles(file.parent / _CHARACTERS)
    corpus = Corpus.from_texts(
        (reply.text for _, reply in pairs),
        users=(reply.character for _, reply in pairs),
        labels=(titles.get(reply.film, reply.film) for _, reply in pairs),
        sources=(said.text for said, _ in pairs),
    )
    return not_empty(corpus, file)


def _file_of_lines(path: Path) -> Path:
    files = sorted(path.glob(f"{LINES}*.txt")) if path.is_dir() else [path]
    if len(files) != 1:
        raise DataError(
            f"{path} has {len(files)} files {LINES}*.txt; one is needed",
            remedy="Pass the file of the lines.",
        )
    return files[0]


def _spoken(file: Path) -> dict[int, _Utterance]:
    """The lines with words, by number."""
    found: dict[int, _Utterance] = {}
    for where, (name, character, film, _, text) in _rows(file, 5):
        number = _number(name, where)
        if number in found:
            raise DataError(
                f"{where}: the line {name} occurs twice",
                remedy="Line numbers must differ; download the file again.",
            )
        words = _MARK_UP.sub("", text).strip()
        if words:
            found[number] = _Utterance(character.strip(), film.strip(), words)
    return found


def _consecutive(spoken: dict[int, _Utterance]) -> Iterator[tuple[int, int]]:
    for first, second in pairwise(sorted(spoken)):
        if second == first + 1 and spoken[first].film == spoken[second].film:
            yield first, second


def _listed(file: Path) -> Iterator[tuple[int, int]]:
    for where, row in _rows(file, 4):
        names = row[3].strip()
        if not re.fullmatch(r"\[('L[0-9]+'(, )?)+\]", names):
            raise DataError(
                f"{where}: its last field is not a list of lines such as ['L1', 'L2']",
                remedy="Download the file again, or remove it to order by line numbers.",
            )
        yield from pairwise(_number(name, where) for name in _NUMBER.findall(names))


def _titles(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    return {row[2].strip(): row[3].strip() for _, row in _rows(file, 6)}


def _number(name: str, where: str) -> int:
    if not _NUMBER.fullmatch(name.strip()):
        raise DataError(
            f"{where}: expected a line number such as L1045",
            remedy="Fix or remove the line, or download the file again.",
        )
    return int(name.strip()[1:])


def _rows(file: Path, fields: int) -> Iterator[tuple[str, list[str]]]:
    """Location and fields of each row; a last row without a line end is left out."""
    for number, line in enumerate(raw_lines(file), start=1):
        if not line.endswith(b"\n") or not line.strip():
            continue
        where = f"{file}, line {number}"
        row = _SEPARATOR.split(_decoded(line).rstrip("\r\n"), maxsplit=fields - 1)
        if len(row) < fields:
            raise DataError(
                f"{where}: {len(row)} fields; {fields} are needed",
                remedy='Separate fields by " +++$+++ "; fix or remove the line.',
            )
        yield where, row


def _decoded(line: bytes) -> str:
    # The corpus is Windows text; copies of it are UTF-8, and a few of its bytes are neither.
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")


def _recognised(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob(f"{LINES}*.txt"))
    return path.exists() and ending(path) == ".txt" and path.name.startswith(LINES)


CORPUS_FORMATS.add("cornell", path_format(read_cornell, _recognised))
