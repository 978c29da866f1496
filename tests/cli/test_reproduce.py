"""The verb that repeats a paper's tables."""

import json


def test_one_table_is_made_and_printed(shell, tmp_path):
    words = ["reproduce", "updates", "--out", tmp_path / "smoke", "--table", "figure1"]
    done = shell(*words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert "Figure 1" in done.stdout
    assert "high-to-low" in done.stdout
    assert (tmp_path / "smoke" / "figure1.svg").is_file()
    again = shell(*words, "--json")
    assert json.loads(again.stdout)["figure1"]["rows"] > 0

    page = tmp_path / "page.html"
    shown = shell("report", tmp_path / "smoke" / "results" / "figure1", "--out", page)
    assert shown.exit_code == 0, shown.stderr


def test_an_unknown_table_is_named(shell, tmp_path):
    done = shell("reproduce", "updates", "--out", tmp_path / "smoke", "--table", "table9")
    assert done.exit_code == 2
    assert "table9" in done.stderr
    assert not (tmp_path / "smoke").exists()


def test_missing_corpora_say_which_and_what_to_do(shell, tmp_path):
    words = ["reproduce", "updates", "--scale", "small", "--table", "table1"]
    done = shell(*words, "--data", tmp_path, "--out", tmp_path / "small")
    assert done.exit_code == 2
    assert "ptb" in done.stderr
    assert not (tmp_path / "small").exists()
