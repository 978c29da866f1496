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

SMALL = TASKS["dialogue"][1]["model"]


def loaded(found):
    return load_seq2seq(found.directory, device="cpu")


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
    parts = [run.run["data"][role]["documents"] for role in ("training", "validation")]
    assert sum(parts) == len(PAIRS)
    assert parts[1] == run.run["division"]["held_out_documents"] > 0


def test_sources_and_targets_have_their_own_vocabularies(translator):
    model, found = loaded(translator), translator.record["models"]["trained"]
    assert set(model.source_vocabulary.words) == {"<unk>", "<eos>", "dites", "vite", *NUMBERS}
    assert set(model.vocabulary.words) == {"<unk>", "<eos>", "say", "now", *NUMBERS}
    assert (found["architecture"], found["embedding_size"]) == ("seq2seq", 4)
    assert found["vocabulary"] == model.vocabulary.fingerprint()
    assert found["source_vocabulary"] == model.source_vocabulary.fingerprint()
    given = model.given("dites one")
    assert given.log_probs(given.start(1)).shape == (1, len(model.vocabulary))


def test_unset_options_come_from_the_preset(pairs):
    plan, settings = PAIR_PRESETS["dialogue"], pairs.record["configuration"]
    assert loaded(pairs).config == replace(plan.model, hidden_size=4, embedding_size=4)
    assert settings["learning_rate"] == plan.training.learning_rate
    assert (settings["epochs"], settings["batch_size"]) == (1, 8)
    assert pairs.summary["attention"] is False
    assert "validation_bleu" not in pairs.summary


def test_the_vocabularies_of_another_training_are_used_unchanged(pairs, tmp_path):
    model, other = loaded(pairs), Corpus.from_texts(["good day"] * 9, sources=["bon jour"] * 9)
    training = TrainingOptions(epochs=1, optimizer="sgd", momentum=0.9)
    shape = ModelOptions(hidden_size=4, embedding_size=5, architecture="gru")
    for number, given in enumerate((pairs.directory, model)):
        found = trained(
            tmp_path / str(number), other, task="dialogue", hold_out=0.0, training=training,
            model=replace(shape, vocabulary=given),
        )  # fmt: skip
        again = loaded(found)
        assert again.vocabulary.fingerprint() == model.vocabulary.fingerprint()
        assert again.source_vocabulary.fingerprint() == model.source_vocabulary.fingerprint()
        assert (again.config.cell, again.config.embedding_size) == ("gru", 5)
        assert found.record["configuration"]["momentum"] == 0.9
        assert set(found.record["data"]) == {"training"}
        assert found.summary["validation_accuracy"] is None
        assert "validation_accuracy_low" not in found.summary


def test_a_loaded_model_is_continued_as_a_copy(pairs, tmp_path):
    start = loaded(pairs)
    before = {name: one.clone() for name, one in start.state_dict().items()}
    found = trained(tmp_path / "out", task="dialogue", from_=start, model=ModelOptions())
    after = loaded(found).state_dict()
    assert all(torch.equal(before[name], one) for name, one in start.state_dict().items())
    assert not all(torch.equal(before[name], after[name]) for name in before)
    assert "from" in found.record["models"]
    again = trained(
        tmp_path / "out", task="dialogue", from_=start, model=ModelOptions(), resume=True
    )
    assert again.summary == found.summary


def test_a_vocabulary_without_sources_is_refused(plain, tmp_path):
    for given in (plain.directory, load_model(plain.directory)):
        with pytest.raises(ValueError, match="`vocabulary` must be a model of `task` translation"):
            trained(tmp_path / "out", task="dialogue", model=replace(SMALL, vocabulary=given))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_translation_model_is_refused_as_a_language_model(translator, tmp_path):
    done = invoke(["diff", translator.directory, translator.directory, "--out", tmp_path / "none"])
    assert done.exit_code == 2
    assert "is a sequence-to-sequence model: it needs a source text." in done.stderr


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
