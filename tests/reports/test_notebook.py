"""In a notebook a result is a verdict, a chart and a table, and nothing that runs or tells."""

import re
from functools import cache

import pytest

from reproduction.tables import Table
from tests.reports.made_runs import RESULTS
from tests.reports.parsed import Parsed
from tests.reports.test_page import ALLOWED, CORPUS
from vestige.reports import notebook
from vestige.results import Measurement, Result

DRAWN = sorted(set(RESULTS) - {"Table", "TrainingLeakage", "ReleaseCheck"})
"""Kinds with a chart; those of a callback lie on the pages of the runs beside it."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWN)
def test_the_headline_chart_is_the_first_of_the_page_in_colours_of_its_own(kind):
    spec = notebook.plot(RESULTS[kind]()).to_json()
    assert "#b0402a" in spec
    assert not re.search(r'"#(111111|222222|333333|444444)"', spec)


def test_a_result_without_a_chart_says_so():
    table = Table(name="t", title="T", note="N", columns=("a",), entries=({"a": 1},))
    with pytest.raises(ValueError, match="result must have a chart to be plotted, got Table"):
        notebook.plot(table)


@cache
def shown_html(kind):
    """A result as a notebook shows it."""
    return notebook.html(RESULTS[kind]())


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_is_its_verdict_and_one_table_or_list(kind):
    result = RESULTS[kind]()
    shown = Parsed(shown_html(kind))
    assert shown.evidence
    told = " ".join(notebook.text(result).split())
    assert all(line in told for line in shown.evidence)
    lists = len(shown.tables) + sum(a.get("class") == "findings" for _, a in shown.tags)
    assert lists == 1
    assert "What these numbers do not say" in shown.text


@pytest.mark.parametrize("kind", RESULTS)
def test_its_style_touches_nothing_else_in_the_notebook(kind):
    css = re.search(r"<style>(.*?)</style>", shown_html(kind), re.DOTALL)[1]
    rules = re.sub(r"/\*.*?\*/|@media[^{]*{", "", css, flags=re.DOTALL)
    selectors = [s.strip() for group in re.findall(r"([^{}]+){", rules) for s in group.split(",")]
    assert len(selectors) > 50
    assert [one for one in selectors if not one.startswith(".vestige")] == []


@pytest.mark.parametrize("show_secrets", [False, True])
def test_hostile_phrases_are_text(diff, show_secrets):
    result = diff([[text, " " + text] for text in CORPUS], threshold=2.0)
    shown = Parsed(notebook.html(result, show_secrets=show_secrets))
    assert {tag for tag, _ in shown.tags} <= ALLOWED
    assert not [name for _, attributes in shown.tags for name in attributes if name[:2] == "on"]
    assert not re.search("[\x00-\x08\x0b-\x1f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", shown.page)


@pytest.mark.slow
def test_hostile_labels_of_a_chart_are_text(rank):
    shown = Parsed(notebook.html(rank(CORPUS), show_secrets=True))
    assert {tag for tag, _ in shown.tags} <= ALLOWED
    assert "alert(1)" in shown.text, "it is there to be read"


@pytest.mark.slow
def test_phrases_are_withheld_unless_they_are_asked_for(diff, rank):
    for result in (diff([["Rosalind", " hides"]]), rank(["Rosalind", " hides"])):
        closed = (notebook.html(result), notebook.text(result), notebook.plot(result).to_json())
        assert not [text for text in closed if "Rosalind" in text]
        assert "Rosalind" in notebook.html(result, show_secrets=True)
    assert "Rosalind" in notebook.plot(rank(["Rosalind"]), show_secrets=True).to_json()


def test_long_tables_are_cut_and_say_where_the_rest_is(rank):
    shown = Parsed(notebook.html(rank(["a"] * 50)))
    assert len(shown.tables[0]) == 1 + notebook.LISTED
    assert "30 more rows are in to_frame()" in shown.text


class Found(Measurement):
    """A result with a view of its own."""

    def summary(self):
        return {"name": "t", "title": "Two", "note": "Two rows.", "columns": ["a"], "rows": 2}

    def rows(self):
        return [{"a": 1, "phrase": "Rosalind"}, {"a": 2, "phrase": "hides"}]


def test_a_result_finds_its_views_by_itself():
    result = Found()
    assert str(result).startswith("Found\n2 rows.")
    assert "Rosalind" not in result._repr_html_() + str(result)
    assert "Rosalind" in Result.of(result).show()._repr_html_()
