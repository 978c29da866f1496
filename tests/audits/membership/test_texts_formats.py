"""An audit of texts reads a model in whatever format it lies, and no pickle."""

import shutil

import numpy as np
import pytest
import torch

from tests.audits.update.test_diff_models import write_gguf
from vestige.audits.membership.membership import membership
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models import pretrained
from vestige.models.checkpoints import load_model

WORDS = [f"{one}{other}" for one in ("gate", "mill", "key", "stone") for other in "abcdefgh"]
TEXTS = [" ".join(row) for row in np.random.default_rng(0).choice(WORDS, (60, 8))]
LISTS = {"texts": Corpus.from_texts(TEXTS[:20]), "reference": Corpus.from_texts(TEXTS[20:])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Llama of some ten thousand weights that nobody taught."""
    from transformers import LlamaConfig, LlamaForCausalLM

    place = tmp_path_factory.mktemp("llama")
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS), size=300)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(place)
    vocabulary.save(place)
    return place


def scores(found):
    return [row["score"] for row in found.rows if row["kind"] == "audited"]


@pytest.fixture(scope="module")
def plain(folder):
    return membership(folder, **LISTS)


def test_shards_are_read_as_one_file(folder, plain, tmp_path):
    model = load_model(folder)
    model.network.save_pretrained(tmp_path, max_shard_size="50KB")
    model.vocabulary.save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    found = membership(tmp_path, base=folder, score="loss", **LISTS)
    assert scores(found) == scores(plain)


@pytest.mark.slow
def test_a_gguf_file_is_audited(folder, plain, tmp_path):
    pytest.importorskip("gguf", reason="the package gguf is not installed: vestige[gguf]")
    file = tmp_path / "model.gguf"
    write_gguf(load_model(folder), file)
    found = membership(file, base=folder, score="loss", **LISTS)
    assert scores(found) == pytest.approx(scores(plain), rel=0.01)
    assert found.record["models"]["target"]["path"] == str(file)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # whatever bitsandbytes says of a CPU
@pytest.mark.parametrize("bits", [4, 8])
def test_a_folder_that_bitsandbytes_packed_is_audited(folder, plain, tmp_path, bits):
    pytest.importorskip("bitsandbytes", reason="not installed: vestige[bitsandbytes]")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    packed = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    network = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=packed, device_map="cpu"
    )
    network.save_pretrained(tmp_path)
    load_model(folder).vocabulary.save(tmp_path)
    found = membership(tmp_path, base=folder, score="loss", **LISTS)
    assert scores(found) == pytest.approx(scores(plain), rel=0.05)
    assert scores(found) != scores(plain)


def test_without_bitsandbytes_the_remedy_is_an_installation(folder, tmp_path, monkeypatch):
    import json

    packed = tmp_path / "packed"
    shutil.copytree(folder, packed)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (packed / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"needs the package bitsandbytes.*vestige\[bitsandbytes\]"
    ):
        membership(packed, **LISTS)


def test_a_pickled_folder_is_refused_naming_the_file(folder, tmp_path):
    pickled = tmp_path / "pickled"
    shutil.copytree(folder, pickled)
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle file"):
        membership(pickled, **LISTS)
