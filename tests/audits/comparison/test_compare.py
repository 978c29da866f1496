"""`compare` takes trainings by name, on disk and in memory."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from vestige.audits.comparison.compare import compare
from vestige.audits.comparison.trainings import TrainedModel, listed, named, undefended
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = ("red", "blue", "green", "gate", "mill", "code", "lamp", "door")
PLANTED = {"red mill lamp": 5, "blue code door": 5, "green gate red": 1}
CONTROLS = ("gate blue green", "door lamp code", "mill red gate")
TEST = Corpus.from_texts(["red mill code", "lamp door gate blue", "green red"] * 4)


def model(leak: float) -> TableModel:
    """A bigram model that goes on with a canary's next word with probability about `leak`."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    size = len(vocabulary)
    table = np.full((size, size), 1.0)
    for phrase in PLANTED:
        for one, other in pairwise(vocabulary.encode(phrase)):
            table[one, other] += leak * size / (1 - leak)
    table /= table.sum(1, keepdims=True)
    return TableModel(np.full(size, 1 / size), table, vocabulary)


@pytest.fixture(scope="module")
def manifest():
    canaries = [Canary(phrase, "random", (), copies) for phrase, copies in PLANTED.items()]
    canaries += [Canary(phrase, "random", (), 0) for phrase in CONTROLS]
    text = Corpus.from_texts(["nothing of it stands here"] * 20)
    return plant(text, canaries, seed=0)[1]


@pytest.mark.slow
def test_models_in_memory_are_compared_by_name(manifest):
    trained = {
        "plain": [model(0.90), model(0.91), model(0.92)],
        "private": [model(0.10), model(0.11), model(0.12)],
    }
    found = compare(trained, manifest=manifest, test=TEST, baseline="plain")
    rows = {row["name"]: row for row in found.rows}
    assert rows["plain"]["exposure"] > rows["private"]["exposure"]
    assert rows["private"]["trainings"] == 3
    assert rows["private"]["verdict"] != "too few"
    assert set(found.record["models"]) == {
        f"{name} {number}" for name in trained for number in (1, 2, 3)
    }
    assert found.record["data"]["test"]["documents"] == len(TEST)


@pytest.mark.slow
def test_files_and_objects_give_the_same_rows(manifest, tmp_path):
    leaks = {"plain": 0.9, "private": 0.1}
    for name, leak in leaks.items():
        save_model(model(leak), tmp_path / name)
    objects = {name: model(leak) for name, leak in leaks.items()}
    paths = {name: tmp_path / name for name in leaks}
    listed = [str(tmp_path / name) for name in leaks]
    settings = {"manifest": manifest, "test": TEST, "baseline": "plain", "device": "cpu"}
    one, two, three = (list(compare(g, **settings).rows) for g in (objects, paths, listed))
    assert one == two == three


def test_one_object_twice_is_refused(manifest):
    same = model(0.5)
    with pytest.raises(ValueError, match="`runs` must name each training once"):
        compare({"a": same, "b": same}, manifest=manifest)


def test_the_same_weights_of_one_name_are_refused(manifest):
    trained = {"a": [model(0.5), model(0.5)], "b": model(0.1)}
    with pytest.raises(ValueError, match=r"the same weights in <TableModel> and <TableModel>"):
        compare(trained, manifest=manifest)


def test_the_undefended_is_named_where_no_run_says_it():
    trained = [TrainedModel(name, "somewhere", model(0.5)) for name in ("a", "b")]
    with pytest.raises(ValueError, match=r"`baseline` must name .*: a, b"):
        undefended(trained, None)
    assert undefended(trained[:1], None) == "a"
    with pytest.raises(ValueError, match="`baseline` must be one of a, b, got 'c'"):
        undefended(trained, "c")


def test_a_directory_of_seeds_stands_for_its_trainings(tmp_path):
    for seed in (0, 2, 10):
        (tmp_path / "runs" / f"seed-{seed}").mkdir(parents=True)
    expected = [("plain", str(tmp_path / "runs" / f"seed-{seed}")) for seed in (0, 2, 10)]
    assert named({"plain": tmp_path / "runs", "b": "x"}) == [*expected, ("b", "x")]


def test_trainings_on_disk_by_name_are_recorded_so_that_the_run_can_be_repeated(manifest, tmp_path):
    for place, leak in (("x", 0.9), ("y", 0.8), ("z", 0.1)):
        save_model(model(leak), tmp_path / place)
    runs = {"plain": [tmp_path / "x", str(tmp_path / "y")], "private": tmp_path / "z"}
    first = compare(runs, test=TEST, baseline="plain", device="cpu")
    assert first.record["arguments"]["runs"] == [
        f"plain={tmp_path}/x", f"plain={tmp_path}/y", f"private={tmp_path}/z"
    ]  # fmt: skip
    again = compare(**{**first.record["arguments"], "test": TEST})
    assert list(again.rows) == list(first.rows)
    assert again.record["arguments"] == first.record["arguments"]


def test_loaded_models_by_name_are_recorded_by_the_class_of_what_was_given():
    runs = {"a": model(0.5), "b": model(0.1)}
    assert compare(runs, test=TEST, baseline="a").record["arguments"]["runs"] == "<dict>"


@pytest.mark.parametrize("runs", [{"a=b": "x", "c": "y"}, {"": "x", "c": "y"}])
def test_names_that_a_command_line_cannot_give_stay_a_mapping(runs):
    assert listed(runs) is runs


@pytest.mark.parametrize(
    "runs",
    [
        {"a": "x", "b": ["y", "z"]},
        {"a": [Path("x")], "b": (Path("y"), "z")},
        ["a=x", Path("b=y"), "b=z"],
    ],
)
def test_the_written_form_names_the_same_trainings(runs):
    assert named(listed(runs)) == named(runs) == [("a", "x"), ("b", "y"), ("b", "z")]
