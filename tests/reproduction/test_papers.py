"""Tables filled from trials that are made up: made once, found again, never mixed up."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from reproduction import papers
from reproduction.papers import PAPERS, Plan, caption, paper_numbers, reproduce
from reproduction.runner import Trial
from vestige import results
from vestige.errors import RunError

CAPTIONS = """
made = "{count:,} squares"
shown = ["square"]
[first]
title = "The first table"
note = "Of {made}."
columns = ["number"]
[second]
title = "The second table"
note = "Squares."
"""
SCALE_DATA = """
[base]
numbers = [1, 2]
[smoke]
first = { like = "base" }
second = { like = "base", numbers = [1, 2, 3], label = "none" }
[small]
first = { like = "base", numbers = [1, 2, 5] }
second = { like = "base" }
[full]
"""


@dataclass(frozen=True, kw_only=True)
class Draw(Trial):
    """The number that it is asked for, and how often it was computed."""

    number: int
    fails: bool = field(default=False, compare=False)

    def make(self) -> dict[str, object]:
        if self.fails:
            raise OSError("no room")
        count = self.directory / "count"
        count.write_text(count.read_text() + "x" if count.exists() else "x")
        return {"number": self.number}


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What a table is made of."""

    numbers: tuple[int, ...]
    label: str | None = "some"


@pytest.fixture(autouse=True)
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A paper of two tables, "made"; while "fails" is true its third trial does."""
    state, folder = {"fails": False}, tmp_path / "package" / "made"
    folder.mkdir(parents=True)
    (folder / "captions.toml").write_text(CAPTIONS)
    (folder / "scales.toml").write_text(SCALE_DATA)

    def plan(of: Numbers, directory: Path, data: Path | None) -> Plan:
        trials = [
            Draw(directory=directory / str(n), number=n, fails=state["fails"] and n == 3)
            for n in of.numbers
        ]

        def rows() -> Iterator[dict[str, Any]]:
            for trial in trials:
                number = trial.result()["number"]
                yield {"number": number, "square": number**2, "all": [number], "data": str(data)}

        return Plan(
            trials=trials,
            rows=rows,
            values={"count": 1000},
            remark=lambda rows: f"{len(rows)} rows.",
            chart=lambda rows: f"<svg>{sum(row['square'] for row in rows)}</svg>",
        )

    read = files
    monkeypatch.setattr(papers, "PAPERS", (*PAPERS, "made"))
    monkeypatch.setattr(papers, "files", lambda name: tmp_path / "package")
    monkeypatch.setattr(papers, "import_module", lambda name: read)
    monkeypatch.setitem(papers._TABLES, "made", {})
    for name in ("first", "second"):
        papers.table("made", name, folder="draws")(plan)
    papers._toml.cache_clear()
    papers.scales_of.cache_clear()
    yield state
    papers._toml.cache_clear()
    papers.scales_of.cache_clear()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def counts(directory: Path) -> dict[str, int]:
    return {f.parent.name: len(f.read_text()) for f in sorted(directory.rglob("count"))}


def test_trials_that_tables_share_are_made_once(out: Path, listener) -> None:
    tables = reproduce("made", "smoke", out, data=out, monitor=listener)
    assert [table.name for table in tables] == ["first", "second"]
    assert [row["square"] for row in tables[1].entries] == [1, 4, 9]
    assert counts(out / "draws") == {"1": 1, "2": 1, "3": 1}
    assert listener.lines[-2:] == ["filling first", "filling second"]


def test_columns_are_those_named_or_all_that_hold_no_list(out: Path) -> None:
    first, second = reproduce("made", "smoke", out)
    assert first.columns == ("number", "square")
    assert second.columns == ("number", "square", "data")


def test_captions_remarks_charts_and_records_are_kept(out: Path) -> None:
    reproduce("made", "smoke", out, record={"command": ["vestige"], "seed": 7})
    assert (out / "second.svg").read_text() == "<svg>14</svg>"
    first, second = (results.load(out / "results" / name) for name in ("first", "second"))
    assert first.summary["note"] == "Of 1,000 squares. 2 rows."
    assert second.summary["note"] == "Squares. 3 rows."
    assert (second.run["command"], second.run["seed"]) == (["vestige"], 7)
    assert second.run["configuration"] == {"settings": {"numbers": [1, 2, 3], "label": None}}


def test_a_table_that_is_there_is_read_and_its_trials_are_not_made(out: Path, listener) -> None:
    before = reproduce("made", "smoke", out)
    for file in (out / "draws").rglob("*"):
        if file.is_file():
            file.unlink()
    assert reproduce("made", "smoke", out, monitor=listener) == before
    assert (listener.lines, counts(out)) == ([], {})


def test_the_page_has_all_tables_that_are_there(out: Path) -> None:
    reproduce("made", "smoke", out, tables=["second"])
    (first,) = reproduce("made", "smoke", out, tables=["first"])
    assert first.name == "first"
    page = (out / "tables.md").read_text()
    assert page.index("### The first table") < page.index("### The second table")


def test_a_table_of_other_settings_is_refused_before_anything_is_made(out: Path) -> None:
    reproduce("made", "smoke", out, tables=["first"])
    with pytest.raises(RunError, match="first was made with another configuration"):
        reproduce("made", "small", out)
    assert counts(out / "draws") == {"1": 1, "2": 1}


def test_what_was_finished_before_a_failure_is_found_again(out: Path, paper) -> None:
    paper["fails"] = True
    with pytest.raises(OSError, match="no room"):
        reproduce("made", "smoke", out)
    assert not (out / "results").exists()
    paper["fails"] = False
    reproduce("made", "smoke", out)
    assert counts(out / "draws") == {"1": 1, "2": 1, "3": 1}


def test_unknown_papers_and_tables_are_refused(out: Path) -> None:
    with pytest.raises(ValueError, match=r"table must be one of.*first"):
        reproduce("made", "smoke", out, tables=["third"])
    with pytest.raises(ValueError, match="paper must be one of"):
        reproduce("dreams", "smoke", out)
    assert not out.exists()


def test_a_caption_without_its_value_is_refused() -> None:
    with pytest.raises(KeyError):
        caption("made", "first", {})


@pytest.mark.parametrize("text", ["a,b\n1,2\n1,3\n", "a,b\n1\n", "a,b\n1,2,3\n"])
def test_a_key_twice_or_a_ragged_row_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "package" / "made" / "paper_table.csv").write_text(text)
    with pytest.raises(ValueError, match=r"paper_table.csv must have"):
        paper_numbers("made", "table", key=1)
