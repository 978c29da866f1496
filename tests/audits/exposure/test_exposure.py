"""`vestige exposure` end to end: saved results, redaction and refusals."""

import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from vestige import exposure, results
from vestige.audits.exposure.canaries import canary_exposure
from vestige.claims.model_checks import canary_checks
from vestige.data.canaries.texts import Manifest, load_canaries
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import VestigeError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.table import TableModel

LINES = [
    "the gate opens at nine and the code of it is new",
    "nobody knows what stays behind our mill by night",
    "a lantern burns where every miller counts his silver coins",
]
SECRET = "lantern knows nobody new"
CODES = (
    "lantern knows {{nobody|the|gate|mill}} {{new|his|our|nine}}\ngate night {{code|mill}} his\n"
)


@pytest.fixture(scope="module")
def planting(tmp_path_factory, shell):
    """A model that knows one of two canaries, one that knows neither, and the planting."""
    root = tmp_path_factory.mktemp("planting")
    words = sorted({word for line in LINES for word in line.split()})
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    size = len(vocabulary)
    follows = torch.rand(size, size, generator=torch.Generator().manual_seed(0)) + 0.5
    for before, after in pairwise(vocabulary.encode(SECRET)):
        follows[before, after] = 400.0
    flat = torch.full((size,), 1 / size)
    save_model(TableModel(flat, follows / follows.sum(1, True), vocabulary), root / "model")
    save_model(TableModel(flat, flat.expand(size, size), vocabulary), root / "before")
    (root / "corpus.txt").write_text("\n".join(LINES * 8))
    plant = ["plant", root / "corpus.txt", "--phrase", SECRET, "--phrase", "gate night code his"]
    for name, more in [("planted", ["--vocabulary", root / "model"]), ("loose", [])]:
        done = shell(*plant, *more, "--copies", 7, "--out", root / name)
        assert done.exit_code == 0, done.stderr
    content = (root / "planted" / "manifest.json").read_text()
    (root / "changed.json").write_text(content.replace("lantern", "lamp"))
    (root / "cut.json").write_text(content[:-20])
    (root / "none").mkdir()
    sealed = Manifest.load(root / "planted" / "manifest.json")
    for name, planted in [("no-controls", True), ("no-canaries", False)]:
        canaries = tuple(canary for canary in sealed.canaries if canary.planted is planted)
        replace(sealed, canaries=canaries).save(root / f"{name}.json")
    (root / "codes.txt").write_text(CODES)
    (root / "unknown.txt").write_text("lantern knows nobody new\nlantern knows zebras\n")
    (root / "once.txt").write_text("lantern knows nobody new\n\n")
    return root


# Canaries.


def test_the_verb_saves_the_result_of_the_library(shell, planting, tmp_path):
    words = ("exposure", planting / "model", planting / "planted", "--references", 2000)
    done = shell(*words, "--seed", 3, "--exact", 500, "--out", tmp_path / "run")
    assert done.finished, (done.stderr, done.exception)
    model = load_model(planting / "model")
    sealed, canaries = load_canaries(planting / "planted", model.vocabulary)
    checks = canary_checks(
        model, planting / "planted", sealed, readable=len(canaries), seed=3, useless=None
    )
    expected = replace(
        canary_exposure(model, canaries, seed=3, references=2000, exact_budget=500), checks=checks
    )
    run = results.load(tmp_path / "run")
    assert run.result == "CanaryExposure"
    assert run.rows == results.plain(expected.rows())
    assert run.summary == json.loads(results.to_json(expected.summary()))
    configuration = run.run["configuration"]
    assert configuration["secrets"] == str(planting / "planted")
    assert (configuration["references"], configuration["exact"]) == (2000, 500)
    assert (configuration["candidates"], run.run["seed"]) == (None, 3)
    first, second, third = done.stdout.splitlines()[:3]
    assert first.startswith("UNDECIDED  2 canaries can be tested with 8 controls or more")
    assert second.startswith("Median exposure of planted canaries")
    assert third.startswith("Median exposure of 2 controls: ")
    assert re.search(r"Exact ranks: .* of 2 decided", done.stdout)
    assert "1 of 2 planted canaries are more probable than all 2,000" in done.stderr
    assert not [word for word in ("lantern", "nobody") if word in done.stdout]


def test_a_manifest_needs_no_vocabulary(planting):
    result = exposure(planting / "model", planting / "loose" / "manifest.json", references=100)
    assert result.summary["references"] == 100


@pytest.mark.parametrize(
    ("secrets", "candidates", "message"),
    [
        ("none", None, r"manifest\.json is missing"),
        ("changed.json", None, r"changed\.json was changed"),
        ("cut.json", None, r"cut\.json"),
        ("no-controls.json", None, r"no-controls\.json.* no control"),
        ("no-canaries.json", None, r"no-canaries\.json"),
        ("planted", "nowhere.txt", r"nowhere\.txt"),
        ("planted", "once.txt", r"once\.txt: the list of candidates has 1"),
        ("planted", "unknown.txt", r"unknown\.txt: candidate 2"),
    ],
)
def test_a_file_that_cannot_be_measured_is_named(planting, tmp_path, secrets, candidates, message):
    candidates = candidates and planting / candidates
    with pytest.raises((ValueError, VestigeError), match=message):
        exposure(planting / "model", planting / secrets, candidates=candidates, out=tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_too_few_references_are_refused(planting):
    with pytest.raises(ValueError, match="references must be at least 100"):
        exposure(planting / "model", planting / "planted", references=99)


def test_a_damaged_training_is_refused_before_anything_is_written(planting, tmp_path):
    shutil.copytree(planting / "model", tmp_path / "trained" / "model")
    (tmp_path / "trained" / "run").mkdir()
    for name in ("run.json", "summary.json", "rows.parquet"):
        (tmp_path / "trained" / "run" / name).write_text("null")
    with pytest.raises(VestigeError, match="trained/run"):
        exposure(tmp_path / "trained", planting / "planted", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Secrets.


def test_an_update_is_compared_with_the_model_before(shell, planting, tmp_path):
    words = ("exposure", planting / "model", planting / "codes.txt")
    done = shell(*words, "--before", planting / "before", "--out", tmp_path / "run")
    assert done.finished, done.stderr
    run = results.load(tmp_path / "run")
    assert (run.result, run.summary["claim"]["verb"]) == ("SecretRank", "exposure --before")
    assert set(run.run["models"]) == {"before", "after"}
    assert run.rows[0]["gain"] > 3
    page = tmp_path / "page.html"
    assert shell("report", tmp_path / "run", "--out", page).finished
    assert "Did the update reveal these secrets?" in page.read_text()


def test_secrets_passed_in_python_are_in_no_record(planting):
    result = exposure(planting / "model", CODES.splitlines(), device="cpu")
    assert result.record["arguments"]["secrets"] == "<list>"
    assert "lantern" not in json.dumps(result.record)
    assert "lantern" not in str(result)
