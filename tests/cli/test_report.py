def test_a_page_comes_from_runs(shell, workspace, tmp_path):
    done = shell("report", workspace / "run", workspace / "run", "--out", tmp_path / "page.html")
    assert done.finished, done.stderr
    assert f"Page: {tmp_path / 'page.html'}\n" in done.stderr
    assert (tmp_path / "page.html").read_text().count("<article") == 2


def test_a_run_may_have_any_name(shell, tmp_path):
    done = shell("report", "[/]", '["run"]', "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert "[/] is not a run folder" in done.stderr
