"""`vestige exposure` saves what the library finds, withholds secrets, and refuses bad input."""

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
    "nobody knows what stands behind our mill by night",
    "a lantern burns where every miller counts his silver coins",
]
SECRET = "lantern knows nobody new"
CODES = (
    "lantern knows {{nobody|the|gate|mill}} {{new|his|our|nine}}\ngate night {{code|mill}} his\n"
)


@pytest.fixture(scope="module")
def planting(tmp_path_factory, shell):
    """A model that knows one of two canaries, one that knows nothing, and the planting."""
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
    for name, kept in [("no-controls", True), ("no-canaries", False)]:
        chosen = tuple(canary for canary in sealed.canaries if canary.planted is kept)
        replace(sealed, canaries=chosen).save(root / f"{name}.json")
    (root / "codes.txt").write_text(CODES)
    (root / "known.txt").write_text("lantern knows nobody new\nlantern knows nobody mill\n")
    (root / "unknown.txt").write_text("lantern knows nobody new\nlantern knows zebras\n")
    (root / "once.txt").write_text("lantern knows nobody new\n\n")
    return root


# Canaries.


def test_the_verb_saves_what_the_library_finds(shell, planting, tmp_path):
    given = ["exposure", planting / "model", planting / "planted", "--references", 2000]
    more = ("--seed", 3, "--exact", 500, "--json", "--out", tmp_path / "run")
    done = shell(*given, *more)
    assert done.finished, (done.stderr, done.exception)
    model = load_model(planting / "model")
    sealed, canaries = load_canaries(planting / "planted", model.vocabulary)
    found = canary_exposure(model, canaries, seed=3, references=2000, exact_budget=500)
    checks = canary_checks(
        model, planting / "planted", sealed, readable=len(canaries), seed=3, useless=None
    )
    found = replace(found, checks=checks)
    run = results.load(tmp_path / "run")
    assert run.result == "CanaryExposure"
    assert run.rows == results.plain(found.rows())
    assert run.summary == json.loads(done.stdout) == json.loads(results.to_json(found.summary()))
    assert run.run["seed"] == 3
    configuration = run.run["configuration"]
    assert configuration["secrets"] == str(planting / "planted")
    assert (configuration["references"], configuration["exact"]) == (2000, 500)
    assert configuration["candidates"] is None


def test_the_terminal_has_copies_controls_and_exact_ranks(shell, planting, tmp_path):
    given = ["exposure", planting / "model", planting / "planted", "--references", 2000]
    done = shell(*given, "--exact", 5000, "--out", tmp_path / "run")
    first, second, third = done.stdout.splitlines()[:3]
    assert first.startswith(
        "UNDECIDED  2 canaries can be tested with 8 controls or more; there are 2"
    )
    assert second.startswith("Median exposure of planted canaries")
    assert third.startswith("Median exposure of 2 controls: ")
    assert "never planted" in done.stdout
    assert re.search(r"Exact ranks: .* of 2 decided", done.stdout)
    assert "1 of 2 planted canaries are more probable than all 2,000 references" in done.stderr
    assert "▪▪▪ ▪▪▪" in done.stdout
    assert not [word for word in ("lantern", "nobody") if word in done.stdout]


def test_a_manifest_needs_no_vocabulary(planting):
    found = exposure(planting / "model", planting / "loose" / "manifest.json", references=100)
    assert found.summary["references"] == 100


@pytest.mark.parametrize(
    ("secrets", "more", "message"),
    [
        ("none", {}, r"manifest\.json is missing"),
        ("changed.json", {}, r"changed\.json was changed"),
        ("cut.json", {}, r"cut\.json"),
        ("no-controls.json", {}, r"no-controls\.json.* no control"),
        ("no-canaries.json", {}, r"no-canaries\.json"),
        ("planted", {"references": 99}, "at least 100"),
        ("planted", {"candidates": "nowhere.txt"}, r"nowhere\.txt"),
        ("planted", {"candidates": "once.txt"}, r"once\.txt: the list of candidates has 1"),
        ("planted", {"candidates": "unknown.txt"}, r"unknown\.txt: candidate 2"),
        ("planted", {"candidates": "known.txt", "exact": 9}, "exact_budget"),
    ],
)
def test_canaries_that_cannot_be_measured_are_refused(planting, tmp_path, secrets, more, message):
    if "candidates" in more:
        more = {**more, "candidates": planting / more["candidates"]}
    with pytest.raises((ValueError, VestigeError), match=message):
        exposure(planting / "model", planting / secrets, **more, out=tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_a_damaged_training_is_refused_before_anything_is_written(planting, tmp_path):
    shutil.copytree(planting / "model", tmp_path / "trained" / "model")
    (tmp_path / "trained" / "run").mkdir()
    for name in ("run.json", "summary.json", "rows.parquet"):
        (tmp_path / "trained" / "run" / name).write_text("null")
    with pytest.raises(VestigeError, match="trained/run"):
        exposure(tmp_path / "trained", planting / "planted", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Secrets.


def test_secrets_are_listed_redacted_and_saved_with_the_words(shell, planting, tmp_path):
    done = shell("exposure", planting / "model", planting / "codes.txt", "--out", tmp_path / "run")
    assert done.finished, done.stderr
    assert "Secrets among texts of their format" in done.stdout
    assert "lantern" not in done.stdout + done.stderr
    run = results.load(tmp_path / "run")
    assert run.result == "SecretExposure"
    assert run.rows[0]["phrase"] == SECRET
    assert run.run["configuration"]["secrets"] == str(planting / "codes.txt")
    assert run.summary["claim"]["verb"] == "exposure secrets"


def test_a_model_from_before_is_compared_with(shell, planting, tmp_path):
    given = ["exposure", planting / "model", planting / "codes.txt", "--before"]
    done = shell(*given, planting / "before", "--out", tmp_path / "run")
    assert done.finished, done.stderr
    run = results.load(tmp_path / "run")
    assert (run.result, run.summary["claim"]["verb"]) == ("SecretRank", "exposure --before")
    assert set(run.run["models"]) == {"before", "after"}
    assert run.rows[0]["gain"] > 3
    page = tmp_path / "page.html"
    assert shell("report", tmp_path / "run", "--out", page).finished
    assert "Did the update reveal these secrets?" in page.read_text()


def test_texts_given_in_python_are_in_no_record(planting):
    found = exposure(planting / "model", CODES.splitlines(), device="cpu")
    assert found.record["arguments"]["secrets"] == "<list>"
    assert "lantern" not in json.dumps(found.record)
    assert "lantern" not in str(found)
