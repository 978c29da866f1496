"""One template makes every table, and intervals beside their numbers share an axis."""

import pytest

from tests.reports.parsed import Parsed
from vestige.reports.blocks import LONG, Bar, Cell, Table, bar, table
from vestige.reports.page import _templates
from vestige.reports.words import interval


def parsed(table):
    template = _templates().get_template("blocks.html")
    return Parsed(str(template.module.open(table)))


def kinds(page, tag):
    return [attributes.get("class") for name, attributes in page.tags if name == tag]


def test_columns_and_rows_stand_as_they_were_given():
    page = parsed(Table(title="T", columns=("name", "n"), rows=(("<b>", "1"), ("c", "2"))))
    assert page.headings == ["T"]
    assert page.tables == [[["name", "n"], ["<b>", "1"], ["c", "2"]]]
    assert kinds(page, "td") == ["number", "number"]
    assert kinds(page, "th") == [None, "number", None, None]


def test_only_long_words_are_broken_into_lines():
    long = "a" * (LONG + 1)
    page = parsed(Table(texts=2, columns=("a", "b", "c"), rows=(("x", long, long),)))
    assert kinds(page, "td") == ["long", "number"]


def test_a_row_of_one_cell_begins_a_group():
    page = parsed(Table(columns=("a", "b"), rows=(("Group",), ("x", "1"))))
    assert page.tables == [[["a", "b"], ["Group"], ["x", "1"]]]
    assert ("th", {"scope": "rowgroup", "colspan": "2"}) in page.tags


def test_one_row_is_marked():
    page = parsed(Table(columns=("a",), rows=(("x",), ("y",)), marked=1))
    assert kinds(page, "tr") == [None, None, "marked"]


def test_a_cell_has_its_bar_and_its_notes():
    cell = Cell(text="7 bits", notes=("1 of 4",), bar=Bar(low=0, middle=40, high=90, reference=50))
    page = parsed(Table(columns=("a", "b"), rows=(("x", cell),)))
    assert page.tables[0][1] == ["x", "7 bits 1 of 4"]
    lines = [a["class"] for tag, a in page.tags if tag == "line"]
    assert lines == ["track", "reference", "range", "middle"]


def test_empty_columns_are_left_out():
    rows = [("1", "p", "", "3"), ("1", "q", "", "4")]
    found = table(
        "T", rows, {"none": lambda r: r[2]}, texts=2, drop_empty=True, name=lambda r: r[1], n=len
    )
    assert found.columns == ("name", "n")
    assert found.texts == 1
    assert found.rows == (("p", "4"), ("q", "4"))


def test_a_column_is_a_function_of_a_row_and_its_texts_are_printable():
    found = table("T", ["a\x1b[0m"], {"95% CI": lambda r: None}, as_it_is=str, size_=len)
    assert found.columns == ("95% CI", "as it is", "size")
    assert found.rows == (("–", "a\\x1b[0m", "5"),)


def test_a_bar_lies_within_its_axis():
    row = {"gap": 1.0, "gap_low": -9.0, "gap_high": 3.0}
    found = bar(row, "gap", (0.0, 4.0), reference=2.0, band=(1.0, 9.0))
    assert found == Bar(low=0.0, middle=25.0, high=75.0, reference=50.0, band=(25.0, 100.0))
    assert bar({**row, "gap_low": None}, "gap", (0.0, 4.0)) is None


@pytest.mark.parametrize(
    ("ends", "text"),
    [((0.1, 0.25), "0.1 to 0.2 s"), ((0.1, None), "0.1 s or more"), ((None, 0.2), "–")],
)
def test_an_interval_is_told_by_its_ends(ends, text):
    assert interval(*ends, digits=1, unit=" s") == text
