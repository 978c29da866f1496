"""Canaries in a data set, and their exposure while Transformers trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import vestige
from tests.docs.documents import REPOSITORY
from tests.workflows.asked import sentences
from vestige.data.corpus import Corpus
from vestige.data.manifest import Manifest
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError
from vestige.integrations.transformers import Leakage, LeakageCallback, plant
from vestige.models.hugging_face import HuggingFaceLanguageModel

TEXTS = sentences(60, seed=0)
DATA = Dataset.from_dict({"text": TEXTS, "number": list(range(60))})


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    out = tmp_path_factory.mktemp("planted") / "canaries"
    return plant(DATA, out=out, coin_flip=16, copies=20, length=4), out


def tokenizer():
    return SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS), size=300).tokenizer


def trained(planted, tmp_path, *callbacks, steps=40, rows=8, **settings):
    """A trainer after some steps on planted texts, and what a tracker was told."""
    words = tokenizer()
    words.pad_token = words.eos_token
    torch.manual_seed(0)
    sizes = {"n_positions": 64, "n_embd": 64, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes))

    def encoded(row):
        return {"input_ids": words(row["text"] + words.eos_token)["input_ids"]}

    class Tracker(TrainerCallback):
        told: list

        def on_log(self, args, state, control, logs=None, **rest):
            self.told.append(dict(logs))

    tracker = Tracker()
    tracker.told = []
    args = TrainingArguments(
        tmp_path / "trainer", max_steps=steps, per_device_train_batch_size=rows, learning_rate=1e-2,
        report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", seed=0, **settings,
    )  # fmt: skip
    data, _ = planted
    trainer = Trainer(
        model, args, processing_class=words, callbacks=[tracker, *callbacks],
        train_dataset=data.map(encoded, remove_columns=data.column_names),
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
    )  # fmt: skip
    trainer.train()
    return trainer, tracker.told


def test_canaries_stand_among_the_rows_where_the_manifest_says(planted):
    data, out = planted
    manifest = Manifest.load(out / "manifest.json")
    copies = sum(map(len, manifest.positions))
    assert len(data) == len(DATA) + copies
    for canary, places in zip(manifest.canaries, manifest.positions, strict=True):
        assert {data[place]["text"] for place in places} <= {canary.phrase}
        assert {data[place]["number"] for place in places} <= {None}
    kept = [row for place, row in enumerate(data) if place not in manifest.places]
    assert kept == list(DATA)
    assert data["text"] == list(vestige.plant(out, verify=True).corpus)


def test_it_measures_what_the_verb_measures_and_tells_the_trackers(planted, tmp_path):
    callback = LeakageCallback(planted[1], every=0.25, budget=1.0, out=tmp_path / "run")
    trainer, told = trained(planted, tmp_path, callback, steps=240)
    assert [moment.step for moment in callback.moments] == [60, 120, 180, 240]
    model = HuggingFaceLanguageModel(trainer.model, SubwordVocabulary(trainer.processing_class))
    final = vestige.exposure(model, planted[1], references=2**10)
    assert callback.moments[-1].found.canaries == final.canaries
    told = [logs["vestige/exposure"] for logs in told if "vestige/exposure" in logs]
    assert told == [one.found.summary()["exposure_planted"] for one in callback.moments]
    history = [row for row in trainer.state.log_history if "vestige/exposure" in row]
    assert [row["step"] for row in history] == [60, 120, 180, 240]
    saved = vestige.results.load(tmp_path / "run")
    assert saved.summary["exposure_planted"] == told[-1]
    assert told[-1] > max(told[0], final.controls.exposure.value) + 1


def test_a_training_goes_on_as_if_nobody_had_asked(planted, tmp_path):
    alone, _ = trained(planted, tmp_path, steps=12)
    callback = LeakageCallback(planted[1], every=0.25, budget=1.0)
    watched, _ = trained(planted, tmp_path, callback, steps=12)
    for one, other in zip(alone.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_measurement_for_which_there_is_no_time_is_left_out(planted, tmp_path):
    callback = LeakageCallback(planted[1], every=0.1, budget=1e-6)
    trained(planted, tmp_path, callback, steps=20)
    assert [moment.step for moment in callback.moments] == [2, 20]
    assert callback.left_out == 8


def test_it_stops_and_fails_above_its_limits(planted, tmp_path):
    callback = LeakageCallback(planted[1], every=0.25, budget=1.0, stop_above={"exposure": -1.0})
    trainer, _ = trained(planted, tmp_path, callback)
    assert trainer.state.global_step == 10
    failing = LeakageCallback(planted[1], fail_above={"exposure": 0.0}, out=tmp_path / "run")
    with pytest.raises(Leakage, match=r"the canaries have exposure .* bits: more than 0"):
        trained(planted, tmp_path, failing, steps=5)
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0.0}, r"every must be in \(0, 1\]"),
        ({"budget": 2.0}, r"budget must be in \(0, 1\]"),
        ({"fail_above": {"found": 1}}, "fail_above can have exposure alone, got found"),
        ({"references": 0}, "references must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LeakageCallback("canaries", **settings)


def test_a_data_set_without_the_column_is_refused(tmp_path):
    with pytest.raises(DataError, match="no column body; it has text, number"):
        plant(DATA, out=tmp_path / "x", column="body")


def test_rows_are_numbered_as_they_were(planted):
    numbers = [row["number"] for row in planted[0] if row["number"] is not None]
    assert np.all(np.diff(numbers) == 1)


@pytest.mark.slow
def test_two_processes_measure_what_one_measures(planted, tmp_path):
    data, canaries = planted
    data.save_to_disk(str(canaries.parent / "data"))
    script = Path(__file__).with_name("in_processes.py")
    found = {}
    for count in (1, 2):
        out = tmp_path / str(count)
        out.mkdir()
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        words += [f"--nproc-per-node={count}", script, canaries, out]
        alone = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
        subprocess.run(words, check=True, timeout=300, env=os.environ | alone)
        told = [json.loads((out / str(rank) / "told.json").read_text()) for rank in range(count)]
        assert all(moments == told[0][0] for moments, _ in told)
        assert [len(logs) for _, logs in told] == [2] + [0] * (count - 1)
        assert vestige.results.load(out / "run").summary["exposure_planted"] == told[0][0][-1][1]
        found[count] = told[0][0]
    assert [step for step, _ in found[2]] == [4, 8]
    for (_, one), (_, other) in zip(found[1], found[2], strict=True):
        assert one == pytest.approx(other, abs=0.2)
