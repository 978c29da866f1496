"""Models that others made: read as they are, refused when they are not whole."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError, VestigeError
from vestige.models import pretrained
from vestige.models.checkpoints import load_model, save_model
from vestige.models.folders import fingerprint
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.pretrained import load


@pytest.fixture(params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(folders[request.param], tmp_path / request.param))


@torch.no_grad()
def test_answers_are_those_of_transformers(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    tokens = torch.tensor([[5, 9, 3, 7]])
    network = AutoModelForCausalLM.from_pretrained(folder).eval()
    model = load_model(folder)
    assert isinstance(model, HuggingFaceLanguageModel)
    assert model.separate_head
    state = model.start(1, anywhere=True)
    for token in tokens[0]:
        state = model.advance(state, token[None])
    expected = network(tokens).logits[:, -1].log_softmax(-1)
    torch.testing.assert_close(model.log_probs(state), expected, rtol=1e-4, atol=1e-5)


def test_half_precision_weights_are_computed_in_float32(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    model = load_model(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@torch.no_grad()
def test_a_head_that_does_more_is_found_out(
    folders: dict[str, Path], subwords: SubwordVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    network = LlamaForCausalLM.from_pretrained(folders["llama"])
    original = network.forward

    def capped(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        answer.logits = 5 * torch.tanh(answer.logits / 5)
        return answer

    monkeypatch.setattr(network, "forward", capped)
    model = HuggingFaceLanguageModel(network, subwords)
    assert not model.separate_head
    tokens = torch.tensor([[5, 9, 3], [2, 2, 1]])
    state = model.start(2, anywhere=True)
    for column in tokens.T:
        state = model.advance(state, column)
    expected = network(tokens).logits[:, -1].log_softmax(-1)
    torch.testing.assert_close(model.log_probs(state), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.log_probs(state[1:]), expected[1:], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_sliding_window_forgets_as_it_should(subwords: SubwordVocabulary) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=len(subwords),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=3,
        initializer_range=0.3,
    )
    network = MistralForCausalLM(config).eval()
    model = HuggingFaceLanguageModel(network, subwords)
    tokens = torch.randint(0, 200, (4, 9))
    expected = network(tokens).logits.log_softmax(-1)
    state = model.start(4, anywhere=True)
    for position in range(9):
        state = model.advance(state, tokens[:, position])[torch.tensor([0, 1, 2, 3])]
        answer = model.log_probs(state)
        torch.testing.assert_close(answer, expected[:, position], rtol=1e-4, atol=1e-5)


def test_a_model_that_cannot_be_sliced_is_refused(subwords: SubwordVocabulary) -> None:
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


def test_the_fingerprint_covers_the_weights(folder: Path) -> None:
    before = fingerprint(folder)
    weights = load_file(folder / "model.safetensors")
    weights[min(weights)][0] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert fingerprint(folder) != before


def lose(folder: Path, count: int) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = dict(sorted(weights.items())[count:])
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def configure(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def pickle_instead(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def no_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


BREAKAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pickle": (pickle_instead, "pickle"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "no weights"),
    "weights cut short": (lambda d: cut(d / "model.safetensors"), "cannot be loaded"),
    "weights empty": (lambda d: (d / "model.safetensors").write_bytes(b""), "cannot be loaded"),
    "a layer missing": (lambda d: lose(d, 3), "do not fit|needs .* weights; its files have"),
    "no configuration in it": (lambda d: (d / "config.json").write_text("{}"), "cannot be loaded"),
    "configuration cut short": (lambda d: cut(d / "config.json"), "is not JSON"),
    "unknown architecture": (lambda d: configure(d, model_type="nothing"), "cannot be loaded"),
    "another size": (
        lambda d: configure(d, hidden_size=8, n_embd=8),
        "(cannot be loaded|do not fit)",
    ),
    "encoder-decoder": (lambda d: configure(d, is_encoder_decoder=True), "encoder-decoder"),
    "tokenizer missing": (no_tokenizer, "tokenizer"),
    "tokenizer cut short": (lambda d: cut(d / "tokenizer.json"), "tokenizer"),
}


@pytest.mark.parametrize("name", BREAKAGES)
@pytest.mark.filterwarnings("ignore")  # whatever transformers says before it gives up
def test_a_broken_folder_is_refused_with_the_remedy(folder: Path, name: str) -> None:
    breakage, says = BREAKAGES[name]
    breakage(folder)
    with pytest.raises(VestigeError, match=says) as caught:
        load_model(folder)
    assert str(folder) in caught.value.problem
    assert caught.value.remedy


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Own: pass\n")
    configure(folder, model_type="own", auto_map={"AutoConfig": "own.Own"})
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(folder)
    assert not trace.exists()


def test_a_tokenizer_larger_than_the_model_is_refused(folders: dict[str, Path]) -> None:
    from vestige.data.corpus import Corpus

    larger = SubwordVocabulary.train_bpe(
        Corpus.from_texts(["pack my box with five dozen liquor jugs, and sphinx of quartz"] * 4),
        size=310,
    )
    with pytest.raises(ModelError, match="the model has 280 outputs"):
        HuggingFaceLanguageModel(load(folders["llama"]).network, larger)


def test_a_name_that_the_hub_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise OSError("no such repository")

    monkeypatch.setattr(pretrained, "_hub_answers", lambda: True)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unknown)
    with pytest.raises(ModelError, match="nobody/nothing cannot be loaded") as caught:
        load_model("nobody/nothing")
    assert "hub name" in caught.value.remedy


def test_without_a_network_a_model_that_was_downloaded_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "_hub_answers", lambda: False)
    monkeypatch.setattr(pretrained, "downloaded", {"someone/something": folder}.get)
    model = load_model("someone/something")
    assert isinstance(model, HuggingFaceLanguageModel)
    assert model.network.name_or_path == "someone/something"
    assert fingerprint("someone/something") == fingerprint(folder)
    with pytest.raises(ModelError, match="no such folder"):
        load_model("nobody/nothing")
    with pytest.raises(ModelError, match="does not exist"):
        fingerprint("nobody/nothing")


def test_training_changes_what_is_saved(folder: Path, tmp_path: Path) -> None:
    model = load_model(folder)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    save_model(model, tmp_path / "out")
    assert fingerprint(tmp_path / "out") != fingerprint(folder)
    again = load_model(tmp_path / "out")
    assert torch.equal(next(again.parameters()), next(model.parameters()))


@torch.no_grad()
def test_a_model_that_is_spread_over_devices_says_the_same(folder: Path) -> None:
    from accelerate import dispatch_model

    whole, spread = load(folder), load(folder)
    leaves = [name for name, module in spread.network.named_modules() if not [*module.children()]]
    dispatch_model(
        spread.network, dict.fromkeys(leaves, "cpu"), main_device="cpu", force_hooks=True
    )
    adapter = add_lora(spread, rank=2).eval()
    assert all(hasattr(spread.network.get_submodule(name), "_hf_hook") for name in leaves)
    rows, tokens = torch.tensor([1, 0, 0]), torch.tensor([[5, 9, 3], [2, 8, 7]])
    for model in (spread, adapter):
        states = [one.read(one.start(2), tokens)[rows] for one in (whole, model)]
        logits = [one.logits(state) for one, state in zip((whole, model), states, strict=True)]
        assert torch.equal(*logits)


@torch.no_grad()
def test_balanced_is_a_device(folder: Path) -> None:
    tokens = torch.tensor([5, 9, 3])
    models = [load_model(folder, device=device) for device in ("cpu", "balanced")]
    states = [model.advance(model.start(3), tokens) for model in models]
    one, other = (model.logits(state) for model, state in zip(models, states, strict=True))
    torch.testing.assert_close(one.cpu(), other.cpu())
