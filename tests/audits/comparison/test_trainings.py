"""Trainings by name, their runs, and the text and users that they share."""

from pathlib import Path

import pytest

from tests.audits.comparison.worlds import leaky, model, text, training
from vestige.audits.comparison.trainings import (
    TrainedModel,
    as_arguments,
    load_trainings,
    named,
    undefended,
    user_samples,
    utility_text,
)
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode


@pytest.fixture
def trained(tmp_path):
    plain = training(tmp_path / "plain", 0)
    gold = training(tmp_path / "gold", 1, defence="goldfish")
    return load_trainings([str(plain), str(gold)], device="cpu")


def encoded(corpus):
    return encode(corpus, model().vocabulary)


# Names.


def test_names_come_from_folders_or_the_part_before_the_equals_sign(tmp_path, monkeypatch):
    plain = str(tmp_path / "plain")
    assert named(["gold=x", plain, "gold=y"]) == [("gold", "x"), ("gold", "y"), ("plain", plain)]
    folders = [tmp_path / "runs" / f"seed-{seed}" for seed in (0, 2, 10)]
    for folder in folders:
        folder.mkdir(parents=True)
    expected = [("plain", str(folder)) for folder in folders]
    assert named({"plain": tmp_path / "runs", "b": "x"}) == [*expected, ("b", "x")]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()  # an existing path with an equals sign
    assert named(["a=b", "c=d"]) == [("a=b", "a=b"), ("c", "d")]


@pytest.mark.parametrize(
    "runs",
    [
        {"a": "x", "b": ["y", "z"]},
        {"a": [Path("x")], "b": (Path("y"), "z")},
        ["a=x", Path("b=y"), "b=z"],
    ],
)
def test_recorded_arguments_name_the_same_trainings(runs):
    assert named(as_arguments(runs)) == named(runs) == [("a", "x"), ("b", "y"), ("b", "z")]


@pytest.mark.parametrize("runs", [{"a=b": "x", "c": "y"}, {"": "x", "c": "y"}])
def test_names_without_a_command_line_form_stay_a_mapping(runs):
    assert as_arguments(runs) is runs


MODEL = model()


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ({"a": ["x", "y"]}, "`runs` must name at least two trainings"),
        ({"a": "one", "b": "other/../one"}, "`runs` must name each training once"),
        ({"a": MODEL, "b": MODEL}, "`runs` must name each training once"),
        ({"a": [leaky(0.5), leaky(0.5)], "b": model()}, r"same weights in <Table.* and <Table"),
    ],
)
def test_indistinguishable_trainings_are_refused(tmp_path, monkeypatch, runs, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=message):
        load_trainings(runs, device="cpu")


def test_trainings_of_one_name_differ_only_in_their_seed(tmp_path):
    private = {"defence": "dp-sgd", "noise_multiplier": 1.0}
    paths = [training(tmp_path / "one", 0, **private), training(tmp_path / "two", 1)]
    with pytest.raises(ValueError, match="differ in their seed alone, got defence"):
        load_trainings({"a": paths, "b": training(tmp_path / "three", 2)}, device="cpu")


# Runs.


def test_defence_and_settings_are_read_from_the_run(trained):
    plain, gold = trained
    assert (plain.defence, gold.defence) == ("none", "goldfish")
    assert plain.settings() == {"epochs": 4, "defence": "none"}
    assert plain.validation_sha256 == text(1).fingerprint()
    loaded = TrainedModel("a", model(), model())
    assert loaded.encoded("training") is loaded.validation_sha256 is None
    assert loaded.summary == {}
    assert (loaded.where, loaded.settings()) == ("<TableModel>", {"defence": "none"})


def test_the_baseline_is_named_or_is_the_only_undefended_training(trained, tmp_path):
    assert undefended(trained, None) == "plain"
    assert undefended([*trained, TrainedModel("plain", "x", model())], None) == "plain"
    several = [TrainedModel(name, "somewhere", model()) for name in ("a", "b")]
    with pytest.raises(ValueError, match=r"`baseline` must name .*: a, b"):
        undefended(several, None)
    with pytest.raises(ValueError, match="`baseline` must be one of a, b, got 'c'"):
        undefended(several, "c")


# The shared text and users.


def test_utility_text_is_the_test_or_the_common_validation_text(trained, tmp_path):
    notes = []
    assert len(utility_text(trained, None, notes)) == len(text())
    assert "also decided which weights were kept" in notes[0]
    assert len(utility_text(trained, Corpus.from_texts(["red mill", "blue"]), notes)) == 2
    assert len(notes) == 1


@pytest.mark.parametrize("reason", ["other text", "no file"])
def test_different_or_missing_validation_texts_are_not_used(trained, tmp_path, reason):
    if reason == "other text":
        path = training(tmp_path / "other", 2, validation_seed=2, defence="goldfish")
        trained += load_trainings({"a": path, "b": tmp_path / "plain"}, device="cpu")
    else:
        for file in (tmp_path / "plain" / "data").glob("validation*"):
            file.rename(tmp_path / "gone")
        assert trained[0].encoded("validation") is None
    notes = []
    assert utility_text(trained, None, notes) is None
    assert "give --test" in notes[0]


def test_samples_of_users_are_counted_in_the_training_text(trained):
    notes, other_users = [], Corpus.from_texts(["red", "blue"], users=["eve", "ann"])
    for corpus, expected in ((text(3), {"ann": 6, "bob": 3}), (other_users, {"eve": 0, "ann": 6})):
        test = encoded(corpus)
        samples = user_samples(trained, "gold", test, notes)
        assert dict(zip(test.names, samples.tolist(), strict=True)) == expected
    assert user_samples(trained, "plain", None, notes) is None
    assert notes == []
    assert user_samples(trained, "plain", encoded(text(users=False)), notes) is None
    assert "the test text has no users" in notes[0]


def test_trainings_without_users_have_no_samples(tmp_path):
    paths = {name: training(tmp_path / name, n, users=False) for n, name in enumerate("ab")}
    trainings, notes = load_trainings(paths, device="cpu"), []
    assert user_samples(trainings, "a", encoded(text(3)), notes) is None
    assert "no training recorded users" in notes[0]
