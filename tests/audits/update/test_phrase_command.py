import json

from vestige import results
from vestige.audits.update.rank import rank_of_phrase
from vestige.models.checkpoints import load_model


def test_the_verb_saves_what_the_library_finds(shell, workspace, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--phrase", "the code of"]
    done = shell(*words, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    models = [load_model(workspace / name) for name in ("before", "after")]
    ranked = rank_of_phrase(*models, tuple(models[0].vocabulary.encode("the code of")))
    run = results.load(tmp_path / "run")
    assert run.result == "DifferentialRank"
    assert run.rows == results.plain(ranked.rows)
    assert json.loads(done.stdout).keys() == run.summary.keys()
    assert run.summary["rank_lower"] == results.plain(ranked.summary)["rank_lower"]
    assert run.run["arguments"]["phrase"] == "the code of"


def test_the_terminal_says_how_certain_the_rank_is(shell, workspace, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--phrase", "the code"]
    done = shell(*words, "--out", tmp_path / "run")
    assert "(exact)" in done.stdout
    assert "code" not in done.stdout


def test_its_page_withholds_the_phrase(shell, workspace, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--phrase", "the code"]
    shell(*words, "--out", tmp_path / "run")
    done = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    assert "the code" not in (tmp_path / "page.html").read_text()
