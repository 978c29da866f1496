"""How far an update moved the weights is the norm of a difference, whatever form it has."""

import math
from typing import Any

import pytest
import torch

from vestige.models.lora import add_lora, weight_change
from vestige.models.pretrained import load

PEFT_ASKS_BY_AN_OLD_NAME = "ignore:.*is_gradient_checkpointing"


def naive(before: Any, after: Any) -> float:
    old, new = before.state_dict(), after.state_dict()
    moved = [(new[name].double() - old[name].double()).flatten() for name in old]
    return float(torch.cat(moved).norm())


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_an_adapter_moves_what_merging_it_moves(kind: str, make: dict[str, Any], folders: Any):
    adapted, base = make[f"{kind} adapter"](), load(folders[kind])
    moved = weight_change(base, adapted)
    merged = adapted.network.merge_and_unload()
    assert moved == pytest.approx(naive(base.network, merged), rel=1e-4)
    assert moved > 0


@pytest.mark.filterwarnings(PEFT_ASKS_BY_AN_OLD_NAME)
def test_layers_that_an_adapter_replaces_count_too(folders: Any) -> None:
    from peft import LoraConfig, get_peft_model

    from vestige.models.hugging_face import HuggingFaceLanguageModel

    base, other = load(folders["llama"]), load(folders["llama"])
    config = LoraConfig(r=2, modules_to_save=["norm"], task_type="CAUSAL_LM")
    adapted = HuggingFaceLanguageModel(get_peft_model(other.network, config), base.vocabulary)
    assert weight_change(base, adapted) == 0  # two layers have two norms each, and one is last
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "modules_to_save" in name:
                parameter.add_(0.5)
    assert weight_change(base, adapted) == pytest.approx(0.5 * math.sqrt(5 * 16))


@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_a_whole_model_moves_by_the_norm_of_the_difference(kind: str, make: dict[str, Any]):
    before, after = make[kind](), make[kind]()
    assert weight_change(before, after) == 0
    with torch.no_grad():
        for parameter in after.parameters():
            parameter.add_(torch.randn_like(parameter))
    expected = math.sqrt(
        sum(
            float((q - p).detach().square().sum())
            for p, q in zip(before.parameters(), after.parameters(), strict=True)
        )
    )
    assert weight_change(before, after) == pytest.approx(expected, rel=1e-5)


def test_rows_that_only_one_has_do_not_count() -> None:
    before, after = torch.nn.Linear(3, 4), torch.nn.Linear(3, 6)
    with torch.no_grad():
        after.weight[:4], after.bias[:4] = before.weight + 2, before.bias
    assert weight_change(before, after) == pytest.approx(2 * math.sqrt(12))


def test_a_fresh_adapter_has_moved_nothing(folders: Any) -> None:
    base = load(folders["gpt2"])
    assert weight_change(base, add_lora(base, rank=3)) == 0
