"""Canaries in a data set, and their exposure during a training with Transformers."""

import math
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling

import vestige
from tests.integrations.worlds import CHATS, DATA, Dies, gpt2, tokenizer, trained
from vestige.audits.exposure.epsilon import audit_canaries
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Claim
from vestige.data.canaries.texts import Manifest
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError, VestigeError
from vestige.integrations.leakage_callback import Leakage, LeakageCallback
from vestige.integrations.planting import plant
from vestige.models.hugging_face import HuggingFaceLanguageModel


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    out = tmp_path_factory.mktemp("planted") / "canaries"
    return plant(DATA, out=out, coin_flip=16, copies=20, length=4), out


def test_canaries_are_at_the_positions_of_the_manifest(planted):
    data, out = planted
    manifest = Manifest.load(out / "manifest.json")
    copies = sum(map(len, manifest.positions))
    assert len(data) == len(DATA) + copies
    for canary, places in zip(manifest.canaries, manifest.positions, strict=True):
        assert {data[place]["text"] for place in places} <= {canary.phrase}
        assert {data[place]["number"] for place in places} <= {None}
    kept = [row for place, row in enumerate(data) if place not in manifest.copy_positions]
    assert kept == list(DATA)
    assert data["text"] == list(vestige.plant(out, verify=True).corpus)


def other_orders(moment):
    """Whether other orders of the words were scored, as only at the end."""
    return any(canary["orders"] > 1 for canary in moment.exposure.canaries)


@pytest.mark.slow
def test_measurements_equal_those_of_the_verbs_and_are_logged(planted, tmp_path):
    callback = LeakageCallback(planted[1], every=0.25, budget=math.inf, out=tmp_path / "run")
    trainer, told = trained(planted, tmp_path, callback, steps=240)
    assert [moment.step for moment in callback.snapshots] == [0, 60, 120, 180, 240]
    model = HuggingFaceLanguageModel(trainer.model, SubwordVocabulary(trainer.processing_class))
    final = vestige.exposure(model, planted[1], references=2**8)
    last = callback.snapshots[-1]
    assert vestige.results.plain(last.exposure.rows()) == list(final.rows)
    completed = vestige.extract(model, planted[1], beam=1)
    assert vestige.results.plain(last.completion.rows()) == list(completed.rows)
    assert [other_orders(snapshot) for snapshot in callback.snapshots] == [False] * 4 + [True]
    told = [logs["vestige/exposure"] for logs in told if "vestige/exposure" in logs]
    assert told == [
        snapshot.exposure.figures()["exposure_planted"] for snapshot in callback.snapshots
    ]
    history = [row for row in trainer.state.log_history if "vestige/exposure" in row]
    assert [row["step"] for row in history] == [0, 60, 120, 180, 240]
    saved = vestige.results.load(tmp_path / "run" / "exposure")
    assert saved.summary["exposure_planted"] == told[-1]
    assert told[-1] > max(told[0], final.summary["exposure_controls"]) + 1


@pytest.mark.slow
def test_measurements_use_the_precision_of_the_training(planted, tmp_path):
    """The verb says the same in the same precision, and nearly the same in float32."""
    callback = LeakageCallback(planted[1], every=1.0, budget=math.inf)
    trainer, _ = trained(planted, tmp_path, callback, steps=240, bf16=True)
    last = callback.snapshots[-1].exposure
    words = SubwordVocabulary(trainer.processing_class)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model = HuggingFaceLanguageModel(trainer.model.eval(), words)
        same = vestige.exposure(model, planted[1], references=2**8)
    assert vestige.results.plain(last.rows()) == list(same.rows)
    network = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    model = HuggingFaceLanguageModel(network, words)
    precise = vestige.exposure(model, planted[1], references=2**8)
    assert vestige.results.plain(last.rows()) != list(precise.rows)
    for one, other in zip(last.canaries, precise.rows, strict=True):
        assert one["log_perplexity"] == pytest.approx(other["log_perplexity"], rel=0.01)
    assert last.figures()["exposure_planted"] == pytest.approx(
        precise.summary["exposure_planted"], abs=0.25
    )


@pytest.mark.slow
@pytest.mark.parametrize("bf16", [False, True])
def test_measurements_do_not_change_the_weights(planted, tmp_path, bf16):
    alone, _ = trained(planted, tmp_path, steps=12, bf16=bf16)
    callback = LeakageCallback(planted[1], every=0.25, budget=math.inf)
    watched, _ = trained(planted, tmp_path, callback, steps=12, bf16=bf16)
    for one, other in zip(alone.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_measurements_beyond_the_budget_are_skipped(planted, tmp_path):
    callback = LeakageCallback(planted[1], every=0.1, budget=1e-6)
    trained(planted, tmp_path, callback, steps=20)
    assert [moment.step for moment in callback.snapshots] == [0, 20]
    assert callback.skipped == 9


@pytest.mark.slow
def test_a_training_stops_above_a_limit_and_logs_the_last_measurement_once(planted, tmp_path):
    stopping = LeakageCallback(
        planted[1], every=0.25, budget=math.inf, stop_above={"exposure": -1.0}
    )
    _, told = trained(planted, tmp_path, stopping)
    assert [(snapshot.step, other_orders(snapshot)) for snapshot in stopping.snapshots] == [
        (0, False),
        (10, True),
    ]
    assert sum("vestige/exposure" in logs for logs in told) == 2
    failing = LeakageCallback(planted[1], fail_above={"exposure": 0.0}, out=tmp_path / "run")
    with pytest.raises(Leakage, match=r"the training has exposure .* bits: more than 0"):
        trained(planted, tmp_path, failing, steps=240)
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


@pytest.mark.slow
def test_epsilon_is_measured_relative_to_the_baseline(planted, tmp_path):
    """By the definition: an audit of scores less those before."""
    callback = LeakageCallback(planted[1], every=1.0, budget=math.inf)
    trainer, told = trained(planted, tmp_path, callback, steps=240)
    last = callback.snapshots[-1]
    trainer.model.eval()
    words = SubwordVocabulary(trainer.processing_class)
    model = HuggingFaceLanguageModel(trainer.model, words)
    canaries = list(Manifest.load(planted[1] / "manifest.json").canaries)
    alone = audit_canaries(model, canaries, delta=1e-5, reference=callback._baseline.scores)
    assert last.audit.scores == pytest.approx(alone.scores, abs=1e-4)
    logged = [logs for logs in told if "vestige/epsilon" in logs]
    assert logged[-1]["vestige/epsilon"] == alone.one_run.epsilon


@pytest.mark.slow
def test_a_resumed_training_uses_the_saved_baseline(planted, tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 5, "steps": 20}
    asked = {"every": 0.5, "budget": math.inf}
    whole = LeakageCallback(planted[1], **asked)
    trained(planted, tmp_path / "whole", whole, **saved)
    with pytest.raises(KeyboardInterrupt):
        trained(planted, tmp_path / "cut", LeakageCallback(planted[1], **asked), Dies(13), **saved)
    resumed = LeakageCallback(planted[1], **asked)
    trainer, _ = trained(planted, tmp_path / "cut", resumed, resumed=True, **saved)
    assert [moment.step for moment in resumed.snapshots] == [20]
    assert resumed.snapshots[-1].audit == whole.snapshots[-1].audit
    history = [row["step"] for row in trainer.state.log_history if "vestige/exposure" in row]
    assert history == [0, 10, 20]


@pytest.mark.slow
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_canaries_of_conversations_are_scored_after_the_template(tmp_path, role):
    data = Dataset.from_dict({"messages": CHATS, "number": range(len(CHATS))})
    planted = plant(
        data, out=tmp_path / "c", role=role, question="Well?", coin_flip=12, copies=3, length=3
    )
    sealed = Manifest.load(tmp_path / "c" / "manifest.json")
    assert (sealed.turn.role, sealed.turn.question) == (role, "Well?" * (role == "assistant"))
    for canary, places in zip(sealed.canaries, sealed.positions, strict=True):
        for place in places:
            said = {m["role"]: m["content"] for m in planted[place]["messages"]}
            assert said[role] == canary.phrase
            assert role == "user" or said["user"] == "Well?"
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
    def own(phrase):
        """Log-probabilities of a phrase's tokens behind what the template says."""
        ids = words(phrase, add_special_tokens=False)["input_ids"]
        logits = network(torch.tensor([prefix + ids])).logits[0, len(prefix) - 1 : -1]
        return logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]

    found = vestige.exposure(model, tmp_path / "c", references=200)
    for canary, told in zip(sealed.canaries, found.rows, strict=True):
        bits = -own(canary.phrase).sum().item() / math.log(2)
        assert told["log_perplexity"] == pytest.approx(bits, rel=1e-4)
    completed = vestige.extract(model, tmp_path / "c", beam=1).rows
    for canary, told in zip(sealed.canaries, completed, strict=False):  # asked in the same place
        assert told["log_prob"] == pytest.approx(own(canary.phrase)[1:].sum().item(), rel=1e-4)
    words.chat_template = None
    with pytest.raises(DataError, match="needs a chat template"):
        vestige.exposure(model, tmp_path / "c", references=200)


class _Cut:
    """A collator that cuts rows off, or masks what the loss would count."""

    def __init__(self, words, *, length: int | None = None, masked: bool = False) -> None:
        self.inside = DataCollatorForLanguageModeling(words, mlm=False)
        self.length, self.masked = length, masked

    def __call__(self, rows):
        found = self.inside([{"input_ids": row["input_ids"][: self.length]} for row in rows])
        if self.masked:
            found["labels"][:] = -100
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "told"),
    [
        ({"length": 2}, "0 are masked in the labels, [0-9]+ are whole in no row"),
        ({"masked": True}, "[0-9]+ are masked in the labels, 0 are whole in no row"),
        ({"rows": range(5)}, r"[0-9]+ of [0-9]+ planted canaries do not reach the loss"),
    ],
)
def test_canaries_that_do_not_reach_the_loss_are_refused(planted, tmp_path, cut, told):
    """A low exposure would be read as "no leak". Shuffled rows are fine."""
    data, out = planted
    trainer, _ = trained((data.shuffle(seed=3), out), tmp_path, LeakageCallback(out), steps=1)
    if "rows" in cut:
        trainer.train_dataset = trainer.train_dataset.select(cut["rows"])
    else:
        trainer.data_collator = _Cut(trainer.processing_class, **cut)
    with pytest.raises(DataError, match=told):
        trainer.train()


@pytest.mark.slow
def test_a_callback_without_its_trainer_is_refused(planted, tmp_path):
    trainer, _ = trained(planted, tmp_path, steps=1)
    trainer.add_callback(LeakageCallback(planted[1]))
    with pytest.raises(VestigeError, match=r"trainer.add_callback\(LeakageCallback\(CANARIES, tr"):
        trainer.train()


def diverging(model):
    """An optimizer whose first step makes every weight NaN."""

    class Breaks(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for weight in group["params"]:
                    weight.data.fill_(math.nan)

    return model, Breaks(model.parameters(), lr=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_diverged_training_is_logged_and_not_measured(planted, tmp_path, caplog, fails):
    more = {"fail_above": {"exposure": 3.0}} if fails else {}
    callback = LeakageCallback(
        planted[1], every=0.25, budget=math.inf, out=tmp_path / "run", **more
    )
    told = []
    with pytest.raises(VestigeError, match="diverged") if fails else nullcontext():
        _, told = trained(planted, tmp_path, callback, steps=8, prepare=diverging)
    assert "The training diverged: at step 2 scores are not finite" in caplog.text
    assert fails or [one for one in told if "vestige/diverged" in one] == [{"vestige/diverged": 1}]
    assert [snapshot.step for snapshot in callback.snapshots] == [0]
    assert (callback.diverged, callback.result.claim.verdict) == (2, UNDECIDED)
    run = vestige.results.load(tmp_path / "run" / "training")
    assert Claim.from_summary(run.summary).verdict == UNDECIDED
    assert "The training diverged" in (tmp_path / "run" / "page.html").read_text()
    assert not (tmp_path / "run" / "exposure").exists()


@pytest.mark.slow
def test_the_page_has_exposure_epsilon_and_one_verdict(planted, tmp_path, caplog):
    callback = LeakageCallback(
        planted[1], every=1.0, budget=math.inf, out=tmp_path / "run",
        stop_above={"epsilon": 99.0},
    )  # fmt: skip
    trained(planted, tmp_path, callback, steps=240)
    run = vestige.results.load(tmp_path / "run" / "training")
    last, claim = callback.snapshots[-1], Claim.from_summary(run.summary)
    assert (claim.verb, claim.verdict) == ("callback", LEAK)
    page = (tmp_path / "run" / "page.html").read_text()
    for name, words in (
        ("epsilon", "measured ε, at least"),
        ("exposure", "median exposure of planted canaries"),
    ):
        assert run.summary[name] == last.numbers[name].value
        assert words in page
        assert f"{last.numbers[name].value:.4g}" in page
    assert [row["step"] for row in run.rows] == [0, 240]
    [said] = re.findall(r"final measurement of leakage takes about (\d+) s", caplog.text)
    assert int(said) <= max(1, 5 * last.seconds)


@pytest.mark.slow
def test_other_evidence_prevents_no_leak_shown(planted, tmp_path):
    """Exposure that shows nothing beside an ε that does: undecided, and the page says why."""
    callback = LeakageCallback(planted[1], every=1.0, budget=math.inf)
    trained(planted, tmp_path, callback, steps=240)
    last = callback.snapshots[-1]
    alike = replace(last.exposure, canaries=tuple(
        {**one, "exposure": float(place % 3) / 2} for place, one in
        enumerate(last.exposure.canaries * 2)
    ))  # fmt: skip
    quiet = replace(last, exposure=alike, audit=None, completion=replace(
        last.completion, attempts=tuple(
            {**attempt, "greedy": False} for attempt in last.completion.attempts
        ),
    ))  # fmt: skip
    assert quiet.claim.verdict == NO_LEAK
    proven = replace(last.audit.one_run, epsilon=1.5)
    loud = replace(quiet, audit=replace(last.audit, one_run=proven))
    assert loud.claim.verdict == UNDECIDED
    assert "Measured ε is at least 1.5" in loud.claim.reasons[0]


@pytest.mark.slow
def test_a_learning_rate_of_zero_is_undecided(planted, tmp_path):
    callback = LeakageCallback(planted[1], every=1.0, fail_above={"exposure": 3.0})
    with pytest.raises(VestigeError, match="The canaries have the scores that they had before"):
        trained(planted, tmp_path, callback, steps=2, learning_rate=0.0)
