"""`vestige membership --unit user` end to end."""

import json
import sys

import numpy as np
import pytest

from tests.audits.membership.made_texts import audited
from vestige import results

pytestmark = pytest.mark.slow

WORDS, PREFERRED = 120, 12
CHAIN = np.random.default_rng(5).dirichlet(np.full(WORDS, 0.3), WORDS)
COMMON = ("--user", "who", "--device", "cpu")
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
    """Texts of one Markov chain in which each user prefers some words."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in users:
        weights = np.ones(WORDS)
        weights[rng.choice(WORDS, PREFERRED, replace=False)] = 16
        moves = CHAIN * weights
        moves = (moves / moves.sum(axis=1, keepdims=True)).cumsum(axis=1)
        for _ in range(7):
            word, words = int(rng.integers(WORDS)), []
            for number in rng.random(12):
                word = min(int(np.searchsorted(moves[word], number)), WORDS - 1)
                words.append(f"w{word}")
            rows.append({"who": user, "text": " ".join(words), "before": " ".join(words[::-1])})
    return rows


@pytest.fixture(scope="module")
def world(tmp_path_factory, shell):
    """Members and others to audit, known non-members, and a target trained on the members."""
    root = tmp_path_factory.mktemp("audit")
    members = texts_of([f"member {n}" for n in range(6)], seed=1)
    public = texts_of(["anybody"] * 60, seed=4)
    for name, rows in {
        "members": members,
        "both": members + texts_of([f"other {n}" for n in range(6)], seed=2),
        "reference": texts_of([f"known {n:02}" for n in range(45)], seed=3),
        "mine": [{"text": row["text"]} for row in members if row["who"] == "member 3"],
        "public": public,
        # From the members alone the target would learn nothing that predicts other texts.
        "training": public + 3 * members,
    }.items():
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "services.py").write_text(SERVICE)
    # The vocabulary is that of public text: members' texts lack half of the others' words.
    for words in (
        ("train", root / "public.jsonl", "--out", root / "words", "--epochs", 1, *TINY[2:4]),
        ("train", root / "training.jsonl", "--vocabulary", root / "words", "--out", root / "target",
         "--hold-out", 0, "--epochs", 20, *TINY[2:]),
    ):  # fmt: skip
        done = shell(*words, "--task", "next-word", *COMMON)
        assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture
def audit(world, shell, tmp_path, monkeypatch):
    """Run the verb; return what the shell shows and the run."""
    monkeypatch.syspath_prepend(str(world))
    sys.modules.pop("services", None)

    def run(model, texts, *words):
        done = shell(
            "membership", model if ":" in model else world / model, "--unit", "user",
            "--texts", world / texts, "--reference", world / "reference.jsonl",
            "--shadow-dir", world / "shadows", *COMMON, *words, "--out", tmp_path / "out",
        )  # fmt: skip
        assert done.finished, done.stderr
        return done, results.load(tmp_path / "out")

    return run


@pytest.mark.parametrize("shadows", [("--shadows", 0), ("--shadows", 4, *TINY)])
def test_members_are_flagged_and_others_are_not(audit, shadows):
    _, run = audit("target", "both.jsonl", *shadows, "--alpha", 0.1)
    flagged = set(audited(run, "user")[audited(run, "called")])
    members = {f"member {n}" for n in range(6)}
    assert len(flagged & members) >= 5
    assert len(flagged - members) <= 1
    assert run.summary["verdict"] == "leak"
    assert run.summary["references"] == shadows[1]
    assert (run.summary["k"], run.summary["vocab_size"]) == (WORDS + 2, WORDS + 2)


def test_options_for_random_users_processes_and_other_architectures(audit):
    words = ("--person", "ann", "--random-users", 40, "--shadows", 2, "--other-shapes")
    _, run = audit("target", "mine.jsonl", *words, "--epochs", 1, "--processes", 2)
    settings = run.run["configuration"]["shadow_models"]
    assert [model["hidden_size"] for model in settings["models"]] == list(range(64, 353, 32))
    assert run.summary["references"] == 2
    groups = [run.summary[f"{name}_on"] for name in ("counted", "fitted", "calibrated")]
    assert groups == [10, 10, 20]
    assert audited(run, "user").tolist() == ["ann"]


def test_a_model_with_sources_is_audited(audit, shell, world, tmp_path):
    sources = ("--source", "before")
    done = shell(
        "train", world / "members.jsonl", "--task", "dialogue", *sources, *COMMON, "--hold-out", 0,
        "--epochs", 1, "--hidden-size", 8, "--out", tmp_path / "pairs",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    _, run = audit(str(tmp_path / "pairs"), "both.jsonl", *sources, "--shadows", 2, "--epochs", 1)
    assert (run.run["configuration"]["task"], run.summary["references"]) == ("dialogue", 2)


def test_a_service_is_queried_about_informative_words_and_its_output_goes_to_stderr(audit):
    words = ("--top-k", 30, "--shadows", 2, *TINY, "--calls", 30, "--budget", 2500, "--json")
    done, run = audit("services:loud", "mine.jsonl", *words)
    assert json.loads(done.stdout) == run.summary
    assert "hello" in done.stderr
    assert run.summary["select"] == "informative"
    # 11 of the 45 known non-members are counted; their words are not queried.
    assert run.summary["words_asked"] == (45 - 11 + 1) * 30
    assert run.summary["queries"] <= run.summary["budget"] == 2500
    assert all(0 < words <= 30 for words in audited(run, "words"))
