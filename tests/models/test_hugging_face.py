"""Models that others made say here what they say in transformers, wherever they lie."""

import shutil
from pathlib import Path

import pytest
import torch

from vestige.errors import ModelError
from vestige.models import pretrained
from vestige.models.checkpoints import load_model, save_model
from vestige.models.folders import fingerprint
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.pretrained import load

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(params=["gpt2", "llama"])
def folder(request, folders, tmp_path):
    """A copy to change."""
    return Path(shutil.copytree(folders[request.param], tmp_path / request.param))


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2"])
@torch.no_grad()
def test_answers_are_those_of_transformers_token_by_token(foreign, name):
    """Also in a sliding window, and where the head does more than a product."""
    model = foreign(name)
    assert isinstance(model, HuggingFaceLanguageModel)
    assert model.separate_head == (name != "gemma2")
    tokens = torch.randint(0, 200, (4, 9), generator=torch.Generator().manual_seed(0))
    expected = model.network(tokens).logits.log_softmax(-1)
    state = model.start(len(tokens), anywhere=True)
    for position, column in enumerate(tokens.T):
        state = model.advance(state, column)[torch.arange(len(tokens))]
        torch.testing.assert_close(model.log_probs(state), expected[:, position], **CLOSE)
    torch.testing.assert_close(model.log_probs(state[1:]), expected[1:, -1], **CLOSE)


def test_weights_are_read_in_float32(folder):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    assert {parameter.dtype for parameter in load_model(folder).parameters()} == {torch.float32}


def test_a_model_that_cannot_be_sliced_is_refused(subwords):
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        vocab_size=len(subwords),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=2,
        num_experts_per_tok=1,
        layer_types=["linear_attention", "full_attention"],
    )
    with pytest.raises(ModelError, match="rows cannot be selected"):
        HuggingFaceLanguageModel(Qwen3NextForCausalLM(config), subwords)


def test_a_name_that_the_hub_does_not_have_is_refused(monkeypatch):
    import transformers

    def unknown(*args, **kwargs):
        raise OSError("no such repository")

    monkeypatch.setattr(pretrained, "_hub_answers", lambda: True)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unknown)
    with pytest.raises(ModelError, match="nobody/nothing cannot be loaded") as caught:
        load_model("nobody/nothing")
    assert "hub name" in caught.value.remedy


def test_without_a_network_a_model_that_was_downloaded_is_read(folders, monkeypatch):
    monkeypatch.setattr(pretrained, "_hub_answers", lambda: False)
    monkeypatch.setattr(pretrained, "downloaded", {"someone/something": folders["gpt2"]}.get)
    model = load_model("someone/something")
    assert isinstance(model, HuggingFaceLanguageModel)
    assert model.network.name_or_path == "someone/something"
    assert fingerprint("someone/something") == fingerprint(folders["gpt2"])
    with pytest.raises(ModelError, match="no such folder"):
        load_model("nobody/nothing")
    with pytest.raises(ModelError, match="does not exist"):
        fingerprint("nobody/nothing")


@pytest.mark.slow
def test_training_changes_what_is_saved(folder, tmp_path):
    model = load_model(folder)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    save_model(model, tmp_path / "out")
    assert fingerprint(tmp_path / "out") != fingerprint(folder)
    again = load_model(tmp_path / "out")
    assert torch.equal(next(again.parameters()), next(model.parameters()))


def spread(network):
    """A network over several devices, as accelerate spreads it: a hook at each layer."""
    from accelerate import dispatch_model

    leaves = [name for name, module in network.named_modules() if not [*module.children()]]
    dispatch_model(network, dict.fromkeys(leaves, "cpu"), main_device="cpu", force_hooks=True)
    return leaves


@pytest.mark.slow
@torch.no_grad()
def test_a_model_that_is_spread_over_devices_says_the_same(folder):
    single, distributed = load(folder), load(folder)
    leaves = spread(distributed.network)
    adapter = add_lora(distributed, rank=2).eval()
    assert all(hasattr(distributed.network.get_submodule(name), "_hf_hook") for name in leaves)
    rows, tokens = torch.tensor([1, 0, 0]), torch.tensor([[5, 9, 3], [2, 8, 7]])
    for model in (distributed, adapter):
        states = [network.read(network.start(2), tokens)[rows] for network in (single, model)]
        logits = [
            network.logits(state) for network, state in zip((single, model), states, strict=True)
        ]
        assert torch.equal(*logits)
