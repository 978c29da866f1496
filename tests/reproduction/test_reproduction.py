"""Tables filled from trials that are made up: made once, found again, never mixed up."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reproduction import reproduction as module
from reproduction.reproduction import Part, Plan, caption, choose, reproduce, run_paper
from reproduction.runner import Trial
from vestige import results
from vestige.errors import RunError


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


@dataclass(frozen=True)
class Scale:
    """Numbers of two tables."""

    numbers: tuple[int, ...] = (1, 2, 3)
    fails: bool = False


def parts_of(scale: Scale) -> dict[str, Part]:
    def plan(directory: Path, data: Path | None, *, numbers: tuple[int, ...]) -> Plan:
        trials = [
            Draw(directory=directory / str(n), number=n, fails=scale.fails and n == 3)
            for n in numbers
        ]

        def rows() -> Iterator[dict[str, Any]]:
            for trial in trials:
                number = trial.result()["number"]
                yield {"number": number, "square": number**2, "all": [number], "data": str(data)}

        return Plan(trials=trials, rows=rows)

    def part(name: str, numbers: tuple[int, ...], **more: Any) -> Part:
        return Part(
            title=f"The {name} table",
            note="Squares.",
            folder="draws",
            settings=(scale,) if name == "first" else scale,
            plan=lambda directory, data: plan(directory, data, numbers=numbers),
            **more,
        )

    return {
        "first": part("first", scale.numbers[:2], columns=("number", "square")),
        "second": part(
            "second",
            scale.numbers,
            remark=lambda rows: f"{len(rows)} rows.",
            draw=lambda rows: f"<svg>{sum(row['square'] for row in rows)}</svg>",
        ),
    }


def counts(directory: Path) -> dict[str, int]:
    return {f.parent.name: len(f.read_text()) for f in sorted(directory.rglob("count"))}


def test_trials_that_tables_share_are_made_once(tmp_path: Path, listener) -> None:
    tables = run_paper(parts_of, Scale(), tmp_path, data=tmp_path, monitor=listener)
    assert [table.name for table in tables] == ["first", "second"]
    assert [row["square"] for row in tables[1].entries] == [1, 4, 9]
    assert counts(tmp_path / "draws") == {"1": 1, "2": 1, "3": 1}
    assert listener.lines[-2:] == ["filling first", "filling second"]
    assert listener.steps[-1] == (3, 3)


def test_columns_are_those_named_or_all_that_hold_no_list(tmp_path: Path) -> None:
    first, second = run_paper(parts_of, Scale(), tmp_path)
    assert first.columns == ("number", "square")
    assert second.columns == ("number", "square", "data")
    assert [row["data"] for row in second.entries] == ["None"] * 3


def test_remarks_charts_and_records_are_kept(tmp_path: Path) -> None:
    run_paper(parts_of, Scale(), tmp_path, record={"command": ["vestige"], "seed": 7})
    assert (tmp_path / "second.svg").read_text() == "<svg>14</svg>"
    assert not (tmp_path / "first.svg").exists()
    run = results.load(tmp_path / "results" / "second")
    assert run.summary["note"] == "Squares. 3 rows."
    assert (run.run["command"], run.run["seed"]) == (["vestige"], 7)
    settings = {"numbers": [1, 2, 3], "fails": False}
    assert run.run["configuration"] == {"settings": settings}
    first = results.load(tmp_path / "results" / "first").run["configuration"]
    assert first == {"settings": [settings]}


def test_a_table_that_is_there_is_read_and_its_trials_are_not_asked_for(
    tmp_path: Path, listener
) -> None:
    before = run_paper(parts_of, Scale(), tmp_path)
    for file in (tmp_path / "draws").rglob("*"):
        if file.is_file():
            file.unlink()
    assert run_paper(parts_of, Scale(), tmp_path, monitor=listener) == before
    assert (listener.lines, counts(tmp_path)) == ([], {})


def test_some_tables_may_be_asked_for_and_the_page_has_all_that_are_there(tmp_path: Path) -> None:
    run_paper(parts_of, Scale(), tmp_path, tables=["second"])
    (first,) = run_paper(parts_of, Scale(), tmp_path, tables=["first"])
    assert first.name == "first"
    page = (tmp_path / "tables.md").read_text()
    assert page.index("### The first table") < page.index("### The second table")
    assert "| 3 | 9 | None |" in page


def test_a_table_of_other_settings_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    run_paper(parts_of, Scale(), tmp_path, tables=["first"])
    with pytest.raises(RunError, match="first was made with another configuration"):
        run_paper(parts_of, Scale(numbers=(1, 2, 5)), tmp_path)
    assert counts(tmp_path / "draws") == {"1": 1, "2": 1}


def test_a_trial_of_other_settings_is_refused(tmp_path: Path) -> None:
    run_paper(parts_of, Scale(), tmp_path, tables=["first"])
    other = Draw(directory=tmp_path / "draws" / "1", number=4)
    plan = Plan(trials=[other], rows=lambda: [])
    part = replace(parts_of(Scale())["first"], plan=lambda directory, data: plan)
    with pytest.raises(RunError, match="number = 1, not 4"):
        reproduce({"other": part}, tmp_path, data=None, run={})


def test_what_was_finished_before_a_failure_is_found_again(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no room"):
        run_paper(parts_of, Scale(fails=True), tmp_path)
    assert not (tmp_path / "results").exists()
    run_paper(parts_of, Scale(), tmp_path)
    assert counts(tmp_path / "draws") == {"1": 1, "2": 1, "3": 1}


def test_a_table_without_trials_is_filled(tmp_path: Path) -> None:
    part = Part(
        title="t", note="", folder=".", settings=1, plan=lambda *_: Plan(rows=lambda: [{"a": 1.5}])
    )
    (table,) = reproduce({"t": part}, tmp_path, data=None, run={})
    assert table.entries == ({"a": 1.5},)
    assert table.note == ""


def test_an_unknown_table_is_refused() -> None:
    parts = parts_of(Scale())
    with pytest.raises(ValueError, match=r"table.* must be one of \(?'first', 'second'"):
        choose(parts, ["third"])
    assert list(choose(parts, ["second"])) == ["second"]
    assert list(choose(parts, [])) == ["first", "second"]


def test_a_caption_has_its_values_and_the_texts_above_the_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tables.toml").write_text(
        'made = "{users:,} users"\n[one]\ntitle = "Of {name}"\nnote = "{made}, {name}."\n'
        'columns = ["a", "b"]\n[two]\ntitle = "x"\nnote = ""\n'
    )
    monkeypatch.setattr(module, "files", lambda _: tmp_path)
    made = caption("mine", "one", users=1200, name="all")
    assert made == {"title": "Of all", "note": "1,200 users, all.", "columns": ("a", "b")}
    assert caption("mine", "two", users=1)["columns"] == ()
    with pytest.raises(KeyError):
        caption("mine", "one", users=1)


@pytest.mark.parametrize("scale", ["SMOKE", "SMALL", "FULL"])
@pytest.mark.parametrize("paper", ["updates", "regularization", "nlu"])
def test_every_table_has_a_caption_and_settings_that_json_holds(paper: str, scale: str) -> None:
    from importlib import import_module

    tables = import_module(f"reproduction.{paper}.paper_tables")
    parts = tables.parts_of(getattr(tables, scale))
    assert len({part.title for part in parts.values()}) == len(parts)
    for part in parts.values():
        assert part.note.endswith(".")
        assert "{" not in part.title + part.note
        json.loads(results.to_json(module._settings(part.settings)))
