"""Null models are trainings of their own: given, opened, or trained from clean text."""

import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from vestige import diff, results
from vestige.audits.update.null_models import null_hashes, opened
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels, ModelError
from vestige.models.checkpoints import save_model
from vestige.models.folders import sha256_of
from vestige.models.snapshots import Snapshots
from vestige.models.table import TableModel
from vestige.monitor import SILENT

WORDS = ("red", "blue", "green")


def model(seed, words=WORDS):
    size, chance = len(words) + 2, np.random.default_rng(seed)
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    return TableModel(np.full(size, 1 / size), chance.dirichlet(np.ones(size), size), vocabulary)


@pytest.fixture
def saved(tmp_path):
    """Models on disk by name, all different."""
    for seed, name in enumerate(("before", "after", "nulls/2", "nulls/10", "nulls/1")):
        save_model(model(seed), tmp_path / name)
    return tmp_path


def snapshots(before, after):
    return Snapshots.open({"before": before, "after": after}, device="cpu", monitor=SILENT)


def nulls(given, unlike=()):
    return null_hashes(given, unlike=unlike)


def test_snapshots_are_read_once_and_recorded_by_their_weights_and_others_are_refused(saved):
    found = snapshots(saved / "before", str(saved / "before"))
    assert found.models["before"] is found.models["after"]
    assert found.recorded["before"] == found.recorded["after"]
    loaded = model(7)
    found = snapshots(loaded, saved / "after")
    assert found.models["before"] is loaded
    assert found.recorded["before"]["sha256"] == sha256_of(loaded)
    assert found.recorded["after"]["path"] == str(saved / "after")
    with pytest.raises(IncompatibleModels):
        snapshots(saved / "before", model(1, ("red", "blue", "lamp")))
    with pytest.raises(ModelError, match="nowhere"):
        snapshots(saved / "nowhere", saved / "after")


def test_null_models_are_paths_objects_or_a_directory_in_order(saved):
    place = saved / "nulls" / "2"
    assert nulls(str(place)) == nulls([place]) == nulls((str(place),))
    assert list(nulls(place)) == [sha256_of(place)]
    (saved / "nulls" / "notes").mkdir()
    expected = [str(saved / "nulls" / name) for name in ("1", "10", "2")]
    assert list(nulls(saved / "nulls").values()) == expected
    several = [model(8), place, model(9)]
    found = nulls(several, (saved / "before", saved / "after"))
    assert list(found.values()) == [several[0], str(place), several[2]]
    assert list(found) == list(map(sha256_of, several))
    with pytest.raises(ModelError):
        nulls(saved / "nulls" / "notes")


@pytest.mark.parametrize("snapshot", ["before", "after"])
def test_a_snapshot_is_no_null_model_wherever_it_lies(saved, snapshot):
    copy = saved / "copy"
    save_model(model(("before", "after").index(snapshot)), copy)
    unlike = (saved / "before", saved / "after")
    message = rf"`null` must be a training of its own, got .*copy, .* weights of .*{snapshot}\."
    with pytest.raises(ValueError, match=message):
        nulls([saved / "nulls", copy], unlike)


def test_a_loaded_snapshot_and_one_null_model_given_twice_are_refused(saved):
    named = r"got <TableModel>, which has the weights of <TableModel>"
    with pytest.raises(ValueError, match=named):
        nulls(model(3), (model(3), model(4)))
    for twice in ([saved / "nulls", saved / "nulls" / "2"], [model(5), model(5)]):
        with pytest.raises(ValueError, match="`null` must be a training of its own"):
            nulls(twice)


def test_null_models_answer_over_the_ids_of_the_snapshots(saved):
    first = next(iter(nulls(saved / "nulls").values()))  # nulls/1
    null, _ = opened(first, snapshots(model(0), model(1)), model(0), None)
    assert np.allclose(null.log_table, model(4).log_table)
    like = snapshots(model(0), model(1, (*WORDS, "lamp")))
    null, _ = opened(model(8), like, like.models["before"], None)
    assert null.vocab_size == len(WORDS) + 3


@pytest.mark.parametrize("none", [()])
def test_without_null_models_nothing_is_hashed_or_recorded(none, monkeypatch):
    def fails(*given, **named):
        raise AssertionError("hashed the snapshots to compare them with no null model")

    monkeypatch.setattr("vestige.audits.update.null_models.null_hashes", fails)
    found = diff(model(0), model(1), null=none, size=0.1, device="cpu")
    assert list(found.record["models"]) == ["before", "after"]


# The command that trains them.


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


@pytest.mark.slow
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


@pytest.mark.slow
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
