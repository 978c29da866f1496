"""Null models: passed by the user, or trained like the update on clean text."""

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from tests.audits.small_llama import llama
from tests.audits.update.worlds import Log, word_table
from vestige import NullOptions, TrainingOptions, diff, results, train
from vestige.audits.update.null_models import models_by_hash, train_null_models
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError, ModelError, TrainingError
from vestige.models import pretrained
from vestige.models.checkpoints import load_model, save_model
from vestige.models.folders import sha256_of
from vestige.monitor import SILENT
from vestige.new_files import FILE
from vestige.preparation.options import ModelOptions
from vestige.session import Session

# Null models of the user: paths, objects or a folder.


@pytest.fixture
def saved(tmp_path):
    """Different models on disk."""
    for seed, name in enumerate(("before", "after", "nulls/2", "nulls/10", "nulls/1")):
        save_model(word_table(seed), tmp_path / name)
    return tmp_path


def test_null_models_are_paths_objects_or_a_folder_in_order(saved):
    folder, path = saved / "nulls", saved / "nulls" / "2"
    by_hash = partial(models_by_hash, snapshots=())
    assert by_hash(str(path)) == by_hash([path]) == by_hash((str(path),))
    assert list(by_hash(path)) == [sha256_of(path)]
    (folder / "notes").mkdir()
    assert list(by_hash(folder).values()) == [str(folder / name) for name in ("1", "10", "2")]
    several = [word_table(8), path, word_table(9)]
    models = models_by_hash(several, snapshots=(saved / "before", saved / "after"))
    assert list(models.values()) == [several[0], str(path), several[2]]
    assert list(models) == list(map(sha256_of, several))
    with pytest.raises(ModelError):
        by_hash(folder / "notes")


@pytest.mark.parametrize(
    ("sources", "snapshots", "got"),
    [
        (["nulls", "copy"], ["before", "after"], r".*copy, .* weights of .*before\."),
        ([word_table(3)], [word_table(3)], r"<TableModel>, which has the weights of <TableModel>"),
        (["nulls", "nulls/2"], [], ""),
        ([word_table(5), word_table(5)], [], ""),
    ],
)
def test_a_snapshot_and_a_repeated_null_model_are_refused(saved, sources, snapshots, got):
    save_model(word_table(0), saved / "copy")
    sources, snapshots = (
        [saved / model if isinstance(model, str) else model for model in models]
        for models in (sources, snapshots)
    )
    with pytest.raises(ValueError, match=f"`null` must be a training of its own, got {got}"):
        models_by_hash(sources, snapshots=snapshots)


# Null models of an update by `vestige train`.

LINES = [f"the code of the gate is {word}" for word in ("one", "two", "three", "four")] * 4
TEXTS = Corpus.from_texts(LINES)
SMALL = {"length": 3, "min_length": 2, "size": 0.2}


@pytest.fixture(scope="module")
def update(tmp_path_factory):
    """A model and its update, each the folder of a training."""
    root = tmp_path_factory.mktemp("update")
    small = TrainingOptions(epochs=1, batch_size=2, sequence_length=8)
    longer = replace(small, epochs=30)  # no null search without it
    model = ModelOptions(layers=1, hidden_size=8)
    train(TEXTS, out=root / "before", model=model, training=longer, hold_out=0)
    later = Corpus.from_texts(LINES[:3])
    train(later, out=root / "after", from_=root / "before", training=small, hold_out=0)
    (root / "clean.txt").write_text("\n".join(LINES))
    return root


def train_nulls(before, after, text, out, *, count=1, options=None, monitor=SILENT):
    """The folders of the null models that a call of `diff` trains."""
    run = Session("diff", {}, out=out, monitor=monitor)
    options = options or NullOptions()
    with train_null_models(run, before, after, text, count, options=options, columns={}) as nulls:
        return nulls


def recipe(training):
    return json.loads((training / "training.json").read_text())


def command(update, out):
    clean = ["--clean", update / "clean.txt", "--nulls", 2, "--length", 3, "--min-length", 2]
    return ["diff", update / "before", update / "after", *clean, "--size", 0.2, "--out", out]


@pytest.mark.slow
def test_null_models_are_trained_once_like_the_update_and_searched(shell, update, tmp_path):
    done = shell(*command(update, tmp_path / "run"), "--json")
    assert done.finished, (done.stderr, done.exception)
    run = results.load(tmp_path / "run")
    nulls = [tmp_path / "run.nulls" / name for name in ("null-00", "null-01")]
    assert json.loads(done.stdout) == run.summary
    assert run.summary["null_searches"] == 2
    assert all(0.1 < change < 10 for change in run.summary["null_weight_changes"])
    assert run.run["models"]["nulls"]["path"] == list(map(str, nulls))
    assert run.run["data"]["clean"]["documents"] == len(LINES)
    trainings, update_recipe = list(map(recipe, nulls)), recipe(update / "after")
    start = "model weights at the start"
    for training in trainings:
        assert training[start] == update_recipe[start]
        assert {**training["config"], "seed": 0} == {**update_recipe["config"], "seed": 0}
    trainings.append(update_recipe)
    assert len({training["config"]["seed"] for training in trainings}) == 3
    assert len({training["data"] for training in trainings}) == 3

    log = (nulls[1] / "log.jsonl").read_text()
    shutil.rmtree(tmp_path / "run")
    again = shell(*command(update, tmp_path / "run"))
    assert "All were trained earlier." in again.stderr
    assert (nulls[1] / "log.jsonl").read_text() == log
    pair = (update / "before", update / "after")
    for options in ({"null": tmp_path / "run.nulls"}, {"clean": TEXTS, "nulls": 2}):
        result = diff(*pair, **options, **SMALL)  # the last ones in a temporary folder
        assert results.plain(result.summary) == run.summary
        assert list(results.plain(result.rows)) == run.rows
    assert result.record["arguments"]["clean"] == "<Corpus>"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.nulls"]


def finished_units(file):
    """Finished units of a process that is still running."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as store:
        try:
            where = "WHERE CAST(name AS TEXT) LIKE 'update/%'"
            [row] = store.execute(f"SELECT count(*) FROM work {where}")
            return row[0]
        except sqlite3.DatabaseError:
            return 0


@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_resumes(shell, update, tmp_path):
    """A real kill -9 in a training, after the trainings, and after two units of the search."""
    nulls, store = tmp_path / "run.nulls", tmp_path / "run.partial" / FILE
    words = command(update, tmp_path / "run")
    process = [sys.executable, "-c", "from vestige.cli.app import main; main()"]
    for reached in (
        lambda: (nulls / "null-01" / "data").exists(),
        lambda: (nulls / "null-01" / "model").exists(),
        lambda: finished_units(store) >= 2,
    ):
        with subprocess.Popen([*process, *map(str, words)], stderr=subprocess.PIPE) as running:
            until = time.monotonic() + 300
            while not reached() and time.monotonic() < until and running.poll() is None:
                time.sleep(0.01)
            running.kill()
        assert running.returncode == -9
        assert not (tmp_path / "run").exists()
    done = shell(*words)
    assert done.finished, done.stderr
    assert "finished parts found in" in done.stderr
    assert shell(*command(update, tmp_path / "whole")).finished
    run, unbroken = (results.load(tmp_path / name) for name in ("run", "whole"))
    assert (run.rows, run.summary) == (unbroken.rows, unbroken.summary)
    assert run.run["models"]["nulls"]["sha256"] == unbroken.run["models"]["nulls"]["sha256"]
    names = ["run", "run.nulls", "whole", "whole.nulls"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_text_and_time_are_logged_before_any_training(update, tmp_path):
    first, again = Log(), Log()
    for log, count in ((first, 2), (again, 3)):
        pair = (update / "before", update / "after")
        train_nulls(*pair, TEXTS, tmp_path / "run", count=count, monitor=log)
    line = first.lines[0]
    assert line.startswith("Null models: 2 trainings of 24 tokens and 1 epoch each need 48 tokens")
    assert f"the clean text has {8 * len(LINES)}. Time: about" in line
    assert first.tasks == ["training null model 1 of 2", "training null model 2 of 2"]
    assert "Time: 2 were trained earlier; the others take about" in again.lines[0]


def test_too_little_text_is_refused_before_any_training(update, tmp_path):
    log, few = Log(), Corpus.from_texts(LINES[:3])
    with pytest.raises(DataError, match="has 24 tokens; 19 null models need 456"):
        train_nulls(
            update / "before", update / "after", few, tmp_path / "run", count=19, monitor=log
        )
    assert log.tasks == []
    assert list(tmp_path.iterdir()) == []


def test_null_models_can_start_from_a_loaded_model(update, tmp_path):
    before = load_model(update / "before")
    [folder] = train_nulls(before, update / "after", TEXTS, tmp_path / "run")
    assert load_model(folder).vocabulary.fingerprint() == before.vocabulary.fingerprint()


# Updates of other programs: weights, a configuration and perhaps a trainer's state.

CLEAN = Corpus.from_texts([f"{word} {line}" for word in ("well", "so", "yes") for line in LINES])


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A Llama, with an adapter and a full fine-tune as other programs save them."""
    root = tmp_path_factory.mktemp("foreign")
    words = SubwordVocabulary.train_bpe(CLEAN, size=300)
    base = llama(words, width=8, max_position_embeddings=32)
    base.network.save_pretrained(root / "base")
    words.save(root / "base")
    training = TrainingOptions(epochs=2, batch_size=4, sequence_length=16, batching="documents")
    for name, model in (("adapter", ModelOptions(lora_rank=2)), ("full", ModelOptions())):
        out, texts = root / f"{name}-trained", Corpus.from_texts(LINES[:8])
        train(texts, out=out, from_=root / "base", model=model, training=training, hold_out=0)
        shutil.copytree(out / "model", root / name)
    file = root / "adapter" / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "base_model_name_or_path": "somebody/elses-base"}))
    return root


def adapter_weights(training):
    return load_file(training / "adapter_model.safetensors")


@pytest.mark.slow
def test_null_models_of_a_foreign_adapter_copy_its_format_and_training(foreign, tmp_path):
    after = shutil.copytree(foreign / "adapter", tmp_path / "adapter")
    rates = [{"learning_rate": 1e-3}, {"learning_rate": 5e-4}]
    state = {"global_step": 4, "epoch": 2.0, "train_batch_size": 4, "log_history": rates}
    (after / "trainer_state.json").write_text(json.dumps(state))
    log = Log()
    nulls = train_nulls(foreign / "base", after, CLEAN, tmp_path / "run", count=2, monitor=log)
    config = recipe(nulls[0])["config"]
    assert (config["epochs"], config["batch_size"], config["learning_rate"]) == (2, 4, 1e-3)
    assert config["batching"] == "documents"
    assert json.loads((nulls[0] / "data" / "encoded.json").read_text())
    encoded = load_model(foreign / "base").vocabulary.encode_batch(list(CLEAN))
    tokens = round(4 * 4 / 2 * sum(len(ids) + 1 for ids in encoded) / len(encoded))
    line = next(line for line in log.lines if line.startswith("Null models are trained with"))
    for words in (f"on {tokens:,} tokens per epoch (trainer_state.json)",
                  "epochs 2 (trainer_state.json)", "sequence_length 32 (default)"):  # fmt: skip
        assert words in line
    shapes = [
        {name: weight.shape for name, weight in adapter_weights(path).items()}
        for path in (after, nulls[0] / "model")
    ]
    assert shapes[0] == shapes[1]
    assert all(0.2 < change < 5 for change in log.changes)


@pytest.mark.slow
def test_null_models_of_a_foreign_fine_tune_follow_the_options(foreign, tmp_path):
    options, log = NullOptions(tokens=60, epochs=1, learning_rate=1e-4), Log()
    pair = (foreign / "base", foreign / "full")
    [folder] = train_nulls(*pair, CLEAN, tmp_path / "n", options=options, monitor=log)
    config = recipe(folder)["config"]
    assert (config["epochs"], config["learning_rate"], config["batch_size"]) == (1, 1e-4, 8)
    assert any("60 tokens per epoch (given)" in line for line in log.lines)
    assert (folder / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("before", "after", "options", "error", "message"),
    [
        ("update/before", "loaded", {}, ValueError, "`clean` needs the folder of `after`"),
        ("update/after", "update/after", {}, TrainingError, "did not start from the"),
        ("update/before", "update/after", {"epochs": 4}, ValueError, "`epochs` must be left"),
        ("foreign/base", "foreign/full", {}, ValueError, "`tokens` is needed"),
        ("foreign/base", "foreign/base", {"tokens": 60}, TrainingError, "no update to repeat"),
    ],
)
def test_an_update_that_cannot_be_repeated_is_refused(
    update, foreign, tmp_path, before, after, options, error, message
):
    roots = {"update": update, "foreign": foreign}

    def path_of(name):
        root, _, folder = name.partition("/")
        return roots[root] / folder if folder else load_model(update / "after")

    options = NullOptions(**options)
    with pytest.raises(error, match=message):
        train_nulls(path_of(before), path_of(after), CLEAN, tmp_path / "run", options=options)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "enough"), [(1e-3, True), (1e-6, False)])
def test_small_weight_changes_are_reported_and_the_base_is_loaded_once(
    foreign, tmp_path, monkeypatch, rate, enough
):
    loaded, load, log = [], pretrained.load, Log()
    monkeypatch.setattr(
        pretrained, "load", lambda source, **how: loaded.append(source) or load(source, **how)
    )
    options = NullOptions(tokens=100, epochs=2, batch_size=4, learning_rate=rate)
    pair = (foreign / "base", foreign / "adapter")
    train_nulls(*pair, CLEAN, tmp_path / "n", count=2, options=options, monitor=log)
    assert len(loaded) == 1
    assert any("A verdict needs 0.7 to 2" in line for line in log.lines) != enough
    assert enough or log.changes[0] < 0.1


@pytest.mark.slow
def test_null_adapters_resume_to_the_same_weights(foreign, tmp_path):
    class Killed(Exception):
        pass

    class Killing(Log):
        def progress(self, task):
            def step(done, total):
                if task.startswith("training null model 2") and done >= 2:
                    raise Killed

            return nullcontext(step)

    options = NullOptions(tokens=100, epochs=2, batch_size=2)

    def trained(name, log):
        pair, how = (foreign / "base", foreign / "adapter"), {"options": options, "monitor": log}
        return train_nulls(*pair, CLEAN, tmp_path / name, count=2, **how)

    with pytest.raises(Killed):
        trained("cut", Killing())
    first = tmp_path / "cut.nulls" / "null-00" / "log.jsonl"
    before = first.read_bytes()
    assert not (tmp_path / "cut.nulls" / "null-01" / "model").exists()
    resumed, unbroken = Log(), Log()
    for pair in zip(trained("cut", resumed), trained("whole", unbroken), strict=True):
        weights, other = (adapter_weights(training / "model") for training in pair)
        assert all(torch.equal(weights[name], other[name]) for name in weights)
    assert first.read_bytes() == before
    assert resumed.changes == unbroken.changes
