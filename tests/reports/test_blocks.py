"""The parts of a section: tables, bars, intervals, and the box for a data-protection officer."""

import pytest

from tests.reports.parsed import Parsed
from vestige.reports.blocks import LONG_TEXT, Bar, Cell, Table, audit_note, bar, table
from vestige.reports.charts import intervals
from vestige.reports.page import _templates
from vestige.reports.words import interval

# Tables


def parsed(table):
    template = _templates().get_template("blocks.html")
    return Parsed(str(template.module.open(table)))


def kinds(page, tag):
    return [attributes.get("class") for name, attributes in page.tags if name == tag]


def test_a_page_shows_columns_and_rows_in_order():
    page = parsed(Table(title="T", columns=("name", "n"), rows=(("<b>", "1"), ("c", "2"))))
    assert page.headings == ["T"]
    assert page.tables == [[["name", "n"], ["<b>", "1"], ["c", "2"]]]
    assert kinds(page, "td") == ["number", "number"]
    assert kinds(page, "th") == [None, "number", None, None]


def test_tables_break_long_texts_and_show_groups_and_a_marked_row():
    long = "a" * (LONG_TEXT + 1)
    page = parsed(Table(texts=2, columns=("a", "b", "c"), rows=(("x", long, long),)))
    assert kinds(page, "td") == ["long", "number"]
    page = parsed(Table(columns=("a", "b"), rows=(("Group",), ("x", "1"))))
    assert page.tables == [[["a", "b"], ["Group"], ["x", "1"]]]
    assert ("th", {"scope": "rowgroup", "colspan": "2"}) in page.tags
    page = parsed(Table(columns=("a",), rows=(("x",), ("y",)), marked=1))
    assert kinds(page, "tr") == [None, None, "marked"]


def test_a_cell_has_its_bar_and_its_notes():
    cell = Cell(text="7 bits", notes=("1 of 4",), bar=Bar(low=0, middle=40, high=90, reference=50))
    page = parsed(Table(columns=("a", "b"), rows=(("x", cell),)))
    assert page.tables[0][1] == ["x", "7 bits 1 of 4"]
    lines = [a["class"] for tag, a in page.tags if tag == "line"]
    assert lines == ["track", "reference", "range", "middle"]


def test_table_columns_are_functions_and_texts_are_escaped():
    result = table("T", ["a\x1b[0m"], {"95% CI": lambda r: None}, as_it_is=str, size_=len)
    assert result.columns == ("95% CI", "as it is", "size")
    assert result.rows == (("–", "a\\x1b[0m", "5"),)
    rows, empty = [("1", "p", "", "3"), ("1", "q", "", "4")], {"none": lambda r: r[2]}
    result = table("T", rows, empty, texts=2, drop_empty=True, name=lambda r: r[1], n=len)
    assert (result.columns, result.texts) == (("name", "n"), 1)
    assert result.rows == (("p", "4"), ("q", "4"))


def test_a_bar_is_clipped_to_its_axis():
    row = {"gap": 1.0, "gap_low": -9.0, "gap_high": 3.0}
    result = bar(row, "gap", (0.0, 4.0), reference=2.0, band=(1.0, 9.0))
    assert result == Bar(low=0.0, middle=25.0, high=75.0, reference=50.0, band=(25.0, 100.0))
    assert bar({**row, "gap_low": None}, "gap", (0.0, 4.0)) is None


@pytest.mark.parametrize(
    ("ends", "text"),
    [((0.1, 0.25), "0.1 to 0.2 s"), ((0.1, None), "0.1 s or more"), ((None, 0.2), "–")],
)
def test_an_interval_is_formatted_by_its_ends(ends, text):
    assert interval(*ends, digits=1, unit=" s") == text


# The chart of intervals

POINTS = [
    {"label": "b", "value": 2.0, "low": 1.0, "high": 3.0, "other": 1.5},
    {"label": "a", "value": 4.0, "low": 3.0, "high": 4.0, "bound": True},
    {"label": "c", "value": 1.0, "low": 0.0, "high": 2.0, "filled": False},
    {"label": "<script>", "value": 1.0, "low": 0.0, "high": 2.0},
]


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True])
def test_charts_show_values_with_intervals_and_marks(across):
    band = {"value": 1.0, "low": 0.5, "high": 1.5}
    options = {"name": "label", "caption": "C"}
    figure = intervals(POINTS, value="bits", across=across, band=band, **options)
    assert len(figure.draw(400).to_dict()["layer"]) == 7
    assert figure.points == 4
    assert "<script>" not in figure.svg
    assert figure.svg.index(">b<") < figure.svg.index(">a<") < figure.svg.index(">c<")
    bounded = intervals(POINTS, value="share", domain=(0, 1), **options)
    assert "'domain': [0, 1]" in str(bounded.draw(400).to_dict())


# The box for a data-protection officer

HASHES = {
    role: f"{number:064x}" for number, role in enumerate(("target", "base", "inner", "texts"))
}
RUN = {
    "created": "2026-01-02T03:04:05+00:00",
    "versions": {"vestige": "0.1"},
    "models": {
        "target": {
            "path": "/home/ann/secret case/tuned\x1b[31m/",
            "sha256": HASHES["target"],
            "parameters": 1_000,
            "base": {"path": "x", "sha256": HASHES["inner"]},
        },
        "base": {"path": None, "sha256": HASHES["base"]},
    },
    "data": {"texts": {"path": "mine.jsonl", "documents": 40, "sha256": HASHES["texts"]}},
}
WORDS = {
    "question": "Whether.",
    "models": {"target": "the model", "base": "its base"},
    "data": {"texts": "the texts", "used": "known ones"},
    "finding": "Yes.",
    "limits": ("Why.",),
}


def test_the_file_note_has_full_hashes_and_no_directory():
    box = audit_note(RUN, **WORDS)
    assert [name for name, _ in box.facts] == [
        "Question", "About the model", "About its base", "With the texts", "Made", "Finding",
    ]  # fmt: skip
    facts = dict(box.facts)
    assert facts["With the texts"] == f"40 texts, SHA-256 {HASHES['texts']}"
    assert all(HASHES[name] in facts["About the model"] for name in ("target", "inner"))
    assert "tuned" in facts["About the model"]
    assert facts["About its base"] == f"a model in memory, SHA-256 {HASHES['base']}"
    assert facts["Made"] == "on 2026-01-02 by Vestige 0.1"
    assert box.limits == ("Why.",)
    assert not [text for text in facts.values() if "ann" in text or "\x1b" in text]
    assert audit_note({}, **WORDS).facts == (("Question", "Whether."), ("Finding", "Yes."))
