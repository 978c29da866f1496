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
from mechanism_bounds import DELTA
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
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
from vestige.training.batches import IGNORED, Batch
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.secret import Secret
from vestige.training.steps import Private

UNITS, LENGTH, CLIP, EPOCHS = 4, 8, 0.05, 3
EPSILONS = (1.0, 3.0, 8.0)
RATE = 1e-3  # of SGD: short steps
WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{unit}" for unit in range(43))))
SHAPE = LSTMConfig(layers=1, embedding_size=4, hidden_size=4, dropout_in=0.0, dropout_out=0.0)
PLACED = 32
"""Units that a hold-out of a quarter by place leaves of 43, and of 42."""

Step = Callable[[LanguageModel, Batch, Any], tuple[Tensor, Any]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A private training under attack.

    Attributes:
        name: of the defence and its unit, or of what is broken.
        draw: how units come into batches.
        batch_size: units that a batch holds on average.
        step: makes the step from a noise multiplier and the expected units.
        broken: the claim is expected to fail.
        by_place: the adversary's two data sets are what a hold-out by place leaves.
        command: the training is that of the command line.
        path: where dropout is known: the weights before and after each step, by a seed of all
            chance, the noise multiplier, and whether the record is a member.
    """

    name: str
    draw: Any
    batch_size: int
    step: Callable[[float, int], Step]
    broken: bool = False
    by_place: bool = False
    command: bool = False
    path: Callable[[int, float, bool], NDArray[np.float64]] | None = None

    @property
    def units(self) -> int:
        return PLACED if self.by_place else UNITS

    @property
    def sample_rate(self) -> float:
        return self.batch_size / self.units

    @property
    def worlds(self) -> tuple[EncodedCorpus, EncodedCorpus, int | None]:
        return worlds(self.by_place, 1 if self.draw == "poisson" else 2)

    @property
    def steps(self) -> int:
        return EPOCHS * math.ceil(self.units / self.batch_size)


class Without:
    """A step that never sees one unit, as if its lot had been drawn for nobody."""

    def __init__(self, step: Any, unit: int | None) -> None:
        self.step, self.unit = step, unit

    def draw_from(self, secret: Secret, step: int) -> None:
        """Every step here is private: lots and noise come from the training's own secret."""
        if isinstance(self.step, Private):
            self.step.draw_from(secret, step)

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        if self.unit is not None and len(batch.inputs):
            assert batch.users is not None
            batch = batch.select((batch.users != self.unit).nonzero().flatten())
        return self.step(model, batch, state)


class BatchClipped:
    """Broken: the batch's mean gradient is clipped in place of each unit's."""

    def __init__(self, noise_multiplier: float, expected_units: int) -> None:
        self.deviation, self.expected = noise_multiplier * CLIP, expected_units

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        model.zero_grad()
        loss = summed_losses(model, batch).sum()
        (loss / (LENGTH * self.expected)).backward()
        learning = trainable(model)
        torch.nn.utils.clip_grad_norm_(learning, CLIP)
        for parameter in learning:
            parameter.grad += torch.randn_like(parameter) * self.deviation / self.expected
        return loss.detach() / max(batch.tokens, 1), None


def dp_sgd(unit: Any, noise_share: float = 1.0) -> Callable[[float, int], Step]:
    def make(noise: float, expected: int) -> Step:
        return DPSGDStep(
            noise_multiplier=noise_share * noise,
            max_grad_norm=CLIP,
            expected_units=expected,
            sequence_length=LENGTH,
            unit=unit,
        )

    return make


def dp_fedavg(noise_share: float = 1.0) -> Callable[[float, int], Step]:
    def make(noise: float, expected: int) -> Step:
        return DPFedAvgStep(
            noise_multiplier=noise_share * noise,
            max_grad_norm=CLIP,
            expected_units=expected,
        )

    return make


def settings() -> Iterator[Setting]:
    """Each unit with all units in every step, and with half of them on average."""
    for name, draw, step in (
        ("dp-sgd, sequence", "poisson", dp_sgd("sequence")),
        ("dp-sgd, user", "poisson-users", dp_sgd("user")),
        ("dp-fedavg, user", "poisson-users", dp_fedavg()),
    ):
        for batch_size in (UNITS, UNITS // 2):
            yield Setting(name=name, draw=draw, batch_size=batch_size, step=step)
    yield Setting(
        name="vestige train, sequence",
        draw="poisson",
        batch_size=UNITS // 2,
        step=dp_sgd("sequence"),
        command=True,
    )
    yield from with_dropout()
    for name, draw, step in (
        ("half the noise, sequence", "poisson", dp_sgd("sequence", 0.5)),
        ("half the noise, user", "poisson-users", dp_sgd("user", 0.5)),
        ("half the noise, fedavg", "poisson-users", dp_fedavg(0.5)),
        ("the batch clipped", "poisson", BatchClipped),
    ):
        yield Setting(name=name, draw=draw, batch_size=UNITS, step=step, broken=True)
    yield Setting(
        name="hold-out by place",
        draw="poisson",
        batch_size=PLACED,
        step=dp_sgd("sequence"),
        broken=True,
        by_place=True,
    )


def with_dropout() -> Iterator[Setting]:
    """Trainings whose masks the adversary knows; all units are in every step."""
    common = {"draw": "poisson", "batch_size": UNITS, "step": dp_sgd("sequence")}
    yield Setting(name="dp-sgd, dropout 0.1", path=loop_path, **common)
    yield Setting(name="PrivateTrainer, dropout", path=trainer_path, **common)


def loop_path(seed: int, noise: float, member: bool) -> NDArray[np.float64]:
    """Weights of a training by the loop."""
    data, _, missing = worlds(False, 1)
    model = new_model(WORDS, replace(SHAPE, dropout_in=0.1, dropout_out=0.1), seed=0)
    path = [weights(model)]
    train(
        model,
        data,
        config=training_config("poisson", UNITS),
        step=Without(dp_sgd("sequence")(noise, UNITS), None if member else missing),
        observe=lambda seen, _: path.append(weights(seen)),
        secret=Secret.of_seed(seed),
    )
    return np.array(path)


class KeptPath(TrainerCallback):
    """Keeps the weights after each step."""

    def __init__(self, model: Any) -> None:
        self.weights = [weights(model)]

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.weights.append(weights(given["model"]))


def trainer_path(seed: int, noise: float, member: bool) -> NDArray[np.float64]:
    """Weights of a training by `PrivateTrainer`, which evaluates all records after every step."""
    torch.manual_seed(0)
    drops = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
    sizes = {"vocab_size": len(WORDS), "n_positions": LENGTH, "n_embd": 4, "n_layer": 1}
    ends = {"bos_token_id": 1, "eos_token_id": 1}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends, n_head=1, **drops))
    rows = Dataset.from_dict({"input_ids": [[2 + unit] * (4 + unit) for unit in range(UNITS)]})
    kept = KeptPath(model)
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
            data_collator=_collated,
            callbacks=[kept],
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

        def without(*given: Any) -> Any:
            rows, units = batch(*given)
            kept = units < (UNITS if member else UNITS - 1)
            return rows[kept], units[kept]

        with patch.object(PrivateRows, "batch", without):
            trainer.train()
    return np.array(kept.weights)


def _collated(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Padded on the right."""
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    seen = pad_sequence([torch.ones_like(one) for one in ids], batch_first=True)
    padded = pad_sequence(ids, batch_first=True)
    labels = padded.masked_fill(seen == 0, IGNORED)
    return {"input_ids": padded, "attention_mask": seen, "labels": labels}


def training_config(draw: Any, batch_size: int) -> TrainingConfig:
    """Short steps of SGD, whose weights are seen after each."""
    return TrainingConfig(
        seed=0,
        epochs=EPOCHS,
        batch_size=batch_size,
        sequence_length=LENGTH,
        learning_rate=RATE,
        optimizer="sgd",
        batching=draw,
        evaluate_every=1,
    )


def weights(model: Any) -> NDArray[np.float64]:
    """All that learn, flat."""
    return torch.cat([p.detach().flatten() for p in trainable(model)]).double().numpy()


def made(units: int, texts: int) -> Corpus:
    """Units of some texts each, whose words are nobody else's."""
    said = [" ".join([f"w{unit}"] * (4 + text)) for unit in range(units) for text in range(texts)]
    return Corpus.from_texts(said, users=[f"{u:02d}" for u in range(units) for _ in range(texts)])


@cache
def worlds(by_place: bool, texts: int) -> tuple[EncodedCorpus, EncodedCorpus, int | None]:
    """What is read with the record and without it, and the unit that the second is to miss.

    A unit that is missed keeps its lot, so that the sample rate is the same with it and without.
    """
    if not by_place:
        data = encode(made(UNITS, texts), WORDS)
        return data, data, UNITS - 1
    whole = made(43, 1)
    kept = [c.split(0.25, seed=0)[0] for c in (whole, whole.take(range(42)))]
    assert [len(part) for part in kept] == [PLACED, PLACED]
    return encode(kept[0], WORDS), encode(kept[1], WORDS), None
