"""Target and base are read alike; of an adapter the base is the same weights without it."""

import numpy as np
import pytest
import torch

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.checkpoints import load_model, save_model
from vestige.models.lora import add_lora
from vestige.models.snapshots import Snapshots
from vestige.models.token_statistics import cached_outputs
from vestige.monitor import SILENT

TEXTS = ["the gate opens at nine", "nobody knows the code at night", "a lantern stands at the mill"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A GPT-2 of a few thousand parameters and a LoRA adapter that changes what it says."""
    from transformers import GPT2Config, GPT2LMHeadModel

    root = tmp_path_factory.mktemp("models")
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS * 4), size=290)
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=16, n_embd=16, n_layer=1, n_head=2,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    torch.manual_seed(0)
    GPT2LMHeadModel(config).save_pretrained(root / "base")
    vocabulary.save(root / "base")
    adapter = add_lora(load_model(root / "base", device="cpu"), rank=2)
    with torch.no_grad():
        for name, parameter in adapter.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    save_model(adapter, root / "adapter")
    return root


def read(model, base=None, device="cpu"):
    return Snapshots.with_base(model, base, device=device, monitor=SILENT)


def statistics(models):
    with cached_outputs(None, SILENT) as outputs:
        return models.statistics(models.encoded(TEXTS), outputs, of="texts")


def test_an_adapter_brings_its_base(models):
    found = read(models / "adapter")
    assert set(found.models) == {"target", "base"}
    said, alone = statistics(found), statistics(read(models / "base"))
    np.testing.assert_allclose(said["base"].log_probs, alone["target"].log_probs, atol=1e-6)
    assert np.abs(said["target"].log_probs - said["base"].log_probs).max() > 0.01
    assert found.recorded["base"]["sha256"] == read(models / "base").recorded["target"]["sha256"]


def test_a_whole_model_has_no_base_of_its_own(models):
    assert set(read(models / "base").models) == {"target"}


def test_texts_are_cut_to_what_is_read_at_once(models):
    [ids] = read(models / "base").encoded(["the gate opens at nine and " * 20])
    assert len(ids) == 15


def test_weights_of_half_precision_are_read_as_they_are_stored(models, tmp_path, monkeypatch):
    from vestige.models import snapshots

    half = load_model(models / "base", device="cpu").to(torch.bfloat16)
    save_model(half, tmp_path / "half")
    said = {}
    for able in (True, False):
        monkeypatch.setattr(snapshots, "_in_hardware", lambda dtype, able=able: able)
        found = read(tmp_path / "half")
        assert found.target.head.weight.dtype == (torch.bfloat16 if able else torch.float32)
        said[able] = statistics(found)
    np.testing.assert_allclose(
        said[True]["target"].log_probs, said[False]["target"].log_probs, atol=0.05
    )


def test_a_model_that_is_spread_over_devices_says_the_same(models):
    from accelerate import dispatch_model

    whole, spread = read(models / "base"), read(models / "base")
    network = spread.target.network
    leaves = [name for name, module in network.named_modules() if not [*module.children()]]
    dispatch_model(network, dict.fromkeys(leaves, "cpu"), main_device="cpu", force_hooks=True)
    one, other = statistics(whole), statistics(spread)
    np.testing.assert_array_equal(one["target"].ranks, other["target"].ranks)
    np.testing.assert_allclose(one["target"].log_probs, other["target"].log_probs, atol=1e-6)


@pytest.mark.parametrize("model", ["base", "adapter"])
def test_balanced_is_a_device(models, model):
    said = statistics(read(models / model, device="balanced"))
    alone = statistics(read(models / model))
    np.testing.assert_allclose(said["target"].log_probs, alone["target"].log_probs, atol=1e-6)
