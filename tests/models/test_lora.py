"""An adapter changes what its base says, and nothing about the base itself."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import adapter_like, add_lora
from vestige.models.pretrained import load

TOKENS = torch.tensor([5, 9, 3])


def answer(model: Any) -> torch.Tensor:
    answers: torch.Tensor = model.log_probs(model.advance(model.start(3), TOKENS))
    return answers


@pytest.fixture(params=["gpt2", "llama"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def adapter(name: str, make: dict[str, Any], tmp_path: Path) -> Path:
    save_model(make[f"{name} adapter"](), tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_new_adapter_says_what_its_base_says(name: str, folders: dict[str, Path]) -> None:
    base = load(folders[name])
    torch.testing.assert_close(answer(add_lora(base)), answer(base))


def test_the_base_goes_on_answering_as_before(name: str, folders: dict[str, Path]) -> None:
    base = load(folders[name])
    before = answer(base)
    adapted = add_lora(base, rank=2)
    for key, parameter in adapted.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(parameter)
    assert not torch.allclose(answer(adapted), before)
    assert torch.equal(answer(base), before)


def test_only_the_adapter_trains_and_shares_the_rest(name: str, folders: dict[str, Path]) -> None:
    base = load(folders[name])
    adapted = add_lora(base, rank=2)
    trainable = [key for key, value in adapted.named_parameters() if value.requires_grad]
    assert trainable
    assert all("lora_" in key for key in trainable)
    shared = {parameter.data_ptr() for parameter in base.parameters()}
    assert shared <= {parameter.data_ptr() for parameter in adapted.parameters()}


def test_an_adapter_folder_holds_the_adapter_alone(adapter: Path) -> None:
    assert (adapter / "adapter_model.safetensors").is_file()
    assert not (adapter / "model.safetensors").exists()
    assert all("lora_" in key for key in load_file(adapter / "adapter_model.safetensors"))


def test_a_merged_adapter_answers_like_an_active_one(adapter: Path, tmp_path: Path) -> None:
    active, merged = load_model(adapter), load_model(adapter, merge=True)
    assert isinstance(active, HuggingFaceLanguageModel)
    assert isinstance(merged, HuggingFaceLanguageModel)
    assert active.adapted
    assert not merged.adapted
    torch.testing.assert_close(answer(merged), answer(active), rtol=1e-4, atol=1e-4)
    save_model(merged, tmp_path / "merged")
    assert torch.equal(answer(load_model(tmp_path / "merged")), answer(merged))


def test_an_adapter_on_tied_weights_is_kept_and_never_merged(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    adapted = add_lora(load(folders["gpt2"]), rank=2, target_modules=("wte", "lm_head")).eval()
    for key, parameter in adapted.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(parameter)
    save_model(adapted, tmp_path / "adapter")
    assert torch.equal(answer(load_model(tmp_path / "adapter")), answer(adapted))
    with pytest.raises(ModelError, match=r"ties their weights.*without merging"):
        load_model(tmp_path / "adapter", merge=True)


def test_a_merged_model_no_longer_stands_for_its_base(adapter: Path, tmp_path: Path) -> None:
    merged = load_model(adapter, merge=True)
    assert isinstance(merged, HuggingFaceLanguageModel)
    with pytest.raises(ModelError, match="never saved"):
        save_model(add_lora(merged), tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_base_that_moved_can_be_given(
    name: str, adapter: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    expected = answer(load_model(adapter))
    moved = shutil.copytree(folders[name], tmp_path / "training" / "model")
    point(adapter, str(tmp_path / "gone"))
    with pytest.raises(ModelError, match=r"not at .*gone"):
        load_model(adapter)
    assert torch.equal(answer(load_model(adapter, base=moved.parent)), expected)
    point(adapter, "../training/model")
    assert torch.equal(answer(load_model(adapter)), expected)


def test_an_adapter_finds_its_base_from_any_working_directory(
    name: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders[name].parent)
    model = add_lora(load(name))
    save_model(model, tmp_path / "adapter")
    monkeypatch.chdir(tmp_path)
    assert torch.equal(answer(load_model("adapter")), answer(model))


def point(adapter: Path, base: Any) -> None:
    configure(adapter, base_model_name_or_path=base)


def configure(adapter: Path, **changes: Any) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def pickle_instead(adapter: Path) -> None:
    torch.save(load_file(adapter / "adapter_model.safetensors"), adapter / "adapter_model.bin")
    (adapter / "adapter_model.safetensors").unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def lose_one(adapter: Path) -> None:
    weights = load_file(adapter / "adapter_model.safetensors")
    save_file(dict(sorted(weights.items())[1:]), adapter / "adapter_model.safetensors")


BREAKAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pickle": (pickle_instead, "pickle"),
    "cut short": (lambda d: cut(d / "adapter_model.safetensors"), "does not fit its base"),
    "a matrix missing": (lose_one, "missing adapter keys"),
    "another rank": (lambda d: configure(d, r=3), "does not fit its base"),
    "another architecture": (
        lambda d: configure(d, target_modules=["nowhere"]),
        "does not fit its base",
    ),
    "description cut short": (lambda d: cut(d / "adapter_config.json"), "is not JSON"),
    "of an unknown kind": (
        lambda d: configure(d, peft_type="MAGIC"),
        "does not describe an adapter",
    ),
    "a prompt": (lambda d: configure(d, peft_type="PROMPT_TUNING"), "adapter"),
    "no base named": (lambda d: point(d, None), "names no base"),
    "base gone": (lambda d: point(d, "/nowhere/at/all"), "not at /nowhere"),
    "its own base": (lambda d: point(d, str(d)), "is an adapter, not a whole model"),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
@pytest.mark.filterwarnings("ignore")  # whatever PEFT says before it gives up
def test_a_broken_adapter_is_refused_with_the_remedy(adapter: Path, breakage: str) -> None:
    do, says = BREAKAGES[breakage]
    do(adapter)
    with pytest.raises(ModelError, match=says) as caught:
        load_model(adapter)
    assert str(adapter) in caught.value.problem
    assert caught.value.remedy


def test_impossible_adapters_are_refused(name: str, folders: dict[str, Path]) -> None:
    base = load(folders[name])
    for arguments in ({"rank": 0}, {"alpha": 0}, {"dropout": 1.0}):
        with pytest.raises(ValueError, match="got"):
            add_lora(base, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="takes no adapter"):
        add_lora(base, target_modules=["nowhere"])
    with pytest.raises(ValueError, match="whole model"):
        add_lora(add_lora(base))


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "a rank of each layer": {"rank_pattern": {"v_proj": 3}, "alpha_pattern": {"v_proj": 5}},
    "some layers": {"layers_to_transform": [1], "use_rslora": True},
    "named by a pattern": {"target_modules": r".*\.[qv]_proj"},
    "weights taken apart": {"use_dora": True},
}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")  # PEFT asks by an old name
@pytest.mark.parametrize("shape", SHAPES)
def test_an_adapter_like_another_has_its_shape_and_has_learnt_nothing(
    shape: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    base = load(folders["llama"])
    config = LoraConfig(**{"r": 2, "lora_alpha": 7, "task_type": "CAUSAL_LM", **SHAPES[shape]})
    get_peft_model(load(folders["llama"]).network, config).save_pretrained(tmp_path / "other")
    point(tmp_path / "other", "somebody/elses-base")
    fresh = adapter_like(base, tmp_path / "other")
    torch.testing.assert_close(answer(fresh), answer(base))
    assert {parameter.data_ptr() for parameter in base.parameters()} <= {
        parameter.data_ptr() for parameter in fresh.parameters()
    }
    save_model(fresh, tmp_path / "fresh")
    sizes = [
        {key: value.shape for key, value in load_file(place / "adapter_model.safetensors").items()}
        for place in (tmp_path / "other", tmp_path / "fresh")
    ]
    assert sizes[0] == sizes[1]
    described = json.loads((tmp_path / "fresh" / "adapter_config.json").read_text())
    assert described["base_model_name_or_path"] == str(folders["llama"])


def test_an_adapter_like_another_leaves_the_shared_weights_alone(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    base = load(folders["llama"])
    save_model(add_lora(base, rank=2), tmp_path / "other")
    configure(tmp_path / "other", init_lora_weights="pissa")
    before = {key: value.clone() for key, value in base.state_dict().items()}
    adapter_like(base, tmp_path / "other")
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())


def test_no_adapter_is_made_like_a_prompt_or_on_an_adapter(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    base = load(folders["llama"])
    save_model(add_lora(base, rank=2), tmp_path / "other")
    with pytest.raises(ValueError, match="whole model"):
        adapter_like(add_lora(base), tmp_path / "other")
    configure(tmp_path / "other", target_modules=["nowhere"])
    with pytest.raises(ModelError, match="takes no adapter"):
        adapter_like(base, tmp_path / "other")


@pytest.mark.filterwarnings("ignore")  # what PEFT says of embeddings and of itself
def test_an_adapter_that_brings_more_tokens_widens_its_own_copy_alone(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model

    base = load(folders[name])
    before, shared = answer(base), base.network.get_input_embeddings().weight
    whole: Any = load(folders[name]).network
    tokenizer = copy.deepcopy(base.vocabulary.tokenizer)
    tokenizer.add_tokens([f"<|{n}|>" for n in range(20)])
    whole.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ends = ["wte", "lm_head"] if name == "gpt2" else ["embed_tokens", "lm_head"]
    network: Any = get_peft_model(whole, LoraConfig(r=2, modules_to_save=ends))
    for parameter in network.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(str(tmp_path / "adapter"), save_embedding_layers=False)
    tokenizer.save_pretrained(str(tmp_path / "adapter"))
    expected = HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer)).eval()
    for over in (None, base):
        model = load_model(tmp_path / "adapter", base=over)
        assert model.vocab_size == len(tokenizer)
        torch.testing.assert_close(answer(model), answer(expected))
    assert torch.equal(answer(base), before)
    assert base.network.get_input_embeddings().weight is shared
