import json

from vestige import results


def test_a_page_comes_from_runs(shell, workspace, tmp_path):
    done = shell("report", workspace / "run", workspace / "run", "--out", tmp_path / "page.html")
    assert done.finished, done.stderr
    assert f"Page: {tmp_path / 'page.html'}\n" in done.stderr
    assert (tmp_path / "page.html").read_text().count("<article") == 2


def test_phrases_show_only_when_they_are_wanted(shell, workspace, tmp_path):
    run = results.load(workspace / "run")
    phrase = run.rows[0]["pieces"][1]
    words = ["report", workspace / "run", "--out"]
    shell(*words, tmp_path / "closed.html")
    done = shell(*words, tmp_path / "open.html", "--show-secrets", "--json")
    assert json.loads(done.stdout)["show_secrets"] is True
    assert f">{phrase}<" not in (tmp_path / "closed.html").read_text()
    assert f">{phrase}<" in (tmp_path / "open.html").read_text()


def test_a_run_may_have_any_name(shell, tmp_path):
    done = shell("report", "[/]", '["run"]', "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert "[/] is not a run folder" in done.stderr
