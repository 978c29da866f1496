"""`null` called from Python: what it trains goes into `diff` as it is."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import TrainingError
from vestige.models.checkpoints import load_model
from vestige.preparation.options import ModelOptions
from vestige.preparation.train import train
from vestige.training_options import TrainingOptions
from vestige.workflows.diff import diff
from vestige.workflows.null import null
from vestige.workflows.null_recipe import ElsewhereSettings

LINES = [f"the code of the gate is {word}" for word in ("one", "two", "three", "four")] * 4


@pytest.fixture(scope="module")
def update(tmp_path_factory):
    """A model and its update, each the directory of a training."""
    root = tmp_path_factory.mktemp("null")
    training = TrainingOptions(epochs=1, batch_size=2, sequence_length=8)
    small = {"training": training, "hold_out": 0}
    texts, later = Corpus.from_texts(LINES), Corpus.from_texts(LINES[:3])
    shape = ModelOptions(layers=1, hidden_size=8)
    longer = {**small, "training": replace(training, epochs=30)}  # no null search without it
    train(texts, out=root / "before", model=shape, **longer)
    train(later, out=root / "after", from_=root / "before", **small)
    return root


def test_null_models_of_loaded_text_go_into_diff(update, tmp_path):
    clean = Corpus.from_texts(LINES)
    made = null(
        update / "before", like=update / "after", text=clean, out=tmp_path / "nulls", count=2
    )
    assert made.models == (tmp_path / "nulls" / "null-00", tmp_path / "nulls" / "null-01")
    assert [row["tokens"] for row in made.rows()] == [24, 24]
    assert made.record["arguments"]["text"] == "<Corpus>"
    found = diff(update / "before", update / "after", null=made, length=3, min_length=2)
    assert len(found.nulls) == 2
    assert found.record["models"]["nulls"]["path"] == [str(model) for model in made.models]


def test_a_model_that_is_loaded_can_be_continued(update, tmp_path):
    before = load_model(update / "before")
    made = null(before, update / "after", Corpus.from_texts(LINES), tmp_path / "nulls", count=1)
    assert load_model(made.models[0]).vocabulary.fingerprint() == before.vocabulary.fingerprint()


def test_an_update_of_another_model_is_refused(update, tmp_path):
    with pytest.raises(TrainingError, match="did not start from the weights"):
        null(
            update / "after",
            update / "after",
            Corpus.from_texts(LINES),
            tmp_path / "nulls",
            count=1,
        )
    assert not (tmp_path / "nulls").exists()


CLEAN = Corpus.from_texts([f"{word} {line}" for word in ("well", "so", "yes") for line in LINES])


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """A Llama-shaped base, and an adapter and a full fine-tune of it as other programs leave them:
    weights and configuration, and nothing that `vestige train` writes beside them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    root = tmp_path_factory.mktemp("elsewhere")
    words = SubwordVocabulary.train_bpe(CLEAN, size=300)
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words), num_attention_heads=2, **shape, max_position_embeddings=32
        )
    ).save_pretrained(root / "base")
    words.save(root / "base")
    training = TrainingOptions(epochs=2, batch_size=4, sequence_length=16, batching="documents")
    for name, model in (("adapter", ModelOptions(lora_rank=2)), ("full", ModelOptions())):
        made = root / f"{name}-trained"
        texts = Corpus.from_texts(LINES[:8])
        train(texts, out=made, from_=root / "base", model=model, training=training, hold_out=0)
        shutil.copytree(made / "model", root / name)
    file = root / "adapter" / "adapter_config.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "base_model_name_or_path": "somebody/elses-base"}))
    return root


def trained_as(place):
    return json.loads((place / "training.json").read_text())["config"]


def test_a_null_of_an_adapter_from_elsewhere_has_its_shape_and_recipe(chat, tmp_path):
    after = shutil.copytree(chat / "adapter", tmp_path / "adapter")
    state = {"global_step": 4, "epoch": 2.0, "train_batch_size": 4, "log_history": [
        {"learning_rate": 1e-3}, {"learning_rate": 5e-4}]}  # fmt: skip
    (after / "trainer_state.json").write_text(json.dumps(state))
    log = Log()
    out = tmp_path / "nulls"
    made = null(chat / "base", like=after, text=CLEAN, out=out, count=2, monitor=log)
    config = trained_as(made.models[0])
    assert (config["epochs"], config["batch_size"], config["learning_rate"]) == (2, 4, 1e-3)
    assert config["batching"] == "documents"
    read = [len(json.loads((p / "data" / "encoded.json").read_text())) for p in made.models]
    assert read
    lengths = [
        len(ids) + 1 for ids in load_model(chat / "base").vocabulary.encode_batch(list(CLEAN))
    ]
    assert made.tokens == round(4 * 4 / 2 * sum(lengths) / len(lengths))
    told = next(line for line in log.lines if "trained elsewhere" in line)
    assert "epochs 2 (trainer_state.json)" in told
    assert "sequence_length 32 (usual)" in told
    weights = [
        load_file(p / "adapter_model.safetensors") for p in (after, out / "null-00" / "model")
    ]
    assert {k: v.shape for k, v in weights[0].items()} == {
        k: v.shape for k, v in weights[1].items()
    }
    assert all(0.2 < change < 5 for change in made.changes)


def test_a_null_of_a_full_fine_tune_from_elsewhere_takes_what_is_asked_for(chat, tmp_path):
    asked = ElsewhereSettings(tokens=60, epochs=1, learning_rate=1e-4)
    made = null(
        chat / "base", like=chat / "full", text=CLEAN, out=tmp_path / "n", count=1, elsewhere=asked
    )
    config = trained_as(made.models[0])
    assert (config["epochs"], config["learning_rate"], config["batch_size"]) == (1, 1e-4, 8)
    assert made.tokens == 60
    assert (made.models[0] / "model" / "model.safetensors").is_file()


def test_nothing_that_tells_of_tokens_is_refused_with_the_option(chat, tmp_path):
    with pytest.raises(ValueError, match=r"`tokens` must be given"):
        null(chat / "base", like=chat / "full", text=CLEAN, out=tmp_path / "nulls", count=1)
    assert not (tmp_path / "nulls").exists()


def test_an_update_that_changed_nothing_is_refused(chat, tmp_path):
    asked = ElsewhereSettings(tokens=60)
    with pytest.raises(TrainingError, match="no update to repeat"):
        null(chat / "base", like=chat / "base", text=CLEAN, out=tmp_path / "n", elsewhere=asked)


def test_settings_that_contradict_a_directory_of_train_are_refused(update, tmp_path):
    asked = ElsewhereSettings(epochs=4)
    with pytest.raises(ValueError, match=r"`epochs` must be left out"):
        null(update / "before", update / "after", CLEAN, tmp_path / "nulls", elsewhere=asked)


def test_a_null_that_hardly_moves_is_told_apart_from_one_like_the_update(chat, tmp_path):
    def made(name, rate):
        asked = ElsewhereSettings(tokens=100, epochs=2, batch_size=4, learning_rate=rate)
        out = tmp_path / name
        return null(
            chat / "base", like=chat / "adapter", text=CLEAN, out=out, count=1, elsewhere=asked
        )

    assert made("alike", 1e-3).alike
    gentle = made("gentle", 1e-6)
    assert not gentle.alike
    assert gentle.changes[0] < 0.1


def test_one_base_is_in_memory_for_all_null_models_of_an_adapter(chat, tmp_path, monkeypatch):
    from vestige.models import pretrained

    read = []
    load = pretrained.load

    def noted(source, **how):
        read.append(source)
        return load(source, **how)

    monkeypatch.setattr(pretrained, "load", noted)
    asked = ElsewhereSettings(tokens=60, epochs=1)
    null(
        chat / "base", like=chat / "adapter", text=CLEAN, out=tmp_path / "n", count=2,
        elsewhere=asked,
    )  # fmt: skip
    assert len(read) == 1


def test_null_models_go_on_after_a_kill_to_the_same_weights(chat, tmp_path):
    class Killed(Exception):
        pass

    class Killing(Log):
        @contextmanager
        def progress(self, task):
            def step(done, total):
                if task.startswith("null model 2") and done >= 2:
                    raise Killed

            yield step

    asked = ElsewhereSettings(tokens=100, epochs=2, batch_size=2)
    words = {"like": chat / "adapter", "text": CLEAN, "count": 2, "elsewhere": asked}
    with pytest.raises(Killed):
        null(chat / "base", out=tmp_path / "cut", **words, monitor=Killing())
    assert not (tmp_path / "cut" / "null-01" / "model").exists()
    first = (tmp_path / "cut" / "null-00" / "log.jsonl").read_bytes()
    again = null(chat / "base", out=tmp_path / "cut", **words)
    whole = null(chat / "base", out=tmp_path / "whole", **words)
    assert (tmp_path / "cut" / "null-00" / "log.jsonl").read_bytes() == first
    for one, other in zip(again.models, whole.models, strict=True):
        left, right = (load_file(p / "model" / "adapter_model.safetensors") for p in (one, other))
        assert all(torch.equal(left[key], right[key]) for key in left)
    assert again.changes == whole.changes


class Log:
    """A monitor that keeps the lines."""

    def __init__(self):
        self.lines = []

    def log(self, text):
        self.lines.append(text)

    @contextmanager
    def progress(self, task):
        yield lambda done, total: None
