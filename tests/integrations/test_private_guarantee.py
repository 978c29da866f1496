"""The guarantee of a private training holds with dropout, evaluations and other trainings."""

import re
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import EarlyStoppingCallback, GPT2LMHeadModel, Trainer, TrainerCallback

import vestige
from tests.integrations.worlds import TEXTS, Steps, gpt2, private_trainer, seeded
from vestige.errors import DataError, NotFinite, TrainingError

CLIP = 0.5
OTHERS = ["a text of nobody", "another one"]
PRIVATE = vestige.DPSGD(epsilon=8.0, accountant="rdp")
each_kind = pytest.mark.parametrize("lora", [False, None], ids=["whole", "adapter"])


def clipped_sum(directory: Path, rows: int, *, side: str = "right", base=None) -> torch.Tensor:
    """The sum of clipped gradients of the first rows, all in one lot, without noise."""
    steps = Steps()
    privacy = seeded(noise_multiplier=0.0, max_grad_norm=CLIP, physical_batch_size=rows)
    texts = ["the cat " * (1 + row % 4) + f"of {row}" for row in range(rows)]
    trainer = private_trainer(
        directory, privacy, steps, steps=1, rows=rows, lora=False, base=base or gpt2(layers=2),
        texts=(texts, None),
    )  # fmt: skip
    trainer.processing_class.padding_side = side
    trainer.train()
    return rows * steps.first


@pytest.mark.slow
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("rows", [9, 33, 65])
def test_an_additional_row_changes_the_clipped_sum_by_at_most_the_clipping_norm(
    tmp_path, rows, side
):
    """Torch's own dropout masks depend on the other rows: the change would be 1.8 to 4.4 C."""
    sums = [clipped_sum(tmp_path / str(n), n, side=side) for n in (rows, rows - 1)]
    assert (sums[0] - sums[1]).norm().item() == pytest.approx(CLIP, rel=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_recomputed_activations_have_the_same_dropout_masks(tmp_path):
    plain = clipped_sum(tmp_path / "plain", 9)
    recomputing = gpt2(layers=2)
    recomputing.gradient_checkpointing_enable({"use_reentrant": False})
    eager = gpt2(layers=2, attn_implementation="eager")
    for name, base in {"recomputing": recomputing, "eager": eager}.items():
        result = clipped_sum(tmp_path / name, 9, base=base)
        torch.testing.assert_close(result, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_dropout_masks_depend_on_the_secret_and_not_on_the_seed(tmp_path):
    gradients = []
    for name, seed, secret in (("a", 0, 3), ("b", 1, 3), ("c", 0, 4)):
        steps = Steps()
        privacy = vestige.DPSGD(noise_multiplier=0.0, noise_seed_without_guarantee=secret)
        trainer = private_trainer(
            tmp_path / name, privacy, steps, steps=1, rows=60, lora=False, base=gpt2(layers=2),
            seed=seed,
        )  # fmt: skip
        trainer.train()
        gradients.append(steps.first)
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.allclose(gradients[0], gradients[2], rtol=1e-2)


class CustomDropout(torch.nn.Dropout):
    def forward(self, inputs):
        return inputs * (torch.rand_like(inputs) > self.p) if self.training else inputs


def test_other_randomness_than_dropout_is_refused(tmp_path):
    trainer = private_trainer(tmp_path, PRIVATE, base=gpt2(layers=2))
    trainer.model.base_model.model.transformer.drop = CustomDropout(0.1)
    with pytest.raises(TrainingError, match="uses randomness per row other"):
        trainer.train()


def evaluating(directory: Path, texts: list[str], *callbacks, privacy=PRIVATE, **settings):
    """A private trainer that evaluates some texts after every two steps."""
    often = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    return private_trainer(directory, privacy, *callbacks, texts=(TEXTS, texts), **often | settings)


CHOICES = {
    "load_best_model_at_end": {"load_best_model_at_end": True},
    "save_strategy='best'": {"save_strategy": "best", "metric_for_best_model": "loss"},
    "lr_scheduler_type='reduce_lr_on_plateau'": {"lr_scheduler_type": "reduce_lr_on_plateau"},
    "EarlyStoppingCallback": {"metric_for_best_model": "loss"},
    "ReduceLROnPlateau": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES)
def test_choosing_by_protected_evaluation_rows_is_refused(tmp_path, choice):
    callbacks = [EarlyStoppingCallback(2)] if choice == "EarlyStoppingCallback" else []
    trainer = evaluating(tmp_path, TEXTS[:3], *callbacks, **CHOICES[choice])
    if choice == "ReduceLROnPlateau":
        trainer.create_optimizer()
        trainer.lr_scheduler = ReduceLROnPlateau(trainer.optimizer)
    with pytest.raises(TrainingError, match=f"{re.escape(choice)} chooses .*3 of the 60 r"):
        trainer.train()
    assert not (tmp_path / "secret.key").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "settings", "stated"),
    [(OTHERS, CHOICES["load_best_model_at_end"], True), (TEXTS[:3], {}, False)],
    ids=["choice by other rows", "no choice"],
)
def test_rows_by_which_weights_are_chosen_are_stated(tmp_path, texts, settings, stated):
    trainer = evaluating(tmp_path, texts, **settings)
    trainer.train()
    statement = trainer.privacy_statement
    assert statement[0].startswith("ε = ")
    assert any("2 documents were used without noise" in text for text in statement) == stated
    assert any("used without noise" in text for text in statement) == stated


def test_other_texts_of_protected_users_may_not_choose(tmp_path):
    privacy = vestige.DPSGD(epsilon=8.0, unit="user", accountant="rdp")
    options = {"user_column": "user", "rows": 2, "load_best_model_at_end": True}
    trainer = evaluating(tmp_path, OTHERS, privacy=privacy, **options)
    trainer.eval_dataset = trainer.eval_dataset.remove_columns("user")
    with pytest.raises(DataError, match="has no column user"):
        trainer.train()
    trainer.eval_dataset = trainer.eval_dataset.add_column("user", ["user 3", "nobody"])
    with pytest.raises(TrainingError, match="1 of the 11 users"):
        trainer.train()


class MoreSteps(TrainerCallback):
    """Sets more steps than were planned."""

    def on_step_end(self, args, state, control, **rest):
        state.max_steps = 10
        control.should_training_stop = state.global_step >= 10


@pytest.mark.slow
def test_steps_beyond_the_plan_are_refused(tmp_path):
    trainer = private_trainer(tmp_path, PRIVATE, MoreSteps(), steps=6, num_train_epochs=5)
    with pytest.raises(TrainingError, match=r"all 6 planned steps were taken.*Set `max_steps`"):
        trainer.train()
    assert trainer.state.global_step == 6


def stated_epsilon(trainer) -> float:
    return float(re.search(r"ε = ([\d.]+)", trainer.privacy_statement[0])[1])


@pytest.mark.slow
@each_kind
def test_a_second_training_states_the_joint_budget(tmp_path, lora):
    trainer = private_trainer(tmp_path / "one", PRIVATE, lora=lora)
    trainer.train()
    once = stated_epsilon(trainer)
    trainer.train()
    assert stated_epsilon(trainer) > 1.2 * once
    assert "of all trainings that read it" in trainer.privacy_statement[0]
    base = trainer.model if lora is False else trainer.model.unload()
    other = private_trainer(tmp_path / "two", PRIVATE, base=base, lora=lora)
    other.train()  # another trainer, and another adapter of the same model
    assert stated_epsilon(other) > 1.4 * once
    defences = [entry.defence for entry in other._private.earlier]
    assert defences == ["unknown", "dp-sgd", "dp-sgd"]


@pytest.mark.slow
@each_kind
def test_a_model_with_an_unknown_training_has_no_guarantee(tmp_path, lora):
    gpt2(layers=2).save_pretrained(tmp_path / "model")

    def load():
        return GPT2LMHeadModel.from_pretrained(tmp_path / "model")

    def create(base):
        return private_trainer(tmp_path / "run", PRIVATE, base=base, lora=lora)

    trainer, base = create(load()), load()
    trainer.train()
    assert trainer.privacy_statement[0].startswith("ε = ")
    data = {"train_dataset": trainer.train_dataset, "data_collator": trainer.data_collator}
    for model in (trainer.model, base):
        Trainer(model, trainer.args, **data).train()
    for continued in (trainer, create(base)):
        continued.train()
        statement = continued.privacy_statement[0]
        assert statement.startswith("No guarantee: the model was trained after")


def test_weights_that_overflow_are_refused(tmp_path):
    trainer = private_trainer(tmp_path, vestige.DPSGD(epsilon=8), lora=False)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.mul_(1e30)
    with pytest.raises(NotFinite, match="first row"):
        trainer.train()
