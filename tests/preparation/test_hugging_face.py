"""Fine-tunes of a Hugging Face model, complete and with LoRA, compared with their base."""

import json

import pytest

from tests.networks import write_gpt
from tests.preparation.trainings import LINES
from vestige import results

pytestmark = pytest.mark.slow
PRIVATE = ["--defence", "dp-sgd", "--noise-multiplier", 1, "--accountant", "rdp"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A corpus, a small GPT-2, and one with logits as large as those of a trained model."""
    root = tmp_path_factory.mktemp("hub")
    (root / "corpus.txt").write_text("\n".join(LINES) + "\n")
    write_gpt(root / "base", LINES, width=16)
    write_gpt(root / "confident", LINES, width=16, sure=20)
    return root


@pytest.fixture(scope="module")
def train(root, shell):
    """Trains a model for one epoch; returns its folder."""

    def train(out, *words, start="base"):
        options = ["--from", root / start, "--epochs", 1, "--sequence-length", 8, *words]
        done = shell("train", root / "corpus.txt", *options, "--out", out)
        assert done.exit_code == 0, (done.stderr, done.exception)
        return out

    return train


@pytest.fixture(scope="module")
def adapter(train, root):
    return train(root / "adapter", "--lora-rank", 2)


def test_an_adapter_is_compared_with_its_base(shell, root, adapter, tmp_path):
    assert (adapter / "model" / "adapter_config.json").is_file()
    words = ["--out", tmp_path / "run", "--size", 0.2, "--length", 4, "--json"]
    done = shell("diff", root / "base", adapter, *words)
    assert done.finished, (done.stderr, done.exception)
    assert json.loads(done.stdout)["search"] == "seed-and-extend"
    models = results.load(tmp_path / "run").run["models"]
    before, after = models["before"], models["after"]
    assert before["sha256"] != after["sha256"]
    assert after["base"] == {"path": str(root / "base"), "sha256": before["sha256"]}
    assert before["vocabulary"] == after["vocabulary"]


def test_a_complete_fine_tune_is_compared_with_its_base(shell, root, train, tmp_path):
    words = ["--phrase", "the text", "--budget", 50, "--out", tmp_path / "run", "--json"]
    done = shell("diff", root / "base", train(tmp_path / "tuned"), *words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert json.loads(done.stdout)["rank_lower"] >= 0


@pytest.mark.parametrize("options", [[], ["--lora-rank", 2], PRIVATE], ids=["", "lora", "private"])
def test_an_adapter_cannot_be_continued(shell, root, adapter, tmp_path, options):
    words = ["--from", adapter, "--sequence-length", 8, *options, "--out", tmp_path / "again"]
    done = shell("train", root / "corpus.txt", *words)
    assert done.exit_code == 2
    assert "--from must be a model whose weights can be trained" in done.stderr
    assert "Planned" not in done.stderr
    assert not (tmp_path / "again").exists()


def test_an_adapter_is_trained_privately(train, tmp_path):
    private = train(tmp_path / "private", "--lora-rank", 2, *PRIVATE, "--batch-size", 20)
    assert (private / "model" / "adapter_config.json").is_file()
    assert results.load(private / "run").summary["epsilon"] > 0


def test_the_context_of_the_model_limits_the_sequence_length(shell, root, tmp_path):
    words = ["train", root / "corpus.txt", "--from", root / "base", "--epochs", 1]
    refused = shell(*words, "--sequence-length", 65, "--out", tmp_path / "new")
    assert refused.exit_code == 2
    assert "--sequence-length must be at most 64" in refused.stderr
    assert not (tmp_path / "new").exists()
    done = shell(*words, "--out", tmp_path / "new")
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert results.load(tmp_path / "new" / "run").run["configuration"]["sequence_length"] == 64


def test_null_models_of_an_adapter_are_adapters_with_its_settings(shell, root, train, tmp_path):
    adapter = train(tmp_path / "adapter", "--lora-rank", 2, "--limit", 3, start="confident")
    clean = ["--clean", root / "corpus.txt", "--nulls", 2, "--size", 0.2]
    done = shell("diff", root / "confident", adapter, *clean, "--out", tmp_path / "run")
    assert done.finished, (done.stderr, done.exception)
    nulls = tmp_path / "run.nulls"
    tuned, *others = [
        json.loads((folder / "model" / "adapter_config.json").read_text())
        for folder in (adapter, nulls / "null-00", nulls / "null-01")
    ]
    for other in others:
        for name in ("r", "lora_alpha", "lora_dropout", "base_model_name_or_path"):
            assert other[name] == tuned[name]
        assert sorted(other["target_modules"]) == sorted(tuned["target_modules"])
    assert results.load(tmp_path / "run").summary["null_searches"] == 2
