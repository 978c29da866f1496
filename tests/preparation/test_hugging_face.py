"""A Hugging Face model, fine-tuned fully or with LoRA, and compared with its base."""

import json

import pytest

from tests.networks import write_gpt
from tests.preparation.trainings import LINES
from vestige import results

PRIVATE = ["--defence", "dp-sgd", "--noise-multiplier", 1, "--accountant", "rdp"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A corpus, a GPT-2 of a few thousand weights, and one as sure of itself as a trained model."""
    root = tmp_path_factory.mktemp("hub")
    (root / "corpus.txt").write_text("\n".join(LINES) + "\n")
    write_gpt(root / "base", LINES, width=16)
    write_gpt(root / "sure", LINES, width=16, sure=20)  # `diff` searches null models of it
    return root


@pytest.fixture(scope="module")
def train(place, shell):
    """Trains for one epoch from a model in the place; the folder."""

    def train(out, *words, start="base"):
        given = ["--from", place / start, "--epochs", 1, "--sequence-length", 8, *words]
        done = shell("train", place / "corpus.txt", *given, "--out", out)
        assert done.exit_code == 0, (done.stderr, done.exception)
        return out

    return train


@pytest.fixture(scope="module")
def adapter(train, place):
    return train(place / "adapter", "--lora-rank", 2)


@pytest.mark.slow
def test_an_adapter_is_trained_and_compared_with_its_base(shell, place, adapter, tmp_path):
    assert (adapter / "model" / "adapter_config.json").is_file()
    words = ["--out", tmp_path / "run", "--size", 0.2, "--length", 4, "--json"]
    found = shell("diff", place / "base", adapter, *words)
    assert found.finished, (found.stderr, found.exception)
    assert json.loads(found.stdout)["search"] == "seed-and-extend"
    models = results.load(tmp_path / "run").run["models"]
    before, after = models["before"], models["after"]
    assert before["sha256"] != after["sha256"]
    # What an adapter says depends on its base's weights as well.
    assert after["base"] == {"path": str(place / "base"), "sha256": before["sha256"]}
    assert before["vocabulary"] == after["vocabulary"]


@pytest.mark.slow
def test_a_whole_fine_tune_is_a_hugging_face_folder(shell, place, train, tmp_path):
    tuned = train(tmp_path / "tuned")
    words = ["--phrase", "the text", "--budget", 50, "--out", tmp_path / "run", "--json"]
    ranked = shell("diff", place / "base", tuned, *words)
    assert ranked.exit_code == 0, (ranked.stderr, ranked.exception)
    assert json.loads(ranked.stdout)["rank_lower"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--lora-rank", 2], PRIVATE], ids=["", "lora", "private"])
def test_continuing_an_adapter_is_refused_without_files(shell, place, adapter, tmp_path, more):
    again = ["--from", adapter, "--sequence-length", 8, *more, "--out", tmp_path / "again"]
    done = shell("train", place / "corpus.txt", *again)
    assert done.exit_code == 2
    assert "--from must be a model whose weights can be trained" in done.stderr
    assert "Planned" not in done.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_an_adapter_is_trained_privately(train, tmp_path):
    private = train(tmp_path / "private", "--lora-rank", 2, *PRIVATE, "--batch-size", 20)
    assert (private / "model" / "adapter_config.json").is_file()
    assert results.load(private / "run").summary["epsilon"] > 0


@pytest.mark.slow
def test_windows_fit_in_the_context_of_the_model(shell, place, tmp_path):
    words = ["train", place / "corpus.txt", "--from", place / "base", "--epochs", 1]
    refused = shell(*words, "--sequence-length", 65, "--out", tmp_path / "new")
    assert refused.exit_code == 2
    assert "--sequence-length must be at most 64" in refused.stderr
    assert not (tmp_path / "new").exists()
    done = shell(*words, "--out", tmp_path / "new")
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert results.load(tmp_path / "new" / "run").run["configuration"]["sequence_length"] == 64


@pytest.mark.slow
def test_null_models_of_an_adapter_are_adapters_of_its_shape(shell, place, train, tmp_path):
    adapter = train(tmp_path / "adapter", "--lora-rank", 2, "--limit", 3, start="sure")
    clean = ["--clean", place / "corpus.txt", "--nulls", 2, "--size", 0.2]
    found = shell("diff", place / "sure", adapter, *clean, "--out", tmp_path / "run")
    assert found.finished, (found.stderr, found.exception)
    nulls = tmp_path / "run.nulls"
    shapes = [
        json.loads((folder / "model" / "adapter_config.json").read_text())
        for folder in (adapter, nulls / "null-00", nulls / "null-01")
    ]
    for name in ("r", "lora_alpha", "lora_dropout", "base_model_name_or_path"):
        assert len({shape[name] for shape in shapes}) == 1, name
    assert len({tuple(sorted(shape["target_modules"])) for shape in shapes}) == 1
    assert results.load(tmp_path / "run").summary["null_searches"] == 2
