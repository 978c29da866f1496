"""All links of the documents lead to existing files and headings."""

import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

import vestige
from tests.docs.documents import REPOSITORY, documents, without_code

DOCS = REPOSITORY / "docs"
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|(?:src|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
LINKS = [
    pytest.param(path, target, id=f"{path.relative_to(REPOSITORY)}->{target}")
    for path in documents()
    for target in dict.fromkeys(
        a or b for a, b in _LINK.findall(without_code(path.read_text(encoding="utf-8")))
    )
    if not re.match(r"[a-z]+:", target)
]


def slugs(title: str) -> set[str]:
    """The anchors of a heading: on the site and on the repository's web page."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())
    return {site, re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")}


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of all headings of a document."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return frozenset(slug for title in _HEADING.findall(text) for slug in slugs(title))


def test_anchors_of_headings():
    assert "1-make-the-service-answer" in slugs("1. Make the service answer")
    assert slugs("`vestige diff`: what?") == {"vestige-diff-what"}


@pytest.mark.parametrize(("path", "target"), LINKS)
def test_links_lead_to_existing_headings_and_never_from_the_site_to_other_files(path, target):
    name, _, anchor = target.partition("#")
    file = (path.parent / name).resolve() if name else path
    assert file.exists(), f"{path.name} links to {name}, which does not exist"
    if anchor:
        assert anchor in anchors(file), f"{file.name} has no heading #{anchor}"
    if DOCS in path.parents:
        assert file.is_relative_to(DOCS)


def test_the_table_of_contents_lists_all_pages():
    nav = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [path.relative_to(DOCS) for path in DOCS.rglob("*") if path.suffix in (".md", ".ipynb")]
    # The page of a notebook is made with the site.
    assert sorted(re.findall(r": (\S+\.md)$", nav, re.M)) == sorted(
        page.with_suffix(".md").as_posix() for page in pages
    )


def test_the_api_pages_document_all_public_names():
    pages = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    names = re.findall(r"^::: vestige\.(\w+)$|^        - (\w+)$", pages, re.M)
    assert {a or b for a, b in names} - {"errors"} == set(vestige.__all__)
