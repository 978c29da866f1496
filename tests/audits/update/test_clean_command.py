"""`vestige diff --clean` trains null models as the update was trained."""

import json
import shutil
import subprocess
import sys
import time

import pytest

from vestige import results

SMALL = ["--epochs", 1, "--sequence-length", 8, "--batch-size", 2, "--hold-out", 0]
LONGER = ["--epochs", 30, *SMALL[2:]]


@pytest.fixture(scope="module")
def update(shell, tmp_path_factory):
    """A model, an update of it, and clean text."""
    root = tmp_path_factory.mktemp("null")
    lines = [f"the code of the gate is {word}" for word in ("one", "two", "three", "four")]
    (root / "first.txt").write_text("\n".join(lines * 5))
    (root / "later.txt").write_text("\n".join(lines[:3]))
    (root / "clean.txt").write_text("\n".join(lines * 4))
    sizes = ["--layers", 1, "--hidden-size", 8]
    for words in (
        ["train", root / "first.txt", "--out", root / "before", *LONGER, *sizes],
        ["train", root / "later.txt", "--from", root / "before", "--out", root / "after", *SMALL],
    ):
        done = shell(*words)
        assert done.exit_code == 0, (done.stderr, done.exception)
    return root


def words(update, out, *more):
    given = ["diff", update / "before", update / "after", "--clean", update / "clean.txt"]
    return [*given, "--size", 0.2, "--out", out, *more]


def test_nulls_are_trained_once_and_compared_with(shell, update, tmp_path):
    done = shell(*words(update, tmp_path / "run", "--nulls", 2, "--json"))
    assert done.finished, (done.stderr, done.exception)
    run = results.load(tmp_path / "run")
    assert json.loads(done.stdout) == run.summary
    assert run.summary["null_searches"] == 2
    assert all(0.1 < change < 10 for change in run.summary["null_weight_changes"])
    nulls = [tmp_path / "run.nulls" / f"null-0{number}" for number in (0, 1)]
    assert run.run["models"]["nulls"]["path"] == list(map(str, nulls))
    trainings = [json.loads((null / "training.json").read_text()) for null in nulls]
    of_update = json.loads((update / "after/training.json").read_text())
    for training in trainings:
        assert training["model weights at the start"] == of_update["model weights at the start"]
        assert {**training["config"], "seed": 0} == {**of_update["config"], "seed": 0}
    seeds = {training["config"]["seed"] for training in (*trainings, of_update)}
    assert len(seeds) == len({training["data"] for training in (*trainings, of_update)}) == 3

    log = (nulls[1] / "log.jsonl").read_text()
    shutil.rmtree(tmp_path / "run")
    again = shell(*words(update, tmp_path / "run", "--nulls", 2))
    assert again.finished
    assert "All were trained earlier." in again.stderr
    assert (nulls[1] / "log.jsonl").read_text() == log
    assert results.load(tmp_path / "run").rows == run.rows

    given = ["diff", update / "before", update / "after", "--size", 0.2]
    done = shell(*given, "--null", tmp_path / "run.nulls", "--out", tmp_path / "other")
    assert done.finished, (done.stderr, done.exception)
    assert results.load(tmp_path / "other").rows == run.rows


def test_killed_at_any_moment_the_same_command_resumes(shell, update, tmp_path):
    """A real kill -9 while null models are trained, and one as soon as they are trained."""
    main = [sys.executable, "-c", "from vestige.cli.app import main; main()"]
    command = words(update, tmp_path / "run", "--nulls", 2)
    for sign in ("run.nulls/null-01/data", "run.nulls/null-01/model"):
        with subprocess.Popen([*main, *map(str, command)], stderr=subprocess.PIPE) as process:
            until = time.monotonic() + 120
            while not (tmp_path / sign).exists() and time.monotonic() < until:
                time.sleep(0.01)
            process.kill()
        assert process.returncode == -9
        assert not (tmp_path / "run").exists()
    assert shell(*command).finished
    assert shell(*words(update, tmp_path / "whole", "--nulls", 2)).finished
    run, whole = (results.load(tmp_path / name) for name in ("run", "whole"))
    assert (run.rows, run.summary) == (whole.rows, whole.summary)
    hashes = [one.run["models"]["nulls"]["sha256"] for one in (run, whole)]
    assert hashes[0] == hashes[1]
    names = ["run", "run.nulls", "whole", "whole.nulls"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
