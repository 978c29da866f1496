"""`train` with each defence: files, log, budget, and kills."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tests.preparation.trainings import HELD, LETTERS, LINES, trained
from vestige import results
from vestige.defences.methods.private import DPSGD, DPFedAvg
from vestige.defences.methods.regularizers import Adversarial, Goldfish, Triplet
from vestige.models.folders import fingerprint
from vestige.preparation.options import TrainingOptions
from vestige.training.directory import CHECKPOINT

ONCE = TrainingOptions(epochs=1, batch_size=4, sequence_length=8)
PAIRS_OF_USERS = replace(ONCE, batch_size=2)
NOISY = DPSGD(noise_multiplier=1.0, accountant="rdp", accept_private_vocabulary=True)
AVERAGED = DPFedAvg(
    noise_multiplier=1.0, accountant="rdp", accept_private_vocabulary=True, max_grad_norm=0.5,
    local_epochs=2, local_batch_size=3, local_learning_rate=0.1,
)  # fmt: skip


def defended(out, defence, training=ONCE, **given):
    return trained(out, LETTERS, defence=defence, training=training, validation=HELD, **given)


def logged(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("defence", "batching", "measure"),
    [
        (Goldfish(k=3), "documents", None),
        (Adversarial(weight=2.0), "users", "discriminator_accuracy"),
        (Triplet(), "users", "triplet_loss"),
        (Triplet(pairing="in-batch"), "documents", "triplet_loss"),
    ],
)
def test_a_defence_has_its_batches_and_is_recorded(tmp_path, defence, batching, measure):
    found = defended(tmp_path / "out", defence)
    settings = found.record["configuration"]
    assert settings["batching"] == batching
    assert settings["defence"].items() >= {"name": defence.name}.items()
    assert found.summary["defence"] == defence.name
    assert "epsilon" not in found.summary
    assert measure is None or all(measure in line for line in logged(found.directory))
    [entry] = json.loads((found.model / "privacy.json").read_text())["trainings"]
    assert (entry["defence"], entry["steps"]) == (defence.name, found.summary["steps"])
    for name in ("k", "weight", "pairing"):
        assert settings["defence"].get(name) == getattr(defence, name, None)


@pytest.mark.slow
def test_a_budget_is_kept_logged_and_stored(tmp_path, told):
    budget = replace(NOISY, noise_multiplier=None, epsilon=8.0)
    found = defended(tmp_path / "dp", budget, replace(ONCE, epochs=2), monitor=told)
    summary, settings = found.summary, found.record["configuration"]["defence"]
    assert 7.5 < summary["epsilon"] <= 8
    assert summary["delta"] == 1e-3  # the power of ten below a tenth of 1 / 40
    assert (summary["unit"], summary["accountant"]) == ("sequence", "rdp")
    assert summary["sample_rate"] == pytest.approx(4 / 40)
    assert (summary["steps"], summary["max_grad_norm"]) == (20, 1)
    assert settings["name"] == summary["defence"] == "dp-sgd"
    assert settings["noise_multiplier"] == summary["noise_multiplier"] > 0
    promises = [line for line in told.lines if line.startswith(("Planned: ", "Privacy: "))]
    said = f"ε = {summary['epsilon']:.3g} at δ = 1e-3 for a document of at most"
    assert [said in line for line in promises] == [True, True]
    assert told.tasks[-1] == "training"
    assert {"median_norm", "clipped"} <= logged(found.directory)[-1].keys()

    before = fingerprint(found.directory)
    again = defended(found.directory, budget, replace(ONCE, epochs=2), resume=True)
    assert again.summary == summary  # nothing more was spent
    assert fingerprint(found.directory) == before


@pytest.mark.slow
def test_a_private_training_that_stops_early_states_the_planned_budget(tmp_path, told):
    early = replace(ONCE, epochs=2, stop_at_perplexity=1e6, evaluate_every=5)
    found = defended(tmp_path / "new", NOISY, early, monitor=told)
    summary = found.summary
    assert summary["stopped"]
    assert (summary["steps"], summary["steps_planned"]) == (5, 20)
    assert summary["epsilon"] > summary["epsilon_of_steps_taken"] > 0
    said = " ".join(" ".join(told.lines).split())
    assert "Stopped after 5 steps" in said
    assert "ε is for the 20 steps planned; 5 were taken" in said


@pytest.mark.slow
def test_a_fixed_noise_seed_voids_the_guarantee_and_gives_the_same_bits(tmp_path, told):
    seeded = replace(NOISY, noise_seed_without_guarantee=7)
    one, two = (defended(tmp_path / name, seeded, monitor=told) for name in ("one", "two"))
    assert fingerprint(one.directory) == fingerprint(two.directory)
    assert one.summary["guarantee_void"]
    assert one.summary["epsilon_with_ancestors"] is None
    said = " ".join(" ".join(told.lines).split())
    assert "--noise-seed-without-guarantee 7" in said
    assert said.count("No guarantee: noise and batches come from a seed") == 4  # start and end
    assert one.record["privacy"]["guarantee"].startswith("No guarantee")
    [entry] = json.loads((one.model / "privacy.json").read_text())["trainings"]
    assert "seed" in entry["void"][0]


def test_zero_noise_has_no_guarantee(tmp_path, told):
    found = defended(tmp_path / "new", replace(NOISY, noise_multiplier=0.0), monitor=told)
    assert found.summary["epsilon"] is None
    assert found.summary["guarantee_void"]
    assert any(line.startswith("Privacy: No guarantee: without noise") for line in told.lines)


@pytest.mark.parametrize(
    ("defence", "steps"),
    [(replace(NOISY, unit="user", max_grad_norm=0.5, physical_batch_size=5), 2), (AVERAGED, 2)],
    ids=["dp-sgd", "dp-fedavg"],
)
def test_users_are_protected_with_all_documents(tmp_path, told, defence, steps):
    found = defended(tmp_path / "new", defence, PAIRS_OF_USERS, monitor=told)
    summary, settings = found.summary, found.record["configuration"]
    assert (summary["defence"], summary["unit"]) == (defence.name, "user")
    assert (summary["steps"], summary["max_grad_norm"]) == (steps, 0.5)
    assert summary["sample_rate"] == pytest.approx(2 / 3)
    assert summary["epsilon"] > 0
    assert any("3 users" in line for line in told.lines)
    assert {"median_norm", "clipped"} <= logged(found.directory)[-1].keys()
    if defence is AVERAGED:
        local = {name: getattr(AVERAGED, name) for name in settings["defence"] if "local" in name}
        assert {**settings["defence"], **local} == settings["defence"]
        assert len(local) == 3


# Kills

KILLED = """
import os, signal, sys, torch
torch.set_num_threads({threads})  # other sums have other last bits
from vestige.cli.app import main
from vestige.training import checkpoint

def dying(directory, position, *others, save=checkpoint.save):
    if position.step >= 9:
        os.kill(os.getpid(), signal.SIGKILL)
    save(directory, position, *others)

checkpoint.save = dying
main()
"""
OFTEN = "--epochs 6 --layers 1 --hidden-size 4 --device cpu --checkpoint-every 3"
NOISE = "--noise-multiplier 1 --accountant rdp --accept-private-vocabulary --user who"


@pytest.fixture
def run(tmp_path, shell):
    """Runs a training that is killed at step 9, or one that is not; the folder."""
    rows = [{"text": line, "who": user} for line, user in zip(LINES, LETTERS.users, strict=True)]
    (tmp_path / "letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spoken = {"tokens": ["play", "jazz"], "tags": ["O", "B-genre"], "intent": "PlayMusic"}
    rows = [{**spoken, "tokens": ["play", f"song{number}"]} for number in range(24)]
    (tmp_path / "spoken.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def train(words, name, *, killed=False):
        data, *rest = words.split()
        given = ["train", tmp_path / data, *rest, *OFTEN.split(), "--out", tmp_path / name]
        if not killed:
            done = shell(*given)
            assert done.exit_code == 0, (done.stderr, done.exception)
            return tmp_path / name
        code = KILLED.format(threads=torch.get_num_threads())
        command = [sys.executable, "-c", code, *map(str, given)]
        assert subprocess.run(command, check=False).returncode == -9
        assert (tmp_path / name / CHECKPOINT).exists()
        assert not (tmp_path / name / "model").exists()
        return tmp_path / name

    return train


def steps_of(folder):
    return [line["step"] for line in logged(folder)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        f"letters.jsonl --defence dp-sgd --batch-size 8 {NOISE}",
        f"letters.jsonl --defence dp-fedavg --batch-size 2 --local-epochs 2 {NOISE}",
    ],
    ids=["dp-sgd", "dp-fedavg"],
)
def test_a_killed_training_resumes_to_the_same_weights_and_budget(run, tmp_path, words):
    """The same bits as from its beginning with the same secret, which nobody else can guess."""
    whole, killed = run(words, "whole"), run(words, "killed", killed=True)
    again = shutil.copytree(killed, tmp_path / "again")
    for name in (CHECKPOINT, "log.jsonl", "history.json"):
        (again / name).unlink(missing_ok=True)
    run(f"{words} --resume", "killed")
    run(f"{words} --resume", "again")
    assert fingerprint(killed) == fingerprint(again) != fingerprint(whole)
    assert steps_of(killed) == steps_of(whole)
    assert not (killed / "secret.key").exists()
    one, other = (results.load(folder / "run").summary for folder in (killed, whole))
    spent = ["epsilon", "delta", "steps", "noise_multiplier", "sample_rate"]
    assert [one[name] for name in spent] == [other[name] for name in spent]


@pytest.mark.slow
def test_a_training_killed_within_an_epoch_resumes_to_the_same_bits(run):
    words = "spoken.jsonl --task nlu --dropout --embedding-size 4 --batch-size 4 --hold-out 0.2"
    whole, killed = run(words, "whole"), run(words, "killed", killed=True)
    run(f"{words} --resume", "killed")
    assert fingerprint(killed) == fingerprint(whole)
    assert steps_of(killed) == steps_of(whole)
