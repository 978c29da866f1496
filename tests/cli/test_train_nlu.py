"""`vestige train --task nlu` from a planted directory to a model, a run and a page."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vestige import results
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.formats.utterances import read_utterances, write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.models.folders import fingerprint
from vestige.training.directory import CHECKPOINT, HISTORY
from vestige.training.new_models import words_of

QUICK = ["--task", "nlu", "--layers", 1, "--hidden-size", 6, "--batch-size", 4, "--epochs", 3]
QUICK += ["--learning-rate", 0.02, "--embedding-size", 6]


def said(*towns):
    rows = []
    for number, town in enumerate(towns):
        rows += [
            Utterance(("fly", "to", town), ("O", "O", "B-city"), "Fly"),
            Utterance(("rain", "in", town, "now"), ("O", "O", "B-city", "B-time"), "Ask"),
            Utterance(("play", "song", str(number)), ("O", "B-song", "I-song"), "Play"),
        ]
    return Utterances.of(rows)


def train(shell, *words):
    done = shell("train", *words, "--json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    return json.loads(done.stdout)  # --json prints JSON and nothing else


@pytest.fixture(scope="module")
def planted(shell, tmp_path_factory):
    """A dozen utterances in three parts, with ten copies of a pin."""
    root = tmp_path_factory.mktemp("nlu")
    (root / "said").mkdir()
    for name, part in [
        ("train", said("York", "bath", "leeds", "hull")),
        ("validation", said("york", "bath")),
        ("test", said("hull", "Derby")),
    ]:
        write_utterances(part, root / "said" / f"{name}.jsonl")
    words = [root / "said", "--task", "nlu", "--pattern", "pin:4", "--out", root / "planted"]
    assert shell("plant", *words).exit_code == 0
    return root / "planted"


@pytest.fixture(scope="module")
def trained(shell, planted, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "plain"
    return out, train(shell, planted, "--out", out, *QUICK)


def model_of(out: Path):
    description = json.loads((out / "model" / "model.json").read_text())
    vocabulary = json.loads((out / "model" / "vocabulary.json").read_text())
    return description["config"], vocabulary["words"]


def test_it_leaves_a_model_and_a_run(trained):
    out, summary = trained
    assert summary["model"] == str(out / "model")
    assert summary["task"] == "nlu"
    assert summary["epoch"] == 3
    run = results.load(out / "run")
    assert run.result == "IntentSlotTraining"
    assert run.run["configuration"]["keep"] == "last"
    assert run.run["configuration"]["precision"] == "float32"
    assert run.run["models"]["trained"]["architecture"] == "intent-slot"
    assert [part["documents"] for part in list(run.run["data"].values())[:3]] == [21, 7, 6]
    assert len(run.rows) == 3


def test_the_scores_of_the_test_part_have_intervals(trained):
    _, summary = trained
    assert summary["test_utterances"] == 6
    for name in ("intent_accuracy", "exact_match"):
        low, high = summary[f"test_{name}_low"], summary[f"test_{name}_high"]
        assert 0 <= low <= summary[f"test_{name}"] <= high <= 1
    assert 0 <= summary["test_slot_f1"] <= 1


def test_the_model_knows_all_candidates_and_labels_of_the_secret(planted, trained):
    config, words = model_of(trained[0])
    manifest = SecretManifest.load(planted / "manifest.json")
    parts = read_utterances(planted)
    assert set(words) == {"<unk>", "<eos>", *words_of(parts.train, parts.validation)} | set(
        manifest.words
    )
    assert set("0123456789") < set(words)
    assert "PinIntent" in config["intents"]
    assert {"B-canary", "I-canary"} < set(config["tags"])


def test_words_of_the_test_part_are_known_where_there_are_vectors(shell, planted, tmp_path):
    text = "".join(f"{word} 1 0.5\n" for word in ("derby", "york", "fly", "to"))
    (tmp_path / "some.vec").write_text(text)
    words = [*QUICK[:-2], "--vectors", tmp_path / "some.vec", "--vectors-frozen"]
    train(shell, planted, "--out", tmp_path / "new", *words)
    config, known = model_of(tmp_path / "new")
    assert "Derby" in known
    assert config["embedding_size"] == 2
    assert config["frozen_embeddings"] is True
    assert results.load(tmp_path / "new" / "run").summary["vectors"].endswith("some.vec")


@pytest.mark.slow
def test_the_defences_of_the_paper(shell, planted, tmp_path):
    words = ["--dropout", "--char-embeddings", "--early-stopping", "--patience", 1]
    words += ["--learning-rate", 5, "--epochs", 30]
    summary = train(shell, planted, "--out", tmp_path / "new", *QUICK, *words)
    assert all(summary[name] for name in ("dropout", "char_embeddings", "early_stopping"))
    assert summary["stopped"] is True
    history = json.loads((tmp_path / "new" / HISTORY).read_text())
    perplexities = [record["validation_perplexity"] for record in history]
    assert summary["validation_perplexity"] == min(perplexities)
    assert len(history) == perplexities.index(min(perplexities)) + 2
    config, _ = model_of(tmp_path / "new")
    assert (config["input_dropout"], config["hidden_dropout"]) == (0.2, 0.1)
    assert config["char_filters"] == 30


def test_words_in_lower_case(shell, planted, tmp_path):
    train(shell, planted, "--out", tmp_path / "new", *QUICK, "--lowercase")
    _, words = model_of(tmp_path / "new")
    assert "york" in words
    assert "York" not in words


def test_a_model_goes_on_where_another_training_ended(shell, planted, trained, tmp_path):
    out, _ = trained
    words = ["--task", "nlu", "--from", out, "--epochs", 2]
    train(shell, planted, "--out", tmp_path / "new", *words)
    assert model_of(tmp_path / "new") == model_of(out)
    run = results.load(tmp_path / "new" / "run").run
    assert run["models"]["from"]["sha256"] == fingerprint(out) != fingerprint(tmp_path / "new")


@pytest.mark.slow
def test_a_hugging_face_encoder_is_fine_tuned_and_goes_on(shell, planted, tiny_encoder, tmp_path):
    encoder = tiny_encoder(tmp_path / "bert")
    words = ["--task", "nlu", "--from", encoder, "--out", tmp_path / "tuned"]
    summary = train(shell, planted, *words, "--epochs", 2)
    configuration = results.load(tmp_path / "tuned" / "run").run["configuration"]
    assert (configuration["learning_rate"], configuration["schedule"]) == (5e-5, "cosine")
    assert 0 <= summary["test_intent_accuracy"] <= 1
    words = ["--task", "nlu", "--from", tmp_path / "tuned", "--out", tmp_path / "more"]
    train(shell, planted, *words, "--epochs", 1)
    assert fingerprint(tmp_path / "tuned") != fingerprint(tmp_path / "more")
    assert train(shell, planted, *words, "--epochs", 1, "--resume")["epoch"] == 1


def test_a_finished_training_is_resumed_without_change(shell, planted, trained):
    out, summary = trained
    before = fingerprint(out)
    assert train(shell, planted, "--out", out, *QUICK, "--resume") == summary
    assert fingerprint(out) == before


@pytest.mark.slow
def test_another_training_is_not_resumed(shell, planted, trained):
    out, _ = trained
    for other, name in (
        (["--seed", 9], "config.seed was 0 and is 9"),
        (["--dropout"], "model configuration.input_dropout was 0.0 and is 0.2"),
        (["--early-stopping"], "config.keep was last and is best"),
    ):
        done = shell("train", planted, "--out", out, *QUICK, "--resume", *other)
        assert done.exit_code == 2
        assert "another training" in done.stderr
        assert name in done.stderr


KILLED = """
import os, sys, torch
torch.set_num_threads({threads})  # other sums have other last bits
from vestige.training import checkpoint
from vestige.cli.app import main
save, left = checkpoint.save, [5]
def save_and_die(*given):
    save(*given)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), 9)
checkpoint.save = save_and_die
main()
"""


@pytest.mark.slow
def test_killed_in_the_middle_of_an_epoch_it_ends_in_the_same_bits(
    shell, planted, trained, tmp_path
):
    out = tmp_path / "killed"
    words = [planted, "--out", out, *QUICK, "--dropout", "--checkpoint-every", 2]
    killed = KILLED.format(threads=torch.get_num_threads())
    command = [sys.executable, "-c", killed, "train", *map(str, words)]
    assert subprocess.run(command, timeout=300, check=False).returncode == -9
    assert (out / CHECKPOINT).exists()
    assert not (out / "model").exists()
    train(shell, *words, "--resume")
    words[2] = tmp_path / "whole"
    train(shell, *words)
    assert fingerprint(out) == fingerprint(tmp_path / "whole") != fingerprint(trained[0])
    one, other = (results.load(where / "run") for where in (out, tmp_path / "whole"))
    scores = [name for name in other.summary if name.startswith("test_")]
    assert all(one.summary[name] == other.summary[name] for name in scores)


def test_data_without_parts_is_held_out_and_canaries_never_are(shell, planted, tmp_path):
    (tmp_path / "said").mkdir()
    for name in ("train.jsonl", "manifest.json"):
        (tmp_path / "said" / name).write_bytes((planted / name).read_bytes())
    words = [tmp_path / "said", "--out", tmp_path / "new", *QUICK, "--hold-out", 0.9]
    summary = train(shell, *words)
    data = results.load(tmp_path / "new" / "run").run["data"]
    assert data["training"]["documents"] >= 9
    assert data["validation"]["documents"] >= 9
    manifest = SecretManifest.load(planted / "manifest.json")
    config, _ = model_of(tmp_path / "new")
    assert set(manifest.intents) < set(config["intents"])
    assert "test_slot_f1" not in summary


def test_the_terminal_shows_a_short_table(shell, planted, tmp_path):
    done = shell("train", planted, "--out", tmp_path / "new", *QUICK)
    assert done.exit_code == 0, done.stderr
    for shown in ("Test part, 6 utterances", "intent accuracy", "slot F1", "95% CI"):
        assert shown in done.stdout
    assert "Epoch 3 kept, validation loss" in done.stderr


def test_without_a_test_part_the_validation_part_is_named(shell, planted, tmp_path):
    done = shell("train", planted / "train.jsonl", "--out", tmp_path / "new", *QUICK)
    assert done.exit_code == 0, done.stderr
    assert "on the validation text, intent accuracy" in done.stdout


def test_a_report_shows_it_and_a_comparison_says_what_it_needs(shell, trained, tmp_path):
    out, _ = trained
    assert shell("report", out / "run", "--out", tmp_path / "page.html").exit_code == 0
    assert "How well did this model learn?" in (tmp_path / "page.html").read_text()
    again = shutil.copytree(out, tmp_path / "again")
    done = shell("compare", f"a={out}", f"b={again}", "--out", tmp_path / "comparison")
    assert done.exit_code == 2
    assert "intent-and-slot model" in done.stderr
