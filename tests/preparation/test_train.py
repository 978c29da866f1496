"""`train` on running text: its files, its record, and repeated calls."""

import json
from dataclasses import replace

import pytest
import torch

from tests.cli.shell import invoke
from tests.preparation.trainings import CORPUS, LINES, SHORT, USER_CORPUS, VALIDATION, trained
from vestige import results
from vestige.data.division import divide
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import VestigeError
from vestige.models.checkpoints import load_model
from vestige.models.folders import fingerprint
from vestige.preparation.options import ModelOptions
from vestige.training.word_frequencies import useless_model


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_training_leaves_a_model_and_a_run_with_its_inputs(plain):
    run = results.load(plain.directory / "run")
    assert load_model(plain.model).vocabulary == load_model(plain.directory).vocabulary
    assert load_model(plain.model).architecture == "lstm"
    assert (run.result, run.run["verb"]) == ("DefendedTraining", "train")
    assert plain.summary == {"model": str(plain.model), **run.summary}
    assert plain.rows == tuple(epoch.row() for epoch in plain.history.epochs)
    division = divide(CORPUS, 0.3)
    assert run.run["division"] == division.summary()
    data = run.run["data"]
    assert data["training"]["sha256"] == division.training.fingerprint()
    assert data["validation"]["sha256"] == division.held_out.fingerprint()
    assert data["training"]["path"] is None
    settings = run.run["configuration"]
    assert (settings["epochs"], settings["precision"]) == (2, "float32")
    assert settings["defence"] == {"name": "none"}
    assert plain.summary["judged_by"] == "validation"


def test_progress_and_the_chosen_epoch_are_logged(tmp_path, monitor):
    trained(tmp_path / "out", monitor=monitor)
    assert monitor.tasks == ["encoding", "encoding", "training"]
    validation, epoch = monitor.lines
    assert validation.startswith("Validation: ")
    assert epoch.split(" kept, ")[0] in ("Epoch 1", "Epoch 2")


def test_without_validation_the_training_text_is_used(tmp_path):
    result = trained(tmp_path / "out", hold_out=0.0)
    assert set(result.record["data"]) == {"training"}
    assert result.summary["validation_perplexity"] is None
    assert result.summary["judged_by"] == "training"


@pytest.mark.parametrize(("batching", "by_user"), [("poisson-users", True), ("documents", False)])
def test_users_have_a_cap_and_are_held_out_if_they_are_sampled(tmp_path, batching, by_user):
    training = replace(SHORT, epochs=1, batch_size=1, batching=batching)
    options = {"training": training, "hold_out": 0.6, "max_documents_per_user": 5}
    result = trained(tmp_path / "out", USER_CORPUS, **options)
    division = divide(USER_CORPUS, 0.6, by_user=by_user, most_per_user=5)
    assert result.record["division"] == division.summary()
    documents = [part["documents"] for part in result.record["data"].values()]
    assert documents == [len(division.training), len(division.held_out)]


def test_a_path_and_its_content_give_the_same_bits(plain, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    result = trained(tmp_path / "out", str(file))
    assert fingerprint(result.directory) == fingerprint(plain.directory)
    assert result.record["data"]["training"]["path"] == str(file)


def test_continuing_a_loaded_model_does_not_change_it(plain, tmp_path):
    model = load_model(plain.directory)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    of_object, of_path = (
        trained(tmp_path / name, from_=start, model=ModelOptions())
        for name, start in (("one", model), ("two", plain.directory))
    )
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert fingerprint(of_object.directory) == fingerprint(of_path.directory)
    assert fingerprint(of_path.directory) != fingerprint(plain.directory)
    assert load_model(of_path.directory).vocabulary == model.vocabulary
    assert of_object.record["models"]["from"]["path"] is None
    assert of_path.record["models"]["from"]["sha256"] == fingerprint(plain.directory)
    for result, defence in ((of_object, "unknown"), (of_path, "none")):
        ledger = json.loads((result.model / "privacy.json").read_text())["trainings"]
        assert ledger[0]["defence"] == defence


def test_the_precision_that_was_used_is_recorded(tmp_path):
    single, half = (
        trained(tmp_path / name, training=replace(SHORT, precision=name, learning_rate=0.1))
        for name in ("float32", "bfloat16")
    )
    assert half.record["configuration"]["precision"] == "bfloat16"
    assert fingerprint(half.directory) != fingerprint(single.directory)
    perplexities = [result.summary["validation_perplexity"] for result in (half, single)]
    assert perplexities[0] == pytest.approx(perplexities[1], rel=0.1)


def test_a_transformer_with_subwords_is_trained(tmp_path):
    shape = ModelOptions(
        architecture="transformer", layers=1, hidden_size=12, tokenizer="bpe", vocab_size=270
    )
    result = trained(tmp_path / "out", model=shape)
    model = load_model(result.directory)
    assert model.architecture == "transformer"
    assert isinstance(model.vocabulary, SubwordVocabulary)
    assert len(model.vocabulary) <= 270


@pytest.mark.parametrize("architecture", ["lstm", "gru"])
def test_the_next_word_task_reads_documents_one_by_one(tmp_path, architecture):
    shape = ModelOptions(architecture=architecture, hidden_size=8)
    result = trained(tmp_path / "out", USER_CORPUS, task="next-word", model=shape, hold_out=0.1)
    settings, model = result.record["configuration"], load_model(result.directory, device="cpu")
    assert (settings["batching"], settings["optimizer"]) == ("documents", "adam")
    assert type(model).__name__ == f"{architecture.upper()}LanguageModel"
    assert (model.config.layers, model.config.embedding_size) == (1, 8)
    assert model.config.dropout_out == 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "useless"), [(1e-6, True), (0.02, False)])
def test_only_a_useless_model_gives_a_notice(tmp_path, rate, useless):
    training = replace(SHORT, learning_rate=rate, epochs=20, optimizer="adam")
    summary = trained(tmp_path / "out", training=training, validation=CORPUS).summary
    assert (summary["validation_perplexity"] >= summary["word_frequency_perplexity"]) == useless
    assert (useless_model(tmp_path / "out") is not None) == useless
    assert invoke(["report", tmp_path / "out", "--out", tmp_path / "page.html"]).finished
    notice = "predicts no better than word frequencies"
    assert (notice in (tmp_path / "page.html").read_text()) == useless


@pytest.mark.slow
def test_a_training_stops_at_a_perplexity_and_logs_it(tmp_path, monitor):
    evaluated = replace(SHORT, batching="documents", evaluate_every=3, sequence_length=8)
    complete = trained(tmp_path / "complete", training=evaluated, validation=VALIDATION)
    perplexities, steps = (
        [row[name] for row in complete.rows] for name in ("validation_perplexity", "step")
    )
    assert steps == [3, 6, 9, 10, 12, 15, 18, 20]
    goal = perplexities[3]
    first = next(i for i, perplexity in enumerate(perplexities) if perplexity <= goal)

    early = replace(evaluated, stop_at_perplexity=goal)
    stopped = trained(tmp_path / "new", training=early, validation=VALIDATION, monitor=monitor)
    assert stopped.summary["stopped"]
    assert stopped.summary["steps"] == steps[first] < complete.summary["steps"]
    assert stopped.summary["validation_perplexity"] == pytest.approx(perplexities[first])
    assert f"Stopped after {steps[first]} steps (--stop-at-perplexity)" in monitor.lines

    never = replace(evaluated, stop_at_perplexity=1.01)
    result = trained(tmp_path / "never", training=never, validation=VALIDATION)
    assert not result.summary["stopped"]


def test_a_finished_training_is_returned_unchanged_and_never_overwritten(plain):
    before = files_of(plain.directory)
    with pytest.raises(VestigeError, match="exists already"):
        trained(plain.directory)
    assert trained(plain.directory, resume=True).summary == plain.summary
    assert files_of(plain.directory) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hold_out": 0.6}, "has an encoding of other text or of another vocabulary"),
        ({"hold_out": 0.0}, "has an encoding of other text or of another vocabulary"),
        ({"seed": 9}, "another training"),
    ],
)
def test_a_resume_with_other_settings_changes_no_file(plain, change, message):
    before = files_of(plain.directory)
    with pytest.raises(VestigeError, match=message):
        trained(plain.directory, resume=True, **change)
    assert files_of(plain.directory) == before


@pytest.mark.slow
def test_several_seeds_make_several_trainings(plain, tmp_path):
    result = trained(tmp_path / "out", seed=4, seeds=2)
    assert result.summary == {"directory": str(tmp_path / "out"), "trainings": 2}
    first, second = result.trainings
    assert [first.directory.name, second.directory.name] == ["seed-4", "seed-5"]
    assert [row["model"] for row in result.rows] == [str(first.model), str(second.model)]
    assert (first.record["seed"], second.record["seed"]) == (4, 5)
    assert first.record["data"] == second.record["data"]
    assert fingerprint(first.directory) != fingerprint(second.directory)
    alone = trained(tmp_path / "alone", seed=5)
    assert fingerprint(alone.directory) == fingerprint(second.directory)
    with pytest.raises(VestigeError, match="exists already"):
        trained(plain.directory, seeds=2)
    with pytest.raises(VestigeError, match="holds one training"):
        trained(plain.directory, seeds=2, resume=True)
