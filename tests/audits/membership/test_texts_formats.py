"""An audit of texts reads a model that bitsandbytes packed."""

import json
import shutil

import numpy as np
import pytest
import torch

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
    """An untrained Llama of some ten thousand weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    index = tmp_path_factory.mktemp("llama")
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS), size=300)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(index)
    vocabulary.save(index)
    return index


def scores(result):
    return [row["score"] for row in result.rows if row["kind"] == "audited"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # whatever bitsandbytes says of a CPU
@pytest.mark.parametrize("bits", [4, 8])
def test_scores_of_a_packed_model_are_nearly_those_of_the_model(folder, tmp_path, bits):
    pytest.importorskip("bitsandbytes", reason="not installed: vestige[bitsandbytes]")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    packed = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    network = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=packed, device_map="cpu"
    )
    network.save_pretrained(tmp_path)
    load_model(folder).vocabulary.save(tmp_path)
    result, plain = (
        membership(tmp_path, base=folder, score="loss", **LISTS),
        membership(folder, **LISTS),
    )
    assert scores(result) == pytest.approx(scores(plain), rel=0.05)
    assert scores(result) != scores(plain)
    assert result.record["models"]["target"]["path"] == str(tmp_path)


def test_without_bitsandbytes_the_remedy_is_an_installation(folder, tmp_path, monkeypatch):
    packed = shutil.copytree(folder, tmp_path / "packed")
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (packed / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs the package bitsandbytes.*\[bitsandbytes\]"):
        membership(packed, **LISTS)
