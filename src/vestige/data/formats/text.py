"""Running text: a document a line, WikiText, the Penn Treebank, newsgroup messages."""

import re
from collections.abc import Iterator, Sequence
from email.utils import parseaddr
from pathlib import Path

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import TEXTS, files_of, is_message, lines, not_empty
from vestige.errors import DataError

SPLITS = ("train", "valid", "test")

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
_LONGEST_SIGNATURE = 15  # lines; further up, dashes separate parts of the message


def read_plain_text(path: str | Path) -> Corpus:
    """Every line that is not blank, without the blanks around it, as a document.

    Raises:
        DataError: the file is missing, holds no text, or is not UTF-8 (with the line).
    """
    texts = (line.strip() for line in lines(Path(path)))
    return not_empty(Corpus.from_texts(text for text in texts if text), path)


def read_texts(path: Path) -> Corpus:
    """A file of plain text, or all such files of a folder."""
    return Corpus.concatenate([read_plain_text(file) for file in files_of(path, TEXTS)])


def read_penn_treebank(path: str | Path, *, split: str = "train") -> Corpus:
    """One part of the Penn Treebank in Mikolov's form, a sentence a document.

    Marcus et al. (1993), "Building a Large Annotated Corpus of English: The Penn Treebank";
    preprocessed as in Mikolov et al. (2010), "Recurrent neural network based language model":
    `<unk>` and `N` stay as they are.

    Args:
        path: the folder of `ptb.train.txt` and the others, or one of its files.
        split: "train", "valid" or "test"; ignored if `path` is a file.

    Raises:
        ValueError: there is no such split.
        DataError: the folder lacks the file, or the file cannot be read.
    """
    _validate.one_of(SPLITS, split=split)
    path = Path(path)
    if not path.is_dir():
        return read_plain_text(path)
    files = sorted(path.glob(f"ptb*.{split}.txt")) or sorted(path.glob(f"{split}.txt"))
    if not files:
        raise DataError(
            f"{path} has no ptb.{split}.txt",
            remedy="Pass the folder of ptb.train.txt, ptb.valid.txt and ptb.test.txt.",
        )
    return read_plain_text(files[0])


def read_wikitext(path: str | Path, *, split: str = "train") -> Corpus:
    """The paragraphs and headings of one part of WikiText, labelled with the titles of articles.

    Merity et al. (2017), "Pointer Sentinel Mixture Models": a paragraph a line, headings between
    ` = ` signs, blank lines around headings.

    Args:
        path: the folder of the `wiki.*.tokens` files, or one of them.
        split: "train", "valid" or "test"; ignored if `path` is a file.

    Raises:
        ValueError: there is no such split.
        DataError: the folder lacks the file, or the file cannot be read.
    """
    _validate.one_of(SPLITS, split=split)
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob(f"*{split}*.tokens")) + sorted(path.glob(f"*{split}*.raw"))
        if not files:
            raise DataError(
                f"{path} has no wiki.{split}.tokens",
                remedy="Pass the folder of wiki.train.tokens, wiki.valid.tokens and "
                "wiki.test.tokens.",
            )
        path = files[0]
    texts: list[str] = []
    titles: list[str] = []
    for title, paragraph in _titled(path):
        texts.append(paragraph)
        titles.append(title)
    return not_empty(Corpus.from_texts(texts, labels=titles), path)


def _titled(file: Path) -> Iterator[tuple[str, str]]:
    """(title of the article, paragraph), blank lines left out."""
    title, before, current = "", "", ""
    for following in [*map(str.strip, lines(file)), ""]:
        # Tables have lines that look like titles; a title has blank lines around it.
        heading = _TITLE.fullmatch(current)
        if heading and not before and not following:
            title = heading[1]
        if current:
            yield title, current
        before, current = current, following


def read_newsgroups(path: str | Path) -> Corpus:
    """The messages of a group, or of every group in a folder, in order of their names.

    Lang (1995), "NewsWeeder: Learning to Filter Netnews", the 20 Newsgroups data: a raw message a
    file. Headers, quotes and signatures are left out, and messages of which nothing is left.

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
    for file in _visible(path):
        if not is_message(file):
            raise DataError(
                f"{file} is not a newsgroup message: no header with a From: line",
                remedy="Remove the file, or choose another format.",
            )
        message = file.read_bytes().decode("latin-1").replace("\r\n", "\n")
        headers, _, body = message.partition("\n\n")
        if text := own_words(body):
            texts.append(text)
            users.append(_writer(headers))
            labels.append(file.parent.name)
    return not_empty(Corpus.from_texts(texts, users=users, labels=labels), path)


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


def _visible(folder: Path) -> Iterator[Path]:
    """Files of a folder and the folders in it, in order; hidden ones left out."""
    for entry in sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".")):
        if entry.is_dir():
            yield from _visible(entry)
        else:
            yield entry


def _writer(headers: str) -> str:
    line = re.search(r"^From:(.*)$", headers, re.MULTILINE | re.IGNORECASE)
    name, address = parseaddr(line[1]) if line else ("", "")
    return (address or name).lower()
