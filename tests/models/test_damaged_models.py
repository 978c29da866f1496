"""Checkpoints whose hashes hold and whose content does not: refused before anything is made."""

import json
import math
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.damage import damaged, refusal
from tests.models.conftest import Make
from vestige.errors import ModelError, VestigeError
from vestige.models.checkpoints import load_model, load_seq2seq, save_model
from vestige.models.folders import sha256
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.training.new_models import new_model, new_seq2seq

OURS = ("lstm", "gru", "transformer", "table")
HUGE = {
    "lstm": {"hidden_size": 2**20, "layers": 1000},
    "gru": {"embedding_size": 2**20},
    "transformer": {"hidden_size": 2**20, "heads": 2, "feed_forward": 2**20},
    "table": {},
}


def sealed(folder: Path, **changes: Any) -> None:
    """The description with changes, and with the hash of the weights that stand beside it."""
    file = folder / "model.json"
    told = json.loads(file.read_text()) | {"sha256": sha256([folder / "model.safetensors"])}
    file.write_text(json.dumps(told | changes))


def with_weight(folder: Path, value: float) -> None:
    weights = load_file(folder / "model.safetensors")
    name = max(weights, key=lambda one: weights[one].numel())
    weights[name].view(-1)[0] = value
    save_file(weights, folder / "model.safetensors")


@pytest.fixture
def little_memory() -> Iterator[None]:
    """What is allocated although it does not fit fails here, and not the machine with it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**36, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", OURS)
def test_every_field_of_a_description_is_checked(
    name: str, make: dict[str, Make], tmp_path: Path, little_memory: None
) -> None:
    save_model(make[name](), tmp_path / "m")
    file, messages = tmp_path / "m" / "model.json", []
    for what, content in damaged(json.loads(file.read_text())):
        file.write_text(json.dumps(content))
        messages.append(refusal(what, lambda: load_model(tmp_path / "m", device="cpu")))
    assert len(messages) > 100
    assert sum(one is not None for one in messages) > 0.6 * len(messages)


@pytest.mark.parametrize("name", OURS)
def test_a_size_that_the_weights_do_not_fill_is_refused(
    name: str, make: dict[str, Make], tmp_path: Path, little_memory: None
) -> None:
    save_model(make[name](), tmp_path / "m")
    config = json.loads((tmp_path / "m" / "model.json").read_text())["config"]
    for changes in (
        {"config": config | HUGE[name], "vocab_size": 2**20},
        {"config": {**config, "layers": 10**6}},
        {"config": {**config, "layers": 1e6, "hidden_size": 2.5}},
        {"config": {**config, "hidden_size": 10**18}},
        {"config": {**config, "hidden_size": "12"}},
        {"config": {**config, "heads": 3}},
    ):
        if name == "table" and "vocab_size" not in changes:
            continue
        sealed(tmp_path / "m", **changes)
        with pytest.raises(ModelError, match=r"model\.(json|safetensors)"):
            load_model(tmp_path / "m", device="cpu")


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", [*OURS, "gpt2", "gpt2 adapter"])
def test_weights_that_are_no_numbers_are_refused(
    name: str, value: float, make: dict[str, Make], tmp_path: Path
) -> None:
    save_model(make[name](), tmp_path / "m")
    if name in OURS:
        with_weight(tmp_path / "m", value)
        sealed(tmp_path / "m")
    else:
        [file] = (tmp_path / "m").glob("*.safetensors")
        weights = load_file(file)
        weights[max(weights)].view(-1)[0] = value
        save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="NaN or infinite"):
        load_model(tmp_path / "m", device="cpu")


def test_a_pair_model_that_says_no_numbers_is_refused(
    make: dict[str, Make], tmp_path: Path
) -> None:
    words = make["lstm"]().vocabulary
    shape = Seq2SeqConfig(embedding_size=4, hidden_size=4)
    save_model(new_seq2seq(words, words, shape, seed=0), tmp_path / "m")
    with_weight(tmp_path / "m", math.nan)
    sealed(tmp_path / "m")
    with pytest.raises(ModelError, match="NaN or infinite"):
        load_seq2seq(tmp_path / "m", device="cpu")


def test_a_model_larger_than_memory_is_refused_with_an_estimate(make: dict[str, Make]) -> None:
    model: Any = make["lstm"]()
    with pytest.raises(ValueError, match=r"weights would take [\d,.]+ GiB of memory"):
        new_model(model.vocabulary, type(model.config)(hidden_size=2**20, layers=9), seed=0)


def test_the_estimate_leaves_chance_as_it_was(make: dict[str, Make]) -> None:
    model: Any = make["lstm"]()
    torch.manual_seed(4)
    drawn = torch.rand(3)
    torch.manual_seed(4)
    new_model(model.vocabulary, model.config, seed=0)
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_sizes_of_others_models_are_checked_before_they_are_made(
    name: str, folders: dict[str, Path], tmp_path: Path, little_memory: None
) -> None:
    shutil.copytree(folders[name], tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    sound = json.loads(file.read_text())
    layers, width, places = (
        ("n_layer", "n_embd", "n_positions")
        if name == "gpt2"
        else ("num_hidden_layers", "hidden_size", "max_position_embeddings")
    )
    for changes in (
        {"vocab_size": math.inf},
        {"vocab_size": 2**40},
        {"vocab_size": 2**24},
        {"vocab_size": "many"},
        {"vocab_size": 1},
        {layers: 10**6},
        {layers: 1e6},
        {layers: 900},
        {width: 2**20},
        {width: 15},
        {width: 0},
        {width: [width]},
        {places: 2**60},
        {places: -1},
        {"num_labels": 10**12},
        {"text_config": {"vocab_size": -1}},
        {"model_type": []},
        {"dtype": "strange"},
    ):
        file.write_text(json.dumps(sound | changes))
        with pytest.raises(ModelError):
            load_model(tmp_path / "m", device="cpu")


HOSTILE_ADAPTERS = {
    "a pattern that repeats repetitions": {"target_modules": r"(.*a)*b"},
    "a pattern that repeats too often": {"target_modules": r".*.*.*.*.*x"},
    "patterns of ranks": {"rank_pattern": {r"(a+)+": 2}},
    "a rank beyond all": {"r": 10**12},
    "no rank": {"r": 0},
    "half a rank": {"r": 1.5},
    "a scale that is no number": {"lora_alpha": "two"},
    "modules of another type": {"target_modules": [1, 2]},
    "a module of another package": {"megatron_config": {"a": 1}, "megatron_core": "antigravity"},
    "a base that is a list": {"base_model_name_or_path": ["a"]},
    "another kind": {"peft_type": 3},
}


@pytest.mark.parametrize("what", HOSTILE_ADAPTERS)
@pytest.mark.filterwarnings("ignore")  # whatever PEFT says before it gives up
def test_a_hostile_adapter_is_refused(what: str, make: dict[str, Make], tmp_path: Path) -> None:
    save_model(make["gpt2 adapter"](), tmp_path / "m")
    file = tmp_path / "m" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | HOSTILE_ADAPTERS[what]))
    with pytest.raises(ModelError, match=r"adapter_config\.json"):
        load_model(tmp_path / "m", device="cpu")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pipe_in_a_folder_is_never_opened(
    file: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(folders["gpt2"], tmp_path / "m")
    (tmp_path / "m" / file).unlink()
    os.mkfifo(tmp_path / "m" / file)
    with pytest.raises(VestigeError):
        load_model(tmp_path / "m", device="cpu")
