"""The format of matrix products: the same on every CPU, native on a GPU."""

import pytest
import torch

from vestige.training.precision import autocast, choose_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize("flags", [{"avx2": True}, {"amx_bf16": True}, {"avx512_bf16": True}])
def test_a_cpu_uses_float32_whatever_its_instructions(monkeypatch, flags):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    assert choose_precision("auto", CPU) == torch.float32


@pytest.mark.parametrize(
    ("supported", "expected"), [(True, torch.bfloat16), (False, torch.float32)]
)
def test_a_gpu_uses_bfloat16_only_in_hardware(monkeypatch, supported, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: supported)
    assert choose_precision("auto", torch.device("cuda")) == expected


def test_what_is_asked_for_is_taken():
    assert choose_precision("bfloat16", CPU) == torch.bfloat16
    assert choose_precision("float32", torch.device("cuda")) == torch.float32


def test_float32_switches_autocast_off():
    product = torch.ones(2, 2)
    with autocast(torch.float32, CPU):
        assert (product @ product).dtype == torch.float32
    with autocast(torch.bfloat16, CPU):
        assert (product @ product).dtype == torch.bfloat16
