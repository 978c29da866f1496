"""`vestige compare` on directories of `vestige train`."""

import shutil
from itertools import pairwise

import numpy as np
import pytest

from tests.cli.refusals import refused, table
from tests.files import write_rows
from vestige import results
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel
from vestige.reports.page import render
from vestige.results import Result

WORDS = ("red", "blue", "green", "gate", "mill", "code", "lamp", "door")
PLANTED = {"red mill lamp": 5, "blue code door": 5, "green gate red": 1, "lamp door mill": 1}
CONTROLS = ("gate blue green", "door lamp code", "mill red gate")
PLAIN_TEXT = Corpus.from_texts(["nothing of it stands here"] * 20, users=["ann"] * 20)
HOSTILE = "<script>alert(1)</script>"


SUMMARY = {
    "epoch": 4.0, "step": 400, "steps": 400, "tokens": 9000, "seconds": 8.0,
    "peak_memory_mib": 50.0,
}  # fmt: skip


def leaking_model(leak: float, words=WORDS) -> TableModel:
    """A bigram model that continues a canary with probability about `leak` per word."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    size = len(vocabulary)
    table = np.full((size, size), 1.0)
    for phrase in PLANTED:
        ids = vocabulary.encode(phrase)
        for token, following in pairwise(ids):
            table[token, following] += leak * size / (1 - leak)
    table /= table.sum(1, keepdims=True)
    return TableModel(np.full(size, 1 / size), table, vocabulary)


def corpus(users=True, seed=0) -> Corpus:
    """Documents of twelve users; user u wrote 2 + u."""
    generator = np.random.default_rng(seed)
    authors = [f"user{u:02}" for u in range(12) for _ in range(2 + u)]
    texts = [" ".join(generator.choice(WORDS, 6)) for _ in authors]
    return Corpus.from_texts(texts, users=authors if users else None)


def write_training(folder, leak, *, users=True, words=WORDS, **summary):
    """A directory as `vestige train` writes it."""
    model = leaking_model(leak, words)
    save_model(model, folder / "model")
    encode(corpus(users), model.vocabulary, folder / "data" / "training")
    validation = corpus(users, seed=1)
    encode(validation, model.vocabulary, folder / "data" / "validation")
    history = Result(kind="TrainingHistory", summary={**SUMMARY, **summary}, rows=[{"epoch": 4.0}])
    data = {"validation": {"sha256": validation.fingerprint()}}
    results.save(history, folder / "run", run={"data": data})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Sound and broken trainings, manifests and test texts."""
    root = tmp_path_factory.mktemp("runs")
    write_training(root / "plain", 0.9)
    write_training(root / "gold", 0.1, defence="goldfish", tokens=11250)
    claim = {"epsilon": 4.93, "delta": 1e-5, "unit": "sequence"}
    write_training(root / "dp", 0.05, defence="dp-sgd", **claim)
    shutil.copytree(root / "plain", root / "copy")
    write_training(root / "other-words", 0.5, words=(*WORDS[:-1], "window"))
    write_training(root / "no-users", 0.9, users=False)
    write_training(root / "again", 0.1, users=False, defence="goldfish")
    shutil.copytree(root / "plain", root / "no-model")
    shutil.rmtree(root / "no-model" / "model")
    shutil.copytree(root / "plain", root / "broken-run")
    (root / "broken-run" / "run" / "summary.json").write_text("{")
    save_model(leaking_model(0.4), root / "bare")
    canaries = [Canary(phrase, "random", (), copies) for phrase, copies in PLANTED.items()]
    canaries += [Canary(phrase, "random", (), 0) for phrase in CONTROLS]
    _write_manifest(root / "planted", canaries)
    _write_manifest(root / "no-control", canaries[:4])
    test = corpus(seed=2)
    rows = [{"text": t, "author": user} for t, user in zip(test, test.users, strict=True)]
    write_rows(root / "test.jsonl", rows)
    (root / "file").write_text("not a directory")
    return root


def _write_manifest(folder, canaries):
    folder.mkdir()
    plant(PLAIN_TEXT, canaries, seed=0, user="planted")[1].save(folder / "manifest.json")


@pytest.fixture(scope="module")
def compared(runs, shell, tmp_path_factory):
    """A comparison of three trainings with all measures."""
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
    plain, goldfish, private = rows["plain"], rows[HOSTILE], rows["dp"]
    assert plain["exposure"] > goldfish["exposure"]
    assert plain["completion_completed"] > 0
    assert plain["presentations_per_copy"] == 4
    assert [point["copies"] for point in plain["by_copies"]] == [1, 5]
    assert goldfish["tokens_ratio"] == pytest.approx(1.25)
    assert (goldfish["steps"], goldfish["seconds"], goldfish["users"]) == (400, 8, 12)
    assert goldfish["gap"] is not None
    assert goldfish["top_drop"] is not None
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
    for output in (compared[0].stdout, page):
        assert "predicts no better than word frequencies" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("R/no-users R/again --test R/test.jsonl --user author", "train with --user"),
        ("R/plain R/gold --manifest R/no-control", "Exposure:"),
        ("R/plain R/gold R/bare --manifest R/planted --baseline plain", "no run/summary.json"),
        ("R/plain R/gold R/no-users --baseline plain --manifest R/planted", "give --test"),
    ],
)
def test_missing_measures_are_notes(runs, shell, tmp_path, words, note):
    command = ["compare", *(word.replace("R/", f"{runs}/") for word in words.split())]
    done = shell(*command, "--out", tmp_path / "new")
    assert done.finished, (done.stderr, done.exception)
    assert note in done.stderr
    assert note in " ".join(results.load(tmp_path / "new").summary["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(("words", "fragments"), table("compare"))
def test_bad_input_is_refused(runs, shell, words, fragments):
    command = ["compare", *(word.replace("R/", f"{runs}/", 1) for word in words.split())]
    if "--out" not in [*command, *fragments]:
        command += ["--out", str(runs / "new")]
    refused(shell, command, *fragments, unchanged=lambda: sorted(runs.rglob("*")))
