"""Null models are trained as an update was, whoever trained that."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from vestige import NullOptions, TrainingOptions, diff, train
from vestige.audits.update.null_models import trained
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError, TrainingError
from vestige.models.checkpoints import load_model
from vestige.monitor import SILENT
from vestige.preparation.options import ModelOptions
from vestige.session import Session

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


def null(before, after, text, out, *, count=1, options=None, monitor=SILENT):
    """The null models of a call of `diff`, before anything is searched."""
    run = Session("diff", {}, out=out, monitor=monitor)
    with trained(
        run, before, after, text, count, options=options or NullOptions(), columns={}
    ) as made:
        return made


@pytest.mark.slow
def test_null_models_of_loaded_text_are_searched(update, tmp_path):
    clean, settings = Corpus.from_texts(LINES), {"length": 3, "min_length": 2, "size": 0.2}
    pair, out = (update / "before", update / "after"), tmp_path / "run"
    found = diff(*pair, clean=clean, nulls=2, out=out, **settings)
    assert found.summary["null_searches"] == 2
    assert found.record["arguments"]["clean"] == "<Corpus>"
    assert found.record["data"]["clean"]["documents"] == len(LINES)
    made = [tmp_path / "run.nulls" / "null-00", tmp_path / "run.nulls" / "null-01"]
    assert found.record["models"]["nulls"]["path"] == list(map(str, made))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["run", "run.nulls"]
    trained = diff(*pair, null=tmp_path / "run.nulls", **settings)
    assert trained.summary == found.summary
    memory = diff(*pair, clean=clean, nulls=2, **settings)  # in a temporary folder
    assert memory.summary == found.summary


def test_text_and_time_are_logged_before_any_training(update, tmp_path):
    log = Log()
    null(update / "before", update / "after", Corpus.from_texts(LINES), tmp_path / "a", count=2,
         monitor=log)  # fmt: skip
    first = log.lines[0]
    assert first.startswith("Null models: 2 trainings of 24 tokens and 1 epoch each need 48 tokens")
    assert f"the clean text has {8 * len(LINES)}. Time: about" in first
    assert log.tasks == ["training null model 1 of 2", "training null model 2 of 2"]
    null(update / "before", update / "after", Corpus.from_texts(LINES), tmp_path / "a", count=3,
         monitor=(again := Log()))  # fmt: skip
    assert "Time: 2 were trained earlier; the others take about" in again.lines[0]


def test_too_little_text_is_refused_at_once_with_both_numbers(update, tmp_path):
    log, few = Log(), Corpus.from_texts(LINES[:3])
    with pytest.raises(DataError, match="has 24 tokens; 19 null models need 456"):
        null(update / "before", update / "after", few, tmp_path / "run", count=19, monitor=log)
    assert log.tasks == []
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_loaded_can_be_continued(update, tmp_path):
    before = load_model(update / "before")
    [made] = null(before, update / "after", Corpus.from_texts(LINES), tmp_path / "run")
    assert load_model(made).vocabulary.fingerprint() == before.vocabulary.fingerprint()


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


@pytest.mark.slow
def test_a_null_of_an_adapter_from_elsewhere_has_its_shape_and_recipe(chat, tmp_path):
    after = shutil.copytree(chat / "adapter", tmp_path / "adapter")
    state = {"global_step": 4, "epoch": 2.0, "train_batch_size": 4, "log_history": [
        {"learning_rate": 1e-3}, {"learning_rate": 5e-4}]}  # fmt: skip
    (after / "trainer_state.json").write_text(json.dumps(state))
    log = Log()
    out = tmp_path / "run"
    made = null(chat / "base", after, CLEAN, out, count=2, monitor=log)
    config = trained_as(made[0])
    assert (config["epochs"], config["batch_size"], config["learning_rate"]) == (2, 4, 1e-3)
    assert config["batching"] == "documents"
    read = [len(json.loads((p / "data" / "encoded.json").read_text())) for p in made]
    assert read
    lengths = [
        len(ids) + 1 for ids in load_model(chat / "base").vocabulary.encode_batch(list(CLEAN))
    ]
    told = next(line for line in log.lines if line.startswith("Null models are trained with"))
    tokens = round(4 * 4 / 2 * sum(lengths) / len(lengths))
    assert f"on {tokens:,} tokens per epoch (trainer_state.json)" in told
    assert "epochs 2 (trainer_state.json)" in told
    assert "sequence_length 32 (default)" in told
    weights = [load_file(p / "adapter_model.safetensors") for p in (after, made[0] / "model")]
    assert {k: v.shape for k, v in weights[0].items()} == {
        k: v.shape for k, v in weights[1].items()
    }
    assert all(0.2 < change < 5 for change in log.changes)


@pytest.mark.slow
def test_a_null_of_a_full_fine_tune_from_elsewhere_takes_what_is_asked_for(chat, tmp_path):
    asked = NullOptions(tokens=60, epochs=1, learning_rate=1e-4)
    log = Log()
    made = null(chat / "base", chat / "full", CLEAN, tmp_path / "n", options=asked, monitor=log)
    config = trained_as(made[0])
    assert (config["epochs"], config["learning_rate"], config["batch_size"]) == (1, 1e-4, 8)
    assert any("60 tokens per epoch (given)" in line for line in log.lines)
    assert (made[0] / "model" / "model.safetensors").is_file()


def test_an_update_that_cannot_be_repeated_is_refused(update, chat, tmp_path):
    texts, loaded, out = Corpus.from_texts(LINES), load_model(update / "after"), tmp_path / "run"
    some, epochs = NullOptions(tokens=60), NullOptions(epochs=4)
    for before, after, clean, options, error, message in (
        (update / "before", loaded, texts, None, ValueError, "`clean` needs the folder of `after`"),
        (update / "after", update / "after", texts, None, TrainingError, "did not start from the"),
        (update / "before", update / "after", CLEAN, epochs, ValueError, "`epochs` must be left"),
        (chat / "base", chat / "full", CLEAN, None, ValueError, "`tokens` is needed"),
        (chat / "base", chat / "base", CLEAN, some, TrainingError, "no update to repeat"),
    ):
        with pytest.raises(error, match=message):
            null(before, after, clean, out, options=options)


@pytest.mark.slow
def test_a_null_that_hardly_moves_is_told_apart_from_one_like_the_update(chat, tmp_path):
    def made(name, rate):
        asked = NullOptions(tokens=100, epochs=2, batch_size=4, learning_rate=rate)
        log = Log()
        null(chat / "base", chat / "adapter", CLEAN, tmp_path / name, options=asked, monitor=log)
        return log

    alike, gentle = made("alike", 1e-3), made("gentle", 1e-6)
    assert not any("A verdict needs 0.7 to 2" in line for line in alike.lines)
    assert any("A verdict needs 0.7 to 2" in line for line in gentle.lines)
    assert gentle.changes[0] < 0.1


@pytest.mark.slow
def test_one_base_is_in_memory_for_all_null_models_of_an_adapter(chat, tmp_path, monkeypatch):
    from vestige.models import pretrained

    read = []
    load = pretrained.load

    def noted(source, **how):
        read.append(source)
        return load(source, **how)

    monkeypatch.setattr(pretrained, "load", noted)
    asked = NullOptions(tokens=60, epochs=1)
    null(chat / "base", chat / "adapter", CLEAN, tmp_path / "n", count=2, options=asked)
    assert len(read) == 1


@pytest.mark.slow
def test_null_models_go_on_after_a_kill_to_the_same_weights(chat, tmp_path):
    class Killed(Exception):
        pass

    class Killing(Log):
        @contextmanager
        def progress(self, task):
            def step(done, total):
                if task.startswith("training null model 2") and done >= 2:
                    raise Killed

            yield step

    asked = NullOptions(tokens=100, epochs=2, batch_size=2)
    given, cut = (chat / "base", chat / "adapter", CLEAN), tmp_path / "cut.nulls"
    with pytest.raises(Killed):
        null(*given, tmp_path / "cut", count=2, options=asked, monitor=Killing())
    assert not (cut / "null-01" / "model").exists()
    first = (cut / "null-00" / "log.jsonl").read_bytes()
    resumed, unbroken = Log(), Log()
    again = null(*given, tmp_path / "cut", count=2, options=asked, monitor=resumed)
    whole = null(*given, tmp_path / "whole", count=2, options=asked, monitor=unbroken)
    assert (cut / "null-00" / "log.jsonl").read_bytes() == first
    for one, other in zip(again, whole, strict=True):
        left, right = (load_file(p / "model" / "adapter_model.safetensors") for p in (one, other))
        assert all(torch.equal(left[key], right[key]) for key in left)
    assert resumed.changes == unbroken.changes


class Log:
    """A monitor that keeps lines and tasks."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    @contextmanager
    def progress(self, task):
        self.tasks.append(task)
        yield lambda done, total: None

    @property
    def changes(self):
        """How far null models moved the weights, least and most."""
        [line] = [line for line in self.lines if line.startswith("The null models moved")]
        return [float(word) for word in line.split() if word.replace(".", "").isdigit()]
