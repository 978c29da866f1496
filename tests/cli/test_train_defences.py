"""`vestige train` under each defence: what it leaves, what it says, and what a kill does to it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vestige import results
from vestige.data.division import divide
from vestige.data.formats.reading import read_corpus
from vestige.models.folders import fingerprint

LINES = [
    "the gate opens at nine",
    "the code of the gate is new",
    "nobody knows the code at night",
    "a lantern stands at the gate of the mill",
    "the miller knows a new code",
] * 8
SMALL = ["--layers", 1, "--hidden-size", 8, "--batch-size", 4, "--epochs", 2, "--user", "who"]
RDP = ["--accountant", "rdp", "--accept-private-vocabulary"]
PRIVATE = ["--defence", "dp-sgd", "--epsilon", 8, *RDP]
NOISY = ["--defence", "dp-sgd", "--noise-multiplier", 1, *RDP]
AVERAGED = ["--defence", "dp-fedavg", "--noise-multiplier", 1, *RDP]
LOCAL = ["--local-epochs", 2, "--local-batch-size", 3, "--local-learning-rate", 0.1]
ROUNDS = [*AVERAGED, *LOCAL, "--batch-size", 2, "--epochs", 6, "--clip", 0.5]
STEPS = 20  # 40 sequences in lots of 4, twice
OFTEN = ["--checkpoint-every", 3]

KILLED = """
import os, signal, sys
from vestige.cli.app import main
from vestige.training import checkpoint

def dying(directory, position, *others, save=checkpoint.save):
    if position.step == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    save(directory, position, *others)

checkpoint.save = dying
main()
"""


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """Letters of three people."""
    file = tmp_path_factory.mktemp("letters") / "letters.jsonl"
    rows = [{"text": line, "who": ["ann", "bob", "cy"][i % 3]} for i, line in enumerate(LINES)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file.with_name("held.txt").write_text("\n".join(LINES[:5]))
    return file


@pytest.fixture(scope="module")
def train(shell, letters):
    """Train on the letters into a directory; the summary, and what was said on stderr."""

    def train(out, *words):
        held = () if "--hold-out" in words else ("--validation", letters.with_name("held.txt"))
        done = shell("train", letters, "--out", out, *SMALL, *held, *words)
        assert done.exit_code == 0, (done.stderr, done.exception)
        return results.load(out / "run").summary, done.stderr

    return train


@pytest.fixture(scope="module")
def private(train, tmp_path_factory):
    out = tmp_path_factory.mktemp("private") / "dp"
    return out, *train(out, *PRIVATE, *OFTEN)


def log(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def configuration(out):
    return results.load(out / "run").run["configuration"]


def test_a_budget_is_kept_printed_and_stored(private):
    out, summary, said = private
    assert 7.5 < summary["epsilon"] <= 8
    assert summary["delta"] == 1e-3  # the power of ten below a tenth of 1 / 40
    assert summary["unit"] == "sequence"
    assert summary["accountant"] == "rdp"
    assert summary["steps"] == STEPS
    assert summary["sample_rate"] == pytest.approx(4 / 40)
    assert summary["max_grad_norm"] == 1
    defence = configuration(out)["defence"]
    assert defence["name"] == summary["defence"] == "dp-sgd"
    assert defence["noise_multiplier"] == summary["noise_multiplier"] > 0
    assert f"Privacy: ε = {summary['epsilon']:.3g} at δ = 1e-3 for a document of at most" in said
    assert {"median_norm", "clipped"} <= log(out)[-1].keys()


def test_a_finished_private_training_spends_nothing_more(train, private):
    out, summary, _ = private
    before = fingerprint(out)
    again, said = train(out, *PRIVATE, *OFTEN, "--resume")
    assert again == summary
    assert fingerprint(out) == before
    assert "Privacy: ε = " in said


def from_the_beginning(out: Path, copy: Path) -> Path:
    """A killed private training as if no step had been taken: only its secret is the same."""
    shutil.copytree(out, copy)
    for name in ("checkpoint.safetensors", "log.jsonl", "history.json"):
        (copy / name).unlink(missing_ok=True)
    return copy


@pytest.mark.slow
def test_killed_and_resumed_it_has_the_same_weights_and_spent_its_budget_once(
    train, private, letters, tmp_path
):
    whole, summary, _ = private
    out = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, "train", letters, "--out", out, *SMALL]
    command += ["--validation", letters.with_name("held.txt")]
    done = subprocess.run([str(word) for word in [*command, *PRIVATE, *OFTEN]], check=False)
    assert done.returncode == -9
    assert not (out / "model").exists()

    again = from_the_beginning(out, tmp_path / "again")
    resumed, _ = train(out, *PRIVATE, *OFTEN, "--resume")
    train(again, *PRIVATE, *OFTEN, "--resume")

    assert fingerprint(out) == fingerprint(again) != fingerprint(whole)
    assert not (out / "secret.key").exists()
    spent = ["epsilon", "delta", "steps", "noise_multiplier", "sample_rate"]
    assert [resumed[name] for name in spent] == [summary[name] for name in spent]
    assert [line["step"] for line in log(out)] == [line["step"] for line in log(whole)]


@pytest.mark.slow
def test_a_private_training_that_stops_early_claims_what_was_planned(train, private, tmp_path):
    out, summary, _ = private
    asked = ["--stop-at-perplexity", 1e6, "--evaluate-every", 5]
    early, said = train(tmp_path / "new", *PRIVATE, *asked)
    assert early["stopped"]
    assert (early["steps"], early["steps_planned"]) == (5, STEPS)
    assert early["epsilon"] == summary["epsilon"] > early["epsilon_of_steps_taken"] > 0
    assert configuration(tmp_path / "new")["defence"] == configuration(out)["defence"]
    assert "Stopped after 5 steps" in said
    assert "ε is for the 20 steps planned; 5 were taken" in " ".join(said.split())


@pytest.mark.slow
def test_a_fixed_noise_seed_voids_the_guarantee_and_gives_the_same_bits(train, tmp_path):
    seeded = ["--noise-seed-without-guarantee", 7]
    summary, said = train(tmp_path / "one", *NOISY, *seeded)
    train(tmp_path / "two", *NOISY, *seeded)
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two")
    assert summary["guarantee_void"]
    assert summary["epsilon_with_ancestors"] is None
    assert "--noise-seed-without-guarantee 7" in said
    assert said.count("No guarantee: noise and batches come from a seed") == 2  # start and end
    run = results.load(tmp_path / "one" / "run").run
    assert run["privacy"]["guarantee"].startswith("No guarantee")
    [entry] = json.loads((tmp_path / "one/model/privacy.json").read_text())["trainings"]
    assert "seed" in entry["void"][0]


@pytest.mark.slow
def test_users_are_protected_whole(train, tmp_path):
    words = ["--unit", "user", "--batch-size", 2, "--clip", 0.5, "--physical-batch-size", 5]
    summary, said = train(tmp_path / "new", *NOISY, *words)
    assert summary["unit"] == "user"
    assert summary["sample_rate"] == pytest.approx(2 / 3)
    assert summary["max_grad_norm"] == 0.5
    assert summary["epsilon"] > 0
    assert "3 users" in said


@pytest.mark.slow
def test_users_learn_by_themselves_and_a_kill_changes_nothing(train, letters, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "killed"
    summary, said = train(whole, *ROUNDS, *OFTEN)
    assert summary["defence"] == "dp-fedavg"
    assert summary["unit"] == "user"
    assert summary["steps"] == 12  # two rounds of three users, six times
    assert summary["sample_rate"] == pytest.approx(2 / 3)
    assert summary["max_grad_norm"] == 0.5
    assert summary["epsilon"] > 0
    assert "dp-fedavg: 3 users" in said
    settings = configuration(whole)
    assert (settings["optimizer"], settings["learning_rate"]) == ("sgd", 1.0)
    assert settings["defence"]["local_epochs"] == 2
    assert settings["defence"]["local_batch_size"] == 3
    assert settings["defence"]["local_learning_rate"] == 0.1
    assert {"median_norm", "clipped"} <= log(whole)[-1].keys()

    command = [sys.executable, "-c", KILLED, "train", letters, "--out", out, *SMALL]
    command += ["--validation", letters.with_name("held.txt")]
    done = subprocess.run([str(word) for word in [*command, *ROUNDS, *OFTEN]], check=False)
    assert done.returncode == -9
    again = from_the_beginning(out, tmp_path / "again")
    resumed, _ = train(out, *ROUNDS, *OFTEN, "--resume")
    train(again, *ROUNDS, *OFTEN, "--resume")
    assert fingerprint(out) == fingerprint(again) != fingerprint(whole)
    spent = ["epsilon", "delta", "steps", "noise_multiplier", "sample_rate"]
    assert [resumed[name] for name in spent] == [summary[name] for name in spent]


@pytest.mark.slow
def test_the_server_can_have_another_rate_and_optimizer(train, tmp_path):
    once = [*AVERAGED, "--batch-size", 2, "--epochs", 1]
    train(tmp_path / "rate", *once, "--learning-rate", 0.5)
    train(tmp_path / "sgd", *once, "--optimizer", "sgd")
    train(tmp_path / "adam", *once, "--optimizer", "adam", "--learning-rate", 0.01)
    settings = [configuration(tmp_path / name) for name in ("rate", "sgd", "adam")]
    asked = [(one["optimizer"], one["learning_rate"]) for one in settings]
    assert asked == [("sgd", 0.5), ("sgd", 1.0), ("adam", 0.01)]


@pytest.mark.slow
def test_noise_is_learnt_through_by_adam_where_nothing_else_is_asked(train, tmp_path):
    train(tmp_path / "usual", *NOISY)
    train(tmp_path / "rate", *NOISY, "--learning-rate", 0.01)
    train(tmp_path / "sgd", *NOISY, "--optimizer", "sgd", "--learning-rate", 0.1)
    settings = [configuration(tmp_path / name) for name in ("usual", "rate", "sgd")]
    asked = [(one["optimizer"], one["learning_rate"]) for one in settings]
    assert asked == [("adam", 1e-3), ("adam", 0.01), ("sgd", 0.1)]


@pytest.mark.slow
def test_no_noise_is_no_guarantee(train, tmp_path):
    words = ["--defence", "dp-sgd", "--noise-multiplier", 0, *RDP]
    summary, said = train(tmp_path / "new", *words)
    assert summary["epsilon"] is None
    assert summary["guarantee_void"]
    assert "Privacy: No guarantee: without noise, ε is infinite" in said


def test_the_discriminator_is_logged(train, tmp_path):
    summary, _ = train(tmp_path / "new", "--defence", "adversarial", "--weight", 2)
    assert summary["defence"] == "adversarial"
    assert "epsilon" not in summary
    assert configuration(tmp_path / "new")["batching"] == "users"
    assert configuration(tmp_path / "new")["defence"]["weight"] == 2
    assert all(0 <= line["discriminator_accuracy"] <= 1 for line in log(tmp_path / "new"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairing", "batching"), [("auxiliary", "users"), ("in-batch", "documents")]
)
def test_triplets_are_paired_in_two_ways(train, tmp_path, pairing, batching):
    words = ["--defence", "triplet", "--pairing", pairing]
    summary, _ = train(tmp_path / "new", *words)
    assert summary["defence"] == "triplet"
    assert configuration(tmp_path / "new")["batching"] == batching
    assert all("triplet_loss" in line for line in log(tmp_path / "new"))


def test_a_goldfish_needs_no_users(train, tmp_path):
    summary, _ = train(tmp_path / "new", "--defence", "goldfish", "--goldfish-k", 3)
    assert summary["defence"] == "goldfish"
    assert configuration(tmp_path / "new")["batching"] == "documents"
    assert configuration(tmp_path / "new")["defence"]["k"] == 3


@pytest.mark.slow
def test_an_undefended_training_stops_at_a_perplexity_and_says_so(train, tmp_path):
    looks = ["--batching", "documents", "--evaluate-every", 3]
    whole, _ = train(tmp_path / "whole", *looks)
    rows = results.load(tmp_path / "whole" / "run").rows
    reached, steps = ([row[k] for row in rows] for k in ("validation_perplexity", "step"))
    assert steps == [3, 6, 9, 10, 12, 15, 18, 20]
    goal = reached[3]
    first = next(i for i, perplexity in enumerate(reached) if perplexity <= goal)

    stopped, said = train(tmp_path / "new", *looks, "--stop-at-perplexity", goal)
    assert stopped["stopped"]
    assert stopped["steps"] == steps[first] < whole["steps"]
    assert stopped["validation_perplexity"] == pytest.approx(reached[first])
    assert f"Stopped after {stopped['steps']} steps (--stop-at-perplexity)" in said

    never, said = train(tmp_path / "never", *looks, "--stop-at-perplexity", 1.01)
    assert not never["stopped"]
    assert "Perplexity 1.01 was not reached" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        [*ROUNDS, "--batch-size", 1],
        [*NOISY, "--unit", "user", "--batch-size", 1],
        ["--batching", "poisson-users", "--batch-size", 1],
        ["--batching", "documents"],
    ],
)
def test_users_are_held_out_where_users_are_drawn(train, letters, tmp_path, words):
    corpus = read_corpus(letters, user_column="who")
    by_user = "documents" not in words
    _, said = train(tmp_path / "new", *words, "--hold-out", 0.6)
    found, run = divide(corpus, 0.6, by_user=by_user), results.load(tmp_path / "new" / "run").run
    assert run["division"] == found.summary()
    assert run["data"]["training"]["sha256"] == found.training.fingerprint()
    users = set(found.held_out.users) & set(found.training.users)
    assert not (by_user and users)
    told = f"{len(found.held_out)} of 40 documents"
    users = len(set(found.held_out.users))
    told += f" of {users} users, chosen by the hash of each user" if by_user else ""
    assert told in " ".join(said.split())


def test_a_cap_leaves_out_what_users_have_beyond_it(train, letters, tmp_path):
    corpus = read_corpus(letters, user_column="who")
    _, said = train(tmp_path / "new", "--max-documents-per-user", 5, "--batching", "documents")
    found, run = divide(corpus, 0, most_per_user=5), results.load(tmp_path / "new" / "run").run
    assert "Left out: 25 of 40 documents, of 3 users with more than 5" in " ".join(said.split())
    assert run["division"]["left_out_documents"] == 25
    assert run["data"]["training"]["sha256"] == found.training.fingerprint()
    assert run["data"]["training"]["documents"] == 15
