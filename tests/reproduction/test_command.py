"""The command that repeats a paper's tables."""

import json

import pytest

from reproduction.__main__ import run
from vestige.cli import app


@pytest.mark.slow
def test_one_table_is_made_and_printed(capsys, tmp_path):
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
def test_what_is_wrong_is_named(capsys, tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == 2
    shown = capsys.readouterr().err
    assert named in shown
    assert "\x1b" not in shown
    assert not (tmp_path / "new").exists()


def test_its_help_is_of_its_own_command(capsys):
    assert run(["--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: python -m reproduction")
