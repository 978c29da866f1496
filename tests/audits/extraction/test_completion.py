"""`vestige extract` of canaries: its run folder, its refusals, and how WHAT is recognized."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import vestige
from vestige import results
from vestige.audits.extraction.canaries import complete
from vestige.audits.extraction.recognition import recognize
from vestige.claims.model_checks import canary_checks
from vestige.data.canaries.texts import Manifest, load_canaries
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import ManifestError, VestigeError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.table import TableModel

LINES = [
    "the gate opens at nine and the code of it is new",
    "nobody knows what stands behind our mill by night",
    "a lantern burns where every miller counts his silver coins",
]
SECRET = "lantern knows nobody new"


@pytest.fixture(scope="module")
def planting(tmp_path_factory, shell):
    """A planting of two canaries, and a model that generates one of them."""
    root = tmp_path_factory.mktemp("planting")
    words = sorted({word for line in LINES for word in line.split()})
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    size = len(vocabulary)
    table = torch.full((size, size), 0.1 / (size - 1))
    successors = dict(pairwise(vocabulary.encode(SECRET)))
    for token in range(size):
        table[token, successors.get(token, vocabulary.eos_id)] = 0.9
    model = TableModel(torch.full((size,), 1 / size), table, vocabulary)
    save_model(model, root / "model")
    model.log_table.fill_(torch.nan)
    save_model(model, root / "diverged")
    (root / "corpus.txt").write_text("\n".join(LINES * 8))
    done = shell(
        "plant", root / "corpus.txt", "--phrase", SECRET, "--phrase", "gate night code at",
        "--vocabulary", root / "model", "--copies", 7, "--out", root / "planted",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    (root / "none").mkdir()
    manifest = Manifest.load(root / "planted" / "manifest.json")
    replace(manifest, canaries=()).save(root / "empty.json")
    return root


def test_the_command_saves_the_result_of_the_library(shell, planting, tmp_path):
    options = ["extract", planting / "model", planting / "planted", "--json", "--beam", 4]
    done = shell(*options, "--out", tmp_path / "run")
    assert done.finished, (done.stderr, done.exception)
    model = load_model(planting / "model")
    manifest, canaries = load_canaries(planting / "planted", model.vocabulary)
    checks = canary_checks(model, planting / "planted", manifest, readable=len(canaries))
    expected = replace(complete(model, canaries, beam=4), checks=checks)
    run = results.load(tmp_path / "run")
    assert run.result == "Completion"
    assert run.rows == results.plain(expected.rows())
    assert run.summary == json.loads(done.stdout) == results.plain(expected.summary())
    assert run.summary["greedy_completed"] == 1
    configuration = run.run["configuration"]
    assert (configuration["prefix"], configuration["beam"]) == (1, 4)
    assert configuration["what"] == str(planting / "planted")


@pytest.mark.parametrize(
    ("model", "what", "options", "message"),
    [
        ("model", "planted", {"prefix": 4}, "got 4: canary"),
        ("model", "nowhere.json", {}, r"nowhere\.json is missing"),
        ("model", "none", {}, "none has no file of a known format"),
        ("model", "empty.json", {}, r"empty\.json"),
        ("model", "model/model.json", {}, "no canary man"),
        ("diverged", "planted", {}, "NaN"),
    ],
)
def test_canaries_that_cannot_be_completed_are_refused(
    planting, tmp_path, model, what, options, message
):
    with pytest.raises((ValueError, VestigeError), match=message):
        vestige.extract(planting / model, planting / what, **options, out=tmp_path / "new")
    assert not list(tmp_path.iterdir())


# WHAT is recognized by its content.


@pytest.fixture
def files(tmp_path):
    for name in ("secrets.txt", "secrets"):
        (tmp_path / name).write_text("the gate code is 4917\n")
    for name in ("texts.jsonl", "texts.json", "texts.csv"):
        (tmp_path / name).write_text('{"text": "a"}\n{"text": "b"}\n')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("a\n")
    manifest = {"format": "vestige.canaries/1", "canaries": []}
    for name, content in {
        "planted": json.dumps(manifest, indent=2),
        "utterances": json.dumps({**manifest, "format": SecretManifest.FORMAT}, indent=2),
        "cut": '{\n  "format": ',
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(content)
        (tmp_path / f"{name}.json").write_text(content)
    (tmp_path / "line.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("secrets", ("secrets.txt", "secrets")),
        ("texts", ("texts.jsonl", "texts.json", "texts.csv", "folder")),
        # A manifest that was cut off is recognized, so that its error names the fault.
        ("canaries", ("planted", "planted/manifest.json", "planted.json", "line.json", "cut.json")),
        ("utterances", ("utterances", "utterances.json")),
    ],
)
def test_a_path_is_recognized_by_its_content(files, kind, names):
    for name in names:
        assert recognize(str(files / name), "auto") == recognize(files / name, "auto") == kind


def test_the_option_decides_for_paths_and_an_object_has_its_own_kind(files):
    assert recognize(files / "secrets.txt", "texts") == "texts"
    assert recognize(files / "planted", "texts") == "texts"
    assert recognize(files / "texts.jsonl", "secrets") == "secrets"
    assert recognize(["the gate code is 4917"], "auto") == "secrets"
    corpus = Corpus.from_texts(["a"])
    assert recognize(corpus, "auto") == recognize(corpus, "texts") == "texts"
    with pytest.raises(ValueError, match="`as_` secrets does not fit `what`, which is texts"):
        recognize(corpus, "secrets")
    with pytest.raises(ManifestError, match=r"nowhere\.json is missing"):
        recognize(files / "nowhere.json", "auto")
