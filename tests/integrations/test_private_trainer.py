"""Private trainings by Transformers' `Trainer`: what a step adds, promises, and survives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import vestige
from tests.audits.told import sentences
from tests.docs.documents import REPOSITORY
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError, TrainingError
from vestige.integrations.private_checks import refuse_settings
from vestige.integrations.private_plan import PrivateRows, compared_with_folder
from vestige.integrations.private_trainer import PrivateTrainer
from vestige.preparation.lineage import history_of
from vestige.privacy.accounting import Mechanism

TEXTS = sentences(60, seed=0)
USERS = [f"user {place % 11}" for place in range(60)]
LORA = {"r": 4, "target_modules": ["c_attn"], "task_type": "CAUSAL_LM", "fan_in_fan_out": True}


def trainer(
    place: Path, privacy, *callbacks, rows=8, steps=6, lora=None, base=None, user_column=None,
    texts=(TEXTS, None), **settings,
) -> PrivateTrainer:  # fmt: skip
    """A private trainer of an adapter on a small model, or with `lora=False` of all of it.

    `texts` are those that it learns, and those that it evaluates.
    """
    words = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS), size=300).tokenizer
    words.pad_token = words.eos_token
    torch.manual_seed(0)
    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = base or GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes, **quiet))

    def encoded(row):
        return {"input_ids": words(row["text"] + words.eos_token)["input_ids"]}

    def made(texts):
        return Dataset.from_dict({"text": texts, "user": (USERS * 2)[: len(texts)]}).map(encoded)

    args = TrainingArguments(
        place,
        **{
            "max_steps": steps, "per_device_train_batch_size": rows, "learning_rate": 1e-2,
            "report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no",
            "seed": 0, "logging_steps": 2,
        }
        | settings,
    )  # fmt: skip
    return PrivateTrainer(
        model, args, processing_class=words, callbacks=list(callbacks),
        train_dataset=made(texts[0]), eval_dataset=texts[1] and made(texts[1]),
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
        privacy=privacy, user_column=user_column,
        peft_config=None if lora is False else LoraConfig(**(lora or LORA)),
    )  # fmt: skip


DROPPING = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}


def dropping(**settings) -> GPT2LMHeadModel:
    """A GPT-2 whose dropout is that of the paper, and whose gradients are all clipped."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, **DROPPING, **settings))


def llama(**settings) -> LlamaForCausalLM:
    """A Llama of 28,000 weights, its embedding the head's weight."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    more = {"vocab_size": 300, "max_position_embeddings": 64, **settings}
    return LlamaForCausalLM(LlamaConfig(**(sizes | heads | more)))


def seeded(**settings) -> vestige.DPSGD:
    """Noise of a seed, so that two trainings can be compared."""
    return vestige.DPSGD(noise_seed_without_guarantee=3, **settings)


def weights(model) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters() if p.requires_grad]


class Steps(TrainerCallback):
    """Keeps the gradients that the optimizer is about to take."""

    def __init__(self) -> None:
        self.gradients: list[list[torch.Tensor]] = []
        self.before: list[list[torch.Tensor]] = []

    def on_step_begin(self, args, state, control, *, model, **rest):
        self.before.append(weights(model))

    def on_pre_optimizer_step(self, args, state, control, *, model, **rest):
        self.gradients.append([p.grad.clone() for p in model.parameters() if p.requires_grad])


def expected_gradient(own, step: int, *, clip: float, expected: int) -> list[torch.Tensor]:
    """By the definition: a backward pass for each row of the lot, clipped by unit, summed."""
    rows, units = own._rows.batch(own._secret, step, 0, 1)
    learning = [p for p in own.model.parameters() if p.requires_grad]
    each: dict[int, list[torch.Tensor]] = {}
    for row, unit in zip(rows, units, strict=True):
        ids = torch.tensor([own.train_dataset[int(row)]["input_ids"]])
        # The collator ignores what pads, and the end of a text is the same token.
        labels = ids[0, 1:].masked_fill(ids[0, 1:] == own.processing_class.pad_token_id, -100)
        loss = cross_entropy(own.model(ids).logits[0, :-1], labels)
        found = torch.autograd.grad(loss, learning)
        before = each.get(int(unit))
        each[int(unit)] = [
            a + b for a, b in zip(before, found, strict=True)
        ] if before else list(found)  # fmt: skip
    total = [torch.zeros_like(p) for p in learning]
    for found in each.values():
        scale = min(1.0, clip / torch.nn.utils.get_total_norm(found).item())
        for summed, one in zip(total, found, strict=True):
            summed += scale * one / expected
    return total


LEARNING = {
    "adapter": LORA,
    "biases too": LORA | {"bias": "lora_only"},
    "an embedding too": LORA | {"modules_to_save": ["wte"]},
    "whole": False,
}


@pytest.mark.slow
@pytest.mark.parametrize("learning", LEARNING)
@pytest.mark.parametrize("unit", ["sequence", "user"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_step_takes_the_clipped_mean_of_its_lot(tmp_path, unit, accumulation, learning):
    steps = Steps()
    clip, rows = 0.05 if learning == "adapter" else 1.0, 4 if unit == "sequence" else 2
    user = {"user_column": "user"} if unit == "user" else {}
    own = trainer(
        tmp_path, vestige.DPSGD(noise_multiplier=0.0, max_grad_norm=clip, unit=unit), steps,
        rows=rows, gradient_accumulation_steps=accumulation, lora=LEARNING[learning], **user,
    )  # fmt: skip
    own.train()
    learning = [p for p in own.model.parameters() if p.requires_grad]
    for step, (before, found) in enumerate(zip(steps.before, steps.gradients, strict=True)):
        with torch.no_grad():
            for parameter, value in zip(learning, before, strict=True):
                parameter.copy_(value)
        expected = expected_gradient(own, step, clip=clip, expected=rows * accumulation)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-6 * clip)
    logged = [logs for logs in own.state.log_history if "privacy/clipped" in logs]
    assert logged
    assert all(0 <= logs["privacy/clipped"] <= 1 for logs in logged)


@pytest.mark.slow
def test_noise_has_the_deviation_that_the_guarantee_counts_on(tmp_path):
    found = []
    for noise in (0.0, 2.0):
        steps = Steps()
        own = trainer(
            tmp_path / str(noise), seeded(noise_multiplier=noise, max_grad_norm=0.5), steps,
            steps=1, lora=LORA | {"r": 32},
        )  # fmt: skip
        own.train()
        found.append(torch.cat([gradient.flatten() for gradient in steps.gradients[0]]))
    noise = found[1] - found[0]
    deviation = 2.0 * 0.5 / 8
    assert noise.std().item() == pytest.approx(deviation, rel=5 / (2 * len(noise)) ** 0.5)
    assert abs(noise.mean().item()) < 5 * deviation / len(noise) ** 0.5


@pytest.mark.slow
def test_a_training_promises_its_budget_beside_an_ordinary_adapter(tmp_path):
    own = trainer(tmp_path, vestige.DPSGD(epsilon=8.0))
    own.train()
    own.save_model(tmp_path / "adapter")
    names = {file.name for file in (tmp_path / "adapter").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "privacy.json"} <= names
    *before, entry = history_of(tmp_path / "adapter").ledger
    assert [one.defence for one in before] == ["unknown"]
    assert (entry.steps, entry.steps_planned, entry.sample_rate) == (6, 6, 8 / 60)
    mechanism = Mechanism(noise_multiplier=entry.noise_multiplier, sample_rate=8 / 60, steps=6)
    assert entry.epsilon == pytest.approx(mechanism.epsilon(entry.delta))
    assert 7.5 < entry.epsilon <= 8
    told = (tmp_path / "adapter" / "privacy.md").read_text()
    assert told.startswith("# Privacy\n\nε = ")
    assert "a document of at most 64 tokens (of a longer one, the part that was used)" in told
    assert "trainer_state.json" in told
    assert not (tmp_path / "secret.key").exists()


@pytest.mark.slow
def test_chance_of_a_training_is_its_own(tmp_path):
    """Two trainings of one seed draw different noise: the trainer's seed is public."""
    found = []
    for name in "ab":
        own = trainer(tmp_path / name, vestige.DPSGD(noise_multiplier=1.0), steps=1)
        own.train()
        found.append(torch.cat([one.flatten() for one in weights(own.model)]))
    assert (found[0] != found[1]).any()


class Dies(TrainerCallback):
    """Ends the process as `kill -9` does, after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **rest):
        if state.global_step == self.step:
            raise KeyboardInterrupt


class Stops(TrainerCallback):
    """Ends a training after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **rest):
        control.should_training_stop = state.global_step == self.step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lora", "more"),
    [
        (LORA, {}),
        (False, {}),
        (LORA, {"user_column": "user"}),
        (LORA | {"lora_dropout": 0.2}, {"base": dropping}),
    ],
)
def test_a_training_that_was_interrupted_ends_with_the_same_bits(tmp_path, lora, more):
    settings = {"save_strategy": "steps", "save_steps": 2, "steps": 6, "lora": lora} | more
    privacy = seeded(noise_multiplier=1.0, unit="user" if "user_column" in more else None)

    def begun(name, *callbacks):
        own = {"base": settings["base"]()} if "base" in settings else {}
        return trainer(tmp_path / name, privacy, *callbacks, **settings | own)

    whole, cut = begun("whole"), begun("cut", Dies(5))
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    assert (tmp_path / "cut" / "secret.key").stat().st_mode & 0o777 == 0o600
    resumed = begun("cut")
    resumed.train(resume_from_checkpoint=True)
    assert all(map(torch.equal, weights(whole.model), weights(resumed.model)))
    assert resumed.privacy_statement == whole.privacy_statement
    assert not (tmp_path / "cut" / "secret.key").exists()


@pytest.mark.slow
def test_a_training_that_stops_early_has_spent_what_its_steps_spent(tmp_path):
    privacy = vestige.DPSGD(noise_multiplier=2.0, accountant="rdp")
    own = trainer(tmp_path, privacy, Stops(3), steps=6)
    own.train()
    taken = own._private.statement(own.state.global_step).taken
    assert (taken.steps, own.state.global_step) == (3, 3)
    mechanism = Mechanism(noise_multiplier=2.0, sample_rate=8 / 60, steps=3)
    assert taken.epsilon == mechanism.epsilon(taken.delta, "rdp")
    assert own._private.entry.epsilon > taken.epsilon


@pytest.mark.slow
def test_a_training_is_resumed_as_itself_or_not_at_all(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 2, "steps": 6}
    cut = trainer(tmp_path, vestige.DPSGD(noise_multiplier=1.0), Dies(3), **settings)
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    other = trainer(tmp_path, vestige.DPSGD(noise_multiplier=0.7), **settings)
    with pytest.raises(TrainingError, match="belongs to a training with another noise_multiplier"):
        other.train(resume_from_checkpoint=True)
    (tmp_path / "secret.key").unlink()
    with pytest.raises(TrainingError, match="secret"):
        trainer(tmp_path, vestige.DPSGD(noise_multiplier=1.0), **settings).train(True)


@pytest.mark.slow
def test_an_adapter_that_has_learnt_before_is_an_unknown_ancestor(tmp_path):
    own = trainer(tmp_path / "one", vestige.DPSGD(epsilon=8.0))
    own.train()
    again = trainer(tmp_path / "two", vestige.DPSGD(epsilon=8.0))
    with torch.no_grad():
        for one, other in zip(again.model.parameters(), own.model.parameters(), strict=True):
            one.copy_(other)
    again.train()
    assert any("is unknown" in told for told in again.privacy_statement)
    assert len(again._private.before) == len(own._private.before) + 1


@pytest.mark.slow
def test_a_whole_model_is_released_with_its_promise(tmp_path):
    own = trainer(tmp_path / "one", vestige.DPSGD(epsilon=8.0), lora=False)
    own.train()
    own.save_model(tmp_path / "model")
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    for one, other in zip(again.parameters(), own.model.parameters(), strict=True):
        assert torch.equal(one, other)
    *before, entry = history_of(tmp_path / "model").ledger
    assert [one.defence for one in before] == ["unknown"]
    assert 7.5 < entry.epsilon <= 8
    told = (tmp_path / "model" / "privacy.md").read_text()
    assert "the weights with their configuration" in told

    later = trainer(tmp_path / "two", vestige.DPSGD(epsilon=8.0), lora=False, base=again)
    later.train()
    assert later._private.before == (*before, entry)
    third = trainer(tmp_path / "three", vestige.DPSGD(epsilon=8.0), lora=False, base=later.model)
    third.train()
    assert [one.defence for one in third._private.before] == ["unknown", "dp-sgd", "dp-sgd"]


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_weights_are_compared_with_their_folder(tmp_path):
    own = trainer(tmp_path / "one", vestige.DPSGD(epsilon=8.0), lora=False).model
    assert compared_with_folder(own) == "same"  # it comes from nowhere
    own.save_pretrained(tmp_path / "model")
    assert compared_with_folder(GPT2LMHeadModel.from_pretrained(tmp_path / "model")) == "same"
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "model", dtype=torch.bfloat16)
    assert compared_with_folder(again) == "same"
    adapted = get_peft_model(again, LoraConfig(**LORA))
    assert compared_with_folder(adapted.get_base_model()) == "same"
    with torch.no_grad():
        again.transformer.h[0].ln_1.weight[3] += 0.25
    assert compared_with_folder(again) == "other"
    assert compared_with_folder(adapted.get_base_model()) == "other"
    grown = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    grown.resize_token_embeddings(310)
    assert compared_with_folder(grown) == "partly"
    (tmp_path / "model" / "model.safetensors").unlink()
    assert compared_with_folder(GPT2LMHeadModel(own.config)) == "same"
    assert compared_with_folder(again) == "partly"


@pytest.mark.slow
def test_a_model_that_cannot_be_clipped_is_refused_by_its_layer(tmp_path):
    privacy = vestige.DPSGD(epsilon=8.0)
    own = trainer(tmp_path, privacy, lora=False)
    norm = own.model.transformer.ln_f
    norm.forward = lambda given: 2 * type(norm).forward(norm, given)  # no method of its class
    with pytest.raises(
        TrainingError, match=r"transformer\.ln_f is trainable and a LayerNorm, .*1 such"
    ):
        own.train()
    own.model.transformer.ln_f.requires_grad_(False)
    own.train()
    half = trainer(tmp_path / "half", privacy, lora=False)
    half.model.to(torch.bfloat16)
    with pytest.raises(TrainingError, match="16 of 16 trainable tensors have half precision"):
        half.train()
    frozen = trainer(tmp_path / "frozen", privacy, lora=False)
    frozen.model.requires_grad_(False)
    with pytest.raises(TrainingError, match="GPT2LMHeadModel has no trainable weights"):
        frozen.train()


class Twice(GPT2LMHeadModel):
    """A model whose loss is twice the cross-entropy."""

    def forward(self, input_ids=None, attention_mask=None, labels=None, **rest):
        given = {"attention_mask": attention_mask, "labels": labels, **rest}
        found = super().forward(input_ids, **given)
        found.loss = None if found.loss is None else 2 * found.loss
        return found


def test_another_loss_than_cross_entropy_is_refused_before_the_first_step(tmp_path, monkeypatch):
    privacy, begun = vestige.DPSGD(epsilon=8.0), llama()
    twice = Twice(GPT2Config(vocab_size=300, n_positions=64, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(TrainingError, match="Twice trains on another loss"):
        trainer(tmp_path, privacy, lora=False, base=twice).train()
    masked = BertForMaskedLM(BertConfig(
        vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, max_position_embeddings=64, initializer_range=1.0,
    ))  # fmt: skip
    masked.cls.requires_grad_(False)  # a layer that could not be clipped
    with pytest.raises(TrainingError, match="BertForMaskedLM trains on another loss"):
        trainer(tmp_path, privacy, lora=False, base=masked).train()
    own = trainer(tmp_path, privacy, lora=False, base=begun)
    own.data_collator = default_data_collator
    before = weights(begun)
    with pytest.raises(TrainingError, match="collator returns no labels"):
        own.train()
    assert all(map(torch.equal, before, weights(begun)))
    assert not (tmp_path / "secret.key").exists()
    monkeypatch.setattr(PrivateTrainer, "compute_loss", lambda *rest: 0.0, raising=False)
    with pytest.raises(TrainingError, match="does not support a compute_loss of its own"):
        trainer(tmp_path, privacy)


@pytest.mark.parametrize("setting", ["loss_type", "activation_offloading"])
def test_settings_of_a_trainer_of_chats_that_a_private_step_would_pass_over(tmp_path, setting):
    args = {"loss_type": "dft", "activation_offloading": True}
    own = trainer(tmp_path, vestige.DPSGD(epsilon=8.0))
    setattr(own.args, setting, args[setting])
    with pytest.raises(TrainingError, match=f"does not support {setting}. Use "):
        refuse_settings(own)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("unit", ["sequence", "user"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_whole_model_recomputes_its_activations_and_takes_the_same_step(
    tmp_path, unit, tied, reentrant
):
    """With accumulation, too: a lot is a step however it is computed."""
    steps, rows = Steps(), 4 if unit == "sequence" else 2
    own = trainer(
        tmp_path, vestige.DPSGD(noise_multiplier=0.0, max_grad_norm=0.5, unit=unit), steps,
        rows=rows, steps=1, gradient_accumulation_steps=2, lora=False,
        base=llama(tie_word_embeddings=tied), user_column="user" if unit == "user" else None,
    )  # fmt: skip
    own.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    own.train()
    assert own.model.is_gradient_checkpointing
    own.model.gradient_checkpointing_disable()
    [before], [found] = steps.before, steps.gradients
    with torch.no_grad():
        for parameter, value in zip(own.model.parameters(), before, strict=True):
            parameter.copy_(value)
    expected = expected_gradient(own, 0, clip=0.5, expected=2 * rows)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_what_would_break_the_promise_is_refused(tmp_path):
    privacy = vestige.DPSGD(epsilon=8.0)
    with pytest.raises(TrainingError, match="does not support label_smoothing_factor"):
        trainer(tmp_path, privacy, label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match="`user_column` must be given"):
        trainer(tmp_path, vestige.DPSGD(epsilon=8.0, unit="user"))
    with pytest.raises(DataError, match="no column author"):
        trainer(tmp_path, vestige.DPSGD(epsilon=8.0, unit="user"), user_column="author")
    with pytest.raises(ValueError, match="at most 60 in all"):
        trainer(tmp_path, privacy, rows=61)
    own = trainer(tmp_path, privacy, lora=LORA | {"use_dora": True})
    with pytest.raises(TrainingError, match="is trainable and a DoraLinearLayer"):
        own.train()
    assert not (tmp_path / "secret.key").exists()


@pytest.mark.slow
def test_an_optimizer_of_other_tensors_is_refused(tmp_path):
    """As where an adapter is put on, or a model moved, after the optimizer was made."""
    own = trainer(tmp_path, vestige.DPSGD(epsilon=8.0))
    stray = torch.nn.Linear(2, 2)
    own.optimizer = torch.optim.SGD(stray.parameters(), lr=0.1)
    with pytest.raises(TrainingError, match="tensors are not in the optimizer"):
        own.train()


def test_rows_that_a_trainer_joins_are_refused(tmp_path):
    rows = PrivateRows.of(Dataset.from_dict({"text": TEXTS}), vestige.DPSGD(epsilon=1.0), None)
    with pytest.raises(TrainingError, match="made 2 rows of 60"):
        rows.batched([1, 2], vestige.DPSGD(epsilon=1.0), None)
    with pytest.raises(DataError, match="has no length"):
        PrivateRows.of(iter(TEXTS), vestige.DPSGD(epsilon=1.0), None)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each process of one, and of two, has written; see `private_in_processes`."""
    from tests.integrations.private_in_processes import __file__ as script
    from tests.integrations.private_in_processes import train_all

    root = tmp_path_factory.mktemp("processes")
    train_all(root / "1")
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    quiet["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
    command = [sys.executable, script, str(root / "2")]
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return root


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["independent", "whole"])
def test_two_processes_train_as_one(processes, mechanism):
    """The same lots, each process its part, and the noise once."""
    alone, first, second = (
        json.loads((processes / name).read_text())
        for name in (f"1/{mechanism}/0.json", f"2/{mechanism}/0.json", f"2/{mechanism}/1.json")
    )
    assert first["weights"] == second["weights"]
    assert first["gradients"] == second["gradients"]
    np.testing.assert_allclose(first["weights"], alone["weights"], rtol=0, atol=1e-5)
    # Weights that moved apart by a rounding have other norms: the first step has the same ones.
    np.testing.assert_allclose(first["gradients"][0], alone["gradients"][0], rtol=0, atol=1e-6)
    parts = sorted(first["norms"][0] + second["norms"][0])
    np.testing.assert_allclose(parts, sorted(alone["norms"][0]), rtol=1e-6)
    assert min(map(len, (first["norms"][0], second["norms"][0]))) > 0
    if mechanism == "whole":
        assert max(parts) > 0.5  # some are clipped
