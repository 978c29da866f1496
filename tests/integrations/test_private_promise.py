"""The guarantee of a private training holds with dropout, evaluations and other trainings."""

import re
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import EarlyStoppingCallback, GPT2LMHeadModel, Trainer, TrainerCallback

import vestige
from tests.integrations.worlds import TEXTS as PROTECTED
from tests.integrations.worlds import Steps, dropping, private, seeded
from vestige.errors import DataError, TrainingError

CLIP = 0.5


def clipped_sum(place: Path, rows: int, side: str = "right", base=None, **settings) -> torch.Tensor:
    """The noiseless sum of clipped gradients of the first rows, each of which is in the lot."""
    steps = Steps()
    privacy = seeded(noise_multiplier=0.0, max_grad_norm=CLIP, physical_batch_size=rows)
    own = private(
        place, privacy, steps, steps=1, rows=rows, lora=False, base=base or dropping(),
        texts=(TEXTS[:rows], None), **settings,
    )  # fmt: skip
    own.processing_class.padding_side = side
    own.train()
    return rows * steps.first


TEXTS = ["the cat " * (1 + place % 4) + f"of {place}" for place in range(65)]


@pytest.mark.slow
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("rows", [9, 33, 65])
def test_one_more_row_changes_the_clipped_sum_by_at_most_the_clipping_norm(tmp_path, rows, side):
    """With torch's own masks it moves by 1.8 to 4.4 C, and by padding on the left as well."""
    both = [clipped_sum(tmp_path / str(n), n, side) for n in (rows, rows - 1)]
    assert (both[0] - both[1]).norm().item() == pytest.approx(CLIP, rel=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_recomputed_activations_have_the_same_dropout_masks(tmp_path):
    plain = clipped_sum(tmp_path / "plain", 9)
    again = dropping()
    again.gradient_checkpointing_enable({"use_reentrant": False})
    eager = dropping(attn_implementation="eager")
    for name, base in {"again": again, "eager": eager}.items():
        found = clipped_sum(tmp_path / name, 9, base=base)
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_dropout_masks_depend_on_the_secret_and_not_on_the_seed(tmp_path):
    found = []
    for name, seed, secret in (("a", 0, 3), ("b", 1, 3), ("c", 0, 4)):
        steps = Steps()
        privacy = vestige.DPSGD(noise_multiplier=0.0, noise_seed_without_guarantee=secret)
        own = private(
            tmp_path / name, privacy, steps, steps=1, rows=60, lora=False, base=dropping(),
            seed=seed,
        )  # fmt: skip
        own.train()
        found.append(steps.first)
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2], rtol=1e-2)


class Draws(torch.nn.Dropout):
    """A dropout of its own."""

    def forward(self, given):
        return given * (torch.rand_like(given) > self.p) if self.training else given


def test_other_randomness_than_dropout_is_refused(tmp_path):
    own = private(tmp_path, vestige.DPSGD(epsilon=8.0), base=dropping())
    own.model.base_model.model.transformer.drop = Draws(0.1)
    with pytest.raises(TrainingError, match="uses randomness per row other"):
        own.train()


def judging(place: Path, texts: list[str], *callbacks, **settings):
    """A trainer that evaluates some texts after every two steps."""
    often = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    privacy = settings.pop("privacy", vestige.DPSGD(epsilon=8.0, accountant="rdp"))
    return private(place, privacy, *callbacks, texts=(PROTECTED, texts), **often | settings)


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
    stops = [EarlyStoppingCallback(2)] if choice == "EarlyStoppingCallback" else []
    for name, texts in {"own": PROTECTED[:3], "other": ["a text of nobody", "another one"]}.items():
        own = judging(tmp_path / name, texts, *stops, **CHOICES[choice])
        if choice == "ReduceLROnPlateau":
            own.create_optimizer()
            own.lr_scheduler = ReduceLROnPlateau(own.optimizer)
        if name == "own":
            with pytest.raises(TrainingError, match=f"{re.escape(choice)} chooses .*3 of the 60 r"):
                own.train()
            assert not (tmp_path / name / "secret.key").exists()
        elif choice == "load_best_model_at_end":
            own.train()
            assert any(
                "2 documents were used without noise" in told for told in own.privacy_statement
            )


@pytest.mark.slow
def test_evaluation_without_a_choice_may_use_protected_rows(tmp_path):
    own = judging(tmp_path, PROTECTED[:3])
    own.train()
    assert own.privacy_statement[0].startswith("ε = ")
    assert not any("used without noise" in told for told in own.privacy_statement)


def test_other_texts_of_protected_users_may_not_choose(tmp_path):
    privacy = vestige.DPSGD(epsilon=8.0, unit="user", accountant="rdp")
    given = {"privacy": privacy, "user_column": "user", "rows": 2, "load_best_model_at_end": True}
    own = judging(tmp_path, ["a text of nobody", "another one"], **given)
    own.eval_dataset = own.eval_dataset.remove_columns("user")
    with pytest.raises(DataError, match="has no column user"):
        own.train()
    own.eval_dataset = own.eval_dataset.add_column("user", ["user 3", "nobody"])
    with pytest.raises(TrainingError, match="1 of the 11 users"):
        own.train()


class Extends(TrainerCallback):
    """Asks for more steps than were planned."""

    def on_step_end(self, args, state, control, **rest):
        state.max_steps = 10
        control.should_training_stop = state.global_step >= 10


@pytest.mark.slow
def test_steps_beyond_the_plan_are_refused(tmp_path):
    own = private(tmp_path, vestige.DPSGD(epsilon=8.0, accountant="rdp"), Extends(), steps=6,
                  num_train_epochs=5)  # fmt: skip
    with pytest.raises(TrainingError, match=r"all 6 planned steps were taken.*Set `max_steps`"):
        own.train()
    assert own.state.global_step == 6


def epsilon(own) -> float:
    return float(re.search(r"ε = ([\d.]+)", own.privacy_statement[0])[1])


@pytest.mark.slow
@pytest.mark.parametrize("lora", [False, None], ids=["whole", "adapter"])
def test_a_second_training_states_the_joint_budget(tmp_path, lora):
    privacy = vestige.DPSGD(epsilon=8.0, accountant="rdp")
    own = private(tmp_path / "one", privacy, lora=lora)
    own.train()
    once = epsilon(own)
    own.train()
    assert epsilon(own) > 1.2 * once
    assert "of all trainings that read it" in own.privacy_statement[0]
    base = own.model if lora is False else own.model.unload()
    other = private(tmp_path / "two", privacy, base=base, lora=lora)
    other.train()  # by another trainer; of an adapter, another adapter of the same model
    assert epsilon(other) > 1.4 * once
    assert [one.defence for one in other._private.earlier] == ["unknown", "dp-sgd", "dp-sgd"]


@pytest.mark.slow
@pytest.mark.parametrize("lora", [False, None], ids=["whole", "adapter"])
def test_a_model_with_an_unknown_training_has_no_guarantee(tmp_path, lora):
    GPT2LMHeadModel(dropping().config).save_pretrained(tmp_path / "model")
    privacy = vestige.DPSGD(epsilon=8.0, accountant="rdp")

    def read():
        return GPT2LMHeadModel.from_pretrained(tmp_path / "model")

    def begun(base):
        return private(tmp_path / "run", privacy, base=base, lora=lora)

    def train_plainly(model):
        data = {"train_dataset": own.train_dataset, "data_collator": own.data_collator}
        Trainer(model, own.args, **data).train()

    own, before = begun(read()), read()
    own.train()
    assert own.privacy_statement[0].startswith("ε = ")
    train_plainly(own.model)
    train_plainly(before)
    for one in (own, begun(before)):
        one.train()
        assert one.privacy_statement[0].startswith("No guarantee: the model was trained after")
