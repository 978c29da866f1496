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
    Dies,
    Steps,
    dropping,
    llama,
    private,
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


def of_unit(unit, **settings):
    """A privacy without noise, and how a trainer of it is made."""
    privacy = vestige.DPSGD(noise_multiplier=0.0, unit=unit, **settings)
    rows = {"rows": 4} if unit == "sequence" else {"rows": 2, "user_column": "user"}
    return privacy, rows


def require_definition(own, steps, *, clip, expected):
    """The gradient of each step is the clipped mean of its lot."""
    learning = [p for p in own.model.parameters() if p.requires_grad]
    for step, (before, found) in enumerate(zip(steps.before, steps.gradients, strict=True)):
        with torch.no_grad():
            for parameter, value in zip(learning, before, strict=True):
                parameter.copy_(value)
        wanted = expected_gradient(own, step, clip=clip, expected=expected)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-6 * clip)


@pytest.mark.slow
@pytest.mark.parametrize("learning", LEARNING)
@pytest.mark.parametrize("unit", ["sequence", "user"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_step_uses_the_mean_of_clipped_gradients(tmp_path, unit, accumulation, learning):
    steps, clip = Steps(), 0.05 if learning == "adapter" else 1.0
    privacy, rows = of_unit(unit, max_grad_norm=clip)
    own = private(
        tmp_path, privacy, steps, gradient_accumulation_steps=accumulation,
        lora=LEARNING[learning], **rows,
    )  # fmt: skip
    own.train()
    require_definition(own, steps, clip=clip, expected=rows["rows"] * accumulation)
    logged = [logs for logs in own.state.log_history if "privacy/clipped" in logs]
    assert logged
    assert all(0 <= logs["privacy/clipped"] <= 1 for logs in logged)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("unit", ["sequence", "user"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_whole_model_recomputes_its_activations_and_takes_the_same_step(
    tmp_path, unit, tied, reentrant
):
    """With accumulation, too: a lot is a step however it is computed."""
    steps, (privacy, rows) = Steps(), of_unit(unit, max_grad_norm=0.5)
    own = private(
        tmp_path, privacy, steps, steps=1, gradient_accumulation_steps=2, lora=False,
        base=llama(tie_word_embeddings=tied), **rows,
    )  # fmt: skip
    own.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    own.train()
    assert own.model.is_gradient_checkpointing
    own.model.gradient_checkpointing_disable()
    require_definition(own, steps, clip=0.5, expected=2 * rows["rows"])


@pytest.mark.slow
def test_the_noise_has_the_stated_standard_deviation(tmp_path):
    found = []
    for noise in (0.0, 2.0):
        steps = Steps()
        own = private(
            tmp_path / str(noise), seeded(noise_multiplier=noise, max_grad_norm=0.5), steps,
            steps=1, lora=LORA | {"r": 32},
        )  # fmt: skip
        own.train()
        found.append(steps.first)
    noise = found[1] - found[0]
    deviation = 2.0 * 0.5 / 8
    assert noise.std().item() == pytest.approx(deviation, rel=5 / (2 * len(noise)) ** 0.5)
    assert abs(noise.mean().item()) < 5 * deviation / len(noise) ** 0.5


FILES = {"adapter": ("adapter_model.safetensors", "adapter_config.json"), "whole": ("config.json",)}


@pytest.mark.slow
@pytest.mark.parametrize("learning", FILES)
def test_a_trained_model_is_saved_with_its_ledger_and_statement(tmp_path, learning):
    own = private(tmp_path / "run", vestige.DPSGD(epsilon=8.0), lora=LEARNING[learning])
    own.train()
    own.save_model(tmp_path / "model")
    names = {file.name for file in (tmp_path / "model").iterdir()}
    assert {*FILES[learning], "privacy.json"} <= names
    *before, entry = history_of(tmp_path / "model").ledger
    assert [one.defence for one in before] == ["unknown"]
    assert (entry.steps, entry.steps_planned, entry.sample_rate) == (6, 6, 8 / 60)
    mechanism = Mechanism(noise_multiplier=entry.noise_multiplier, sample_rate=8 / 60, steps=6)
    assert entry.epsilon == pytest.approx(mechanism.epsilon(entry.delta))
    assert 7.5 < entry.epsilon <= 8
    told = (tmp_path / "model" / "privacy.md").read_text()
    assert told.startswith("# Privacy\n\nε = ")
    assert "a document of at most 64 tokens (of a longer one, the part that was used)" in told
    assert "trainer_state.json" in told
    assert not (tmp_path / "run" / "secret.key").exists()
    if learning == "whole":
        assert "the weights with their configuration" in told
        again = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
        assert all(map(torch.equal, again.parameters(), own.model.parameters()))
        later = private(tmp_path / "later", vestige.DPSGD(epsilon=8.0), lora=False, base=again)
        later.train()
        assert later._private.earlier == (*before, entry)


@pytest.mark.slow
def test_each_training_has_its_own_randomness(tmp_path):
    """Two trainings of one seed draw different noise: the trainer's seed is public."""
    found = []
    for name in "ab":
        own = private(tmp_path / name, vestige.DPSGD(noise_multiplier=1.0), steps=1)
        own.train()
        found.append(torch.cat([weight.flatten() for weight in weights(own.model)]))
    assert (found[0] != found[1]).any()


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
def test_a_resumed_training_ends_with_the_same_bits(tmp_path, lora, more):
    settings = {"save_strategy": "steps", "save_steps": 2, "steps": 6, "lora": lora} | more
    privacy = seeded(noise_multiplier=1.0, unit="user" if "user_column" in more else None)

    def begun(name, *callbacks):
        own = {"base": settings["base"]()} if "base" in settings else {}
        return private(tmp_path / name, privacy, *callbacks, **settings | own)

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
def test_a_training_that_stops_early_states_the_spent_budget(tmp_path):
    privacy = vestige.DPSGD(noise_multiplier=2.0, accountant="rdp")
    own = private(tmp_path, privacy, Stops(3), steps=6)
    own.train()
    taken = own._private.statement(own.state.global_step).taken
    assert (taken.steps, own.state.global_step) == (3, 3)
    mechanism = Mechanism(noise_multiplier=2.0, sample_rate=8 / 60, steps=3)
    assert taken.epsilon == mechanism.epsilon(taken.delta, "rdp")
    assert own._private.entry.epsilon > taken.epsilon


@pytest.mark.slow
def test_a_training_is_resumed_only_with_its_own_settings(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 2, "steps": 6}
    cut = private(tmp_path, vestige.DPSGD(noise_multiplier=1.0), Dies(3), **settings)
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    other = private(tmp_path, vestige.DPSGD(noise_multiplier=0.7), **settings)
    with pytest.raises(TrainingError, match="belongs to a training with another noise_multiplier"):
        other.train(resume_from_checkpoint=True)
    (tmp_path / "secret.key").unlink()
    with pytest.raises(TrainingError, match="secret"):
        private(tmp_path, vestige.DPSGD(noise_multiplier=1.0), **settings).train(True)


@pytest.mark.slow
def test_a_trained_adapter_is_an_unknown_ancestor(tmp_path):
    own = private(tmp_path / "one", vestige.DPSGD(epsilon=8.0))
    own.train()
    again = private(tmp_path / "two", vestige.DPSGD(epsilon=8.0))
    with torch.no_grad():
        for one, other in zip(again.model.parameters(), own.model.parameters(), strict=True):
            one.copy_(other)
    again.train()
    assert any("is unknown" in told for told in again.privacy_statement)
    assert len(again._private.earlier) == len(own._private.earlier) + 1


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_weights_are_compared_with_the_folder_of_the_model(tmp_path):
    own = private(tmp_path / "one", vestige.DPSGD(epsilon=8.0), lora=False).model
    assert compare_with_folder(own) == "same"  # it comes from nowhere
    own.save_pretrained(tmp_path / "model")
    assert compare_with_folder(GPT2LMHeadModel.from_pretrained(tmp_path / "model")) == "same"
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "model", dtype=torch.bfloat16)
    assert compare_with_folder(again) == "same"
    adapted = get_peft_model(again, LoraConfig(**LORA))
    assert compare_with_folder(adapted.get_base_model()) == "same"
    with torch.no_grad():
        again.transformer.h[0].ln_1.weight[3] += 0.25
    assert compare_with_folder(again) == "other"
    assert compare_with_folder(adapted.get_base_model()) == "other"
    grown = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    grown.resize_token_embeddings(310)
    assert compare_with_folder(grown) == "partly"
    (tmp_path / "model" / "model.safetensors").unlink()
    assert compare_with_folder(GPT2LMHeadModel(own.config)) == "same"
    assert compare_with_folder(again) == "partly"


@pytest.mark.slow
def test_layers_without_row_gradients_are_refused(tmp_path):
    privacy = vestige.DPSGD(epsilon=8.0)
    own = private(tmp_path, privacy, lora=False)
    norm = own.model.transformer.ln_f
    norm.forward = lambda given: 2 * type(norm).forward(norm, given)  # no method of its class
    with pytest.raises(
        TrainingError, match=r"transformer\.ln_f is trainable and a LayerNorm, .*1 such"
    ):
        own.train()
    own.model.transformer.ln_f.requires_grad_(False)
    own.train()
    half = private(tmp_path / "half", privacy, lora=False)
    half.model.to(torch.bfloat16)
    with pytest.raises(TrainingError, match="16 of 16 trainable tensors have half precision"):
        half.train()
    frozen = private(tmp_path / "frozen", privacy, lora=False)
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


def test_other_losses_than_cross_entropy_are_refused(tmp_path, monkeypatch):
    privacy, begun = vestige.DPSGD(epsilon=8.0), llama()
    twice = Twice(GPT2Config(vocab_size=300, n_positions=64, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(TrainingError, match="Twice trains on another loss"):
        private(tmp_path, privacy, lora=False, base=twice).train()
    masked = BertForMaskedLM(BertConfig(
        vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, max_position_embeddings=64, initializer_range=1.0,
    ))  # fmt: skip
    masked.cls.requires_grad_(False)  # a layer that could not be clipped
    with pytest.raises(TrainingError, match="BertForMaskedLM trains on another loss"):
        private(tmp_path, privacy, lora=False, base=masked).train()
    own = private(tmp_path, privacy, lora=False, base=begun)
    own.data_collator = default_data_collator
    before = weights(begun)
    with pytest.raises(TrainingError, match="collator returns no labels"):
        own.train()
    assert all(map(torch.equal, before, weights(begun)))
    assert not (tmp_path / "secret.key").exists()
    monkeypatch.setattr(PrivateTrainer, "compute_loss", lambda *rest: 0.0, raising=False)
    with pytest.raises(TrainingError, match="does not support a compute_loss of its own"):
        private(tmp_path, privacy)


@pytest.mark.parametrize("setting", ["loss_type", "activation_offloading"])
def test_unsupported_settings_of_sft_trainers_are_refused(tmp_path, setting):
    args = {"loss_type": "dft", "activation_offloading": True}
    own = private(tmp_path, vestige.DPSGD(epsilon=8.0))
    setattr(own.args, setting, args[setting])
    with pytest.raises(TrainingError, match=f"does not support {setting}. Use "):
        refuse_settings(own)


def test_settings_that_break_the_guarantee_are_refused(tmp_path):
    privacy = vestige.DPSGD(epsilon=8.0)
    with pytest.raises(TrainingError, match="does not support label_smoothing_factor"):
        private(tmp_path, privacy, label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match="`user_column` must be given"):
        private(tmp_path, vestige.DPSGD(epsilon=8.0, unit="user"))
    with pytest.raises(DataError, match="no column author"):
        private(tmp_path, vestige.DPSGD(epsilon=8.0, unit="user"), user_column="author")
    with pytest.raises(ValueError, match="at most 60 in all"):
        private(tmp_path, privacy, rows=61)
    own = private(tmp_path, privacy, lora=LORA | {"use_dora": True})
    with pytest.raises(TrainingError, match="is trainable and a DoraLinearLayer"):
        own.train()
    assert not (tmp_path / "secret.key").exists()


@pytest.mark.slow
def test_an_optimizer_without_all_trainable_tensors_is_refused(tmp_path):
    """As where an adapter is put on, or a model moved, after the optimizer was made."""
    own = private(tmp_path, vestige.DPSGD(epsilon=8.0))
    stray = torch.nn.Linear(2, 2)
    own.optimizer = torch.optim.SGD(stray.parameters(), lr=0.1)
    with pytest.raises(TrainingError, match="tensors are not in the optimizer"):
        own.train()


def test_packed_rows_are_refused(tmp_path):
    rows = PrivateRows.of(Dataset.from_dict({"text": TEXTS}), vestige.DPSGD(epsilon=1.0), None)
    with pytest.raises(TrainingError, match="made 2 rows of 60"):
        rows.batched([1, 2], vestige.DPSGD(epsilon=1.0), None)
    with pytest.raises(DataError, match="has no length"):
        PrivateRows.of(iter(TEXTS), vestige.DPSGD(epsilon=1.0), None)
