"""`vestige membership --unit user` finds whose text was used."""

import json
import sys

import numpy as np
import pytest

from vestige import results

pytestmark = pytest.mark.slow

WORDS, LIKED, EACH, LENGTH = 120, 12, 7, 12
CHAIN = np.random.default_rng(5).dirichlet(np.full(WORDS, 0.3), WORDS)
OWN = ("--user", "who", "--device", "cpu")
TINY = ("--epochs", 3, "--hidden-size", 16, "--learning-rate", 0.02, "--batch-size", 20)
SERVICE = """
from pathlib import Path
from tests.models.narrowed import narrow
from vestige.models.checkpoints import load_model

model = narrow(load_model(Path(__file__).with_name("target"), device="cpu"), k=30)

def loud(contexts):
    print("hello")
    return model.likeliest(contexts)
"""


def texts_of(users, *, seed):
    """A Markov chain for everybody, in which each user likes some words."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in users:
        likes = np.ones(WORDS)
        likes[rng.choice(WORDS, LIKED, replace=False)] = 16
        moves = (CHAIN * likes / (CHAIN * likes).sum(axis=1, keepdims=True)).cumsum(axis=1)
        for _ in range(EACH):
            place, words = int(rng.integers(WORDS)), []
            for lot in rng.random(LENGTH):
                place = min(int(np.searchsorted(moves[place], lot)), WORDS - 1)
                words.append(f"w{place}")
            rows.append({"who": user, "text": " ".join(words), "before": " ".join(words[::-1])})
    return rows


def put(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def world(tmp_path_factory, shell):
    """Members and others to audit, known non-members, and a target that read the members."""
    root = tmp_path_factory.mktemp("audit")
    members = texts_of([f"member {n}" for n in range(6)], seed=1)
    put(root / "members.jsonl", members)
    put(root / "both.jsonl", members + texts_of([f"other {n}" for n in range(6)], seed=2))
    put(root / "reference.jsonl", texts_of([f"known {n:02}" for n in range(45)], seed=3))
    mine = [{"text": row["text"]} for row in members if row["who"] == "member 3"]
    put(root / "mine.jsonl", mine)
    (root / "services.py").write_text(SERVICE)
    # A vocabulary of the members' text only would leave half of the others' words out.
    anybody = texts_of(["anybody"] * 60, seed=4)
    put(root / "all.jsonl", anybody)
    # Of the members alone it would learn nothing that predicts others, and would be undecided.
    put(root / "read.jsonl", anybody + 3 * members)
    for words in (
        ("train", root / "all.jsonl", "--out", root / "words", "--epochs", 1, *TINY[2:4]),
        ("train", root / "read.jsonl", "--vocabulary", root / "words", "--out", root / "target",
         "--hold-out", 0, "--epochs", 20, *TINY[2:]),
    ):  # fmt: skip
        done = shell(*words, "--task", "next-word", *OWN)
        assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture
def audit(world, shell, tmp_path, monkeypatch):
    """Run the verb; give the shell's answer and the run."""
    monkeypatch.syspath_prepend(str(world))
    sys.modules.pop("services", None)

    def run(model, texts, *words, out="out", shadow_dir=world / "shadows"):
        model = model if ":" in model else world / model
        options = ("--texts", world / texts, "--reference", world / "reference.jsonl")
        words += () if shadow_dir is None else ("--shadow-dir", shadow_dir)
        words = ("--unit", "user", *options, *OWN, *words, "--out", tmp_path / out)
        done = shell("membership", model, *words)
        assert done.finished, done.stderr
        return done, results.load(tmp_path / out)

    return run


def audited(run):
    return [row for row in run.rows if row["kind"] == "audited"]


@pytest.mark.parametrize("shadows", [("--shadows", 0), ("--shadows", 4, *TINY)])
def test_members_are_found_and_others_are_not(audit, shadows):
    _, run = audit("target", "both.jsonl", *shadows, "--alpha", 0.1)
    called = {row["user"] for row in audited(run) if row["called"]}
    members = {f"member {n}" for n in range(6)}
    assert len(called & members) >= 5
    assert len(called - members) <= 1
    assert run.summary["verdict"] == "leak"
    assert run.summary["references"] == shadows[1]
    assert (run.summary["k"], run.summary["vocab_size"]) == (WORDS + 2, WORDS + 2)


def test_one_person_gets_one_verdict(audit):
    done, run = audit("target", "mine.jsonl", "--shadows", 0)
    assert done.stdout.startswith("LEAK  ")
    assert "of 23 non-members score as high" in done.stdout
    assert [row["user"] for row in audited(run)] == ["me"]
    assert run.result == "UserAudit"


def test_random_users_and_processes_and_other_shapes_are_options(audit):
    words = ("--person", "ann", "--random-users", 40, "--shadows", 2, "--other-shapes")
    _, run = audit("target", "mine.jsonl", *words, "--epochs", 1, "--processes", 2)
    settings = run.run["configuration"]["shadow_models"]
    assert [model["hidden_size"] for model in settings["models"]] == list(range(64, 353, 32))
    assert run.summary["references"] == 2
    groups = [run.summary[f"{name}_on"] for name in ("counted", "fitted", "calibrated")]
    assert groups == [10, 10, 20]
    assert [row["user"] for row in audited(run)] == ["ann"]


def test_models_with_sources_are_audited_alike(audit, shell, world, tmp_path):
    sources = ("--source", "before")
    done = shell(
        "train", world / "members.jsonl", "--task", "dialogue", *sources, *OWN, "--hold-out", 0,
        "--epochs", 1, "--hidden-size", 8, "--out", tmp_path / "pairs",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    _, run = audit(str(tmp_path / "pairs"), "both.jsonl", *sources, "--shadows", 2, "--epochs", 1)
    assert (run.run["configuration"]["task"], run.summary["references"]) == ("dialogue", 2)


def test_a_service_is_queried_about_informative_words_and_its_prints_are_no_result(audit):
    words = ("--top-k", 30, "--shadows", 2, *TINY, "--calls", 30, "--budget", 2500, "--json")
    done, run = audit("services:loud", "mine.jsonl", *words)
    assert json.loads(done.stdout) == run.summary
    assert "hello" in done.stderr
    assert run.summary["select"] == "informative"
    # Of 45 known non-members 11 are counted, and none of their words is queried.
    assert run.summary["words_asked"] == (45 - 11 + 1) * 30
    assert run.summary["queries"] <= run.summary["budget"] == 2500
    assert all(0 < row["words"] <= 30 for row in audited(run))
