"""Models that are compared are read in the precision that all of them are stored in."""

import shutil
from pathlib import Path

import pytest
import torch

from vestige.models import snapshots
from vestige.models.checkpoints import load_model, save_model
from vestige.models.snapshots import common_dtype, stored_weights

CPU, GPU = torch.device("cpu"), torch.device("cuda")
HALVES = [torch.bfloat16, torch.float16]


def stored(folder: Path, place: Path, dtype: torch.dtype) -> Path:
    from transformers import AutoModelForCausalLM

    shutil.copytree(folder, place)
    AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).save_pretrained(place)
    return place


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A CPU that multiplies bfloat16 in hardware."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    return monkeypatch


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_stay_as_they_are_stored_and_answers_are_float32(
    folders: dict[str, Path], tmp_path: Path, dtype: torch.dtype
) -> None:
    place = stored(folders["llama"], tmp_path / "half", dtype)
    found = stored_weights(place)
    assert found is not None
    assert found[0] == dtype
    half, wide = load_model(place, device="cpu", dtype=dtype), load_model(place, device="cpu")
    assert {parameter.dtype for parameter in half.parameters()} == {dtype}
    ids = torch.tensor([5, 9, 3])
    one, other = (model.logits(model.advance(model.start(3), ids)) for model in (half, wide))
    assert one.dtype == torch.float32
    torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
    assert stored_weights(half) == found


def test_an_adapter_is_read_as_its_base_is(
    folders: dict[str, Path], make: dict[str, object], tmp_path: Path
) -> None:
    from vestige.models.lora import add_lora

    base = stored(folders["llama"], tmp_path / "base", torch.bfloat16)
    save_model(add_lora(load_model(base, device="cpu"), rank=2), tmp_path / "adapter")
    assert stored_weights(tmp_path / "adapter") == stored_weights(base)
    model = load_model(tmp_path / "adapter", device="cpu", dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_compared_models_have_one_precision(
    folders: dict[str, Path], tmp_path: Path, hardware: pytest.MonkeyPatch
) -> None:
    brain, half = (stored(folders["llama"], tmp_path / str(d), d) for d in HALVES)
    wide = folders["llama"]
    assert common_dtype([brain, brain], CPU) == torch.bfloat16
    assert common_dtype([brain, wide], CPU) == torch.float32
    assert common_dtype([brain, half], GPU) == torch.float32
    assert common_dtype([half, half], GPU) == torch.float16
    assert common_dtype([half, half], CPU) == torch.float32  # which a CPU computes faster
    assert common_dtype([load_model(brain, device="cpu"), brain], CPU) == torch.float32


def test_without_hardware_half_precision_is_for_what_does_not_fit_otherwise(
    folders: dict[str, Path], tmp_path: Path, hardware: pytest.MonkeyPatch
) -> None:
    brain = stored(folders["llama"], tmp_path / "half", torch.bfloat16)
    hardware.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert common_dtype([brain, brain], CPU) == torch.float32
    numbers = sum(parameter.numel() for parameter in load_model(brain).parameters())
    hardware.setattr(snapshots, "free_memory", lambda: 2 * 4 * numbers - 1)
    assert common_dtype([brain, brain], CPU) == torch.bfloat16


def test_what_cannot_be_read_is_left_to_whoever_reads_it(tmp_path: Path) -> None:
    assert stored_weights(tmp_path) is None
    assert common_dtype([tmp_path, tmp_path], CPU) == torch.float32
