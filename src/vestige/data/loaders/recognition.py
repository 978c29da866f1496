"""Which format does a source have, by its name and, in doubt, by its first lines?"""

import json
import re
from pathlib import Path

from vestige.data.loaders import cornell, pairs, reddit, sated, tables, ubuntu_irc
from vestige.data.loaders.newsgroups import is_message
from vestige.data.loaders.plain_text import ending, fitting, lines
from vestige.errors import DataError

FORMATS = (
    "auto",
    "text",
    "table",
    "hub",
    "penn-treebank",
    "wikitext",
    "newsgroups",
    "reddit",
    "federalist",
    "sated",
    "cornell",
    "ubuntu-irc",
    "pairs",
)
TEXT_SUFFIXES = (".txt", ".text", "")
_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[^:/]+)?(:.+)?")


def recognised(source: str, *, named: frozenset[str]) -> str:
    """The format of a source, one of `FORMATS` but "auto".

    Args:
        source: a file, a folder or a name.
        named: which of "text", "user" and "source" the reader named a column for; a table is
            then what is meant, where its rows have a public format too.

    Raises:
        DataError: there is nothing, or nothing of a format that we know.
    """
    path = Path(source)
    if path.is_dir():
        return _folder(path, named)
    if path.exists():
        return _file(path, named)
    if source.partition(":")[0] == "federalist":
        return "federalist"
    if _HUB.fullmatch(source) and not ending(path).startswith((".txt", *tables.SUFFIXES)):
        return "hub"
    raise DataError(
        f"{source} does not exist",
        remedy="Give a file, a folder, a hub data set as owner/name, or federalist.",
    )


def _file(path: Path, named: frozenset[str]) -> str:
    suffix = ending(path)
    if suffix in tables.SUFFIXES:
        return _rows(path, named)
    if suffix in (".tokens", ".raw"):
        return "wikitext"
    if suffix in pairs.ENDINGS:
        return "pairs"
    if suffix == sated.TALKS or (suffix and path.with_suffix(sated.TALKS).is_file()):
        return "sated"
    if suffix == ".txt" and path.name.startswith(cornell.LINES):
        return "cornell"
    if suffix in TEXT_SUFFIXES:
        return "text"
    raise DataError(
        f"{path} has a name whose ending says nothing about its format",
        remedy=f"Name the format, one of {', '.join(FORMATS[1:])}.",
    )


def _folder(path: Path, named: frozenset[str]) -> str:
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    if certain := _by_names(path, names):
        return certain
    if found := fitting(path, tables.SUFFIXES):
        return _rows(found[0], named)
    if fitting(path, (".txt", ".text")):
        return "text"
    first = next((entry for entry in sorted(path.rglob("*")) if entry.is_file()), None)
    if first is not None and is_message(first):
        return "newsgroups"
    raise DataError(
        f"{path} holds no file of a format that we know",
        remedy="Give a folder of text, JSON lines, CSV, Parquet, WikiText or newsgroup files.",
    )


def _by_names(path: Path, names: set[str]) -> str | None:
    """The format of a folder whose files have names that only one format gives."""
    if any(re.fullmatch(r"ptb.*\.(train|valid|test)\.txt", name) for name in names):
        return "penn-treebank"
    if any(name.endswith(".tokens") for name in names):
        return "wikitext"
    if any(re.fullmatch(rf"{cornell.LINES}.*\.txt", name) for name in names):
        return "cornell"
    if any(name.endswith(pairs.ENDINGS) for name in names):
        return "pairs"
    if sated.talks_folder(path) is not None:
        return "sated"
    return "hub" if names & {"state.json", "dataset_dict.json"} else None


def _rows(path: Path, named: frozenset[str]) -> str:
    """The format of rows: comments and messages where no column tells otherwise, or a table."""
    if "text" in named or not ending(path).startswith(".json"):
        return "table"
    try:
        row = json.loads(next(lines(path), ""))
    except (ValueError, RecursionError):
        return "table"
    if not isinstance(row, dict):
        return "table"
    if "text" not in row and row.keys() >= set(reddit.COLUMNS):
        return "reddit"
    return "ubuntu-irc" if not named and row.keys() == set(ubuntu_irc.COLUMNS) else "table"
