"""The format of matrix products: the same on every CPU, native on a GPU."""

from dataclasses import replace

import pytest
import torch

from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.steps import autocast, choose_precision, settled

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


@pytest.mark.parametrize(("device", "expected"), [("cpu", "float32"), ("cuda", "bfloat16")])
def test_what_a_run_records_is_what_the_loop_takes(monkeypatch, device, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: True)
    recorded = settled(TrainingConfig(seed=0), torch.device(device)).precision
    assert recorded == expected
    assert str(choose_precision("auto", torch.device(device))) == f"torch.{recorded}"
    other = TrainingConfig(seed=0, precision="bfloat16")
    assert settled(other, torch.device(device)) == other


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_bfloat16_trains_on_any_cpu(make_model, make_text, architecture):
    config = TrainingConfig(
        seed=3, epochs=3, batch_size=4, sequence_length=5, learning_rate=0.02, precision="bfloat16"
    )
    perplexities = {}
    for precision in ("bfloat16", "float32"):
        model = make_model(architecture)
        history = train(
            model,
            make_text(1000),
            validation=make_text(400, seed=1),
            config=replace(config, precision=precision),
        )
        assert all(p.dtype == torch.float32 for p in model.parameters())
        perplexities[precision] = history.summary()["validation_perplexity"]
    assert perplexities["bfloat16"] != perplexities["float32"]
    assert perplexities["bfloat16"] == pytest.approx(perplexities["float32"], rel=0.2)


def test_what_is_asked_for_is_taken():
    assert choose_precision("bfloat16", CPU) == torch.bfloat16
    assert choose_precision("float32", torch.device("cuda")) == torch.float32


def test_float32_switches_autocast_off():
    product = torch.ones(2, 2)
    with autocast(torch.float32, CPU):
        assert (product @ product).dtype == torch.float32
    with autocast(torch.bfloat16, CPU):
        assert (product @ product).dtype == torch.bfloat16
