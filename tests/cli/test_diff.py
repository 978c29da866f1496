import json

import pytest

from vestige import results
from vestige.attacks.seed_and_extend import Growth
from vestige.attacks.update_diff import update_diff
from vestige.models.checkpoints import load_model


def diff(shell, workspace, out, *words):
    done = shell("diff", workspace / "before", workspace / "after", "--out", out, *words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    return done


def test_the_verb_saves_what_the_library_finds(shell, workspace, tmp_path):
    done = diff(shell, workspace, tmp_path / "run", "--min-length", 2, "--json")
    models = [load_model(workspace / name) for name in ("before", "after")]
    found = update_diff(*models, search=Growth(min_tokens=2), top=50)
    assert found.findings
    run = results.load(tmp_path / "run")
    assert run.result == "UpdateDiff"
    assert run.rows == list(results.plain(found.rows()))
    assert json.loads(done.stdout) == run.summary == results.plain(found.summary())


def test_a_row_has_what_the_issue_promises(shell, workspace, tmp_path):
    diff(shell, workspace, tmp_path / "run", "--min-length", 2)
    row = results.load(tmp_path / "run").rows[0]
    assert {"rank", "score", "phrase", "tokens", "group"} <= row.keys()


def test_the_run_says_what_was_asked_and_of_what(shell, workspace, tmp_path):
    words = ["--search", "beam", "--width", 7, "--length", 3, "--score", "differential"]
    diff(shell, workspace, tmp_path / "run", *words)
    run = results.load(tmp_path / "run").run
    assert run["command"][:2] == ["vestige", "diff"]
    assert run["configuration"]["search"]["width"] == 7
    assert run["configuration"]["score"]["name"] == "differential"
    assert len(run["models"]["before"]["sha256"]) == 64
    assert run["models"]["before"]["sha256"] != run["models"]["after"]["sha256"]


def test_an_update_that_promotes_nothing_is_told_in_words(shell, workspace, tmp_path):
    same = ["diff", workspace / "before", workspace / "before", "--out", tmp_path / "run"]
    done = shell(*same)
    assert done.exit_code == 0
    assert "no phrase that the update promoted" in done.stderr
    assert "Promoted phrases" not in done.stdout


def test_removed_swaps_the_roles(shell, workspace, tmp_path):
    diff(shell, workspace, tmp_path / "a", "--removed")
    swapped = ["diff", workspace / "after", workspace / "before", "--out", tmp_path / "b"]
    assert shell(*swapped).exit_code == 0
    assert results.load(tmp_path / "a").rows == results.load(tmp_path / "b").rows


def test_a_null_model_sets_the_threshold(shell, workspace, tmp_path):
    diff(shell, workspace, tmp_path / "run", "--search", "beam", "--null", workspace / "after")
    run = results.load(tmp_path / "run")
    assert run.summary["null_top_score"] == pytest.approx(run.summary["top_score"])
    assert run.summary["threshold"] >= run.summary["null_top_score"]
    assert run.summary["found"] == 0
    assert run.run["models"]["null"]["path"] == str(workspace / "after")


@pytest.mark.parametrize("search", ["seed-and-extend", "halving-beam", "beam", "group-beam"])
@pytest.mark.parametrize("score", ["smoothed", "differential", "relative"])
def test_every_search_goes_with_every_score(shell, workspace, tmp_path, search, score):
    diff(shell, workspace, tmp_path / "run", "--search", search, "--score", score, "--top", 5)
    run = results.load(tmp_path / "run")
    assert len(run.rows) <= 5
    assert run.summary["score"] == score
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.exit_code == 0, page.stderr


def test_an_option_of_another_search_is_refused(shell, workspace, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "run"]
    done = shell(*words, "--groups", 3)
    assert done.exit_code == 2
    assert "--groups must come with --search group-beam" in done.stderr
    assert not (tmp_path / "run").exists()


def test_phrases_are_withheld_on_the_terminal_unless_they_are_wanted(shell, workspace, tmp_path):
    closed = diff(shell, workspace, tmp_path / "a", "--search", "beam", "--length", 2).stdout
    opened = diff(
        shell, workspace, tmp_path / "b", "--search", "beam", "--length", 2, "--show-secrets"
    ).stdout
    assert "code" not in closed
    assert "code" in opened
