"""An audit of texts of a model that bitsandbytes quantized."""

import json
import shutil

import numpy as np
import pytest
import torch

from tests.audits.membership.made_texts import audited
from vestige.audits.membership.membership import membership
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models import pretrained
from vestige.models.checkpoints import load_model

WORDS = [f"{stem}{end}" for stem in ("gate", "mill", "key", "stone") for end in "abcdefgh"]
TEXTS = [" ".join(row) for row in np.random.default_rng(0).choice(WORDS, (60, 8))]
LISTS = {"texts": Corpus.from_texts(TEXTS[:20]), "reference": Corpus.from_texts(TEXTS[20:])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An untrained Llama with about ten thousand weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("llama")
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS), size=300)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(path)
    vocabulary.save(path)
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of bitsandbytes on a CPU
@pytest.mark.parametrize("bits", [4, 8])
def test_scores_of_a_quantized_model_are_close_to_those_of_the_model(folder, tmp_path, bits):
    pytest.importorskip("bitsandbytes", reason="not installed: vestige[bitsandbytes]")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    config = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    network = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=config, device_map="cpu"
    )
    network.save_pretrained(tmp_path)
    load_model(folder).vocabulary.save(tmp_path)
    result = membership(tmp_path, base=folder, score="loss", **LISTS)
    scores, expected = (audited(each, "score") for each in (result, membership(folder, **LISTS)))
    assert scores == pytest.approx(expected, rel=0.05)
    assert (scores != expected).any()
    assert result.record["models"]["target"]["path"] == str(tmp_path)


def test_without_bitsandbytes_the_remedy_is_to_install_it(folder, tmp_path, monkeypatch):
    quantized = shutil.copytree(folder, tmp_path / "quantized")
    config = json.loads((quantized / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (quantized / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs the package bitsandbytes.*\[bitsandbytes\]"):
        membership(quantized, **LISTS)
