import json

import pytest

from vestige import results
from vestige.models.checkpoints import fingerprint, load_model

QUICK = ["--epochs", 1, "--layers", 1, "--hidden-size", 8, "--batch-size", 2]


def train(shell, *words):
    done = shell("train", *words, "--json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(shell, workspace, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "before"
    return out, train(shell, workspace / "corpus.txt", "--out", out, *QUICK)


def test_a_training_leaves_a_model_and_a_run(trained):
    out, summary = trained
    assert load_model(out).architecture == "lstm"
    assert summary["model"] == str(out / "model")
    run = results.load(out / "run")
    assert run.result == "DefendedTraining"
    assert run.run["data"]["training"]["documents"] == 38
    assert run.run["configuration"]["epochs"] == 1


def test_the_precision_really_used_is_recorded(shell, workspace, trained, tmp_path):
    out, summary = trained
    assert results.load(out / "run").run["configuration"]["precision"] == "float32"

    words = [workspace / "corpus.txt", "--out", tmp_path / "half", *QUICK]
    half = train(shell, *words, "--precision", "bfloat16")

    assert results.load(tmp_path / "half" / "run").run["configuration"]["precision"] == "bfloat16"
    assert fingerprint(tmp_path / "half") != fingerprint(out)  # it was used, on any CPU
    assert half["validation_perplexity"] == pytest.approx(summary["validation_perplexity"], rel=0.1)


def test_a_finished_training_is_resumed_without_change(shell, workspace, trained):
    out, summary = trained
    before = fingerprint(out)
    again = train(shell, workspace / "corpus.txt", "--out", out, "--resume", *QUICK)
    assert again == summary
    assert fingerprint(out) == before


def test_another_training_is_not_resumed(shell, workspace, trained):
    out, _ = trained
    done = shell("train", workspace / "corpus.txt", "--out", out, "--resume", *QUICK, "--seed", 9)
    assert done.exit_code == 2
    assert "another training" in done.stderr


def test_a_continued_model_keeps_its_vocabulary(shell, workspace, trained, tmp_path):
    out, _ = trained
    train(shell, workspace / "corpus.txt", "--from", out, "--out", tmp_path / "new", "--epochs", 1)
    after = load_model(tmp_path / "new")
    assert after.vocabulary.fingerprint() == load_model(out).vocabulary.fingerprint()
    assert fingerprint(tmp_path / "new") != fingerprint(out)
    assert results.load(tmp_path / "new" / "run").run["models"]["from"]["path"] == str(out)


def test_a_borrowed_vocabulary_makes_snapshots_comparable(shell, workspace, trained, tmp_path):
    out, _ = trained
    words = [workspace / "planted", "--vocabulary", out, "--out", tmp_path / "new", *QUICK]
    train(shell, *words)
    assert (
        load_model(tmp_path / "new").vocabulary.fingerprint()
        == load_model(out).vocabulary.fingerprint()
    )


def test_a_transformer_over_subwords(shell, workspace, tmp_path):
    words = ["--architecture", "transformer", "--layers", 1, "--hidden-size", 12]
    words += ["--tokenizer", "bpe", "--vocab-size", 300, "--sequence-length", 8, "--epochs", 1]
    train(shell, workspace / "corpus.txt", "--out", tmp_path / "new", *words)
    assert load_model(tmp_path / "new").architecture == "transformer"


def test_validation_text_of_its_own(shell, workspace, tmp_path):
    words = ["--validation", workspace / "corpus.txt", "--out", tmp_path / "new", *QUICK]
    summary = train(shell, workspace / "corpus.txt", *words)
    assert summary["validation_perplexity"] > 1
    assert results.load(tmp_path / "new" / "run").run["data"]["training"]["documents"] == 40


def test_nothing_is_held_out_when_nothing_is_asked(shell, workspace, tmp_path):
    words = ["--hold-out", 0, "--out", tmp_path / "new", *QUICK]
    assert train(shell, workspace / "corpus.txt", *words)["validation_perplexity"] is None
