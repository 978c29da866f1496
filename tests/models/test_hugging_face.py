"""Hugging Face models give the answers of transformers, from a folder or the hub cache."""

import pytest
import torch

from vestige.errors import ModelError
from vestige.models import pretrained
from vestige.models.checkpoints import load_model
from vestige.models.folders import fingerprint
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.pretrained import load

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2"])
@torch.no_grad()
def test_stepwise_answers_equal_those_of_transformers(foreign, name):
    model = foreign(name)
    tokens = torch.randint(0, 200, (4, 9), generator=torch.Generator().manual_seed(0))
    expected = model.network(tokens).logits.log_softmax(-1)
    state = model.start(len(tokens), anywhere=True)
    for position, column in enumerate(tokens.T):
        state = model.advance(state, column)[torch.arange(len(tokens))]
        torch.testing.assert_close(model.log_probs(state), expected[:, position], **CLOSE)
    torch.testing.assert_close(model.log_probs(state[1:]), expected[1:, -1], **CLOSE)


def test_weights_are_loaded_in_float32(folder):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    assert {parameter.dtype for parameter in load_model(folder).parameters()} == {torch.float32}


def test_a_model_whose_states_have_no_rows_is_refused(subwords):
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


def test_an_unknown_hub_name_is_refused(monkeypatch):
    import transformers

    def unknown(*args, **kwargs):
        raise OSError("no such repository")

    monkeypatch.setattr(pretrained, "_hub_answers", lambda: True)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unknown)
    with pytest.raises(ModelError, match="nobody/nothing cannot be loaded") as caught:
        load_model("nobody/nothing")
    assert "hub name" in caught.value.remedy


def test_a_downloaded_model_is_loaded_without_a_network(folders, monkeypatch):
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


def dispatch(network):
    """Distribute a network over devices as accelerate does: with a hook at each layer."""
    from accelerate import dispatch_model

    leaves = [name for name, module in network.named_modules() if not [*module.children()]]
    dispatch_model(network, dict.fromkeys(leaves, "cpu"), main_device="cpu", force_hooks=True)
    return leaves


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_a_model_distributed_over_devices_gives_the_same_answers(folders, name):
    single, distributed = load(folders[name]), load(folders[name])
    leaves = dispatch(distributed.network)
    adapter = add_lora(distributed, rank=2).eval()
    assert all(hasattr(distributed.network.get_submodule(name), "_hf_hook") for name in leaves)
    rows, tokens = torch.tensor([1, 0, 0]), torch.tensor([[5, 9, 3], [2, 8, 7]])

    def answer(model):
        return model.logits(model.read(model.start(2), tokens)[rows])

    assert torch.equal(answer(distributed), answer(single))
    assert torch.equal(answer(adapter), answer(single))
