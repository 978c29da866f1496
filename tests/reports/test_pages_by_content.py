"""Every kind of result becomes a well-formed page with a verdict, named rows and its limits."""

import pytest

from tests.reports.made_runs import RESULTS
from tests.reports.parsed import Parsed
from vestige import results
from vestige.reports.charts import Figure
from vestige.reports.page import render
from vestige.reports.report import KINDS, REDACTION, report_of


@pytest.fixture(scope="module", params=RESULTS)
def made(request, tmp_path_factory):
    """A kind of result and its run folder, loaded."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run = {"seed": 3, "configuration": {"batch_size": 8, "vectors": None, "inner": {"decay": 0.5}}}
    return request.param, results.load(results.save(RESULTS[request.param](), folder, run=run))


@pytest.fixture(scope="module")
def page(made):
    """Its page, parsed."""
    return Parsed(render([made[1]], show_secrets=False))


def test_every_kind_has_an_example():
    # These have no attack's rows; tests of their verbs show their pages.
    shown = {"Release", "Planting", "RepeatedTraining", "Demo", "Reproduction"}
    assert set(RESULTS) == set(KINDS) - shown


def test_a_page_is_well_formed_and_answers_first(page):
    assert 1 <= len(page.evidence) <= 3
    assert page.headings[0]
    assert page.headings[-1] == "What these numbers do not say"
    assert REDACTION in page.text


def test_every_row_of_a_table_has_a_cell_for_each_column(page):
    for table in page.tables:
        assert {len(row) for row in table} <= {1, len(table[0])}
        assert all(row[0] for row in table[1:])


def test_every_table_and_chart_scrolls_inside_its_column(page):
    wide = [attributes for tag, attributes in page.tags if attributes.get("class") == "scroll"]
    assert len([tag for tag, _ in page.tags if tag == "table"]) <= len(wide)
    assert all(attributes["tabindex"] == "0" for attributes in wide), "by keyboard, too"
    assert all(attributes["aria-label"] for attributes in wide)


def test_lists_have_words_and_no_keys_of_ours(page):
    assert page.facts["batch size"] == "8"
    assert "Settings: inner" in page.headings
    assert "vectors" not in page.facts, "nothing was set"
    for name, value in page.facts.items():
        assert "_" not in name
        assert "{'" not in value
        assert value not in ("None", "True", "False", "nan")


@pytest.mark.slow
def test_a_result_in_memory_and_its_run_directory_give_the_same_section(made):
    kind, run = made
    memory = report_of(results.run_of(RESULTS[kind]()), show_secrets=False)
    disk = report_of(run, show_secrets=False)

    def plain(shown):
        return [f.caption if isinstance(f, Figure) else f for f in shown.blocks]

    assert plain(memory) == plain(disk)
    for name in ("title", "evidence", "notices", "facts", "limits"):
        assert getattr(memory, name) == getattr(disk, name)
    for ours, theirs in zip(memory.figures, disk.figures, strict=True):
        assert ours.draw(500).to_dict() == theirs.draw(500).to_dict()


def test_a_chart_of_three_points_gives_way_to_the_list(saved, diff):
    pages = [
        Parsed(render([saved(diff([["a"]] * number), str(number))], show_secrets=True))
        for number in (3, 4)
    ]
    assert [any(tag == "figure" for tag, _ in page.tags) for page in pages] == [False, True]
