"""`python -m reproduction` prints, records and resumes; a failure leaves no files."""

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
def test_processes_compute_a_table_and_record_the_call(tmp_path: Path, listener) -> None:
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


def test_a_column_may_differ_in_type_between_tables() -> None:
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
    output = capsys.readouterr().out
    assert "Figure 1" in output
    assert "high-to-low" in output
    assert (tmp_path / "smoke" / "figure1.svg").is_file()
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figure1"]["rows"] > 0
    folder = tmp_path / "smoke" / "results" / "figure1"
    assert app.run(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        ("updates --out new --table table9", "table9"),
        ("updates --out new --scale small --table table1 --data .", "ptb"),
        ("updates --out new --scale huge", "smoke"),
        ("dreams --out new", "updates"),
        ("\x1b[31m --out new", "EXPERIMENT"),
        ("", "python -m reproduction --help"),
    ],
)
def test_an_error_leaves_no_files(capsys, tmp_path, monkeypatch, words, fragment) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == 2
    message = capsys.readouterr().err
    assert fragment in message
    assert "\x1b" not in message
    assert not (tmp_path / "new").exists()


def test_help_shows_the_usage(capsys) -> None:
    assert run(["--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: python -m reproduction")


def test_the_environment_gives_the_default_folder_of_corpora(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VESTIGE_DATA", str(tmp_path / "environment"))
    for data, folder in ((None, "environment"), (tmp_path / "option", "option")):
        with pytest.raises((DataError, OSError), match=folder):
            reproduce("nlu", out=tmp_path / "o", scale="small", table=["utility"], data=data)
    monkeypatch.delenv("VESTIGE_DATA")
    with pytest.raises(DataError, match="folder of corpora"):
        reproduce("updates", out=tmp_path / "new", scale="small", table=["table1"])


@pytest.mark.slow
def test_the_same_command_resumes_after_a_failure(tmp_path, monkeypatch, listener) -> None:
    from reproduction.nlu import planted_models

    out = tmp_path / "out"
    evaluate, calls = planted_models.evaluate_utterances, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # the second model of the first line
            raise OSError("the disk is full")
        return evaluate(*arguments)

    monkeypatch.setattr(planted_models, "evaluate_utterances", failing)
    with pytest.raises(OSError, match="disk is full") as error:
        reproduce("nlu", out=out, table=["null"])
    assert "finished parts are kept" in error.value.__notes__[0]
    result = reproduce("nlu", out=out, table=["null"], monitor=listener)
    assert len(result.rows) == 9
    assert len(calls) == 5  # the first model, of two epochs, is not trained again
    assert sum("train_planted" in line for line in listener.lines) == 1
