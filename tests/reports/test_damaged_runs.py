"""Run folders of every kind with every field damaged: a page, or a refusal, never a traceback.

Drawing takes most of a page's time, so that charts are drawn where a number in them is odd; the
rest is what the other tests draw. Sixty cases a run of the tests, all in `make long`.
"""

import hashlib
import json
import math
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vl_convert

from tests.damage import damaged, refusal
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.reports.page import render

FEW = 3  # cases of each kind that are tried by default


def is_odd(spec: object) -> bool:
    if isinstance(spec, dict):
        return any(map(is_odd, spec.values()))
    if isinstance(spec, list | tuple):
        return any(map(is_odd, spec))
    return isinstance(spec, int | float) and abs(spec) > 1e17  # an anatomy's own charts hold NaN


@pytest.fixture
def quick(monkeypatch):
    draw = vl_convert.vegalite_to_svg

    def quick(spec, **options):
        return draw(spec, **options) if is_odd(spec) else "<svg></svg>"

    monkeypatch.setattr(vl_convert, "vegalite_to_svg", quick)


def changes(folder: Path):
    """(what is wrong, file, its new content) for every field of a run's three files."""
    for name in ("run.json", "summary.json"):
        for what, content in damaged(json.loads((folder / name).read_text())):
            yield f"{name} {what}", name, json.dumps(content).encode()
    table = pq.read_table(folder / "rows.parquet")
    rows = table.to_pylist()
    for what, content in damaged(rows[:1]):
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(pa.Table.from_pylist([*content, *rows[1:]]), sink)
        except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError):
            continue  # no such table can be
        yield f"rows.parquet {what}", "rows.parquet", sink.getvalue().to_pybytes()
    for column in table.column_names:  # every value of a column, not one
        for odd in (math.inf, math.nan, 1e308, 0.0, None, "odd", 0, 2**63 - 1):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist([{**row, column: odd} for row in rows]), sink)
            yield f"rows.parquet all {column} {odd}", "rows.parquet", sink.getvalue().to_pybytes()
    sink = pa.BufferOutputStream()
    pq.write_table(table.slice(0, 0), sink)
    yield "rows.parquet without rows", "rows.parquet", sink.getvalue().to_pybytes()


def seal(folder: Path) -> None:
    """Store the checksums of the files as they are: a changed one is then not refused for that."""
    run = json.loads((folder / "run.json").read_text())
    run["files"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in run["files"]
    }
    (folder / "run.json").write_text(json.dumps(run))


def try_all(kind: str, folder: Path, most: int | None) -> int:
    results.save(RESULTS[kind](), folder, run={"command": ["vestige", "x"], "seed": 3})
    cases = list(changes(folder))
    chosen = cases if most is None else Random(kind).sample(cases, most)
    for what, name, content in chosen:
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        if name != "run.json":
            seal(folder)
        refusal(what, lambda: render([results.load(folder)], show_secrets=False))
        (folder / name).write_bytes(before)
        if name != "run.json":
            seal(folder)
    return len(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_some_damaged_runs_are_shown_or_refused(kind, tmp_path, quick):
    assert try_all(kind, tmp_path / "run", FEW) >= FEW


@pytest.mark.long
@pytest.mark.parametrize("kind", RESULTS)
def test_every_damaged_run_is_shown_or_refused(kind, tmp_path, quick):
    assert try_all(kind, tmp_path / "run", None) > 200
