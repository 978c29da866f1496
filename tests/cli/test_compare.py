"""`vestige compare` on directories of `vestige train`."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest

from tests.cli.refusals import refused, table
from vestige import results
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel
from vestige.reports.page import render

WORDS = ("red", "blue", "green", "gate", "mill", "code", "lamp", "door")
PLANTED = {"red mill lamp": 5, "blue code door": 5, "green gate red": 1, "lamp door mill": 1}
CONTROLS = ("gate blue green", "door lamp code", "mill red gate")
PLAIN_TEXT = Corpus.from_texts(["nothing of it stands here"] * 20, users=["ann"] * 20)
HOSTILE = "<script>alert(1)</script>"


class TrainingHistory:
    """What a training says of itself."""

    def __init__(self, **summary):
        self._summary = {
            "epoch": 4.0, "step": 400, "steps": 400, "tokens": 9000, "seconds": 8.0,
            "peak_memory_mib": 50.0, **summary,
        }  # fmt: skip

    def summary(self):
        return self._summary

    def rows(self):
        return [{"epoch": 4.0}]


def model(leak: float, words=WORDS) -> TableModel:
    """A bigram model that goes on with a canary's next word with probability about `leak`."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    size = len(vocabulary)
    table = np.full((size, size), 1.0)
    for phrase in PLANTED:
        ids = vocabulary.encode(phrase)
        for one, other in pairwise(ids):
            table[one, other] += leak * size / (1 - leak)
    table /= table.sum(1, keepdims=True)
    return TableModel(np.full(size, 1 / size), table, vocabulary)


def corpus(users=True, seed=0) -> Corpus:
    """Documents of twelve users, of whom user u wrote 2 + u."""
    chance = np.random.default_rng(seed)
    owners = [f"user{u:02}" for u in range(12) for _ in range(2 + u)]
    texts = [" ".join(chance.choice(WORDS, 6)) for _ in owners]
    return Corpus.from_texts(texts, users=owners if users else None)


def training(where, leak, *, users=True, words=WORDS, **summary):
    """A directory as `vestige train` leaves it."""
    network = model(leak, words)
    save_model(network, where / "model")
    encode(corpus(users), network.vocabulary, where / "data" / "training")
    held = corpus(users, seed=1)
    encode(held, network.vocabulary, where / "data" / "validation")
    data = {"validation": {"sha256": held.fingerprint()}}
    results.save(TrainingHistory(**summary), where / "run", run={"data": data})
    return where


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Sound trainings, and such as have something wrong with them."""
    root = tmp_path_factory.mktemp("runs")
    training(root / "plain", 0.9)
    training(root / "gold", 0.1, defence="goldfish", tokens=11250)
    claim = {"epsilon": 4.93, "delta": 1e-5, "unit": "sequence"}
    training(root / "dp", 0.05, defence="dp-sgd", **claim)
    shutil.copytree(root / "plain", root / "copy")
    training(root / "other-words", 0.5, words=(*WORDS[:-1], "window"))
    training(root / "no-users", 0.9, users=False)
    training(root / "again", 0.1, users=False, defence="goldfish")
    shutil.copytree(root / "plain", root / "no-model")
    shutil.rmtree(root / "no-model" / "model")
    shutil.copytree(root / "plain", root / "broken-run")
    (root / "broken-run" / "run" / "summary.json").write_text("{")
    save_model(model(0.4), root / "bare")
    canaries = [Canary(phrase, "random", (), copies) for phrase, copies in PLANTED.items()]
    canaries += [Canary(phrase, "random", (), 0) for phrase in CONTROLS]
    _manifest(root / "planted", canaries)
    _manifest(root / "unknown", [Canary("purple window frame", "random", (), 3)])
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS[::-1]))
    _manifest(root / "foreign", canaries, vocabulary)
    _manifest(root / "no-control", canaries[:4])
    (root / "changed").mkdir()
    sealed = (root / "planted" / "manifest.json").read_text()
    (root / "changed" / "manifest.json").write_text(sealed.replace("red mill", "red gate"))
    _table(root / "test.jsonl", corpus(seed=2))
    (root / "file").write_text("not a directory")
    return root


def _manifest(where, canaries, vocabulary=None):
    where.mkdir()
    _, record = plant(PLAIN_TEXT, canaries, seed=0, user="planted", vocabulary=vocabulary)
    record.save(where / "manifest.json")


def _table(path, documents):
    rows = zip(documents, documents.users, strict=True)
    lines = [json.dumps({"text": text, "author": user}) for text, user in rows]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def compared(runs, shell, tmp_path_factory):
    """A comparison of three trainings with everything in it."""
    out = tmp_path_factory.mktemp("compared") / "comparison"
    words = ["compare", runs / "plain", f"{HOSTILE}={runs / 'gold'}", runs / "dp"]
    words += ["--manifest", runs / "planted", "--test", runs / "test.jsonl", "--user", "author"]
    done = shell(*words, "--group", 3, "--out", out)
    assert done.finished, (done.stderr, done.exception)
    return done, out


def test_the_rows_of_a_comparison_have_all_measures(compared):
    run = results.load(compared[1])
    assert run.result == "DefenceComparison"
    assert run.run["configuration"]["baseline"] == "plain"
    assert set(run.run["models"]) == {"plain", HOSTILE, "dp"}
    rows = {row["name"]: row for row in run.rows}
    plain, gold, private = rows["plain"], rows[HOSTILE], rows["dp"]
    assert plain["exposure"] > gold["exposure"]
    assert plain["completion_completed"] > 0
    assert plain["presentations_per_copy"] == 4
    assert [point["copies"] for point in plain["by_copies"]] == [1, 5]
    assert gold["tokens_ratio"] == pytest.approx(1.25)
    assert (gold["steps"], gold["seconds"], gold["users"]) == (400, 8, 12)
    assert gold["gap"] is not None  # samples of a user are counted in the training data
    assert gold["top_drop"] is not None
    assert (private["epsilon"], private["unit"]) == (4.93, "sequence")
    assert private["verdict"] == "useless"


def test_the_terminal_shows_a_table_and_the_answer(compared):
    done, out = compared
    summary = results.load(out).summary
    assert "test perplexity" in done.stdout
    assert done.stdout.startswith(f"UNDECIDED  {summary['advice']}\n")
    assert summary["answer"].removeprefix(summary["advice"]).strip() in done.stdout.split("\n")
    assert not [phrase for phrase in PLANTED if phrase in done.stdout + done.stderr]


def test_the_page_has_no_phrase_and_no_markup_of_names(compared):
    page = render([results.load(compared[1])], show_secrets=False)
    assert "Which defence should I use?" in page
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    assert not [phrase for phrase in (*PLANTED, *CONTROLS) if phrase in page]
    for shown in (compared[0].stdout, page):
        assert "predicts no better than word frequencies" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("no-users again --test test.jsonl --user author", "train with --user"),
        ("plain gold --manifest no-control", "Exposure:"),
        ("plain gold bare --manifest planted --baseline plain", "no run/summary.json"),
        ("plain gold no-users --baseline plain --manifest planted", "give --test"),
    ],
)
def test_missing_measures_are_notes(runs, shell, tmp_path, words, note):
    given = ["compare"]
    for word in words.split():
        given.append(runs / word if (runs / word).exists() and given[-1] != "--baseline" else word)
    done = shell(*given, "--out", tmp_path / "new")
    assert done.finished, (done.stderr, done.exception)
    assert note in done.stderr
    assert note in " ".join(results.load(tmp_path / "new").summary["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), table("compare"))
def test_bad_input_is_refused(runs, shell, words, says):
    given = [word.replace("R/", f"{runs}/", 1) for word in words.split()]
    if "--out" not in given and "--out" not in says:
        given += ["--out", str(runs / "new")]
    command = ["compare", *given]
    refused(shell, command, *says, unchanged=lambda: sorted(runs.rglob("*")))
