"""Exposure and epsilon of canaries during a training with Transformers."""

import math
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from datasets import Dataset

import vestige
from tests.integrations.worlds import CHATS, KillAfter, gpt2, tokenizer, trained
from vestige.audits.exposure.epsilon import audit_canaries
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Claim
from vestige.data.canaries.texts import Manifest
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError, VestigeError
from vestige.integrations.leakage_callback import Leakage, LeakageCallback
from vestige.integrations.planting import plant
from vestige.models.hugging_face import HuggingFaceLanguageModel


def language_model(trainer, network=None):
    words = SubwordVocabulary(trainer.processing_class)
    return HuggingFaceLanguageModel((network or trainer.model).eval(), words)


def has_other_orders(snapshot):
    """Whether other orders of the words were scored, as only at the end."""
    return any(canary["orders"] > 1 for canary in snapshot.exposure.canaries)


def steps_of(callback):
    return [snapshot.step for snapshot in callback.snapshots]


def logged_steps(trainer):
    return [row["step"] for row in trainer.state.log_history if "vestige/exposure" in row]


@pytest.fixture(scope="module")
def training(planted, tmp_path_factory):
    """A training with five measurements: its callback, its trainer, its logs, its run folder."""
    out = tmp_path_factory.mktemp("training")
    callback = LeakageCallback(
        planted[1], every=0.25, budget=math.inf, out=out / "run", stop_above={"epsilon": 99.0}
    )
    trainer, logs = trained(planted, out, callback, steps=240)
    return callback, trainer, logs, out / "run"


@pytest.mark.slow
def test_measurements_equal_those_of_the_verbs_and_are_logged(planted, training):
    callback, trainer, logs, _ = training
    assert steps_of(callback) == logged_steps(trainer) == [0, 60, 120, 180, 240]
    assert [has_other_orders(snapshot) for snapshot in callback.snapshots] == [False] * 4 + [True]
    model, last = language_model(trainer), callback.snapshots[-1]
    exposure = vestige.exposure(model, planted[1], references=2**8)
    assert vestige.results.plain(last.exposure.rows()) == list(exposure.rows)
    completion = vestige.extract(model, planted[1], beam=1)
    assert vestige.results.plain(last.completion.rows()) == list(completion.rows)
    logged = [entry["vestige/exposure"] for entry in logs if "vestige/exposure" in entry]
    measured = [snapshot.exposure.figures()["exposure_planted"] for snapshot in callback.snapshots]
    assert logged == measured
    assert logged[-1] > max(logged[0], exposure.summary["exposure_controls"]) + 1


@pytest.mark.slow
def test_epsilon_is_measured_from_score_differences_to_the_baseline(planted, training):
    callback, trainer, logs, _ = training
    canaries = list(Manifest.load(planted[1] / "manifest.json").canaries)
    before = callback._baseline.scores
    audit = audit_canaries(language_model(trainer), canaries, delta=1e-5, reference=before)
    assert callback.snapshots[-1].audit.scores == pytest.approx(audit.scores, abs=1e-4)
    logged = [entry["vestige/epsilon"] for entry in logs if "vestige/epsilon" in entry]
    assert logged[-1] == audit.one_run.epsilon


@pytest.mark.slow
def test_runs_and_page_have_exposure_epsilon_and_one_verdict(training):
    callback, _, _, out = training
    run, last = vestige.results.load(out / "training"), callback.snapshots[-1]
    claim = Claim.from_summary(run.summary)
    assert (claim.verb, claim.verdict) == ("callback", LEAK)
    page = (out / "page.html").read_text()
    for name, text in (
        ("epsilon", "measured ε, at least"),
        ("exposure", "median exposure of planted canaries"),
    ):
        assert run.summary[name] == last.numbers[name].value
        assert text in page
        assert f"{last.numbers[name].value:.4g}" in page
    assert [row["step"] for row in run.rows] == steps_of(callback)
    saved = vestige.results.load(out / "exposure").summary
    assert saved["exposure_planted"] == last.exposure.figures()["exposure_planted"]


@pytest.mark.slow
def test_a_positive_epsilon_prevents_no_leak_shown(training):
    """If the exposure shows no leak but the epsilon does, the verdict is undecided."""
    last = training[0].snapshots[-1]
    canaries = [
        {**canary, "exposure": float(number % 3) / 2}
        for number, canary in enumerate(last.exposure.canaries * 2)
    ]
    attempts = [{**attempt, "greedy": False} for attempt in last.completion.attempts]
    quiet = replace(
        last,
        exposure=replace(last.exposure, canaries=tuple(canaries)),
        audit=None,
        completion=replace(last.completion, attempts=tuple(attempts)),
    )
    assert quiet.claim.verdict == NO_LEAK
    bound = replace(last.audit.one_run, epsilon=1.5)
    loud = replace(quiet, audit=replace(last.audit, one_run=bound))
    assert loud.claim.verdict == UNDECIDED
    assert "Measured ε is at least 1.5" in loud.claim.reasons[0]


@pytest.mark.slow
def test_measurements_use_the_precision_of_the_training(planted, tmp_path):
    """They equal those of the verb in this precision, and are close to those in float32."""
    callback = LeakageCallback(planted[1], every=1.0, budget=math.inf)
    trainer, _ = trained(planted, tmp_path, callback, steps=240, bf16=True)
    last = callback.snapshots[-1].exposure
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same = vestige.exposure(language_model(trainer), planted[1], references=2**8)
    assert vestige.results.plain(last.rows()) == list(same.rows)
    network = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    precise = vestige.exposure(language_model(trainer, network), planted[1], references=2**8)
    assert vestige.results.plain(last.rows()) != list(precise.rows)
    for half, single in zip(last.canaries, precise.rows, strict=True):
        assert half["log_perplexity"] == pytest.approx(single["log_perplexity"], rel=0.01)
    assert last.figures()["exposure_planted"] == pytest.approx(
        precise.summary["exposure_planted"], abs=0.25
    )


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True])
def test_measurements_do_not_change_the_weights(planted, tmp_path, bf16):
    alone, _ = trained(planted, tmp_path, steps=12, bf16=bf16)
    callback = LeakageCallback(planted[1], every=0.25, budget=math.inf)
    measured, _ = trained(planted, tmp_path, callback, steps=12, bf16=bf16)
    for one, other in zip(alone.model.parameters(), measured.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_measurements_beyond_the_budget_are_skipped(planted, tmp_path, caplog):
    callback = LeakageCallback(planted[1], every=0.1, budget=1e-6)
    trained(planted, tmp_path, callback, steps=20)
    assert steps_of(callback) == [0, 20]
    assert callback.skipped == 9
    [seconds] = re.findall(r"final measurement of leakage takes about (\d+) s", caplog.text)
    assert int(seconds) <= max(1, 5 * callback.snapshots[-1].seconds)


@pytest.mark.slow
def test_a_training_stops_above_a_limit_and_logs_the_last_measurement_once(planted, tmp_path):
    callback = LeakageCallback(
        planted[1], every=0.25, budget=math.inf, stop_above={"exposure": -1.0}
    )
    _, logs = trained(planted, tmp_path, callback)
    assert steps_of(callback) == [0, 10]
    assert [has_other_orders(snapshot) for snapshot in callback.snapshots] == [False, True]
    assert sum("vestige/exposure" in entry for entry in logs) == 2


@pytest.mark.slow
def test_a_training_fails_above_a_limit_after_its_results_are_saved(planted, tmp_path):
    callback = LeakageCallback(planted[1], fail_above={"exposure": 0.0}, out=tmp_path / "run")
    with pytest.raises(Leakage, match=r"the training has exposure .* bits: more than 0"):
        trained(planted, tmp_path, callback, steps=240)
    assert (tmp_path / "run" / "exposure" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0.0}, r"every must be in \(0, 1\]"),
        ({"budget": 0.0}, "budget must be positive"),
        (
            {"fail_above": {"found": 1}},
            "fail_above can have exposure, completed, epsilon, got found",
        ),
        ({"fail_above": {"epsilon": math.nan}}, "fail_above must hold numbers, got nan for"),
        ({"stop_above": {"epsilon": math.nan}}, "stop_above must hold numbers, got nan"),
        ({"references": 99}, "references must be at least 100, got 99"),
        ({"references": 512, "fail_above": {"exposure": 8}}, "must be at least 1,024 to show"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LeakageCallback("canaries", **settings)


def test_a_callback_without_its_trainer_is_refused():
    message = r"trainer.add_callback\(LeakageCallback\(CANARIES, tr"
    with pytest.raises(VestigeError, match=message):
        LeakageCallback("canaries").on_train_begin(None, None, None)


@pytest.mark.slow
def test_a_resumed_training_uses_the_saved_baseline(planted, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 5, "steps": 20}
    complete, killed, resumed = (
        LeakageCallback(planted[1], every=0.5, budget=math.inf) for _ in range(3)
    )
    trained(planted, tmp_path / "complete", complete, **settings)
    with pytest.raises(KeyboardInterrupt):
        trained(planted, tmp_path / "killed", killed, KillAfter(13), **settings)
    trainer, _ = trained(planted, tmp_path / "killed", resumed, resumed=True, **settings)
    assert steps_of(resumed) == [20]
    assert resumed.snapshots[-1].audit == complete.snapshots[-1].audit
    assert logged_steps(trainer) == [0, 10, 20]


@pytest.mark.slow
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_canaries_of_conversations_are_scored_after_the_template(tmp_path, role):
    out = tmp_path / "canaries"
    data = Dataset.from_dict({"messages": CHATS, "number": range(len(CHATS))})
    planted = plant(data, out=out, role=role, question="Well?", coin_flip=12, copies=3, length=3)
    manifest = Manifest.load(out / "manifest.json")
    assert manifest.turn.role == role
    assert manifest.turn.question == ("Well?" if role == "assistant" else "")
    for canary, positions in zip(manifest.canaries, manifest.positions, strict=True):
        for position in positions:
            contents = {m["role"]: m["content"] for m in planted[position]["messages"]}
            assert contents[role] == canary.phrase
            assert role == "user" or contents["user"] == "Well?"
    words = tokenizer()
    words.chat_template = (
        "{% for m in messages %}{{ m['role'] + ' says ' + m['content'] + ' . ' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant says ' }}{% endif %}"
    )
    ends = {"bos_token_id": words.eos_token_id, "eos_token_id": words.eos_token_id}
    network = gpt2(**ends).eval()
    model = HuggingFaceLanguageModel(network, SubwordVocabulary(words))
    before = "user says Well? . assistant says " if role == "assistant" else "user says "
    prefix = words(before, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def naive_log_probs(phrase):
        """Log-probabilities of a phrase's tokens after the text of the template."""
        ids = words(phrase, add_special_tokens=False)["input_ids"]
        logits = network(torch.tensor([prefix + ids])).logits[0, len(prefix) - 1 : -1]
        return logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]

    exposures = vestige.exposure(model, out, references=200).rows
    for canary, row in zip(manifest.canaries, exposures, strict=True):
        bits = -naive_log_probs(canary.phrase).sum().item() / math.log(2)
        assert row["log_perplexity"] == pytest.approx(bits, rel=1e-4)
    completions = vestige.extract(model, out, beam=1).rows
    for canary, row in zip(manifest.canaries, completions, strict=False):
        expected = naive_log_probs(canary.phrase)[1:].sum().item()
        assert row["log_prob"] == pytest.approx(expected, rel=1e-4)
    words.chat_template = None
    with pytest.raises(DataError, match="needs a chat template"):
        vestige.exposure(model, out, references=200)


@pytest.mark.slow
def test_canaries_that_do_not_reach_the_loss_are_refused(planted, tmp_path):
    """`test_arrival.py` has more. Shuffled rows are fine."""
    data, out = planted
    trainer, _ = trained((data.shuffle(seed=3), out), tmp_path, LeakageCallback(out), steps=1)
    trainer.train_dataset = trainer.train_dataset.select(range(5))
    message = r"[0-9]+ of [0-9]+ planted canaries do not reach the loss"
    with pytest.raises(DataError, match=message):
        trainer.train()


def diverging(model):
    """An optimizer whose first step makes every weight NaN."""

    class Diverging(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for weight in group["params"]:
                    weight.data.fill_(math.nan)

    return model, Diverging(model.parameters(), lr=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_diverged_training_is_logged_and_not_measured(planted, tmp_path, caplog, fails):
    settings = {"fail_above": {"exposure": 3.0}} if fails else {}
    callback = LeakageCallback(
        planted[1], every=0.25, budget=math.inf, out=tmp_path / "run", **settings
    )
    logs = []
    with pytest.raises(VestigeError, match="diverged") if fails else nullcontext():
        _, logs = trained(planted, tmp_path, callback, steps=8, prepare=diverging)
    assert "The training diverged: at step 2 scores are not finite" in caplog.text
    logged = [entry for entry in logs if "vestige/diverged" in entry]
    assert fails or logged == [{"vestige/diverged": 1}]
    assert steps_of(callback) == [0]
    assert (callback.diverged, callback.result.claim.verdict) == (2, UNDECIDED)
    run = vestige.results.load(tmp_path / "run" / "training")
    assert Claim.from_summary(run.summary).verdict == UNDECIDED
    assert "The training diverged" in (tmp_path / "run" / "page.html").read_text()
    assert not (tmp_path / "run" / "exposure").exists()
