"""LoRA adapters: what they change, how they are saved, and the size of their change."""

import copy
import json
import math
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from tests.models.conftest import edit_json
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import adapter_like, add_lora, weight_change
from vestige.models.pretrained import load

TOKENS = torch.tensor([5, 9, 3])
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


def answer(model):
    return model.log_probs(model.advance(model.start(3), TOKENS))


def randomize(model):
    """Give every matrix of an adapter random weights."""
    for key, parameter in model.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(parameter)
    return model.eval()


def addresses(model):
    return {parameter.data_ptr() for parameter in model.parameters()}


@pytest.fixture(params=["gpt2", "llama"])
def name(request):
    return request.param


@pytest.fixture
def base(name, make):
    return make[name]()


@pytest.fixture
def adapter(name, shared, tmp_path):
    save_model(shared[f"{name} adapter"], tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_new_adapter_changes_no_answer_and_trains_only_its_own_weights(base):
    before, adapted = answer(base), add_lora(base, rank=2)
    torch.testing.assert_close(answer(adapted), before)
    trainable = [key for key, value in adapted.named_parameters() if value.requires_grad]
    assert trainable
    assert all("lora_" in key for key in trainable)
    assert addresses(base) <= addresses(adapted)
    assert not torch.allclose(answer(randomize(adapted)), before)
    assert torch.equal(answer(base), before)


def test_an_adapter_folder_holds_only_the_adapter(adapter):
    assert not (adapter / "model.safetensors").exists()
    assert all("lora_" in key for key in load_file(adapter / WEIGHTS))


@pytest.mark.slow
def test_a_merged_adapter_gives_the_same_answers_and_is_not_a_base(adapter, tmp_path):
    active, merged = load_model(adapter), load_model(adapter, merge=True)
    assert active.adapted
    assert not merged.adapted
    torch.testing.assert_close(answer(merged), answer(active), rtol=1e-4, atol=1e-4)
    save_model(merged, tmp_path / "merged")
    assert torch.equal(answer(load_model(tmp_path / "merged")), answer(merged))
    with pytest.raises(ModelError, match="never saved"):
        save_model(add_lora(merged), tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_an_adapter_on_tied_weights_cannot_be_merged(make, tmp_path):
    adapted = randomize(add_lora(make["gpt2"](), rank=2, target_modules=("wte", "lm_head")))
    save_model(adapted, tmp_path / "adapter")
    assert torch.equal(answer(load_model(tmp_path / "adapter")), answer(adapted))
    with pytest.raises(ModelError, match=r"ties their weights.*without merging"):
        load_model(tmp_path / "adapter", merge=True)


@pytest.mark.slow
def test_a_moved_base_is_passed_or_relative_to_the_adapter(
    name, adapter, folders, tmp_path, monkeypatch
):
    expected = answer(load_model(adapter))
    moved = shutil.copytree(folders[name], tmp_path / "training" / "model")
    edit_json(adapter / CONFIG, base_model_name_or_path=str(tmp_path / "gone"))
    with pytest.raises(ModelError, match=r"not at .*gone"):
        load_model(adapter)
    assert torch.equal(answer(load_model(adapter, base=moved.parent)), expected)
    edit_json(adapter / CONFIG, base_model_name_or_path="../training/model")
    assert torch.equal(answer(load_model(adapter)), expected)
    for part in ("training/model", "here"):
        (tmp_path / "elsewhere" / part).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere" / "here")  # another ../training/model
    assert torch.equal(answer(load_model(adapter)), expected)


@pytest.mark.slow
def test_an_adapter_finds_its_base_from_any_working_directory(name, folders, tmp_path, monkeypatch):
    monkeypatch.chdir(folders[name].parent)
    model = add_lora(load(name))
    save_model(model, tmp_path / "adapter")
    monkeypatch.chdir(tmp_path)
    assert torch.equal(answer(load_model("adapter")), answer(model))
    adapter = tmp_path / "adapter"
    edit_json(adapter / CONFIG, base_model_name_or_path=".")  # the folder that one works in
    monkeypatch.chdir(folders[name])
    assert torch.equal(answer(load_model(adapter)), answer(model))


def test_invalid_adapters_are_refused(base):
    for arguments in ({"rank": 0}, {"alpha": 0}, {"dropout": 1.0}):
        with pytest.raises(ValueError, match="got"):
            add_lora(base, **arguments)
    with pytest.raises(ModelError, match="takes no adapter"):
        add_lora(base, target_modules=["nowhere"])
    with pytest.raises(ValueError, match="whole model"):
        add_lora(add_lora(base))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")  # PEFT uses a deprecated name
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank_pattern": {"v_proj": 3}, "alpha_pattern": {"v_proj": 5}},
        {"layers_to_transform": [1], "use_rslora": True},
        {"target_modules": r".*\.[qv]_proj"},
        {"use_dora": True},
    ],
)
def test_an_adapter_like_another_has_its_shapes_and_is_untrained(options, make, folders, tmp_path):
    base = make["llama"]()
    config = LoraConfig(**{"r": 2, "lora_alpha": 7, "task_type": "CAUSAL_LM", **options})
    get_peft_model(make["llama"]().network, config).save_pretrained(tmp_path / "other")
    edit_json(tmp_path / "other" / CONFIG, base_model_name_or_path="somebody/elses-base")
    fresh = adapter_like(base, tmp_path / "other")
    torch.testing.assert_close(answer(fresh), answer(base))
    assert addresses(base) <= addresses(fresh)
    save_model(fresh, tmp_path / "fresh")
    expected, shapes = (
        {key: value.shape for key, value in load_file(tmp_path / folder / WEIGHTS).items()}
        for folder in ("other", "fresh")
    )
    assert expected == shapes
    described = json.loads((tmp_path / "fresh" / CONFIG).read_text())
    assert described["base_model_name_or_path"] == str(folders["llama"])


def test_an_adapter_like_another_does_not_change_shared_weights(make, tmp_path):
    base = make["llama"]()
    save_model(add_lora(base, rank=2), tmp_path / "other")
    edit_json(tmp_path / "other" / CONFIG, init_lora_weights="pissa")
    before = {key: value.clone() for key, value in base.state_dict().items()}
    adapter_like(base, tmp_path / "other")
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    with pytest.raises(ValueError, match="whole model"):
        adapter_like(add_lora(base), tmp_path / "other")
    edit_json(tmp_path / "other" / CONFIG, target_modules=["nowhere"])
    with pytest.raises(ModelError, match="takes no adapter"):
        adapter_like(base, tmp_path / "other")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PEFT warns about embeddings
def test_an_adapter_with_more_tokens_does_not_change_a_shared_base(name, make, base, tmp_path):
    before, shared = answer(base), base.network.get_input_embeddings().weight
    larger, tokenizer = make[name]().network, copy.deepcopy(base.vocabulary.tokenizer)
    tokenizer.add_tokens([f"<|{n}|>" for n in range(20)])
    larger.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ends = ["wte", "lm_head"] if name == "gpt2" else ["embed_tokens", "lm_head"]
    network = get_peft_model(larger, LoraConfig(r=2, modules_to_save=ends))
    for parameter in network.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(str(tmp_path / "adapter"), save_embedding_layers=False)
    tokenizer.save_pretrained(str(tmp_path / "adapter"))
    expected = HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer)).eval()
    for given_base in (None, base):
        model = load_model(tmp_path / "adapter", base=given_base)
        assert model.vocab_size == len(tokenizer)
        torch.testing.assert_close(answer(model), answer(expected))
    assert torch.equal(answer(base), before)
    assert base.network.get_input_embeddings().weight is shared


def distance(before, after):
    """The norm of the difference of all weights."""
    old, new = before.state_dict(), after.state_dict()
    changes = [(new[name].double() - old[name].double()).flatten() for name in old]
    return float(torch.cat(changes).norm())


def test_the_weight_change_of_an_adapter_is_that_of_merging_it(name, base, make):
    adapted = make[f"{name} adapter"]()
    change = weight_change(base, adapted)
    merged = adapted.network.merge_and_unload()
    assert change == pytest.approx(distance(base.network, merged), rel=1e-4)
    assert change > 0
    assert weight_change(base, add_lora(base, rank=3)) == 0


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")
def test_the_weight_change_includes_layers_that_an_adapter_replaces(make):
    base, other = make["llama"](), make["llama"]()
    config = LoraConfig(r=2, modules_to_save=["norm"], task_type="CAUSAL_LM")
    adapted = HuggingFaceLanguageModel(get_peft_model(other.network, config), base.vocabulary)
    assert weight_change(base, adapted) == 0  # two layers have two norms each, and one is last
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "modules_to_save" in name:
                parameter.add_(0.5)
    assert weight_change(base, adapted) == pytest.approx(0.5 * math.sqrt(5 * 16))


@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_the_weight_change_of_a_whole_model_is_the_norm_of_the_difference(kind, make):
    before, after = make[kind](), make[kind]()
    assert weight_change(before, after) == 0
    with torch.no_grad():
        for parameter in after.parameters():
            parameter.add_(torch.randn_like(parameter))
    squares = [
        (q - p).detach().double().square().sum().item()
        for p, q in zip(before.parameters(), after.parameters(), strict=True)
    ]
    assert weight_change(before, after) == pytest.approx(math.sqrt(sum(squares)), rel=1e-5)


def test_the_weight_change_ignores_rows_that_only_one_model_has():
    before, after = torch.nn.Linear(3, 4), torch.nn.Linear(3, 6)
    with torch.no_grad():
        after.weight[:4], after.bias[:4] = before.weight + 2, before.bias
    assert weight_change(before, after) == pytest.approx(2 * math.sqrt(12))
