"""`train` with each defence: files, log, budget, and kills."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tests.preparation.trainings import LINES, USER_CORPUS, VALIDATION, trained
from vestige import results
from vestige.defences.methods.private import DPSGD, DPFedAvg
from vestige.defences.methods.regularizers import Adversarial, Goldfish, Triplet
from vestige.models.folders import fingerprint
from vestige.preparation.options import TrainingOptions
from vestige.training.directory import CHECKPOINT

ONE_EPOCH = TrainingOptions(epochs=1, batch_size=4, sequence_length=8)
NOISY = DPSGD(noise_multiplier=1.0, accountant="rdp", accept_private_vocabulary=True)
AVERAGED = DPFedAvg(
    noise_multiplier=1.0, accountant="rdp", accept_private_vocabulary=True, max_grad_norm=0.5,
    local_epochs=2, local_batch_size=3, local_learning_rate=0.1,
)  # fmt: skip


def defended(out, defence, training=ONE_EPOCH, **options):
    options |= {"defence": defence, "training": training, "validation": VALIDATION}
    return trained(out, USER_CORPUS, **options)


def log_of(folder):
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
    result = defended(tmp_path / "out", defence)
    settings = result.record["configuration"]
    assert settings["batching"] == batching
    assert settings["defence"]["name"] == result.summary["defence"] == defence.name
    assert "epsilon" not in result.summary
    assert measure is None or all(measure in line for line in log_of(result.directory))
    [entry] = json.loads((result.model / "privacy.json").read_text())["trainings"]
    assert (entry["defence"], entry["steps"]) == (defence.name, result.summary["steps"])
    for name in ("k", "weight", "pairing"):
        assert settings["defence"].get(name) == getattr(defence, name, None)


@pytest.mark.slow
def test_a_budget_is_respected_logged_and_stored(tmp_path, monitor):
    budget = replace(NOISY, noise_multiplier=None, epsilon=8.0)
    training = replace(ONE_EPOCH, epochs=2)
    result = defended(tmp_path / "dp", budget, training, monitor=monitor)
    summary, settings = result.summary, result.record["configuration"]["defence"]
    assert 7.5 < summary["epsilon"] <= 8
    assert summary["delta"] == 1e-3  # the power of ten below a tenth of 1 / 40
    assert (summary["unit"], summary["accountant"]) == ("sequence", "rdp")
    assert summary["sample_rate"] == pytest.approx(4 / 40)
    assert (summary["steps"], summary["max_grad_norm"]) == (20, 1)
    assert settings["name"] == summary["defence"] == "dp-sgd"
    assert settings["noise_multiplier"] == summary["noise_multiplier"] > 0
    claims = [line for line in monitor.lines if line.startswith(("Planned: ", "Privacy: "))]
    claim = f"ε = {summary['epsilon']:.3g} at δ = 1e-3 for a document of at most"
    assert [claim in line for line in claims] == [True, True]
    assert monitor.tasks[-1] == "training"
    assert {"median_norm", "clipped"} <= log_of(result.directory)[-1].keys()

    before = fingerprint(result.directory)
    resumed = defended(result.directory, budget, training, resume=True)
    assert resumed.summary == summary  # nothing more was spent
    assert fingerprint(result.directory) == before


@pytest.mark.slow
def test_a_private_training_that_stops_early_states_the_planned_budget(tmp_path, monitor):
    early = replace(ONE_EPOCH, epochs=2, stop_at_perplexity=1e6, evaluate_every=5)
    summary = defended(tmp_path / "new", NOISY, early, monitor=monitor).summary
    assert summary["stopped"]
    assert (summary["steps"], summary["steps_planned"]) == (5, 20)
    assert summary["epsilon"] > summary["epsilon_of_steps_taken"] > 0
    text = " ".join(" ".join(monitor.lines).split())
    assert "Stopped after 5 steps" in text
    assert "ε is for the 20 steps planned; 5 were taken" in text


@pytest.mark.slow
def test_a_fixed_noise_seed_voids_the_guarantee_and_gives_the_same_bits(tmp_path, monitor):
    seeded = replace(NOISY, noise_seed_without_guarantee=7)
    first, second = (defended(tmp_path / name, seeded, monitor=monitor) for name in "ab")
    assert fingerprint(first.directory) == fingerprint(second.directory)
    assert first.summary["guarantee_void"]
    assert first.summary["epsilon_with_ancestors"] is None
    text = " ".join(" ".join(monitor.lines).split())
    assert "--noise-seed-without-guarantee 7" in text
    assert text.count("No guarantee: noise and batches come from a seed") == 4  # start and end
    assert first.record["privacy"]["guarantee"].startswith("No guarantee")
    [entry] = json.loads((first.model / "privacy.json").read_text())["trainings"]
    assert "seed" in entry["void"][0]


@pytest.mark.parametrize(
    "defence",
    [replace(NOISY, unit="user", max_grad_norm=0.5, physical_batch_size=5), AVERAGED],
    ids=["dp-sgd", "dp-fedavg"],
)
def test_users_are_protected_with_all_documents(tmp_path, monitor, defence):
    training = replace(ONE_EPOCH, batch_size=2)
    result = defended(tmp_path / "new", defence, training, monitor=monitor)
    summary, settings = result.summary, result.record["configuration"]["defence"]
    assert (summary["defence"], summary["unit"]) == (defence.name, "user")
    assert (summary["steps"], summary["max_grad_norm"]) == (2, 0.5)
    assert summary["sample_rate"] == pytest.approx(2 / 3)
    assert summary["epsilon"] > 0
    assert any("3 users" in line for line in monitor.lines)
    assert {"median_norm", "clipped"} <= log_of(result.directory)[-1].keys()
    if defence is AVERAGED:
        local = ("local_epochs", "local_batch_size", "local_learning_rate")
        assert [settings[name] for name in local] == [2, 3, 0.1]


KILLED = """
import os, signal, sys, torch
torch.set_num_threads({threads})  # sums with another number of threads have other last bits
from vestige.cli.app import main
from vestige.training import checkpoint

def killing(directory, position, *others, save=checkpoint.save):
    if position.step >= 9:
        os.kill(os.getpid(), signal.SIGKILL)
    save(directory, position, *others)

checkpoint.save = killing
main()
"""
SETTINGS = "--epochs 6 --layers 1 --hidden-size 4 --device cpu --checkpoint-every 3"
NOISE = "--noise-multiplier 1 --accountant rdp --accept-private-vocabulary --user who"


@pytest.fixture
def run(tmp_path, shell):
    """Runs a training, which is killed at step 9 if `killed`; returns its folder."""
    texts = [{"text": t, "who": u} for t, u in zip(LINES, USER_CORPUS.users, strict=True)]
    utterances = [
        {"tokens": ["play", f"song{n}"], "tags": ["O", "B-genre"], "intent": "PlayMusic"}
        for n in range(24)
    ]
    for name, rows in (("texts", texts), ("utterances", utterances)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def train(words, name, *, killed=False):
        out = tmp_path / name
        data, *options = words.split()
        given = ["train", tmp_path / data, *options, *SETTINGS.split(), "--out", out]
        if not killed:
            done = shell(*given)
            assert done.exit_code == 0, (done.stderr, done.exception)
            return out
        code = KILLED.format(threads=torch.get_num_threads())
        command = [sys.executable, "-c", code, *map(str, given)]
        assert subprocess.run(command, check=False).returncode == -9
        assert (out / CHECKPOINT).exists()
        assert not (out / "model").exists()
        return out

    return train


def steps_of(folder):
    return [line["step"] for line in log_of(folder)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        f"texts.jsonl --defence dp-sgd --batch-size 8 {NOISE}",
        f"texts.jsonl --defence dp-fedavg --batch-size 2 --local-epochs 2 {NOISE}",
    ],
    ids=["dp-sgd", "dp-fedavg"],
)
def test_a_killed_training_resumes_to_the_same_weights_and_budget(run, tmp_path, words):
    """The same bits as a training with the same secret that starts again from its first step."""
    complete, killed = run(words, "complete"), run(words, "killed", killed=True)
    restarted = shutil.copytree(killed, tmp_path / "restarted")
    for name in (CHECKPOINT, "log.jsonl", "history.json"):
        (restarted / name).unlink(missing_ok=True)
    run(f"{words} --resume", "killed")
    run(f"{words} --resume", "restarted")
    assert fingerprint(killed) == fingerprint(restarted) != fingerprint(complete)
    assert steps_of(killed) == steps_of(complete)
    assert not (killed / "secret.key").exists()
    summaries = [results.load(folder / "run").summary for folder in (killed, complete)]
    for name in ("epsilon", "delta", "steps", "noise_multiplier", "sample_rate"):
        assert summaries[0][name] == summaries[1][name]


@pytest.mark.slow
def test_a_training_killed_within_an_epoch_resumes_to_the_same_bits(run):
    words = "utterances.jsonl --task nlu --dropout --embedding-size 4 --batch-size 4 --hold-out 0.2"
    complete, killed = run(words, "complete"), run(words, "killed", killed=True)
    run(f"{words} --resume", "killed")
    assert fingerprint(killed) == fingerprint(complete)
    assert steps_of(killed) == steps_of(complete)
