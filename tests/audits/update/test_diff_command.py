import html
import json
import math
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import vestige
from tests.cli.conftest import table_model
from vestige import results
from vestige.audits.update.report import phrases
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import load_model, save_model
from vestige.models.table import TableModel
from vestige.new_files import FILE
from vestige.reports.report import report_of


def diff(shell, workspace, out, *words):
    done = shell("diff", workspace / "before", workspace / "after", "--out", out, *words)
    assert done.finished, (done.stderr, done.exception)
    return done


def test_the_verb_saves_what_the_library_finds(shell, workspace, tmp_path):
    done = diff(shell, workspace, tmp_path / "run", "--min-length", 2, "--json")
    models = [load_model(workspace / name) for name in ("before", "after")]
    found = vestige.diff(*models, min_length=2)
    assert found.rows
    run = results.load(tmp_path / "run")
    assert run.result == "UpdateDiff"
    assert run.rows == list(results.plain(found.rows))
    assert json.loads(done.stdout) == run.summary == results.plain(found.summary)


def test_the_run_says_what_was_asked_and_of_what(shell, workspace, tmp_path):
    words = ["--size", 0.2, "--length", 12, "--score", "differential"]
    diff(shell, workspace, tmp_path / "run", *words)
    run = results.load(tmp_path / "run").run
    assert run["command"][:2] == ["vestige", "diff"]
    assert run["configuration"]["search"]["max_tokens"] == 12
    assert run["configuration"]["search"]["sampling"]["samples"] == 80
    assert run["configuration"]["score"]["name"] == "differential"
    assert len(run["models"]["before"]["sha256"]) == 64
    assert run["models"]["before"]["sha256"] != run["models"]["after"]["sha256"]


def test_an_update_that_promotes_nothing_is_told_in_words(shell, workspace, tmp_path):
    same = ["diff", workspace / "before", workspace / "before", "--out", tmp_path / "run"]
    done = shell(*same)
    assert done.exit_code == 3
    assert "Both models are the same." in done.stdout
    assert "The search found no promoted phrase" in done.stdout
    assert "use --phrase or vestige exposure" in done.stdout
    assert "\nPhrases\n" not in done.stdout
    for words in ("Plan: 1 search, ", "Searched: ", "after the beginning of a document"):
        assert words in done.stderr
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.finished, page.stderr
    assert "Searched: " in html.unescape((tmp_path / "page.html").read_text("utf-8"))


def test_removed_swaps_the_roles(shell, workspace, tmp_path):
    diff(shell, workspace, tmp_path / "a", "--removed")
    swapped = ["diff", workspace / "after", workspace / "before", "--out", tmp_path / "b"]
    assert shell(*swapped).finished
    assert results.load(tmp_path / "a").rows == results.load(tmp_path / "b").rows


@pytest.fixture(scope="module")
def nulls(tmp_path_factory):
    """A folder of nineteen null models of the workspace's `before`."""
    folder = tmp_path_factory.mktemp("nulls")
    for seed in range(19):
        save_model(table_model(["the", "code", "gate", "of", "is"], 100 + seed), folder / f"{seed}")
    return folder


def test_a_folder_of_nineteen_null_models_is_compared_with(shell, workspace, nulls, tmp_path):
    words = ["--size", 0.2, "--length", 3, "--min-length", 2, "--null", nulls]
    done = diff(shell, workspace, tmp_path / "run", *words)
    run = results.load(tmp_path / "run")
    assert run.summary["null_searches"] == 19
    assert run.summary["verdict"] == "undecided"  # these tables are too weak for an audit
    assert run.summary["claim"]["test"]["least"] == 0.05
    assert len(set(run.run["models"]["nulls"]["sha256"])) == 19
    assert "19 null models" in done.stdout
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.finished, page.stderr
    shown = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    for sentence in phrases(run.summary):
        assert sentence in done.stdout
        assert sentence in shown


def test_a_null_model_must_be_a_training_of_its_own(shell, workspace, nulls, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "run"]
    done = shell(*words, "--null", nulls / "0", "--null", workspace / "before")
    assert done.exit_code == 2
    assert "--null must be a training of its own" in done.stderr


@pytest.mark.parametrize("score", ["smoothed", "differential", "relative"])
def test_the_search_goes_with_every_score(shell, workspace, tmp_path, score):
    diff(shell, workspace, tmp_path / "run", "--score", score, "--top", 5)
    run = results.load(tmp_path / "run")
    assert len(run.rows) <= 5
    assert run.summary["score"] == score
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.finished, page.stderr


def test_ranks_start_at_1_and_those_of_earlier_versions_are_shown_so(shell, workspace, tmp_path):
    diff(shell, workspace, tmp_path / "run", "--min-length", 2)
    run = results.load(tmp_path / "run")
    assert [row["rank"] for row in run.rows] == list(range(1, len(run.rows) + 1))
    old = [{**row, "rank": row["rank"] - 1} for row in run.rows]
    shown = report_of(run, show_secrets=True)
    assert report_of(replace(run, rows=old), show_secrets=True).blocks[0] == shown.blocks[0]
    assert shown.blocks[0].groups[0][0].rank == 1


def test_phrases_are_withheld_on_the_terminal_unless_they_are_wanted(shell, workspace, tmp_path):
    words = ["--length", 4, "--min-length", 2]
    closed = diff(shell, workspace, tmp_path / "a", *words).stdout
    opened = diff(shell, workspace, tmp_path / "b", *words, "--show-secrets").stdout
    assert "code" not in closed
    assert "code" in opened


def test_a_canary_that_is_no_phrase_is_listed_among_fragments(shell, tmp_path):
    """Likelier than all of 2,000 references, and no step of it large enough for a phrase."""
    words, random = [f"word{i}" for i in range(98)], np.random.default_rng(0)
    vocabulary, canary = WordVocabulary(("<unk>", "<eos>", *words)), [40, 7, 63, 21, 88]
    rows = np.full((101, 100), 0.01)
    before = TableModel(rows[-1], rows[:-1], vocabulary)
    for token, following in pairwise(canary):
        rows[token] = 0.95 / 99
        rows[token, following] = 0.05
    after = TableModel(rows[-1], rows[:-1], vocabulary)
    said = [
        sum(math.log(rows[a, b]) for a, b in pairwise(phrase))
        for phrase in (canary, *random.integers(2, 100, (2000, 5)).tolist())
    ]
    assert said[0] > max(said[1:])
    save_model(before, tmp_path / "before")
    save_model(after, tmp_path / "after")

    asked = ["diff", tmp_path / "before", tmp_path / "after", "--out", tmp_path / "run"]
    done = shell(*asked, "--show-secrets")
    assert done.finished, (done.stderr, done.exception)
    run = results.load(tmp_path / "run")
    assert (run.summary["phrases"], run.summary["found"]) == (0, None)
    assert run.rows[0]["tokens"] == canary
    assert "Fragments, not tested" in done.stdout
    assert " ".join(words[i - 2] for i in canary) in done.stdout

    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html", "--show-secrets")
    assert page.finished, page.stderr
    shown = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    assert "No phrase was promoted" not in shown
    for told in ("use --phrase or vestige exposure", "Fragments, not tested"):
        assert told in shown
        assert told in done.stdout + done.stderr


def units(file):
    """Finished units of a process that is running."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as store:
        try:
            where = "WHERE CAST(name AS TEXT) LIKE 'update/%'"
            [row] = store.execute(f"SELECT count(*) FROM work {where}")
            return row[0]
        except sqlite3.DatabaseError:
            return 0


SMALL = ["--length", 6, "--min-length", 2, "--delta", 0.02, "--device", "cpu"]


def test_killed_at_any_moment_the_same_command_goes_on(shell, workspace, tmp_path):
    """A real kill -9, as soon as two units of work are on the disk."""
    words = ["diff", workspace / "before", workspace / "after", *SMALL, "--out"]
    out = tmp_path / "run"
    main = [sys.executable, "-c", "from vestige.cli.app import main; main()"]
    command = [*main, *map(str, words), str(out)]
    kept = tmp_path / "run.partial" / FILE
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 120
        while units(kept) < 2 and time.monotonic() < until and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -9
    assert not out.exists()
    done = shell(*words, out)
    assert done.finished, done.stderr
    assert "finished parts found in" in done.stderr
    assert shell(*words, tmp_path / "whole").finished
    assert results.load(out).rows == results.load(tmp_path / "whole").rows
    assert not kept.parent.exists()


def test_known_phrases_stand_beside_what_is_found(shell, workspace, nulls, tmp_path):
    (tmp_path / "secrets.txt").write_text("the code of the gate\n\ngate is\n")
    words = [*SMALL, "--size", 0.2, "--secrets", tmp_path / "secrets.txt", "--null", nulls / "0"]
    done = diff(shell, workspace, tmp_path / "run", *words)
    run = results.load(tmp_path / "run")
    known = [row for row in run.rows if row["kind"] == "known"]
    assert [row["phrase"] for row in known] == ["the code of the gate", "gate is"]
    assert {row["p_value"] for row in known} <= {0.5, 1.0}
    assert run.summary["known"] == 2
    assert "Listed secrets" in done.stdout
    assert "of 2 listed secrets" in done.stdout
    assert "gate" not in done.stdout
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html", "--show-secrets")
    assert page.finished, page.stderr
    shown = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    for told in ("Listed secrets", "highest: ", "p-value", "Searched:"):
        assert told in shown


def test_a_partial_run_says_so_and_is_gone_on_with(shell, workspace, tmp_path):
    words = [*SMALL, "--minutes", 1e-9, "--size", 0.2]
    done = diff(shell, workspace, tmp_path / "run", *words)
    assert "0 of " in done.stderr
    assert "Time limit: " in done.stderr
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.finished, page.stderr
    assert "Time limit: " in html.unescape((tmp_path / "page.html").read_text("utf-8"))
    words[words.index(1e-9)] = 10
    again = diff(shell, workspace, tmp_path / "run", *words)
    assert "Time limit: " not in again.stderr
    assert results.load(tmp_path / "run").summary["complete"] is True


def test_a_run_repeats_itself(shell, workspace, tmp_path):
    diff(shell, workspace, tmp_path / "a", *SMALL, "--size", 0.2, "--prompt", "the code")
    again = shell("diff", "--config", tmp_path / "a", "--out", tmp_path / "b")
    assert again.finished, again.stderr
    assert results.load(tmp_path / "a").rows == results.load(tmp_path / "b").rows


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--minutes", 3, "--phrase", "the"], "--minutes cannot be given with --phrase"),
        (["--chat", "on"], "--chat must be auto or off if the tokenizer has no chat template"),
        (["--prompt", " "], "--prompt must hold a text, got an empty one as number 1"),
        (["--secrets", "nowhere.txt"], "nowhere.txt is missing"),
    ],
)
def test_what_cannot_be_searched_is_refused_and_leaves_nothing(
    shell, workspace, tmp_path, words, told
):
    asked = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "run"]
    done = shell(*asked, *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []
