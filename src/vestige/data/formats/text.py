"""Running text: a document a line, WikiText, the Penn Treebank, newsgroup messages."""

import re
from collections.abc import Iterator, Sequence
from email.utils import parseaddr
from pathlib import Path

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import (
    MESSAGES,
    TEXT,
    ReadOptions,
    add_corpus_format,
    by_ending,
    by_name,
    existing_file,
    lines,
    require_documents,
    source_files,
)
from vestige.errors import DataError

SPLITS = ("train", "valid", "test")
_ENDINGS = (".txt", ".text", "")

_TITLE = re.compile(r"= ([^=].*[^=]) =")
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
_LONGEST_SIGNATURE = 15  # lines; dashes before more lines separate parts of the message


def read_plain_text(path: str | Path) -> Corpus:
    """A document per line, stripped; blank lines are left out."""
    texts = (line.strip() for line in lines(Path(path)))
    return require_documents(Corpus.from_texts(text for text in texts if text), path)


def read_texts(path: Path) -> Corpus:
    """A file of plain text, or all such files of a folder."""
    return Corpus.concatenate([read_plain_text(file) for file in source_files(path, _ENDINGS)])


add_corpus_format("text", read_texts, by_ending(_ENDINGS, _ENDINGS[:2]), stage=TEXT)


def read_penn_treebank(path: str | Path, *, split: str = "train") -> Corpus:
    """One part of the Penn Treebank in Mikolov's form, a sentence a document.

    Marcus et al. (1993), "Building a Large Annotated Corpus of English: The Penn Treebank";
    preprocessed as in Mikolov et al. (2010), "Recurrent neural network based language model":
    `<unk>` and `N` stay as they are.

    Args:
        path: the folder of `ptb.train.txt` and the others, or one of its files.
        split: "train", "valid" or "test" part of a folder.
    """
    patterns = (f"ptb*.{split}.txt", f"{split}.txt")
    return read_plain_text(_split_file(Path(path), split, "ptb.{}.txt", *patterns))


def read_wikitext(path: str | Path, *, split: str = "train") -> Corpus:
    """The paragraphs and headings of one part of WikiText, labelled with the titles of articles.

    Merity et al. (2017), "Pointer Sentinel Mixture Models": a paragraph a line, headings between
    ` = ` signs, blank lines around headings. Arguments are those of `read_penn_treebank`.
    """
    patterns = (f"*{split}*.tokens", f"*{split}*.raw")
    file = _split_file(Path(path), split, "wiki.{}.tokens", *patterns)
    texts: list[str] = []
    titles: list[str] = []
    title, previous, current = "", "", ""
    for following in [*map(str.strip, lines(file)), ""]:
        # Tables have lines that look like titles; a title has blank lines around it.
        heading = _TITLE.fullmatch(current)
        if heading and not previous and not following:
            title = heading[1]
        if current:
            texts.append(current)
            titles.append(title)
        previous, current = current, following
    return require_documents(Corpus.from_texts(texts, labels=titles), file)


def _split_file(path: Path, split: str, name: str, *patterns: str) -> Path:
    """A file, or the file of a split in a folder."""
    _validate.one_of(SPLITS, split=split)
    if path.is_dir() and not any(any(path.glob(pattern)) for pattern in patterns):
        remedy = f"Pass the folder of {', '.join(name.format(part) for part in SPLITS)}."
        raise DataError(f"{path} has no {name.format(split)}", remedy=remedy)
    return source_files(path, (), *patterns)[0]


add_corpus_format(
    "penn-treebank",
    read_penn_treebank,
    by_name(inside=["ptb*.train.txt", "ptb*.valid.txt", "ptb*.test.txt"]),
)
add_corpus_format(
    "wikitext", read_wikitext, by_name("?*.tokens", "?*.raw", inside=["[!.]*.tokens"])
)


# Newsgroup messages


def _is_newsgroup(source: str, _: ReadOptions) -> bool:
    path = Path(source)
    files = sorted(path.rglob("*")) if path.is_dir() else []
    first = next((file for file in files if file.is_file()), None)
    return first is not None and _is_message(first)


def read_newsgroups(path: Path) -> Corpus:
    """The messages of a group, or of every group in a folder, in order of their names.

    Lang (1995), "NewsWeeder: Learning to Filter Netnews", the 20 Newsgroups data: a raw message a
    file. Headers, quotes and signatures are left out, and so are messages of nothing else. Users
    are the writers' addresses, labels the groups' names.
    """
    if not path.is_dir():
        raise DataError(f"{path} is not a folder", remedy="Pass the folder of a newsgroup.")
    rows: list[tuple[str, str, str]] = []
    for file in _visible_files(path):
        if not _is_message(file):
            raise DataError(
                f"{file} is not a newsgroup message: no header with a From: line",
                remedy="Remove the file, or choose another format.",
            )
        message = file.read_bytes().decode("latin-1").replace("\r\n", "\n")
        headers, _, body = message.partition("\n\n")
        if text := own_words(body):
            rows.append((text, _writer(headers), file.parent.name))
    texts, users, labels = ([row[column] for row in rows] for column in range(3))
    return require_documents(Corpus.from_texts(texts, users=users, labels=labels), path)


add_corpus_format("newsgroups", read_newsgroups, _is_newsgroup, stage=MESSAGES)


def own_words(body: str) -> str:
    """A message's body without quotes, their introductions, and the signature.

    Example:
        >>> own_words("In article <1@x> a@b (Al) writes:\\n> Is it?\\n\\nIt is.\\n-- \\nBea")
        'It is.'
    """
    rows = _without_signature([row.rstrip() for row in body.splitlines()])
    own_rows = [
        row
        for row, following in zip(rows, [*rows[1:], ""], strict=True)
        if not (_QUOTE.match(row) or _introduces_quote(row, following))
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(own_rows)).strip()


def _introduces_quote(row: str, following: str) -> bool:
    if _WRITES.fullmatch(row) or _IN_ARTICLE.fullmatch(row):
        return True
    # An introduction may be broken over two lines: "In article ... (Al\nBee) writes:".
    return row.startswith("In ") and "@" in row and bool(_WRITES.fullmatch(following))


def _without_signature(rows: Sequence[str]) -> Sequence[str]:
    for index in [index for index, row in enumerate(rows) if _SIGNATURE.fullmatch(row)]:
        if sum(bool(row) for row in rows[index + 1 :]) <= _LONGEST_SIGNATURE:
            return rows[:index]
    return rows


def _visible_files(folder: Path) -> Iterator[Path]:
    """Visible files of a folder and its subfolders, in order."""
    for entry in sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".")):
        if entry.is_dir():
            yield from _visible_files(entry)
        else:
            yield entry


def _is_message(file: Path) -> bool:
    """Whether a file begins with a header block that names a sender."""
    with existing_file(file).open("rb") as opened:
        head = opened.read(8192).partition(b"\n\n")[0]
    return re.search(rb"^From:", head, re.MULTILINE | re.IGNORECASE) is not None


def _writer(headers: str) -> str:
    line = re.search(r"^From:(.*)$", headers, re.MULTILINE | re.IGNORECASE)
    name, address = parseaddr(line[1]) if line else ("", "")
    return (address or name).lower()
