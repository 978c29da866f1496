"""The verb's function: it finds the paper, records the call, and leaves nothing of a failure."""

import json
from pathlib import Path

import pytest

from reproduction.reproduce import _rows, reproduce
from reproduction.tables import Table
from vestige import results
from vestige.errors import DataError, RunError


@pytest.mark.slow
def test_a_table_is_made_with_its_call_on_record(tmp_path: Path, listener) -> None:
    out = tmp_path / "out"
    found = reproduce("nlu", out=out, table=["utility"], monitor=listener)
    assert list(found.summary) == ["utility"]
    (row,) = found.rows
    assert row["table"] == "utility"
    assert found.table.shape[0] == 1
    run = results.load(out / "results" / "utility").run
    assert run["verb"] == "reproduce"
    given = {"experiment": "nlu", "out": str(out), "table": ["utility"]}
    assert given.items() <= run["arguments"].items()
    assert "finished" in listener.lines[0]
    again = reproduce("nlu", out=str(out), table=["utility"])
    assert list(again.rows) == list(found.rows)


@pytest.mark.slow
def test_two_processes_make_what_one_does(tmp_path: Path) -> None:
    one, two = (
        reproduce("nlu", out=tmp_path / str(n), table=["utility"], processes=n) for n in (1, 2)
    )
    assert one == two


def test_what_could_not_begin_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("VESTIGE_DATA", raising=False)
    with pytest.raises(DataError, match="folder of corpora"):
        reproduce("updates", out=tmp_path / "new", scale="small", table=["table1"])
    with pytest.raises(ValueError, match="must be one of"):
        reproduce("nlu", out=tmp_path / "new", table=["table9"])
    assert not (tmp_path / "new").exists()


def test_corpora_are_those_of_the_environment_unless_given(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VESTIGE_DATA", str(tmp_path / "environment"))
    for given, looked in ((None, "environment"), (tmp_path / "given", "given")):
        with pytest.raises((DataError, OSError), match=looked):
            reproduce("nlu", out=tmp_path / "o", scale="small", table=["utility"], data=given)


@pytest.mark.slow
def test_a_failure_keeps_what_was_finished(tmp_path: Path, monkeypatch) -> None:
    from reproduction.nlu import planted_models

    out = tmp_path / "out"
    made = planted_models.evaluate_utterances
    calls: list[object] = []

    def failing(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) > 2:  # the second model of the first line
            raise OSError("the disk is full")
        return made(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(planted_models, "evaluate_utterances", failing)
    with pytest.raises(OSError, match="disk is full") as failed:
        reproduce("nlu", out=out, table=["null"])
    assert "finished parts are kept" in failed.value.__notes__[0]
    assert len(list(out.rglob("trial.json"))) == 1


def test_another_process_is_waited_for_by_nobody(tmp_path: Path) -> None:
    import subprocess
    import sys

    holder = (
        "import sys; from pathlib import Path; from vestige.data.writing import alone\n"
        "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="is in use by process"):
            reproduce("nlu", out=tmp_path, table=["utility"])
        other.communicate()


def test_a_reproduction_is_its_tables() -> None:
    table = Table(name="t", title="T", note="", columns=("a",), entries=({"a": 1}, {"a": None}))
    assert json.loads(results.to_json(table.summary()))["rows"] == 2
    assert list(_rows([table])) == [{"table": "t", "a": 1}, {"table": "t", "a": None}]
