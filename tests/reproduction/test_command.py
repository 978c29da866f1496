"""The command: it finds the paper, prints, records and resumes; a failure leaves no files."""

import json
from pathlib import Path

import pytest

from reproduction.__main__ import run
from reproduction.reproduce import Reproduction, _rows_of, reproduce
from reproduction.tables import Table
from vestige import results
from vestige.cli import app
from vestige.errors import DataError


@pytest.mark.slow
def test_a_table_is_made_by_processes_with_its_call_on_record(tmp_path: Path, listener) -> None:
    out = tmp_path / "out"
    result = reproduce("nlu", out=out, table=["utility"], processes=2, monitor=listener)
    (row,) = result.rows
    assert row["table"] == "utility"
    assert result.table.shape[0] == 1
    record = results.load(out / "results" / "utility").run
    assert record["verb"] == "reproduce"
    arguments = {"experiment": "nlu", "out": str(out), "table": ["utility"]}
    assert arguments.items() <= record["arguments"].items()
    assert any("finished" in line for line in listener.lines)
    assert list(reproduce("nlu", out=str(out), table=["utility"]).rows) == list(result.rows)
    assert reproduce("nlu", out=tmp_path / "alone", table=["utility"]) == result


def test_a_column_may_have_another_type_in_each_table() -> None:
    tables = [
        Table(name=name, title=name, note="", columns=("rank",), entries=({"rank": rank},))
        for name, rank in (("one", "3 to 5"), ("two", 4))
    ]
    summary = {table.name: table.summary() for table in tables}
    result = Reproduction(kind="Reproduction", summary=summary, rows=_rows_of(tables))
    (report,) = result.reports(show_secrets=False)
    assert [block.title for block in report.tables] == ["one", "two"]
    assert "2 tables" in str(result)


@pytest.mark.slow
def test_one_table_is_printed_with_its_chart(capsys, tmp_path) -> None:
    words = ["updates", "--out", str(tmp_path / "smoke"), "--table", "figure1"]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "Figure 1" in shown
    assert "high-to-low" in shown
    assert (tmp_path / "smoke" / "figure1.svg").is_file()
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figure1"]["rows"] > 0
    folder = tmp_path / "smoke" / "results" / "figure1"
    assert app.run(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("updates --out new --table table9", "table9"),
        ("updates --out new --scale small --table table1 --data .", "ptb"),
        ("updates --out new --scale huge", "smoke"),
        ("dreams --out new", "updates"),
        ("\x1b[31m --out new", "EXPERIMENT"),
        ("", "python -m reproduction --help"),
    ],
)
def test_an_error_names_the_problem_and_leaves_no_files(
    capsys, tmp_path, monkeypatch, words, named
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == 2
    shown = capsys.readouterr().err
    assert named in shown
    assert "\x1b" not in shown
    assert not (tmp_path / "new").exists()


def test_its_help_is_of_its_own_command(capsys) -> None:
    assert run(["--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: python -m reproduction")


def test_the_environment_gives_the_default_folder_of_corpora(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VESTIGE_DATA", str(tmp_path / "environment"))
    for given, looked in ((None, "environment"), (tmp_path / "given", "given")):
        with pytest.raises((DataError, OSError), match=looked):
            reproduce("nlu", out=tmp_path / "o", scale="small", table=["utility"], data=given)
    monkeypatch.delenv("VESTIGE_DATA")
    with pytest.raises(DataError, match="folder of corpora"):
        reproduce("updates", out=tmp_path / "new", scale="small", table=["table1"])


@pytest.mark.slow
def test_a_failure_keeps_what_was_finished_and_the_same_command_resumes(
    tmp_path: Path, monkeypatch, listener
) -> None:
    from reproduction.nlu import planted_models

    out = tmp_path / "out"
    evaluate, calls = planted_models.evaluate_utterances, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # the second model of the first line
            raise OSError("the disk is full")
        return evaluate(*arguments)

    monkeypatch.setattr(planted_models, "evaluate_utterances", failing)
    with pytest.raises(OSError, match="disk is full") as failed:
        reproduce("nlu", out=out, table=["null"])
    assert "finished parts are kept" in failed.value.__notes__[0]
    result = reproduce("nlu", out=out, table=["null"], monitor=listener)
    assert len(result.rows) == 9
    assert len(calls) == 5  # the first model, of two epochs, is not trained again
    assert sum("train_planted" in line for line in listener.lines) == 1
