"""Tables of an invented paper are computed once, saved and read again."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from reproduction import papers
from reproduction.papers import PAPERS, caption, compute_tables, paper_numbers, settings_of
from reproduction.stages import Work, stage
from reproduction.tables import Table, markdown
from vestige import results
from vestige.errors import RunError

CAPTIONS = """
made = "{count:,} squares of {numbers}"
shown = ["square"]
[first]
title = "The first table"
note = "Of {made}."
columns = ["number"]
[second]
title = "The second table"
note = "Squares."
"""
SCALES = """
[base]
numbers = [1, 2]
[smoke]
first = { like = "base" }
second = { like = "base", numbers = [1, 2, 3], label = "none" }
[small]
first = { like = "base", numbers = [1, 2, 5] }
second = { like = "base", count = 3 }
[full]
numbers = [4]
unused = 1
"""
FAILS: set[int] = set()


@stage(outputs=("count",))
def draw(number: int, *, folder: Path) -> int:
    """Returns its argument, and counts its calls in a file."""
    if number in FAILS:
        raise OSError("no room")
    count = folder / "count"
    count.write_text(count.read_text() + "x" if count.exists() else "x")
    return number


def rows(
    work: Work, numbers: tuple[int, ...], label: str | None = "some", count: int = 1000
) -> Iterator[dict[str, Any]]:
    for done in work.all(map(draw, numbers)):
        number = done.value
        yield {"number": number, "square": number**2, "all": [number], "data": str(work.data)}


@pytest.fixture(autouse=True)
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The paper "made", which has two tables."""
    folder = tmp_path / "package" / "made"
    folder.mkdir(parents=True)
    (folder / "captions.toml").write_text(CAPTIONS)
    (folder / "scales.toml").write_text(SCALES)
    monkeypatch.setattr(papers, "PAPERS", (*PAPERS, "made"))
    monkeypatch.setattr(papers, "files", lambda name: tmp_path / "package")
    monkeypatch.setattr(papers, "import_module", lambda name: files)
    monkeypatch.setitem(papers._TABLES, "made", {})
    for name in ("first", "second"):
        papers.table(
            "made", name, remark=lambda rows: f"{len(rows)} rows.",
            chart=lambda rows: f"<svg>{sum(row['square'] for row in rows)}</svg>",
        )(rows)  # fmt: skip
    FAILS.clear()
    for cached in (papers._toml, papers.scales_of):
        cached.cache_clear()
    yield
    for cached in (papers._toml, papers.scales_of):
        cached.cache_clear()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def counts(directory: Path) -> list[str]:
    return [file.read_text() for file in sorted(directory.rglob("count"))]


def test_stages_that_tables_share_are_computed_once(out: Path, listener) -> None:
    first, second = compute_tables("made", "smoke", out, data=out, monitor=listener)
    assert (first.name, second.name) == ("first", "second")
    assert [row["square"] for row in second.entries] == [1, 4, 9]
    assert counts(out) == ["x"] * 3
    started = [line for line in listener.lines if line.startswith("computing")]
    assert started == ["computing first", "computing second"]
    assert first.columns == ("number", "square")  # named by the captions
    assert second.columns == ("number", "square", "data")  # all without lists


def test_a_row_of_the_page_has_a_cell_for_each_column() -> None:
    entries = ({"phrase": "a|b", "score": 1.5}, {"phrase": "c", "score": None, "more": [1, 2]})
    table = Table(name="one", title="", note="", columns=("phrase", "score"), entries=entries)
    lines = [line for line in markdown([table]).splitlines() if line.startswith("|")]
    assert lines[2:] == ["| a\\|b | 1.50 |", "| c |  |"]


def test_captions_remarks_charts_and_records_are_saved(out: Path) -> None:
    compute_tables("made", "smoke", out, record={"command": ["vestige"], "seed": 7})
    assert (out / "second.svg").read_text() == "<svg>14</svg>"
    first, second = (results.load(out / "results" / name) for name in ("first", "second"))
    assert first.summary["note"] == "Of 1,000 squares of 1, 2. 2 rows."
    assert second.summary["note"] == "Squares. 3 rows."
    assert (second.run["command"], second.run["seed"]) == (["vestige"], 7)
    settings = {"numbers": [1, 2, 3], "label": None, "count": 1000}
    assert second.run["configuration"] == {"settings": settings}


def test_a_saved_table_is_read_without_its_stages(out, listener) -> None:
    before = compute_tables("made", "smoke", out)
    for file in (out / "stages").rglob("count"):
        file.unlink()
    assert compute_tables("made", "smoke", out, monitor=listener) == before
    assert (listener.lines, counts(out)) == ([], [])


def test_the_page_has_all_saved_tables(out: Path) -> None:
    compute_tables("made", "smoke", out, tables=["second"])
    (first,) = compute_tables("made", "smoke", out, tables=["first"])
    assert first.name == "first"
    page = (out / "tables.md").read_text()
    assert page.index("### The first table") < page.index("### The second table")


def test_a_table_with_other_settings_is_refused_before_computing(out: Path) -> None:
    compute_tables("made", "smoke", out, tables=["first"])
    with pytest.raises(RunError, match="first was made with another configuration"):
        compute_tables("made", "small", out)
    assert counts(out) == ["x"] * 2


def test_results_before_a_failure_are_reused(out: Path) -> None:
    FAILS.add(3)
    with pytest.raises(OSError, match="no room"):
        compute_tables("made", "smoke", out)
    assert (out / "results" / "first").exists()
    assert not (out / "results" / "second").exists()
    FAILS.clear()
    compute_tables("made", "smoke", out)
    assert counts(out) == ["x"] * 3


def test_settings_come_from_the_tables_section_or_the_scale() -> None:
    assert settings_of("made", "second", "small")["count"] == 3
    assert settings_of("made", "first", "full")["numbers"] == (4,)
    papers.scales_of("made")["small"]["first"]["numbres"] = [1]
    with pytest.raises(ValueError, match=r"first takes no \['numbres'\]"):
        settings_of("made", "first", "small")
    del papers.scales_of("made")["full"]["numbers"]
    with pytest.raises(ValueError, match="numbers"):
        settings_of("made", "first", "full")


def test_unknown_papers_tables_and_captions_are_refused(out: Path) -> None:
    with pytest.raises(ValueError, match=r"table must be one of.*first"):
        compute_tables("made", "smoke", out, tables=["third"])
    with pytest.raises(ValueError, match="paper must be one of"):
        compute_tables("dreams", "smoke", out)
    assert not out.exists()
    with pytest.raises(KeyError):
        caption("made", "first", {})


@pytest.mark.parametrize("text", ["a,b\n1,2\n1,3\n", "a,b\n1\n", "a,b\n1,2,3\n"])
def test_a_repeated_key_or_a_ragged_row_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "package" / "made" / "paper_table.csv").write_text(text)
    with pytest.raises(ValueError, match=r"paper_table.csv must have"):
        paper_numbers("made", "table", key=1)
