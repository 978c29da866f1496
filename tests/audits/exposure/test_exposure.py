"""`vestige exposure` saves what the library finds, says it plainly, and refuses what it must."""

import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from tests.cli.refusals import refused
from vestige import exposure, results
from vestige.audits.exposure.canaries import canary_exposure
from vestige.claims.model_checks import canary_checks
from vestige.data.canaries.texts import Manifest, load_canaries
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import load_model, save_model
from vestige.models.table import TableModel

LINES = [
    "the gate opens at nine and the code of it is new",
    "nobody knows what stands behind our mill by night",
    "a lantern burns where every miller counts his silver coins",
]


WORDS = sorted({word for line in LINES for word in line.split()})


SECRET = "lantern knows nobody new"


@pytest.fixture(scope="module")
def planting(tmp_path_factory, shell):
    """A model that knows one of two canaries, the planting, and variants that do not fit."""
    root = tmp_path_factory.mktemp("planting")
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    size = len(vocabulary)
    follows = torch.rand(size, size, generator=torch.Generator().manual_seed(0)) + 0.5
    for before, after in pairwise(vocabulary.encode(SECRET)):
        follows[before, after] = 400.0
    table = TableModel(torch.full((size,), 1 / size), follows / follows.sum(1, True), vocabulary)
    save_model(table, root / "model")
    smaller = WordVocabulary(tuple(word for word in vocabulary.words if word != "lantern"))
    flat = torch.full((size - 1,), 1 / (size - 1))
    save_model(TableModel(flat, flat.expand(size - 1, size - 1), smaller), root / "smaller")
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
    (root / "said.txt").write_text("lantern knows nobody new\nlantern knows nobody mill\n")
    (root / "said-unknown.txt").write_text("lantern knows nobody new\nlantern knows zebras\n")
    (root / "said-once.txt").write_text("lantern knows nobody new\n\n")
    (root / "said-latin1.txt").write_bytes("caf\u00e9\nmill\n".encode("latin-1"))
    return root


def run_verb(shell, planting, out, *more):
    given = ["exposure", planting / "model", planting / "planted"]
    return shell(*given, "--references", 2000, "--out", out, *more)


def test_the_verb_saves_what_the_library_finds(shell, planting, tmp_path):
    done = run_verb(shell, planting, tmp_path / "run", "--json", "--seed", 3, "--exact", 500)

    assert done.finished, (done.stderr, done.exception)
    model = load_model(planting / "model")
    sealed, canaries = load_canaries(planting / "planted", model.vocabulary)
    found = canary_exposure(model, canaries, seed=3, references=2000, exact_budget=500)
    made = canary_checks(
        model, planting / "planted", sealed, readable=len(canaries), seed=3, useless=None
    )
    found = replace(found, checks=made)
    run = results.load(tmp_path / "run")
    assert run.result == "CanaryExposure"
    assert run.rows == results.plain(found.rows())
    assert run.summary == json.loads(done.stdout) == json.loads(results.to_json(found.summary()))
    assert run.run["seed"] == 3
    configuration = run.run["configuration"]
    assert configuration["secrets"] == str(planting / "planted")
    assert (configuration["references"], configuration["exact"]) == (2000, 500)
    assert configuration["candidates"] is None


@pytest.mark.slow
def test_the_terminal_and_the_page_show_copies_and_controls_and_no_phrase(
    shell, planting, tmp_path
):
    done = run_verb(shell, planting, tmp_path / "a", "--exact", 5000)
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
    assert SECRET in run_verb(shell, planting, tmp_path / "b", "--show-secrets").stdout
    assert shell("report", tmp_path / "a", "--out", tmp_path / "page.html").finished
    page = (tmp_path / "page.html").read_text()
    assert "How exposed are the canaries?" in page
    assert "lantern" not in page


def test_candidates_are_read_one_a_line_and_a_manifest_needs_no_vocabulary(
    shell, planting, tmp_path
):
    said = ("--candidates", planting / "said.txt", "--json")
    found = json.loads(run_verb(shell, planting, tmp_path / "run", *said).stdout)
    assert (found["space"], found["references"]) == ("candidates", 2)
    given = ["exposure", planting / "model", planting / "loose" / "manifest.json"]
    assert shell(*given, "--references", 100, "--out", tmp_path / "loose").finished


# The words after `vestige exposure`, P/ standing for the planting, and what the message names.
CANDIDATES = "P/model P/planted --candidates P/said"
CASES = {
    "directory without one": ("P/model P/none", "manifest.json", "vestige plant"),
    "manifest changed": ("P/model P/changed.json", "changed.json", "Restore"),
    "manifest cut short": ("P/model P/cut.json", "cut.json", "Restore"),
    "manifest of another model": ("P/smaller P/planted", "manifest.json", "Pass the"),
    "words that it lacks": ("P/smaller P/loose", "canary 1", "--vocabulary"),
    "no controls": ("P/model P/no-controls.json", "no-controls.json", "vestige plant"),
    "nothing planted": ("P/model P/no-canaries.json", "no-canaries.json", "plant"),
    "too few references": ("P/model P/planted --references 99", "99", "at least 100"),
    "candidates nowhere": (f"{CANDIDATES}-nowhere.txt", "nowhere.txt", "phrase per line"),
    "candidates not UTF-8": (f"{CANDIDATES}-latin1.txt", "said-latin1.txt", "UTF-8"),
    "one candidate only": (
        f"{CANDIDATES}-once.txt", "said-once.txt: the list of candidates has 1", "one per line",
    ),
    "unknown candidate": (f"{CANDIDATES}-unknown.txt", "unknown.txt: candidate 2", "List only"),
    "exact rank of candidates": (f"{CANDIDATES}.txt --exact 9", "exact_budget", "Change"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("words", "names", "remedy"), CASES.values(), ids=CASES)
def test_bad_input_is_refused(shell, planting, tmp_path, words, names, remedy):
    asked = [word.replace("P/", f"{planting}/", 1) for word in words.split()]
    given = ["exposure", *asked, "--out", tmp_path / "new"]
    refused(shell, given, names, remedy, unchanged=lambda: list(tmp_path.iterdir()))
    assert not list(tmp_path.iterdir())


def test_a_damaged_training_is_said_before_anything_is_written(shell, planting, tmp_path):
    shutil.copytree(planting / "model", tmp_path / "trained" / "model")
    (tmp_path / "trained" / "run").mkdir()
    for name in ("run.json", "summary.json", "rows.parquet"):
        (tmp_path / "trained" / "run" / name).write_text("null")
    words = (planting / "planted", "--out", tmp_path / "run")
    done = shell("exposure", tmp_path / "trained", *words)
    assert done.exit_code == 2
    assert "trained/run" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def codes(planting):
    """Secrets, of which the model knows the first, and a model from before it knew one."""
    (planting / "codes.txt").write_text(
        "lantern knows {{nobody|the|gate|mill}} {{new|his|our|nine}}\n"
        "gate night {{code|mill}} his\n"
    )
    model = load_model(planting / "model")
    size = len(model.vocabulary)
    flat = torch.full((size,), 1 / size)
    save_model(TableModel(flat, flat.expand(size, size), model.vocabulary), planting / "before")
    return planting / "codes.txt"


def test_secrets_are_listed_redacted_and_saved_with_the_words(shell, planting, codes, tmp_path):
    done = shell("exposure", planting / "model", codes, "--out", tmp_path / "run")
    assert done.finished, done.stderr
    assert "Secrets among texts of their format" in done.stdout
    assert "lantern" not in done.stdout + done.stderr
    run = results.load(tmp_path / "run")
    assert run.result == "SecretExposure"
    assert run.rows[0]["phrase"] == SECRET
    assert run.run["configuration"]["secrets"] == str(codes)
    assert run.summary["claim"]["verb"] == "exposure secrets"


def test_a_model_from_before_is_compared_with(shell, planting, codes, tmp_path):
    given = ["exposure", planting / "model", codes, "--before", planting / "before"]
    done = shell(*given, "--out", tmp_path / "run")
    assert done.finished, done.stderr
    run = results.load(tmp_path / "run")
    assert (run.result, run.summary["claim"]["verb"]) == ("SecretRank", "exposure --before")
    assert set(run.run["models"]) == {"before", "after"}
    assert run.rows[0]["gain"] > 3
    page = tmp_path / "page.html"
    assert shell("report", tmp_path / "run", "--out", page).finished
    assert "Did the update reveal these secrets?" in page.read_text()


def test_texts_given_in_python_are_on_no_page_and_in_no_record(planting, codes):
    lines = codes.read_text().splitlines()
    found = exposure(planting / "model", lines, device="cpu")
    assert found.record["arguments"]["secrets"] == "<list>"
    assert "lantern" not in json.dumps(found.record)
    assert "lantern" not in str(found)
