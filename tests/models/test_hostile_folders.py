"""Hostile model folders cannot run code, read files outside or claim impossible sizes."""

import json
import math
import os
import shutil
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.models.conftest import INDEX, edit_json, shard
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError, VestigeError
from vestige.models import pretrained
from vestige.models.checkpoints import load_model
from vestige.models.folders import fingerprint, weight_files
from vestige.models.foreign_files import PACKED, gguf_weights
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.nlu_encoder import new_encoder


@pytest.mark.parametrize(
    "outside",
    [
        "../elsewhere.safetensors",
        "inner/../../elsewhere.safetensors",
        "ABSOLUTE",
        "inner/w.safetensors",
    ],
)
def test_shards_outside_the_folder_are_refused(folder, tmp_path, outside):
    shard(folder, str(tmp_path / "elsewhere.safetensors") if outside == "ABSOLUTE" else outside)
    # A hash of the files in the folder would cover this decoy only.
    save_file({"x": torch.zeros(1)}, folder / "decoy.safetensors")
    for read in (load_model, fingerprint):
        with pytest.raises(ModelError, match=r"index\.json.*not a safetensors file"):
            read(folder)


def test_weights_outside_the_folder_are_refused(folder):
    edit_json(folder / "config.json", transformers_weights="../other.safetensors")
    with pytest.raises(ModelError, match=r"config\.json.*not a safetensors file"):
        load_model(folder)


@pytest.mark.parametrize(
    "content",
    ['{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"x": 3}}', "[" * 10**5, "{", "3"],
)
def test_a_damaged_index_is_named(folder, content):
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(content)
    for read in (load_model, fingerprint):
        with pytest.raises(ModelError, match=r"index\.json"):
            read(folder)


def test_a_base_that_is_an_adapter_is_refused(folder):
    # transformers would read the weights of the base that the adapter names.
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/x"}))
    with pytest.raises(ModelError, match="adapter"):
        pretrained.load(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.ckpt", "weights.pkl", "net.pickle"])
def test_pickle_files_are_refused_by_name(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelError, match=f"{name} is a pickle file, which can run code"):
        weight_files(tmp_path)


def test_code_in_a_folder_is_not_run(folder, tmp_path):
    trace = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Own: pass\n")
    edit_json(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own"})
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(folder)
    assert not trace.exists()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_pipes_in_a_folder_are_not_opened(folder, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    with pytest.raises(VestigeError):
        load_model(folder, device="cpu")


@pytest.mark.filterwarnings("ignore")
def test_tokenizers_larger_than_the_model_are_refused(folders, encoders, tmp_path):
    texts = ["pack my box with five dozen liquor jugs, and sphinx of quartz"] * 4
    larger = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=310)
    with pytest.raises(ModelError, match="the model has 280 outputs"):
        HuggingFaceLanguageModel(pretrained.load(folders["llama"]).network, larger)
    mixed = Path(shutil.copytree(encoders["bert"], tmp_path / "mixed"))
    for file in encoders["roberta"].glob("tokenizer*"):
        shutil.copy(file, mixed)
    with pytest.raises(ModelError, match="the encoder knows"):
        new_encoder(mixed, ["a"], ["O"], seed=0)


SIZE_FIELDS = {
    "gpt2": ("n_layer", "n_embd", "n_positions"),
    "llama": ("num_hidden_layers", "hidden_size", "max_position_embeddings"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZE_FIELDS)
def test_sizes_in_a_configuration_are_checked_before_allocation(
    name, folders, tmp_path, memory_limit
):
    layers, width, positions = SIZE_FIELDS[name]
    file = Path(shutil.copytree(folders[name], tmp_path / "m")) / "config.json"
    content = json.loads(file.read_text())
    for field, value in (
        *(("vocab_size", size) for size in (math.inf, 2**40, 2**24, "many", 1)),
        *((layers, size) for size in (10**6, 1e6, 90)),
        *((width, size) for size in (2**20, 15, 0, [16])),
        (positions, 2**60),
        (positions, -1),
        ("num_labels", 10**12),
        ("text_config", {"vocab_size": -1}),
        ("model_type", []),
        ("dtype", "strange"),
    ):
        file.write_text(json.dumps(content | {field: value}))
        with pytest.raises(ModelError):
            load_model(file.parent, device="cpu")


TEXT, LIST, UINT32 = 8, 9, 4


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def setting(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def tensor(name, shape, kind):
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, 0)


def gguf(settings, tensors, *, data=0):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
    return head + b"".join([*settings, *tensors]) + bytes(data)


LLAMA = setting("general.architecture", TEXT, text("llama"))
LAYERS = setting("llama.block_count", UINT32, struct.pack("<I", 2))
WORDS = setting("tokens", LIST, struct.pack("<IQ", TEXT, 2) + text("a") + text("bc"))
ENDLESS = struct.pack("<Q", 2**62)
V3, NONE = b"GGUF" + struct.pack("<I", 3), struct.pack("<Q", 0)


def with_setting(name, kind, value):
    return gguf([LLAMA, setting(name, kind, value)], [])


HOSTILE = {
    "another file": b"not at all",
    "nothing": b"",
    "an old version": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "endless settings": V3 + NONE + ENDLESS,
    "endless tensors": V3 + ENDLESS + NONE,
    "an endless text": gguf([text("name") + struct.pack("<I", TEXT) + ENDLESS], []),
    "an endless name": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + ENDLESS,
    "an endless list of numbers": with_setting("list", LIST, struct.pack("<I", UINT32) + ENDLESS),
    "an endless list of texts": with_setting("list", LIST, struct.pack("<I", TEXT) + ENDLESS),
    "lists in lists": with_setting("list", LIST, struct.pack("<IQ", LIST, 1)),
    "an unknown type": with_setting("name", 99, b""),
    "more weights than bytes": gguf([LLAMA], [tensor("a", [2**20, 2**20], 0)], data=64),
    "a million layers": with_setting("llama.block_count", UINT32, struct.pack("<I", 10**6)),
    "a wide layer": with_setting("llama.embedding_length", UINT32, struct.pack("<I", 2**31)),
    "a text for a number": with_setting("llama.block_count", TEXT, text("many")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_gguf_files_are_refused(tmp_path, name):
    (tmp_path / "m.gguf").write_bytes(HOSTILE[name])
    for path in (tmp_path / "m.gguf", tmp_path):
        with pytest.raises(ModelError, match=r"m\.gguf is not a valid GGUF file"):
            load_model(path)


def test_weights_of_a_gguf_file_are_counted_by_type(tmp_path):
    tensors = [tensor("a", [4, 8], 0), tensor("b", [32], 3), tensor("c", [2, 2, 2], 30)]
    (tmp_path / "m.gguf").write_bytes(gguf([LLAMA, LAYERS, WORDS], tensors, data=200))
    assert gguf_weights(tmp_path / "m.gguf") == {"F32": 32, PACKED: 32, "BF16": 8}


def test_a_missing_gguf_file_and_several_in_a_folder_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"m\.gguf is missing"):
        load_model(tmp_path / "m.gguf")
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(gguf([], []))
    for read in (load_model, fingerprint):
        with pytest.raises(ModelError, match=r"has no model\.json"):
            read(tmp_path)


def test_a_gguf_file_needs_the_gguf_package_and_readable_weights(tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(gguf([LLAMA, LAYERS, WORDS], [], data=64))
    with monkeypatch.context() as patched:
        patched.setattr(pretrained, "find_spec", lambda name: None)
        with pytest.raises(ModelError, match="package gguf") as caught:
            load_model(tmp_path / "m.gguf")
    assert "vestige[gguf]" in caught.value.remedy
    pytest.importorskip("gguf", reason="the package gguf is not installed: vestige[gguf]")
    with pytest.raises(ModelError, match=r"m\.gguf cannot be loaded"):
        load_model(tmp_path / "m.gguf")
