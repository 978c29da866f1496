"""Each kind of result on a page, in a notebook, on a terminal, and as a damaged run."""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vl_convert

from reproduction.tables import Table
from tests.damage import damaged, refusal
from tests.reports.made_runs import RESULTS
from tests.reports.parsed import Parsed
from tests.reports.test_overview import run
from vestige import results
from vestige.reports import notebook
from vestige.reports.charts import Figure
from vestige.reports.page import render
from vestige.reports.report import KINDS, REDACTION, report_of
from vestige.reports.terminal import show

KINDS_WITH_CHARTS = sorted(set(RESULTS) - {"Table", "TrainingLeakage", "ReleaseCheck"})
"""Kinds with a chart; the charts of a callback are on the pages of its runs."""


@pytest.fixture(scope="module", params=RESULTS)
def example(request, tmp_path_factory):
    """An example of a kind of result, and its loaded run folder."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    record = {
        "seed": 3, "configuration": {"batch_size": 8, "vectors": None, "inner": {"decay": 0.5}}
    }  # fmt: skip
    result = RESULTS[request.param]()
    return result, results.load(results.save(result, folder, run=record))


@pytest.fixture(scope="module")
def page(example):
    """The parsed page of the example."""
    return Parsed(render([example[1]], show_secrets=False))


@pytest.fixture(scope="module")
def notebook_html(example):
    """The notebook markup of the example."""
    return notebook.html(example[0])


def test_every_kind_has_an_example():
    # Tests of their verbs cover the pages of these kinds, which have no rows of an attack.
    tested_elsewhere = {"Release", "Planting", "RepeatedTraining", "Demo", "Reproduction"}
    assert set(RESULTS) == set(KINDS) - tested_elsewhere


def test_a_page_has_evidence_headings_and_a_redaction_notice(page):
    assert 1 <= len(page.evidence) <= 3
    assert page.headings[0]
    assert page.headings[-1] == "What these numbers do not say"
    assert REDACTION in page.text


def test_tables_have_headers_and_scroll(page):
    for table in page.tables:
        assert {len(row) for row in table} <= {1, len(table[0])}
        assert all(row[0] for row in table[1:])
    wide = [attributes for tag, attributes in page.tags if attributes.get("class") == "scroll"]
    assert len([tag for tag, _ in page.tags if tag == "table"]) <= len(wide)
    assert all(attributes["tabindex"] == "0" for attributes in wide), "by keyboard, too"
    assert all(attributes["aria-label"] for attributes in wide)


def test_settings_are_shown_as_words(page):
    assert page.facts["batch size"] == "8"
    assert "Settings: inner" in page.headings
    assert "vectors" not in page.facts, "nothing was set"
    for name, value in page.facts.items():
        assert "_" not in name
        assert "{'" not in value
        assert value not in ("None", "True", "False", "nan")


@pytest.mark.slow
def test_a_result_and_its_run_folder_give_the_same_section(example):
    result, loaded = example
    memory = report_of(results.run_of(result), show_secrets=False)
    disk = report_of(loaded, show_secrets=False)

    def comparable(report):
        return [f.caption if isinstance(f, Figure) else f for f in report.blocks]

    assert comparable(memory) == comparable(disk)
    for name in ("title", "evidence", "notices", "facts", "limits"):
        assert getattr(memory, name) == getattr(disk, name)
    for first, second in zip(memory.figures, disk.figures, strict=True):
        assert first.draw(500).to_dict() == second.draw(500).to_dict()


@pytest.mark.slow
def test_terminal_output_begins_with_the_headline(example, capsys):
    report = report_of(example[1], show_secrets=False)
    show(report)
    assert capsys.readouterr().out.startswith("\n".join(report.headline))


@pytest.mark.slow
@pytest.mark.usefixtures("no_charts")
def test_an_overview_links_each_run_to_its_section(example):
    page_text = render([example[1], run("TextAudit", "other")], show_secrets=False)
    [table] = re.findall(r'<div class="overview">.*?</section>', page_text, re.DOTALL)
    assert re.findall(r'href="#(section-\d)"', table) == ["section-1", "section-2"]
    assert all(f'id="section-{number}"' in page_text for number in (1, 2))


# In a notebook


@pytest.mark.slow
def test_a_notebook_shows_the_verdict_and_one_table_or_list(example, notebook_html):
    parsed = Parsed(notebook_html)
    assert parsed.evidence
    text = " ".join(notebook.text(example[0]).split())
    assert all(line in text for line in parsed.evidence)
    lists = len(parsed.tables) + sum(a.get("class") == "findings" for _, a in parsed.tags)
    assert lists == 1
    assert "What these numbers do not say" in parsed.text


@pytest.mark.slow
def test_styles_apply_only_inside_the_notebook_output(notebook_html):
    css = re.search(r"<style>(.*?)</style>", notebook_html, re.DOTALL)[1]
    rules = re.sub(r"/\*.*?\*/|@media[^{]*{", "", css, flags=re.DOTALL)
    selectors = [s.strip() for group in re.findall(r"([^{}]+){", rules) for s in group.split(",")]
    assert len(selectors) > 50
    assert [selector for selector in selectors if not selector.startswith(".vestige")] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_WITH_CHARTS)
def test_plot_returns_the_first_chart_of_the_page(kind):
    spec = notebook.plot(RESULTS[kind]()).to_json()
    assert "#b0402a" in spec
    assert not re.search(r'"#(111111|222222|333333|444444)"', spec)


def test_plotting_a_result_without_a_chart_is_an_error():
    table = Table(name="t", title="T", note="N", columns=("a",), entries=({"a": 1},))
    with pytest.raises(ValueError, match="result must have a chart to be plotted, got Table"):
        notebook.plot(table)


# Damaged runs give a page or an error, never a traceback


FEW = 3  # cases of each kind in `make slow`; all are in `make long`


def has_extreme_number(spec: object) -> bool:
    """Whether a chart has an extreme number; drawing takes most of the time."""
    if isinstance(spec, dict):
        return any(map(has_extreme_number, spec.values()))
    if isinstance(spec, list | tuple):
        return any(map(has_extreme_number, spec))
    return isinstance(spec, int | float) and abs(spec) > 1e17  # charts of an anatomy contain NaN


@pytest.fixture
def quick(monkeypatch):
    draw = vl_convert.vegalite_to_svg

    def quick(spec, **options):
        return draw(spec, **options) if has_extreme_number(spec) else "<svg></svg>"

    monkeypatch.setattr(vl_convert, "vegalite_to_svg", quick)


def changes(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """(damage, file, new content) for every field of the three files of a run."""
    for name in ("run.json", "summary.json"):
        for description, content in damaged(json.loads((folder / name).read_text())):
            yield f"{name} {description}", name, json.dumps(content).encode()
    table = pq.read_table(folder / "rows.parquet")
    rows = table.to_pylist()
    for description, content in damaged(rows[:1]):
        try:
            content_bytes = parquet(pa.Table.from_pylist([*content, *rows[1:]]))
        except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError):
            continue  # the table cannot be written
        yield f"rows.parquet {description}", "rows.parquet", content_bytes
    for column in table.column_names:  # all values of a column
        for value in (math.inf, math.nan, 1e308, 0.0, None, "odd", 0, 2**63 - 1):
            changed = pa.Table.from_pylist([{**row, column: value} for row in rows])
            yield f"rows.parquet all {column} {value}", "rows.parquet", parquet(changed)
    yield "rows.parquet without rows", "rows.parquet", parquet(table.slice(0, 0))


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def seal(folder: Path) -> None:
    """Store the checksums of the changed files, so that these are not the reason of a refusal."""
    record = json.loads((folder / "run.json").read_text())
    record["files"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in record["files"]
    }
    (folder / "run.json").write_text(json.dumps(record))


def try_damaged(kind: str, folder: Path, limit: int | None) -> int:
    results.save(RESULTS[kind](), folder, run={"command": ["vestige", "x"], "seed": 3})
    cases = list(changes(folder))
    chosen = cases if limit is None else Random(kind).sample(cases, limit)
    for description, name, content in chosen:
        original = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        if name != "run.json":
            seal(folder)
        refusal(description, lambda: render([results.load(folder)], show_secrets=False))
        (folder / name).write_bytes(original)
        if name != "run.json":
            seal(folder)
    return len(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_some_damaged_runs_are_shown_or_refused(kind, tmp_path, quick):
    assert try_damaged(kind, tmp_path / "run", FEW) >= FEW


@pytest.mark.long
@pytest.mark.parametrize("kind", RESULTS)
def test_every_damaged_run_is_shown_or_refused(kind, tmp_path, quick):
    assert try_damaged(kind, tmp_path / "run", None) > 200
