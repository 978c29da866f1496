"""Every link of the documents leads to a file that is there, and to a heading in it."""

import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

import vestige
from tests.docs.documents import REPOSITORY, documents, without_code

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
    """What a heading is called in an address: on the site, and where the repository is shown."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())
    return {site, re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")}


@cache
def anchors(path: Path) -> frozenset[str]:
    """The addresses of all headings of a document."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return frozenset(slug for title in _HEADING.findall(text) for slug in slugs(title))


def test_a_heading_is_called_as_the_site_calls_it():
    assert "1-make-the-service-answer" in slugs("1. Make the service answer")
    assert slugs("`vestige diff`: what?") == {"vestige-diff-what"}


@pytest.mark.parametrize(("path", "target"), LINKS)
def test_a_link_leads_somewhere(path, target):
    file, _, anchor = target.partition("#")
    there = (path.parent / file).resolve() if file else path
    assert there.exists(), f"{path.name} links to {file}, which is not there"
    if anchor:
        assert anchor in anchors(there), f"{there.name} has no heading #{anchor}"


@pytest.mark.parametrize(("path", "target"), LINKS)
def test_the_site_links_only_to_what_it_holds(path, target):
    if (REPOSITORY / "docs") in path.parents:
        file = target.partition("#")[0]
        assert (path.parent / file).resolve().is_relative_to(REPOSITORY / "docs")


def test_every_page_stands_in_the_sites_table_of_contents():
    nav = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    docs = REPOSITORY / "docs"
    pages = [path.relative_to(docs) for path in docs.rglob("*") if path.suffix in (".md", ".ipynb")]
    # The page of a notebook is made when the site is.
    assert sorted(re.findall(r": (\S+\.md)$", nav, re.M)) == sorted(
        page.with_suffix(".md").as_posix() for page in pages
    )


def test_every_public_name_has_a_place_on_an_api_page():
    pages = "\n".join(path.read_text() for path in (REPOSITORY / "docs" / "api").glob("*.md"))
    shown = re.findall(r"^::: vestige\.(\w+)$|^        - (\w+)$", pages, re.M)
    assert {a or b for a, b in shown} - {"errors"} == set(vestige.__all__)
