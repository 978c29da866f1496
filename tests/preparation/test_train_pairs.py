"""`train --task translation|dialogue`: two vocabularies, and scores with intervals."""

from dataclasses import replace

import pytest
import torch

from tests.cli.shell import invoke
from tests.preparation.trainings import NUMBERS, PAIRS, TASKS, trained
from vestige import results
from vestige.data.corpus import Corpus
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.training.presets import PAIR_PRESETS


def loaded(result):
    return load_seq2seq(result.directory, device="cpu")


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("translator") / "out", task="translation")


def test_a_translation_leaves_a_model_and_a_run(translator):
    summary, run = translator.summary, results.load(translator.directory / "run")
    assert (summary["task"], summary["attention"], summary["cell"]) == ("translation", True, "lstm")
    assert 0 <= summary["validation_bleu"] <= 100
    assert "tok:13a" in summary["validation_bleu_signature"]
    for name in ("accuracy", "perplexity"):
        low, high = summary[f"validation_{name}_low"], summary[f"validation_{name}_high"]
        assert low <= summary[f"validation_{name}"] <= high
    assert (run.result, run.run["configuration"]["precision"]) == ("PairTraining", "float32")
    sizes = [run.run["data"][role]["documents"] for role in ("training", "validation")]
    assert sum(sizes) == len(PAIRS)
    assert sizes[1] == run.run["division"]["held_out_documents"] > 0


def test_sources_and_targets_have_their_own_vocabularies(translator):
    model, record = loaded(translator), translator.record["models"]["trained"]
    assert set(model.source_vocabulary.words) == {"<unk>", "<eos>", "dites", "vite", *NUMBERS}
    assert set(model.vocabulary.words) == {"<unk>", "<eos>", "say", "now", *NUMBERS}
    assert (record["architecture"], record["embedding_size"]) == ("seq2seq", 4)
    assert record["vocabulary"] == model.vocabulary.fingerprint()
    assert record["source_vocabulary"] == model.source_vocabulary.fingerprint()
    decoder = model.given("dites one")
    assert decoder.log_probs(decoder.start(1)).shape == (1, len(model.vocabulary))


def test_unset_options_come_from_the_preset(pairs):
    plan, settings = PAIR_PRESETS["dialogue"], pairs.record["configuration"]
    assert loaded(pairs).config == replace(plan.model, hidden_size=4, embedding_size=4)
    assert settings["learning_rate"] == plan.training.learning_rate
    assert (settings["epochs"], settings["batch_size"]) == (1, 8)
    assert pairs.summary["attention"] is False
    assert "validation_bleu" not in pairs.summary


@pytest.mark.parametrize("kind", ["folder", "object"])
def test_the_vocabularies_of_another_training_are_used_unchanged(pairs, tmp_path, kind):
    model = loaded(pairs)
    vocabulary = pairs.directory if kind == "folder" else model
    result = trained(
        tmp_path / "out",
        Corpus.from_texts(["good day"] * 9, sources=["bon jour"] * 9),
        task="dialogue",
        hold_out=0.0,
        training=TrainingOptions(epochs=1, optimizer="sgd", momentum=0.9),
        model=ModelOptions(
            hidden_size=4, embedding_size=5, architecture="gru", vocabulary=vocabulary
        ),
    )
    other = loaded(result)
    assert other.vocabulary.fingerprint() == model.vocabulary.fingerprint()
    assert other.source_vocabulary.fingerprint() == model.source_vocabulary.fingerprint()
    assert (other.config.cell, other.config.embedding_size) == ("gru", 5)
    assert result.record["configuration"]["momentum"] == 0.9
    assert set(result.record["data"]) == {"training"}
    assert result.summary["validation_accuracy"] is None
    assert "validation_accuracy_low" not in result.summary


def test_a_loaded_model_is_continued_as_a_copy(pairs, tmp_path):
    start = loaded(pairs)
    before = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    options = {"task": "dialogue", "from_": start, "model": ModelOptions()}
    result = trained(tmp_path / "out", **options)
    after = loaded(result).state_dict()
    assert all(torch.equal(before[name], tensor) for name, tensor in start.state_dict().items())
    assert not all(torch.equal(before[name], after[name]) for name in before)
    assert "from" in result.record["models"]
    assert trained(tmp_path / "out", **options, resume=True).summary == result.summary


def test_a_vocabulary_without_sources_is_refused(plain, tmp_path):
    for vocabulary in (plain.directory, load_model(plain.directory)):
        shape = replace(TASKS["dialogue"][1]["model"], vocabulary=vocabulary)
        with pytest.raises(ValueError, match="`vocabulary` must be a model of `task` translation"):
            trained(tmp_path / "out", task="dialogue", model=shape)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_terminal_shows_scores_with_intervals(tmp_path):
    (tmp_path / "pairs.csv").write_text(
        "text,french\n" + "".join(f"{t},{s}\n" for t, s in zip(PAIRS, PAIRS.sources, strict=True))
    )
    words = ["--task", "translation", "--source", "french", "--epochs", 1, "--hidden-size", 4]
    words += ["--hold-out", 0.3, "--out", tmp_path / "out"]
    done = invoke(["train", tmp_path / "pairs.csv", *words])
    assert done.exit_code == 0, done.stderr
    assert "Epoch 1 kept, validation perplexity" in done.stderr
    assert all(s in done.stdout for s in ("word accuracy", "perplexity", "BLEU", "95% CI"))
