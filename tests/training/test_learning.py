"""Each kind of model learns, in either precision; which one `auto` is."""

from dataclasses import replace

import pytest
import torch

from tests.training import worlds
from tests.training.worlds import CONFIG, CPU, language_model, listener, numbers, stream
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import evaluate, score_pairs
from vestige.training.loop import learn, train
from vestige.training.steps import autocast, choose_precision, settled
from vestige.training.tasks import PairTask
from vestige.training.utterances import evaluate_utterances


@pytest.mark.slow
@pytest.mark.parametrize("architecture", worlds.SHAPES)
def test_a_model_learns_what_follows_what_in_either_precision(architecture):
    held, result = stream(400, seed=1), {}
    before = evaluate(language_model(architecture), held, sequence_length=5).perplexity
    for precision in ("float32", "bfloat16"):
        model = language_model(architecture)
        config = replace(CONFIG, epochs=4, learning_rate=0.02, max_grad_norm=1.0)
        config = replace(config, precision=precision)
        history = train(model, stream(2000), validation=held, config=config)
        assert history.summary()["validation_perplexity"] < 0.75 * before
        assert history.summary()["validation_accuracy"] > 0.6
        assert all(p.dtype == torch.float32 for p in model.parameters())
        result[precision] = history.summary()["validation_perplexity"]
    assert result["bfloat16"] != result["float32"]
    assert result["bfloat16"] == pytest.approx(result["float32"], rel=0.2)


@pytest.mark.slow
def test_a_model_learns_to_translate():
    held = numbers(20, seed=1)
    model = worlds.translator(embedding_size=24, hidden_size=24)
    task = PairTask(worlds.encoded(numbers(100)), worlds.encoded(held), tuple(held))
    config = replace(CONFIG, epochs=10, batch_size=8, sequence_length=9, learning_rate=2e-2)
    history = learn(model, task, config=config)
    kept = history.epochs[history.best_epoch - 1]
    assert kept.validation_accuracy > 0.9
    assert kept.measures["bleu"] > 50
    scores = score_pairs(model, worlds.encoded(held), length=9).evaluation()
    assert kept.validation_perplexity == pytest.approx(scores.perplexity)
    assert kept.validation_accuracy == scores.accuracy


def test_a_dialogue_has_no_bleu():
    pairs = worlds.encoded(numbers(20))
    history = learn(worlds.translator(), PairTask(pairs, pairs), config=replace(CONFIG, epochs=1))
    assert history.epochs[0].measures == {}


@pytest.mark.slow
def test_a_model_learns_to_understand():
    model, test = listener(), worlds.utterances(30, seed=2)
    before = evaluate_utterances(model, test)
    config = replace(CONFIG, epochs=12, learning_rate=2e-2)
    history = learn(model, worlds.listening(), config=config)
    after = evaluate_utterances(model, test)
    assert after.exact_match > 0.9 > before.exact_match
    assert after.slot_f1 > 0.9
    kept = history.epochs[history.best_epoch - 1]
    scores = evaluate_utterances(model, worlds.utterances(20, seed=1))
    assert kept.validation_perplexity == pytest.approx(scores.perplexity)
    assert kept.validation_accuracy == scores.exact_match
    assert kept.measures["slot_f1"] == scores.slot_f1
    assert kept.measures["loss"] == pytest.approx(scores.loss)


# Precision: the same on every CPU, native on a GPU


@pytest.mark.parametrize("flags", [{"avx2": True}, {"amx_bf16": True}, {"avx512_bf16": True}])
def test_a_cpu_uses_float32_whatever_its_instructions(monkeypatch, flags):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    assert choose_precision("auto", CPU) == torch.float32
    assert choose_precision("bfloat16", CPU) == torch.bfloat16


@pytest.mark.parametrize(
    ("device", "hardware", "expected"),
    [("cpu", True, "float32"), ("cuda", True, "bfloat16"), ("cuda", False, "float32")],
)
def test_a_gpu_uses_bfloat16_only_in_hardware_and_a_run_records_it(
    monkeypatch, device, hardware, expected
):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: hardware)
    device = torch.device(device)
    assert str(choose_precision("auto", device)) == f"torch.{expected}"
    assert settled(TrainingConfig(seed=0), device).precision == expected
    for chosen in ("float32", "bfloat16"):
        assert str(choose_precision(chosen, device)) == f"torch.{chosen}"
        other = TrainingConfig(seed=0, precision=chosen)
        assert settled(other, device) == other


def test_float32_switches_autocast_off():
    product = torch.ones(2, 2)
    for precision in (torch.float32, torch.bfloat16):
        with autocast(precision, CPU):
            assert (product @ product).dtype == precision
