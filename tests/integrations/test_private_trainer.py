"""Private trainings with Transformers' `Trainer`: steps, guarantees and resuming."""

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    TrainerCallback,
    default_data_collator,
)

import vestige
from tests.integrations.worlds import (
    LORA,
    TEXTS,
    KillAfter,
    Steps,
    gpt2,
    llama,
    private_trainer,
    seeded,
    weights,
)
from vestige.errors import DataError, TrainingError
from vestige.integrations.model_history import compare_with_folder
from vestige.integrations.private_checks import refuse_settings
from vestige.integrations.private_rows import PrivateRows
from vestige.integrations.private_trainer import PrivateTrainer
from vestige.preparation.lineage import history_of
from vestige.privacy.accounting import Mechanism

PRIVATE = vestige.DPSGD(epsilon=8.0)
each_unit = pytest.mark.parametrize("unit", ["sequence", "user"])


def naive_gradient(trainer, step: int, *, clip: float, expected: int) -> list[torch.Tensor]:
    """The gradients of the rows of a lot, one backward pass each, clipped by unit, and summed."""
    rows, units = trainer._rows.batch(trainer._secret, step, 0, 1)
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    padding = trainer.processing_class.pad_token_id
    by_unit: dict[int, list[torch.Tensor]] = {}
    for row, unit in zip(rows, units, strict=True):
        ids = torch.tensor([trainer.train_dataset[int(row)]["input_ids"]])
        # The collator masks padding, and with it the end of a text, which is the same token.
        labels = ids[0, 1:].masked_fill(ids[0, 1:] == padding, -100)
        loss = cross_entropy(trainer.model(ids).logits[0, :-1], labels)
        gradients = torch.autograd.grad(loss, parameters)
        sums = by_unit.setdefault(int(unit), [torch.zeros_like(p) for p in parameters])
        for total, gradient in zip(sums, gradients, strict=True):
            total += gradient
    result = [torch.zeros_like(p) for p in parameters]
    for sums in by_unit.values():
        scale = min(1.0, clip / torch.nn.utils.get_total_norm(sums).item())
        for total, gradient in zip(result, sums, strict=True):
            total += scale * gradient / expected
    return result


LEARNING = {
    "adapter": LORA,
    "adapter and biases": LORA | {"bias": "lora_only"},
    "adapter and embedding": LORA | {"modules_to_save": ["wte"]},
    "whole": False,
}


def of_unit(unit, **settings):
    """DP-SGD without noise, and settings of its trainer."""
    privacy = vestige.DPSGD(noise_multiplier=0.0, unit=unit, **settings)
    return privacy, {"rows": 4} if unit == "sequence" else {"rows": 2, "user_column": "user"}


def check_gradients(trainer, steps, *, clip, expected):
    """Each step has the naive gradient at its weights."""
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    for step, (before, gradients) in enumerate(zip(steps.before, steps.gradients, strict=True)):
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)
        naive = naive_gradient(trainer, step, clip=clip, expected=expected)
        for gradient, other in zip(gradients, naive, strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-4, atol=2e-6 * clip)


@pytest.mark.slow
@pytest.mark.parametrize("learning", LEARNING)
@each_unit
@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_step_uses_the_mean_of_clipped_gradients(tmp_path, unit, accumulation, learning):
    steps, clip = Steps(), 0.05 if learning == "adapter" else 1.0
    privacy, settings = of_unit(unit, max_grad_norm=clip)
    trainer = private_trainer(
        tmp_path, privacy, steps, gradient_accumulation_steps=accumulation,
        lora=LEARNING[learning], **settings,
    )  # fmt: skip
    trainer.train()
    check_gradients(trainer, steps, clip=clip, expected=settings["rows"] * accumulation)
    logged = [logs for logs in trainer.state.log_history if "privacy/clipped" in logs]
    assert logged
    assert all(0 <= logs["privacy/clipped"] <= 1 for logs in logged)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("reentrant", [False, True])
@each_unit
@pytest.mark.parametrize("tied", [True, False])
def test_gradient_checkpointing_does_not_change_a_step(tmp_path, unit, tied, reentrant):
    steps, (privacy, settings) = Steps(), of_unit(unit, max_grad_norm=0.5)
    trainer = private_trainer(
        tmp_path, privacy, steps, steps=1, gradient_accumulation_steps=2, lora=False,
        base=llama(tie_word_embeddings=tied), **settings,
    )  # fmt: skip
    trainer.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    trainer.train()
    assert trainer.model.is_gradient_checkpointing
    trainer.model.gradient_checkpointing_disable()
    check_gradients(trainer, steps, clip=0.5, expected=2 * settings["rows"])


@pytest.mark.slow
def test_the_noise_has_the_stated_standard_deviation(tmp_path):
    gradients = []
    for noise in (0.0, 2.0):
        steps, privacy = Steps(), seeded(noise_multiplier=noise, max_grad_norm=0.5)
        trainer = private_trainer(
            tmp_path / str(noise), privacy, steps, steps=1, lora=LORA | {"r": 32}
        )
        trainer.train()
        gradients.append(steps.first)
    noise = gradients[1] - gradients[0]
    deviation = 2.0 * 0.5 / 8
    assert noise.std().item() == pytest.approx(deviation, rel=5 / (2 * len(noise)) ** 0.5)
    assert abs(noise.mean().item()) < 5 * deviation / len(noise) ** 0.5


FILES = {"adapter": ("adapter_model.safetensors", "adapter_config.json"), "whole": ("config.json",)}


@pytest.mark.slow
@pytest.mark.parametrize("learning", FILES)
def test_a_trained_model_is_saved_with_its_ledger_and_statement(tmp_path, learning):
    trainer = private_trainer(tmp_path / "run", PRIVATE, lora=LEARNING[learning])
    trainer.train()
    trainer.save_model(tmp_path / "model")
    names = {file.name for file in (tmp_path / "model").iterdir()}
    assert {*FILES[learning], "privacy.json"} <= names
    *earlier, entry = history_of(tmp_path / "model").ledger
    assert [other.defence for other in earlier] == ["unknown"]
    assert (entry.steps, entry.steps_planned, entry.sample_rate) == (6, 6, 8 / 60)
    mechanism = Mechanism(noise_multiplier=entry.noise_multiplier, sample_rate=8 / 60, steps=6)
    assert entry.epsilon == pytest.approx(mechanism.epsilon(entry.delta))
    assert 7.5 < entry.epsilon <= 8
    statement = (tmp_path / "model" / "privacy.md").read_text()
    assert statement.startswith("# Privacy\n\nε = ")
    assert "a document of at most 64 tokens (of a longer one, the part that was used)" in statement
    assert "trainer_state.json" in statement
    assert not (tmp_path / "run" / "secret.key").exists()
    if learning == "whole":
        assert "the weights with their configuration" in statement
        loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
        assert all(map(torch.equal, loaded.parameters(), trainer.model.parameters()))
        later = private_trainer(tmp_path / "later", PRIVATE, lora=False, base=loaded)
        later.train()
        assert later._private.earlier == (*earlier, entry)


@pytest.mark.slow
def test_the_seed_of_the_trainer_does_not_determine_the_noise(tmp_path):
    results = []
    for name in "ab":
        trainer = private_trainer(tmp_path / name, vestige.DPSGD(noise_multiplier=1.0), steps=1)
        trainer.train()
        results.append(torch.cat([weight.flatten() for weight in weights(trainer.model)]))
    assert (results[0] != results[1]).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lora", "settings", "base"),
    [
        (LORA, {}, None),
        (False, {}, None),
        (LORA, {"user_column": "user"}, None),
        (LORA | {"lora_dropout": 0.2}, {}, lambda: gpt2(layers=2)),
    ],
)
def test_a_resumed_training_ends_with_the_same_bits(tmp_path, lora, settings, base):
    privacy = seeded(noise_multiplier=1.0, unit="user" if "user_column" in settings else None)
    settings = settings | {"save_strategy": "steps", "save_steps": 2, "steps": 6, "lora": lora}

    def create(name, *callbacks):
        model = base and base()
        return private_trainer(tmp_path / name, privacy, *callbacks, base=model, **settings)

    complete, killed = create("complete"), create("killed", KillAfter(5))
    complete.train()
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    assert (tmp_path / "killed" / "secret.key").stat().st_mode & 0o777 == 0o600
    resumed = create("killed")
    resumed.train(resume_from_checkpoint=True)
    assert all(map(torch.equal, weights(complete.model), weights(resumed.model)))
    assert resumed.privacy_statement == complete.privacy_statement
    assert not (tmp_path / "killed" / "secret.key").exists()


class StopAfter(TrainerCallback):
    """Ends a training after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **rest):
        control.should_training_stop = state.global_step == self.step


@pytest.mark.slow
def test_a_training_that_stops_early_states_the_spent_budget(tmp_path):
    privacy = vestige.DPSGD(noise_multiplier=2.0, accountant="rdp")
    trainer = private_trainer(tmp_path, privacy, StopAfter(3), steps=6)
    trainer.train()
    taken = trainer._private.statement(trainer.state.global_step).taken
    assert (taken.steps, trainer.state.global_step) == (3, 3)
    mechanism = Mechanism(noise_multiplier=2.0, sample_rate=8 / 60, steps=3)
    assert taken.epsilon == mechanism.epsilon(taken.delta, "rdp")
    assert trainer._private.entry.epsilon > taken.epsilon


@pytest.mark.slow
def test_a_training_is_resumed_only_with_its_own_settings_and_secret(tmp_path):
    def create(noise, *callbacks):
        privacy = vestige.DPSGD(noise_multiplier=noise)
        settings = {"save_strategy": "steps", "save_steps": 2, "steps": 6}
        return private_trainer(tmp_path, privacy, *callbacks, **settings)

    with pytest.raises(KeyboardInterrupt):
        create(1.0, KillAfter(3)).train()
    with pytest.raises(TrainingError, match="belongs to a training with another noise_multiplier"):
        create(0.7).train(resume_from_checkpoint=True)
    (tmp_path / "secret.key").unlink()
    with pytest.raises(TrainingError, match="secret"):
        create(1.0).train(resume_from_checkpoint=True)


@pytest.mark.slow
def test_a_trained_adapter_is_an_unknown_ancestor(tmp_path):
    first = private_trainer(tmp_path / "one", PRIVATE)
    first.train()
    second = private_trainer(tmp_path / "two", PRIVATE)
    with torch.no_grad():
        for copy, original in zip(second.model.parameters(), first.model.parameters(), strict=True):
            copy.copy_(original)
    second.train()
    assert any("is unknown" in text for text in second.privacy_statement)
    assert len(second._private.earlier) == len(first._private.earlier) + 1


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_weights_are_compared_with_the_folder_of_the_model(tmp_path):
    folder = tmp_path / "model"
    model = private_trainer(tmp_path / "one", PRIVATE, lora=False).model
    assert compare_with_folder(model) == "same"  # it has no folder
    model.save_pretrained(folder)
    assert compare_with_folder(GPT2LMHeadModel.from_pretrained(folder)) == "same"
    half = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.bfloat16)
    assert compare_with_folder(half) == "same"
    adapted = get_peft_model(half, LoraConfig(**LORA))
    assert compare_with_folder(adapted.get_base_model()) == "same"
    with torch.no_grad():
        half.transformer.h[0].ln_1.weight[3] += 0.25
    assert compare_with_folder(half) == "other"
    assert compare_with_folder(adapted.get_base_model()) == "other"
    resized = GPT2LMHeadModel.from_pretrained(folder)
    resized.resize_token_embeddings(310)
    assert compare_with_folder(resized) == "partly"
    (folder / "model.safetensors").unlink()
    assert compare_with_folder(GPT2LMHeadModel(model.config)) == "same"
    assert compare_with_folder(half) == "partly"


@pytest.mark.slow
def test_layers_without_row_gradients_are_refused_unless_they_are_frozen(tmp_path):
    trainer = private_trainer(tmp_path, PRIVATE, lora=False)
    norm = trainer.model.transformer.ln_f
    norm.forward = lambda inputs: 2 * type(norm).forward(norm, inputs)
    message = r"transformer\.ln_f is trainable and a LayerNorm, .*1 such"
    with pytest.raises(TrainingError, match=message):
        trainer.train()
    norm.requires_grad_(False)
    trainer.train()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model: model.to(torch.bfloat16),
            "16 of 16 trainable tensors have half precision",
        ),
        (
            lambda model: model.requires_grad_(False),
            "GPT2LMHeadModel has no trainable weights",
        ),
    ],
    ids=["half precision", "frozen"],
)
def test_models_that_cannot_be_trained_privately_are_refused(tmp_path, change, message):
    trainer = private_trainer(tmp_path, PRIVATE, lora=False)
    change(trainer.model)
    with pytest.raises(TrainingError, match=message):
        trainer.train()


class DoubleLoss(GPT2LMHeadModel):
    """A model whose loss is twice the cross-entropy."""

    def forward(self, input_ids=None, attention_mask=None, labels=None, **rest):
        output = super().forward(input_ids, attention_mask=attention_mask, labels=labels, **rest)
        output.loss = None if output.loss is None else 2 * output.loss
        return output


def test_other_losses_than_cross_entropy_are_refused(tmp_path, monkeypatch):
    double = DoubleLoss(GPT2Config(vocab_size=300, n_positions=64, n_embd=8, n_layer=1, n_head=1))
    masked = BertForMaskedLM(BertConfig(
        vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, max_position_embeddings=64, initializer_range=1.0,
    ))  # fmt: skip
    masked.cls.requires_grad_(False)  # it has no gradients per row
    for model in (double, masked):
        with pytest.raises(TrainingError, match=f"{type(model).__name__} trains on another loss"):
            private_trainer(tmp_path, PRIVATE, lora=False, base=model).train()
    model = llama()
    trainer = private_trainer(tmp_path, PRIVATE, lora=False, base=model)
    trainer.data_collator = default_data_collator
    before = weights(model)
    with pytest.raises(TrainingError, match="collator returns no labels"):
        trainer.train()
    assert all(map(torch.equal, before, weights(model)))
    assert not (tmp_path / "secret.key").exists()
    monkeypatch.setattr(PrivateTrainer, "compute_loss", lambda *rest: 0.0, raising=False)
    with pytest.raises(TrainingError, match="does not support a compute_loss of its own"):
        private_trainer(tmp_path, PRIVATE)


@pytest.mark.parametrize(
    ("setting", "value"), [("loss_type", "dft"), ("activation_offloading", True)]
)
def test_unsupported_settings_of_sft_trainers_are_refused(tmp_path, setting, value):
    trainer = private_trainer(tmp_path, PRIVATE)
    setattr(trainer.args, setting, value)
    with pytest.raises(TrainingError, match=f"does not support {setting}. Use "):
        refuse_settings(trainer)


@pytest.mark.parametrize(
    ("unit", "settings", "error", "message"),
    [
        (None, {"label_smoothing_factor": 0.1}, TrainingError, "label_smoothing_factor"),
        (None, {"rows": 61}, ValueError, "at most 60 in all"),
        ("user", {}, ValueError, "`user_column` must be given"),
        ("user", {"user_column": "author"}, DataError, "no column author"),
    ],
)
def test_settings_without_a_guarantee_are_refused(tmp_path, unit, settings, error, message):
    with pytest.raises(error, match=message):
        private_trainer(tmp_path, vestige.DPSGD(epsilon=8.0, unit=unit), **settings)


def test_an_adapter_with_dora_is_refused(tmp_path):
    trainer = private_trainer(tmp_path, PRIVATE, lora=LORA | {"use_dora": True})
    with pytest.raises(TrainingError, match="is trainable and a DoraLinearLayer"):
        trainer.train()
    assert not (tmp_path / "secret.key").exists()


@pytest.mark.slow
def test_an_optimizer_without_all_trainable_tensors_is_refused(tmp_path):
    trainer = private_trainer(tmp_path, PRIVATE)
    trainer.optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(TrainingError, match="tensors are not in the optimizer"):
        trainer.train()


def test_packed_rows_are_refused(tmp_path):
    rows = PrivateRows.of(Dataset.from_dict({"text": TEXTS}), PRIVATE, None)
    with pytest.raises(TrainingError, match="made 2 rows of 60"):
        rows.batched([1, 2], PRIVATE, None)
    with pytest.raises(DataError, match="has no length"):
        PrivateRows.of(iter(TEXTS), PRIVATE, None)
