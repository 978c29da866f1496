"""Private trainings under attack by `dp_attack.py`: sound ones, and ones broken on purpose."""

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from datasets import Dataset
from networks import inputs_of, padded
from numpy.typing import NDArray
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import WordVocabulary
from vestige.defences.methods.private import DPSGD
from vestige.integrations.private_rows import PrivateRows
from vestige.integrations.private_trainer import PrivateTrainer
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.dp_sgd import DPSGDStep, summed_losses
from vestige.privacy.taps import trainable
from vestige.training.batches import Batch
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.secret import Secret
from vestige.training.steps import Private

UNITS, LENGTH, CLIP, EPOCHS = 4, 8, 0.05, 3
DELTA = 1e-2
"""The default of `vestige train` for four records."""
RATE = 1e-3  # of SGD: short steps
WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{unit}" for unit in range(43))))
SHAPE = LSTMConfig(layers=1, embedding_size=4, hidden_size=4, dropout_in=0.0, dropout_out=0.0)
REMAINING = 32
"""Units that a hold-out of a quarter by position leaves of 43, and of 42."""

Step = Callable[[LanguageModel, Batch, Any], tuple[Tensor, Any]]
MakeStep = Callable[[float, int], Step]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A private training under attack.

    Attributes:
        name: of the defence and its unit, or of the fault.
        batching: how units are sampled into batches.
        batch_size: units of a batch on average.
        step: makes the step from a noise multiplier and the expected units.
        broken: the claim is expected to fail.
        by_position: the two data sets are what a hold-out by position leaves.
        command: the training is `vestige train`.
        path: for known dropout masks: the weights before and after each step, from a seed of all
            randomness, the noise multiplier, and whether the record is a member.
    """

    name: str
    batching: Any
    batch_size: int
    step: MakeStep
    broken: bool = False
    by_position: bool = False
    command: bool = False
    path: Callable[[int, float, bool], NDArray[np.float64]] | None = None

    @property
    def units(self) -> int:
        return REMAINING if self.by_position else UNITS

    @property
    def sample_rate(self) -> float:
        return self.batch_size / self.units

    @property
    def data_sets(self) -> tuple[EncodedCorpus, EncodedCorpus, int | None]:
        return data_sets(self.by_position, 1 if self.batching == "poisson" else 2)

    @property
    def steps(self) -> int:
        return EPOCHS * math.ceil(self.units / self.batch_size)


class Without:
    """A step that never sees one unit, which is sampled nevertheless."""

    def __init__(self, step: Any, unit: int | None) -> None:
        self.step, self.unit = step, unit

    def draw_from(self, secret: Secret, step: int) -> None:
        """Samples and noise come from the training's own secret."""
        if isinstance(self.step, Private):
            self.step.draw_from(secret, step)

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        if self.unit is not None and len(batch.inputs):
            assert batch.users is not None
            batch = batch.select((batch.users != self.unit).nonzero().flatten())
        return self.step(model, batch, state)


class BatchClipped:
    """Broken: clips the batch's mean gradient instead of each unit's."""

    def __init__(self, noise_multiplier: float, expected_units: int) -> None:
        self.deviation, self.expected = noise_multiplier * CLIP, expected_units

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        model.zero_grad()
        loss = summed_losses(model, batch).sum()
        (loss / (LENGTH * self.expected)).backward()
        parameters = trainable(model)
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        for parameter in parameters:
            parameter.grad += torch.randn_like(parameter) * self.deviation / self.expected
        return loss.detach() / max(batch.tokens, 1), None


def dp_sgd(unit: Any, noise_share: float = 1.0) -> MakeStep:
    def make(noise: float, expected: int) -> Step:
        return DPSGDStep(
            noise_multiplier=noise_share * noise,
            max_grad_norm=CLIP,
            expected_units=expected,
            sequence_length=LENGTH,
            unit=unit,
        )

    return make


def dp_fedavg(noise_share: float = 1.0) -> MakeStep:
    def make(noise: float, expected: int) -> Step:
        return DPFedAvgStep(
            noise_multiplier=noise_share * noise,
            max_grad_norm=CLIP,
            expected_units=expected,
        )

    return make


def settings() -> Iterator[Setting]:
    """Each unit with all units in every step, and with half of them on average."""
    for name, batching, step in (
        ("dp-sgd, sequence", "poisson", dp_sgd("sequence")),
        ("dp-sgd, user", "poisson-users", dp_sgd("user")),
        ("dp-fedavg, user", "poisson-users", dp_fedavg()),
    ):
        for batch_size in (UNITS, UNITS // 2):
            yield Setting(name=name, batching=batching, batch_size=batch_size, step=step)
    yield Setting(
        name="vestige train, sequence",
        batching="poisson",
        batch_size=UNITS // 2,
        step=dp_sgd("sequence"),
        command=True,
    )
    yield from with_dropout()
    for name, batching, step in (
        ("half the noise, sequence", "poisson", dp_sgd("sequence", 0.5)),
        ("half the noise, user", "poisson-users", dp_sgd("user", 0.5)),
        ("half the noise, fedavg", "poisson-users", dp_fedavg(0.5)),
        ("the batch clipped", "poisson", BatchClipped),
    ):
        yield Setting(name=name, batching=batching, batch_size=UNITS, step=step, broken=True)
    yield Setting(
        name="hold-out by position",
        batching="poisson",
        batch_size=REMAINING,
        step=dp_sgd("sequence"),
        broken=True,
        by_position=True,
    )


def with_dropout() -> Iterator[Setting]:
    """Trainings whose dropout masks the adversary knows; all units are in every step."""
    common = {"batching": "poisson", "batch_size": UNITS, "step": dp_sgd("sequence")}
    yield Setting(name="dp-sgd, dropout 0.1", path=loop_path, **common)
    yield Setting(name="PrivateTrainer, dropout", path=trainer_path, **common)


def loop_path(seed: int, noise: float, member: bool) -> NDArray[np.float64]:
    """Weights of a training by the loop."""
    data, _, missing = data_sets(False, 1)
    model = new_model(WORDS, replace(SHAPE, dropout_in=0.1, dropout_out=0.1), seed=0)
    path = [weights(model)]
    train(
        model,
        data,
        config=training_config("poisson", UNITS),
        step=Without(dp_sgd("sequence")(noise, UNITS), None if member else missing),
        observe=lambda model, _: path.append(weights(model)),
        secret=Secret.of_seed(seed),
    )
    return np.array(path)


class PathRecorder(TrainerCallback):
    """Records the weights after each step."""

    def __init__(self, model: Any) -> None:
        self.weights = [weights(model)]

    def on_step_end(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        self.weights.append(weights(arguments["model"]))


def trainer_path(seed: int, noise: float, member: bool) -> NDArray[np.float64]:
    """Weights of a training by `PrivateTrainer`, which evaluates all records after every step."""
    torch.manual_seed(0)
    dropout = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
    sizes = {"vocab_size": len(WORDS), "n_positions": LENGTH, "n_embd": 4, "n_layer": 1}
    ends = {"bos_token_id": 1, "eos_token_id": 1}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends, n_head=1, **dropout))
    rows = Dataset.from_dict({"input_ids": [[2 + unit] * (4 + unit) for unit in range(UNITS)]})
    recorder = PathRecorder(model)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            max_steps=EPOCHS,
            per_device_train_batch_size=UNITS,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            optim="sgd",
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            logging_strategy="no",
        )
        trainer = PrivateTrainer(
            model,
            args,
            train_dataset=rows,
            eval_dataset=rows,
            data_collator=lambda rows: inputs_of(padded([row["input_ids"] for row in rows])),
            callbacks=[recorder],
            privacy=DPSGD(
                noise_multiplier=noise,
                max_grad_norm=CLIP,
                noise_seed_without_guarantee=seed,
                delta=DELTA,
                accountant="rdp",
            ),
        )
        trainer.remove_callback(PrinterCallback)
        batch = PrivateRows.batch

        def without_record(*arguments: Any) -> Any:
            rows, units = batch(*arguments)
            remaining = units < (UNITS if member else UNITS - 1)
            return rows[remaining], units[remaining]

        with patch.object(PrivateRows, "batch", without_record):
            trainer.train()
    return np.array(recorder.weights)


def training_config(batching: Any, batch_size: int) -> TrainingConfig:
    """Short steps of SGD, whose weights are observed after each."""
    return TrainingConfig(
        seed=0,
        epochs=EPOCHS,
        batch_size=batch_size,
        sequence_length=LENGTH,
        learning_rate=RATE,
        optimizer="sgd",
        batching=batching,
        evaluate_every=1,
    )


def weights(model: Any) -> NDArray[np.float64]:
    """All trained weights, flat."""
    return torch.cat([p.detach().flatten() for p in trainable(model)]).double().numpy()


def unit_texts(units: int, texts: int) -> Corpus:
    """Some texts of each unit, whose words no other unit uses."""
    lines = [" ".join([f"w{unit}"] * (4 + text)) for unit in range(units) for text in range(texts)]
    return Corpus.from_texts(lines, users=[f"{u:02d}" for u in range(units) for _ in range(texts)])


@cache
def data_sets(by_position: bool, texts: int) -> tuple[EncodedCorpus, EncodedCorpus, int | None]:
    """(data with the record, data without it, the unit that the training must leave out).

    A unit that is left out is sampled nevertheless, so that the sample rate is the same.
    """
    if not by_position:
        data = encode(unit_texts(UNITS, texts), WORDS)
        return data, data, UNITS - 1
    corpus = unit_texts(43, 1)
    with_it, without = (c.split(0.25, seed=0)[0] for c in (corpus, corpus.take(range(42))))
    assert len(with_it) == len(without) == REMAINING
    return encode(with_it, WORDS), encode(without, WORDS), None
