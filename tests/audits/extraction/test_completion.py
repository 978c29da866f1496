"""`vestige extract` of canaries saves what the library finds, and refuses bad input."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from tests.cli.refusals import refused
from vestige import results
from vestige.audits.extraction.canaries import complete
from vestige.audits.extraction.recognition import recognized
from vestige.claims.model_checks import canary_checks
from vestige.data.canaries.texts import Manifest, load_canaries
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, IncompatibleModels, ManifestError
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
    """A model that says one of two canaries, the planting, and variants that do not fit."""
    root = tmp_path_factory.mktemp("planting")
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    follows = torch.full((len(vocabulary), len(vocabulary)), 0.1 / (len(vocabulary) - 1))
    chain = vocabulary.encode(SECRET)
    following = dict(pairwise(chain))
    for token in range(len(vocabulary)):
        follows[token, following.get(token, vocabulary.eos_id)] = 0.9
    start = torch.full((len(vocabulary),), 1 / len(vocabulary))
    save_model(TableModel(start, follows, vocabulary), root / "model")
    smaller = WordVocabulary(tuple(word for word in vocabulary.words if word != "lantern"))
    size = len(smaller)
    flat = torch.full((size,), 1 / size)
    save_model(TableModel(flat, flat.expand(size, size), smaller), root / "smaller")
    diverged = TableModel(start, follows, vocabulary)
    diverged.log_table.fill_(torch.nan)
    save_model(diverged, root / "diverged")
    (root / "corpus.txt").write_text("\n".join(LINES * 8))
    plant = [
        "plant",
        root / "corpus.txt",
        "--phrase",
        SECRET,
        "--phrase",
        "gate night code at",
    ]
    for name, more in [("planted", ["--vocabulary", root / "model"]), ("loose", [])]:
        done = shell(*plant, *more, "--copies", 7, "--out", root / name)
        assert done.exit_code == 0, done.stderr
    content = (root / "planted" / "manifest.json").read_text()
    (root / "changed.json").write_text(content.replace("lantern", "lamp"))
    (root / "cut.json").write_text(content[:-20])
    (root / "none").mkdir()
    sealed = Manifest.load(root / "planted" / "manifest.json")
    replace(sealed, canaries=()).save(root / "empty.json")
    return root


def run_verb(shell, planting, out, *more):
    given = ["extract", planting / "model", planting / "planted"]
    return shell(*given, "--out", out, *more)


def test_the_verb_saves_what_the_library_finds(shell, planting, tmp_path):
    done = run_verb(shell, planting, tmp_path / "run", "--json", "--beam", 4)

    assert done.finished, (done.stderr, done.exception)
    model = load_model(planting / "model")
    sealed, canaries = load_canaries(planting / "planted", model.vocabulary)
    checks = canary_checks(model, planting / "planted", sealed, readable=len(canaries))
    found = replace(complete(model, canaries, beam=4), checks=checks)
    run = results.load(tmp_path / "run")
    assert run.result == "Completion"
    assert run.rows == results.plain(found.rows())
    assert run.summary == json.loads(done.stdout) == results.plain(found.summary())
    assert run.summary["greedy_completed"] == 1
    configuration = run.run["configuration"]
    assert (configuration["prefix"], configuration["beam"]) == (1, 4)
    assert configuration["what"] == str(planting / "planted")


def test_the_terminal_and_the_page_say_the_rate_and_withhold_the_phrases(shell, planting, tmp_path):
    hidden = run_verb(shell, planting, tmp_path / "a")
    first, second, third = hidden.stdout.splitlines()[:3]
    assert first == "UNDECIDED  Given 1 token, greedy decoding completes 1 of 2 canaries."
    assert "Completed share of planted canaries: 50% (95% CI 1.26% to 98.7%)" in second
    assert third == "Controls: 0 of 2 never planted and 0 of 2 in another order."
    assert re.search(r"\n *7 +2 +50% +1\.3 to 98\.7%", hidden.stdout)
    assert "▪▪▪ ▪▪▪" in hidden.stdout
    assert not [word for word in SECRET.split() if word in hidden.stdout]
    assert SECRET in run_verb(shell, planting, tmp_path / "b", "--show-secrets").stdout
    assert shell("report", tmp_path / "a", "--out", tmp_path / "page.html").finished
    page = (tmp_path / "page.html").read_text()
    assert "completes 1 of 2 canaries" in page
    assert "lantern knows" not in page


def test_canaries_of_no_vocabulary_are_read_with_the_models(planting):
    model = load_model(planting / "model")
    _, known = load_canaries(planting / "planted", model.vocabulary)
    _, loose = load_canaries(planting / "loose", model.vocabulary)
    assert [one.ids for one in loose][:2] == [one.ids for one in known][:2]
    assert loose[0].ids == tuple(model.vocabulary.encode(SECRET))


def test_an_unknown_word_is_told_by_the_canarys_number_and_not_by_itself(planting):
    model = load_model(planting / "smaller")
    with pytest.raises(DataError, match=r"canary 1 of .* lacks: 1 of 4") as error:
        load_canaries(planting / "loose", model.vocabulary)
    assert "lantern" not in str(error.value)
    with pytest.raises(IncompatibleModels, match="another vocabulary"):
        load_canaries(planting / "planted", model.vocabulary)


# The words after `vestige extract`, P/ standing for the planting, and what the message names.
CASES = {
    "prefix as long as the canary": ("P/model P/planted --prefix 4", "got 4", "Change"),
    "manifest nowhere": ("P/model P/nowhere.json", "nowhere.json", "vestige plant"),
    "a folder without one": ("P/model P/none", "none has no file of a known format", "Pass"),
    "manifest changed": ("P/model P/changed.json", "was changed after it was written", "Restore"),
    "manifest cut short": ("P/model P/cut.json", "cut.json", "Restore"),
    "manifest without canaries": ("P/model P/empty.json", "empty.json", "plant"),
    "manifest of another model": ("P/smaller P/planted", "another vocabulary", "Pass"),
    "words that it lacks": ("P/smaller P/loose", "canary 1", "--vocabulary"),
    "a model as manifest": ("P/model P/model/model.json", "no canary man", "Restore"),
    "a model of no numbers": ("P/diverged P/planted", "NaN", "train again"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "names", "remedy"), CASES.values(), ids=CASES)
def test_bad_input_is_refused(shell, planting, tmp_path, words, names, remedy):
    asked = [word.replace("P/", f"{planting}/", 1) for word in words.split()]
    given = ["extract", *asked, "--out", tmp_path / "new"]
    refused(shell, given, names, remedy, unchanged=lambda: list(tmp_path.iterdir()))
    assert not list(tmp_path.iterdir())


# WHAT is recognized by its content; `as_` decides where it is given.


MANIFEST = {"format": "vestige.canaries/1", "canaries": []}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "secrets.txt").write_text("the gate code is 4917\n")
    (tmp_path / "secrets").write_text("the gate code is 4917\n")
    for name in ("texts.jsonl", "texts.json", "texts.csv"):
        (tmp_path / name).write_text('{"text": "a"}\n{"text": "b"}\n')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("a\n")
    for name, content in {
        "planted": MANIFEST,
        "spoken": {**MANIFEST, "format": SecretManifest.FORMAT},
        "cut": None,
    }.items():
        (tmp_path / name).mkdir()
        text = '{\n  "format": ' if content is None else json.dumps(content, indent=2)
        (tmp_path / name / "manifest.json").write_text(text)
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "line.json").write_text(json.dumps(MANIFEST))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("secrets.txt", "secrets"),
        ("secrets", "secrets"),
        ("texts.jsonl", "texts"),
        ("texts.json", "texts"),
        ("texts.csv", "texts"),
        ("folder", "texts"),
        ("planted", "canaries"),
        ("planted/manifest.json", "canaries"),
        ("planted.json", "canaries"),
        ("line.json", "canaries"),
        ("cut.json", "canaries"),  # whose error names what is wrong
        ("spoken", "utterances"),
        ("spoken.json", "utterances"),
    ],
)
def test_a_path_is_recognized_by_what_is_there(files, name, kind):
    assert recognized(str(files / name), "auto") == kind
    assert recognized(files / name, "auto") == kind


def test_the_option_decides_for_a_path_or_a_list_and_an_object_is_what_it_is(files):
    assert recognized(files / "secrets.txt", "texts") == "texts"
    assert recognized(files / "planted", "texts") == "texts"
    assert recognized(files / "texts.jsonl", "secrets") == "secrets"
    assert recognized(["the gate code is 4917"], "auto") == "secrets"
    corpus = Corpus.from_texts(["a"])
    assert recognized(corpus, "auto") == recognized(corpus, "texts") == "texts"
    with pytest.raises(ValueError, match="`as_` secrets does not fit `what`, which is texts"):
        recognized(corpus, "secrets")
    with pytest.raises(ManifestError, match=r"nowhere\.json is missing"):
        recognized(files / "nowhere.json", "auto")
