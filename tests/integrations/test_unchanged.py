"""A model that learned nothing gives no verdict."""

import math
import re
from contextlib import nullcontext

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.integrations.worlds import trained
from vestige import results
from vestige.claims import UNDECIDED, Claim
from vestige.errors import VestigeError
from vestige.integrations.leakage_callback import LeakageCallback
from vestige.integrations.trainer_audit import BASELINE, Baseline

SETTINGS = {"every": 1.0, "budget": math.inf, "references": 100}


def check_states(callback):
    """For each measurement, the check that scores differ from those before the training."""
    return [snapshot.exposure.checks[-1].state for snapshot in callback.snapshots]


def untrained_adapter(model):
    """An adapter that is not in the optimizer: its B remains zero."""
    lora = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    return adapted, torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of PEFT
@pytest.mark.parametrize(
    ("settings", "bf16"),
    [({"out": "run"}, False), ({"fail_above": {"exposure": 2}}, True), ({}, False)],
)
def test_a_training_without_changes_is_undecided(
    planted, tmp_path, monkeypatch, caplog, settings, bf16
):
    monkeypatch.chdir(tmp_path)
    callback = LeakageCallback(planted[1], **SETTINGS, **settings)
    message = "could not be measured: .*The adapter changes nothing"
    fails = "fail_above" in settings
    with pytest.raises(VestigeError, match=message) if fails else nullcontext():
        trained(planted, tmp_path, callback, steps=2, bf16=bf16, prepare=untrained_adapter)
    assert fails or re.search(message, caplog.text)
    assert callback.result.claim.verdict == UNDECIDED
    if "out" in settings:
        for kind in ("training", "exposure", "completion"):
            run = results.load(tmp_path / "run" / kind)
            assert Claim.from_summary(run.summary).verdict == UNDECIDED
    assert check_states(callback) == ["failed", "failed"]


@pytest.mark.slow
def test_a_learning_rate_of_zero_is_undecided(planted, tmp_path):
    callback = LeakageCallback(planted[1], every=1.0, fail_above={"exposure": 3.0})
    with pytest.raises(VestigeError, match="The canaries have the scores that they had before"):
        trained(planted, tmp_path, callback, steps=2, learning_rate=0.0)


@pytest.mark.slow
def test_one_step_passes_the_check_and_the_baseline_is_saved(planted, tmp_path):
    callback = LeakageCallback(planted[1], **SETTINGS, out=tmp_path / "run")
    trained(planted, tmp_path, callback, steps=1)
    assert check_states(callback) == ["failed", "passed"]
    assert (tmp_path / "run" / "exposure").is_dir()
    saved = Baseline.load(tmp_path / "trainer" / BASELINE)
    canaries = callback.snapshots[0].exposure.canaries
    assert saved.answers == [canary["log_perplexity"] for canary in canaries]


def test_baseline_scores_are_compared_up_to_rounding():
    before = Baseline(answers=[40.0, 90.0])
    assert before.same([40.0001, 89.9999])
    assert not before.same([40.0, 89.99])
