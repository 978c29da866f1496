"""The visible content of a page: headings, tables, lists and texts, parsed from its markup."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "line", "path", "rect"}


@dataclass
class Parsed(HTMLParser):
    """The content of a page.

    Attributes:
        tags: all elements with their attributes.
        headings: texts of h1 to h3.
        verdict: first line: the verdict, its estimate and its test.
        evidence: lines after the verdict.
        notices: paragraphs marked as notices.
        tables: lists of rows of cells, headers included.
        facts: names and values of all key–value lists.
        text: all text, charts included, style sheets excluded.
    """

    page: str
    tags: list = field(default_factory=list)
    headings: list = field(default_factory=list)
    verdict: str = ""
    evidence: list = field(default_factory=list)
    notices: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    text: str = ""

    def __post_init__(self):
        super().__init__()
        self._open, self._name = [], ""
        self.feed(self.page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append((tag, dict(attrs).get("class"), []))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self._open and self._open[-1][0] == "style":
            return
        self.text += data
        for _, _, texts in self._open:
            texts.append(data)

    def handle_endtag(self, tag):
        if tag in VOID:  # as serialized by a browser
            return
        opened, kind, texts = self._open.pop()
        assert opened == tag, f"{opened} is closed by {tag}"
        text = " ".join("".join(texts).split())
        if tag in ("h1", "h2", "h3"):
            self.headings.append(text)
        if tag in ("td", "th"):
            self.tables[-1][-1].append(text)
        if tag == "dt":
            self._name = text
        if tag == "dd":
            self.facts[self._name] = text
        if tag == "p" and kind == "says":
            self.verdict = text
        if tag in ("p", "summary") and kind == "evidence":
            self.evidence.append(text)
        if tag == "p" and kind == "notice":
            self.notices.append(text)
