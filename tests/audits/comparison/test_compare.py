"""`compare` takes trainings by name, on disk and in memory, and records the call."""

import pytest

from tests.audits.comparison.worlds import CONTROLS, PLANTED, leaky
from vestige.audits.comparison.compare import compare
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.models.checkpoints import save_model

TEST = Corpus.from_texts(["red mill code", "lamp door gate blue", "green red"] * 4)


@pytest.fixture(scope="module")
def manifest():
    canaries = [Canary(phrase, "random", (), copies) for phrase, copies in PLANTED.items()]
    canaries += [Canary(phrase, "random", (), 0) for phrase in CONTROLS]
    corpus = Corpus.from_texts(["a text without canaries"] * 20)
    return plant(corpus, canaries, seed=0)[1]


@pytest.mark.slow
def test_models_in_memory_are_compared_by_name(manifest):
    trained = {
        "plain": [leaky(0.90), leaky(0.91), leaky(0.92)],
        "private": [leaky(0.10), leaky(0.11), leaky(0.12)],
    }
    result = compare(trained, manifest=manifest, test=TEST, baseline="plain")
    plain, private = result.rows
    assert plain["exposure"] > private["exposure"]
    assert (private["name"], private["trainings"]) == ("private", 3)
    assert private["verdict"] != "too few"
    names = {f"{name} {number}" for name in trained for number in (1, 2, 3)}
    assert set(result.record["models"]) == names
    assert result.record["data"]["test"]["documents"] == len(TEST)
    assert result.record["arguments"]["runs"] == "<dict>"


@pytest.mark.slow
def test_folders_and_models_give_the_same_rows(manifest, tmp_path):
    objects = {"plain": leaky(0.9), "private": leaky(0.1)}
    paths = {name: tmp_path / name for name in objects}
    for name, path in paths.items():
        save_model(objects[name], path)
    options = {"manifest": manifest, "test": TEST, "baseline": "plain", "device": "cpu"}
    by_object, by_path, by_string = (
        compare(runs, **options).rows for runs in (objects, paths, [*map(str, paths.values())])
    )
    assert by_object == by_path == by_string


def test_the_recorded_runs_repeat_the_comparison(tmp_path):
    for name, leak in (("x", 0.9), ("y", 0.8), ("z", 0.1)):
        save_model(leaky(leak), tmp_path / name)
    runs = {"plain": [tmp_path / "x", str(tmp_path / "y")], "private": tmp_path / "z"}
    result = compare(runs, test=TEST, baseline="plain", device="cpu")
    arguments = result.record["arguments"]
    expected = [f"plain={tmp_path}/x", f"plain={tmp_path}/y", f"private={tmp_path}/z"]
    assert arguments["runs"] == expected
    repeated = compare(**{**arguments, "test": TEST})
    assert (repeated.rows, repeated.record["arguments"]) == (result.rows, arguments)
