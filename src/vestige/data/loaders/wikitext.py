"""WikiText: a paragraph a line, headings between ` = ` signs, blank lines around headings.

Merity et al. (2017), "Pointer Sentinel Mixture Models".
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.loaders.registry import CORPUS_FORMATS, path_format
from vestige.data.text_file import ending, lines, not_empty
from vestige.errors import DataError

SPLITS = ("train", "valid", "test")
_TITLE = re.compile(r"= ([^=].*[^=]) =")

Documents = Literal["paragraph", "article"]


def read_wikitext(
    path: str | Path, *, split: str = "train", documents: Documents = "paragraph"
) -> Corpus:
    """One part of the corpus, labelled with the titles of its articles.

    Args:
        path: the folder of the `wiki.*.tokens` files, or one of them.
        split: "train", "valid" or "test"; ignored if `path` is a file.
        documents: "paragraph" makes a document of each paragraph and heading, "article" of
            each article, its paragraphs on lines of their own.

    Raises:
        ValueError: there is no such split or kind of document.
        DataError: the folder lacks the file, or the file cannot be read.
    """
    _validate.one_of(SPLITS, split=split)
    _validate.one_of(get_args(Documents), documents=documents)
    file = _file(Path(path), split)
    texts: list[str] = []
    labels: list[str] = []
    for title, paragraph in _paragraphs(file):
        if documents == "article" and labels and paragraph != f"= {title} =":
            texts[-1] += f"\n{paragraph}"
        else:
            texts.append(paragraph)
            labels.append(title)
    return not_empty(Corpus.from_texts(texts, labels=labels), file)


def _file(path: Path, split: str) -> Path:
    if not path.is_dir():
        return path
    files = sorted(path.glob(f"*{split}*.tokens")) + sorted(path.glob(f"*{split}*.raw"))
    if not files:
        raise DataError(
            f"{path} has no wiki.{split}.tokens",
            remedy="Pass the folder of wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens.",
        )
    return files[0]


def _paragraphs(file: Path) -> Iterator[tuple[str, str]]:
    """(title of the article, paragraph), blank lines left out."""
    title, before, current = "", "", ""
    for following in [*map(str.strip, lines(file)), ""]:
        # Tables have lines that look like titles; titles stand between blank lines.
        heading = _TITLE.fullmatch(current)
        if heading and not before and not following:
            title = heading[1]
        if current:
            yield title, current
        before, current = current, following


def _recognised(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob("[!.]*.tokens"))
    return path.exists() and ending(path) in (".tokens", ".raw")


CORPUS_FORMATS.add("wikitext", path_format(read_wikitext, _recognised))
