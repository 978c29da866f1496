"""An engineer's own Hugging Face model, fine-tuned with LoRA, compared with its base."""

import json
import shutil

import pytest
import torch

from vestige import results
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary


@pytest.fixture(scope="module")
def base(workspace, tmp_path_factory):
    """A GPT-2 of a few thousand parameters, as transformers writes it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("hub") / "base"
    texts = (workspace / "corpus.txt").read_text().splitlines()
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=300)
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=64, n_embd=16, n_layer=1, n_head=2,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    torch.manual_seed(0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    vocabulary.save(folder)
    return folder


@pytest.fixture(scope="module")
def sure(base, tmp_path_factory):
    """The same, as sure of the next token as a trained model: `diff` searches null models of it."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("sure") / "base"
    shutil.copytree(base, folder)
    network = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        network.transformer.ln_f.weight.mul_(20)
    network.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_an_adapter_is_trained_and_compared_with_its_base(shell, workspace, base, tmp_path):
    adapter, run = tmp_path / "adapter", tmp_path / "run"
    words = ["--from", base, "--lora-rank", 2, "--sequence-length", 8, "--epochs", 1]
    trained = shell("train", workspace / "corpus.txt", *words, "--out", adapter)
    assert trained.exit_code == 0, (trained.stderr, trained.exception)
    assert (adapter / "model" / "adapter_config.json").is_file()

    found = shell("diff", base, adapter, "--out", run, "--size", 0.2, "--length", 4, "--json")
    assert found.finished, (found.stderr, found.exception)
    assert json.loads(found.stdout)["search"] == "seed-and-extend"
    models = results.load(run).run["models"]
    assert models["before"]["sha256"] != models["after"]["sha256"]
    # What an adapter says depends on its base's weights as well.
    assert models["after"]["base"] == {"path": str(base), "sha256": models["before"]["sha256"]}
    assert models["before"]["vocabulary"] == models["after"]["vocabulary"]


@pytest.mark.slow
def test_a_whole_fine_tune_is_a_hugging_face_folder(shell, workspace, base, tmp_path):
    words = ["--from", base, "--sequence-length", 8, "--epochs", 1, "--out", tmp_path / "tuned"]
    done = shell("train", workspace / "corpus.txt", *words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    ranked = shell(
        "diff", base, tmp_path / "tuned", "--phrase", "the gate", "--budget", 50,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert ranked.exit_code == 0, (ranked.stderr, ranked.exception)
    assert json.loads(ranked.stdout)["rank_lower"] >= 0


@pytest.mark.slow
def test_an_adapter_is_not_continued_and_nothing_is_begun(shell, workspace, base, tmp_path):
    adapter, words = tmp_path / "adapter", ["--sequence-length", 8, "--epochs", 1]
    made = shell("train", workspace / "corpus.txt", "--from", base, "--lora-rank", 2, *words,
                 "--out", adapter)  # fmt: skip
    assert made.exit_code == 0, (made.stderr, made.exception)
    private = ["--defence", "dp-sgd", "--noise-multiplier", 1, "--accountant", "rdp"]
    for more in ([], ["--lora-rank", 2], private):
        again = ["--from", adapter, *words, *more, "--out", tmp_path / "again"]
        done = shell("train", workspace / "corpus.txt", *again)
        assert done.exit_code == 2
        assert "--from must be a model whose weights can be trained" in done.stderr
        assert "Will promise" not in done.stderr
        assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_an_adapter_is_trained_in_private(shell, workspace, base, tmp_path):
    words = ["--from", base, "--lora-rank", 2, "--sequence-length", 8, "--epochs", 1]
    words += ["--defence", "dp-sgd", "--noise-multiplier", 1, "--accountant", "rdp"]
    words += ["--batch-size", 20, "--out", tmp_path / "private"]
    done = shell("train", workspace / "corpus.txt", *words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert (tmp_path / "private" / "model" / "adapter_config.json").is_file()
    assert results.load(tmp_path / "private" / "run").summary["epsilon"] > 0
    assert "Almost nothing was clipped. Use --clip 0." in done.stderr


def test_a_text_longer_than_the_model_reads_is_refused(shell, workspace, base, tmp_path):
    words = ["--from", base, "--sequence-length", 65, "--out", tmp_path / "new"]
    done = shell("train", workspace / "corpus.txt", *words)
    assert done.exit_code == 2
    assert "--sequence-length must be at most 64" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_window_is_no_longer_than_the_model_reads(shell, workspace, base, tmp_path):
    done = shell(
        "train", workspace / "corpus.txt", "--from", base, "--epochs", 1, "--out", tmp_path / "new"
    )
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert results.load(tmp_path / "new" / "run").run["configuration"]["sequence_length"] == 64


@pytest.mark.slow
def test_null_models_of_an_adapter_are_adapters_of_its_shape(shell, workspace, sure, tmp_path):
    adapter, nulls = tmp_path / "adapter", tmp_path / "run.nulls"
    words = ["--from", sure, "--lora-rank", 2, "--sequence-length", 8, "--epochs", 1]
    done = shell("train", workspace / "corpus.txt", *words, "--limit", 3, "--out", adapter)
    assert done.exit_code == 0, (done.stderr, done.exception)
    clean = ["--clean", workspace / "corpus.txt", "--nulls", 2, "--size", 0.2]
    found = shell("diff", sure, adapter, *clean, "--out", tmp_path / "run")
    assert found.finished, (found.stderr, found.exception)
    shapes = [
        json.loads((place / "model" / "adapter_config.json").read_text())
        for place in (adapter, nulls / "null-00", nulls / "null-01")
    ]
    for name in ("r", "lora_alpha", "lora_dropout", "base_model_name_or_path"):
        assert len({shape[name] for shape in shapes}) == 1, name
    assert len({tuple(sorted(shape["target_modules"])) for shape in shapes}) == 1
    assert results.load(tmp_path / "run").summary["null_searches"] == 2
