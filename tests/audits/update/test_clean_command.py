"""Null models are trained as an update was, and `vestige diff` takes their folder."""

import json

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


def test_nulls_are_trained_once_and_compared_with(shell, update, tmp_path):
    words = ["null", update / "before", "--text", update / "clean.txt", "--like", update / "after"]
    words += ["--count", 2, "--out", tmp_path / "nulls", "--json"]
    done = shell(*words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    told = json.loads(done.stdout)
    changes = told.pop("weight_changes")
    assert len(changes) == 2
    assert all(0.1 < change < 10 for change in changes)
    assert told == {
        "models": [str(tmp_path / "nulls" / f"null-0{i}") for i in (0, 1)],
        "tokens": 24,
    }
    trainings = [
        json.loads((tmp_path / f"nulls/null-0{i}/training.json").read_text()) for i in (0, 1)
    ]
    of_update = json.loads((update / "after/training.json").read_text())
    for training in trainings:
        assert training["model weights at the start"] == of_update["model weights at the start"]
        assert {**training["config"], "seed": 0} == {**of_update["config"], "seed": 0}
    seeds = {training["config"]["seed"] for training in (*trainings, of_update)}
    assert len(seeds) == len({training["data"] for training in (*trainings, of_update)}) == 3

    before = (tmp_path / "nulls/null-01/log.jsonl").read_text()
    assert shell(*words).exit_code == 0
    assert (tmp_path / "nulls/null-01/log.jsonl").read_text() == before  # found again

    run = tmp_path / "run"
    done = shell(
        "diff", update / "before", update / "after", "--null", tmp_path / "nulls", "--out", run
    )
    assert done.finished, (done.stderr, done.exception)
    assert results.load(run).summary["null_searches"] == 2


def test_a_model_that_the_update_did_not_start_from_is_refused(shell, update, tmp_path):
    words = ["null", update / "after", "--text", update / "clean.txt", "--like", update / "after"]
    done = shell(*words, "--count", 1, "--out", tmp_path / "nulls")
    assert done.exit_code == 2
    assert "did not start from the weights of BEFORE" in done.stderr


def test_too_little_text_for_so_many_is_told(shell, update, tmp_path):
    words = ["null", update / "before", "--text", update / "clean.txt", "--like", update / "after"]
    done = shell(*words, "--out", tmp_path / "nulls")
    assert done.exit_code == 2
    assert "or ask for fewer null models" in done.stderr
    assert not (tmp_path / "nulls").exists()


def test_the_form_of_earlier_versions_is_told_the_new_one(shell, update, tmp_path):
    words = ["null", update / "before", update / "after", update / "clean.txt"]
    done = shell(*words, "--out", tmp_path / "nulls")
    assert done.exit_code == 2
    assert "Options that must be given: --like, --text, --out" in done.stderr


def test_how_far_the_nulls_moved_is_said(shell, update, tmp_path):
    words = ["null", update / "before", "--text", update / "clean.txt", "--like", update / "after"]
    done = shell(*words, "--count", 1, "--out", tmp_path / "nulls")
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert "times as far as AFTER did" in done.stderr
