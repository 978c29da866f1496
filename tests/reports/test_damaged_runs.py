"""Run directories of every kind with every field damaged: a page, or a refusal, never a traceback.

Drawing takes most of a page's time, so that charts are drawn where a number in them is odd; the
rest is what the other tests draw. A few hundred cases a run of the tests, all where it is slow.
"""

import json
import math
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.damage import damaged, refusal
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.reports import charts
from vestige.reports.page import render

STEP = 23  # of so many cases one is tried by default


def is_odd(spec: object) -> bool:
    if isinstance(spec, dict):
        return any(map(is_odd, spec.values()))
    if isinstance(spec, list | tuple):
        return any(map(is_odd, spec))
    number = isinstance(spec, int | float) and not isinstance(spec, bool)
    return number and not (math.isfinite(spec) and abs(spec) < 1e17)


@pytest.fixture
def quick(monkeypatch):
    draw = charts.vl_convert.vegalite_to_svg

    class Quick:
        @staticmethod
        def vegalite_to_svg(spec, **options):
            return draw(spec, **options) if is_odd(spec) else "<svg></svg>"

    monkeypatch.setattr(charts, "vl_convert", Quick)


def changes(folder: Path):
    """(what is wrong, file, its new content) for every field of a run's three files."""
    for name in ("run.json", "summary.json"):
        for what, content in damaged(json.loads((folder / name).read_text())):
            yield f"{name} {what}", name, json.dumps(content).encode()
    table = pq.read_table(folder / "rows.parquet")
    rows = table.to_pylist()
    for what, content in damaged(rows[:1]):
        try:
            changed = pa.Table.from_pylist([*content, *rows[1:]])
        except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError):
            continue  # no such table can be
        sink = pa.BufferOutputStream()
        pq.write_table(changed, sink)
        yield f"rows.parquet {what}", "rows.parquet", sink.getvalue().to_pybytes()
    for column in table.column_names:  # every value of a column, not one
        for odd in (math.inf, math.nan, 1e308, 0.0, None, "odd", 0, 2**63 - 1):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist([{**row, column: odd} for row in rows]), sink)
            yield f"rows.parquet all {column} {odd}", "rows.parquet", sink.getvalue().to_pybytes()
    sink = pa.BufferOutputStream()
    pq.write_table(table.slice(0, 0), sink)
    yield "rows.parquet without rows", "rows.parquet", sink.getvalue().to_pybytes()


def try_all(kind: str, folder: Path, step: int) -> int:
    results.save(RESULTS[kind](), folder, run={"command": ["vestige", "x"], "seed": 3})
    tried, start = 0, list(RESULTS).index(kind) % step
    for what, name, content in islice(changes(folder), start, None, step):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        page = refusal(what, lambda: render([results.load(folder)], show_secrets=False))
        assert page is None or "Traceback" not in page
        (folder / name).write_bytes(before)
        tried += 1
    return tried


@pytest.mark.parametrize("kind", RESULTS)
def test_some_damaged_runs_are_shown_or_refused(kind, tmp_path, quick):
    assert try_all(kind, tmp_path / "run", STEP) > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_every_damaged_run_is_shown_or_refused(kind, tmp_path, quick):
    assert try_all(kind, tmp_path / "run", 1) > 200
