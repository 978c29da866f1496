"""Does a private training leak more of a record than the epsilon that it claims?

A distinguishing attack, the strongest that the threat model allows. Many trainings have one record
(one user) among their data and as many do not; the adversary knows all the others, the first
weights and every setting, has made the record so that its gradient is clipped and looks like no
other's, and sees the weights after each step. By the lemma of Neyman and Pearson the best score is
then the likelihood ratio of what each step added to the weights; it is exact where every step reads
all units, and elsewhere takes what the lots of the others add for one more Gaussian.

Two lower bounds on epsilon follow from how often that ratio is above 1. Both hold with 95 % for the
whole table (Bonferroni), and neither has a threshold that was chosen on the scores:

- free: Clopper and Pearson's ends of both rates, at thresholds that are all paid for
  (`vestige.metrics.epsilon`). It assumes nothing, and 1,000 trainings of each kind cannot
  prove more than about 5.
- tight: Nasr et al. (2023), "Tight Auditing of Differentially Private Machine Learning", section 5:
  the same ends at ratio 1 refute every Poisson-subsampled Gaussian mechanism with more noise than
  some z; the bound is z's epsilon. The point estimate takes the rates themselves.

A bound above the claim says that the guarantee is broken. So that this can fail, the same attack is
made on trainings broken on purpose: half the noise, a clipped batch in place of clipped records,
and a hold-out drawn by place, which one record less draws anew.

Where there is dropout, the adversary knows the masks as well, and so what each step would add
without noise, with the record and without it. `PrivateTrainer` evaluates all records after every
step besides; the evaluation chooses nothing.

A few hundred weights, 4 records or users. The steps are short, so that the gradient in the last is
that in the first: the adversary may choose them so.

    python benchmarks/private_attack.py [--trainings 200] [--commands 25] [--only NAME]

The last line is JSON: `holds` wants every bound of a sound training at or below its claim, `sharp`
every tight bound of a broken one above it.
"""

import argparse
import contextlib
import io
import json
import math
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from datasets import Dataset
from dp_accounting import dp_event, pld
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from vestige.cli.app import run as command
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import WordVocabulary
from vestige.defences.methods.private import DPSGD
from vestige.integrations.private_plan import PrivateRows
from vestige.integrations.private_trainer import PrivateTrainer
from vestige.metrics.estimates import clopper_pearson
from vestige.metrics.f_dp_epsilon import threshold_epsilon
from vestige.models.checkpoints import load_model, save_model
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.accounting import Mechanism as Accounted
from vestige.privacy.accounting import noise_for
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.dp_sgd import DPSGDStep, summed_losses
from vestige.privacy.taps import trainable
from vestige.training.batches import IGNORED, Batch
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.secret import Secret
from vestige.training.sequences import Sequences
from vestige.training.steps import Private

UNITS, LENGTH, CLIP, EPOCHS = 4, 8, 0.05, 3
DELTA = 1e-2  # `vestige train`'s own for so few
EPSILONS = (1.0, 3.0, 8.0)
RATE = 1e-3  # of SGD: short steps
WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{unit}" for unit in range(43))))
SHAPE = LSTMConfig(layers=1, embedding_size=4, hidden_size=4, dropout_in=0.0, dropout_out=0.0)
GRID = np.linspace(0, 25, 51)
"""Epsilons at which a pair of error rates may refute a mechanism."""
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
    path = [_weights(model)]
    train(
        model,
        data,
        config=_config("poisson", UNITS),
        step=Without(dp_sgd("sequence")(noise, UNITS), None if member else missing),
        observe=lambda seen, _: path.append(_weights(seen)),
        secret=Secret.of_seed(seed),
    )
    return np.array(path)


class KeptPath(TrainerCallback):
    """Keeps the weights after each step."""

    def __init__(self, model: Any) -> None:
        self.weights = [_weights(model)]

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.weights.append(_weights(given["model"]))


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


def attacked_with_masks(setting: Setting, noise: float, *, member: bool) -> tuple[float, float]:
    """The score of one training, twice, by what each step adds without noise in both worlds."""
    assert setting.path is not None
    seed = secrets.randbits(60)

    def added(noise: float, member: bool) -> NDArray[np.float64]:
        assert setting.path is not None
        path = setting.path(seed, noise, member)
        return (path[:-1] - path[1:]) * (UNITS / RATE)

    without = added(0.0, False)
    shift = added(0.0, True) - without
    seen = added(noise, member) - without
    score = float(((seen - shift / 2) * shift).sum() / (noise * CLIP) ** 2)
    return score, score


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


class Adversary:
    """The likelihood ratio of steps, from what a step without noise does in both worlds.

    A step adds a Gaussian to the sum of those drawn. Others come and go too, where not all are
    drawn: their part of the covariance is known as well.
    """

    def __init__(self, setting: Setting, noise: float, start: LanguageModel) -> None:
        self.rate, self.scale = setting.sample_rate, setting.batch_size / RATE
        first, second, missing = setting.worlds
        whole = _every(first, start)
        clean = setting.step(0.0, setting.batch_size if setting.step is BatchClipped else 1)
        if self.rate == 1:
            without = _every(second, start)
            sums = [
                _gradient(Without(clean, unit), start, batch)
                for batch, unit in ((whole, None), (without, missing))
            ]
            factor = setting.batch_size if setting.step is BatchClipped else 1
            self.base, shift = factor * sums[1], factor * (sums[0] - sums[1])
            others = np.zeros((0, len(shift)))
        else:
            each = np.array(
                [
                    _gradient(clean, start, whole.select((whole.users == u).nonzero().flatten()))
                    for u in range(UNITS)
                ]
            )
            others, shift = each[:-1], each[-1]
            self.base = self.rate * others.sum(0)
        # A setting is attacked as it is stated, a broken one as well.
        self.deviation = noise * CLIP
        covariance = self.rate * (1 - self.rate) * others.T @ others
        covariance += self.deviation**2 * np.eye(len(shift))
        weights = np.linalg.solve(covariance, shift)
        self.distance = math.sqrt(weights @ shift)
        self.weights = weights / self.distance

    def ratio(self, path: NDArray[np.float64]) -> float:
        """Log-likelihood ratio of all steps, in nats, from the weights around them."""
        seen = ((path[:-1] - path[1:]) * self.scale - self.base) @ self.weights  # in deviations
        drawn = seen * self.distance - self.distance**2 / 2
        left = math.log1p(-self.rate) if self.rate < 1 else -math.inf
        return float(np.logaddexp(left, math.log(self.rate) + drawn).sum())

    def last(self, path: NDArray[np.float64], steps: int) -> float:
        """What the last weights alone show: how far all steps went the record's way, centred."""
        seen = ((path[0] - path[-1]) * self.scale - steps * self.base) @ self.weights
        return float(seen - steps * self.rate * self.distance / 2)


def _every(data: EncodedCorpus, model: LanguageModel) -> Batch:
    sequences = Sequences.of(data, length=LENGTH)
    return sequences.batch(np.arange(len(sequences)), model.first_token, model.device)


def _gradient(step: Step, model: LanguageModel, batch: Batch) -> NDArray[np.float64]:
    model.zero_grad()
    step(model, batch, None)
    return torch.cat([p.grad.flatten() for p in trainable(model)]).double().numpy()


def attacked(
    setting: Setting,
    adversary: Adversary,
    noise: float,
    *,
    member: bool,
    secret: Secret | None = None,
) -> tuple[float, float]:
    """Both scores of one training; of a fresh secret, unless a test gives one."""
    with_it, without, missing = setting.worlds
    model = new_model(WORDS, SHAPE, seed=0)
    path = [_weights(model)]
    train(
        model,
        with_it if member else without,
        config=_config(setting.draw, setting.batch_size),
        step=Without(setting.step(noise, setting.batch_size), None if member else missing),
        observe=lambda seen, _: path.append(_weights(seen)),
        secret=secret,
    )
    return adversary.ratio(np.array(path)), adversary.last(np.array(path), setting.steps)


def _config(draw: Any, batch_size: int) -> TrainingConfig:
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


def attacked_command(
    folder: Path, adversary: Adversary, setting: Setting, noise: float, *, member: bool
) -> tuple[float, float]:
    """The last weights' score, twice, of a training by `vestige train`.

    Here the record is in the file or is not, so that others' sample rate differs a little as well.
    """
    public, out = folder / "public", Path(tempfile.mkdtemp(dir=folder)) / "new"
    options: dict[str, object] = {
        "from": public,
        "out": out,
        "defence": "dp-sgd",
        "noise-multiplier": noise,
        "delta": DELTA,
        "accountant": "rdp",
        "clip": CLIP,
        "hold-out": 0,
        "batch-size": setting.batch_size,
        "sequence-length": LENGTH,
        "epochs": EPOCHS,
        "optimizer": "sgd",
        "learning-rate": RATE,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command(["train", str(folder / f"{member}.txt"), *words])
    if code:
        raise RuntimeError(said.getvalue())
    score = adversary.last(
        np.array([_weights(load_model(path)) for path in (public, out)]), setting.steps
    )
    return score, score


def _weights(model: LanguageModel) -> NDArray[np.float64]:
    return torch.cat([p.detach().flatten() for p in trainable(model)]).double().numpy()


@cache
def deltas(noise: float, sample_rate: float, steps: int) -> NDArray[np.float64]:
    """The mechanism's privacy curve at GRID, rounded up."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    step = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise))
    accountant.compose(step, steps)
    return np.array([accountant.get_delta(epsilon) for epsilon in GRID])


@dataclass(frozen=True)
class Mechanism:
    """Poisson-subsampled Gaussian mechanisms of one rate and number of steps, of any noise."""

    sample_rate: float
    steps: int

    @cache  # noqa: B019 - a handful of them, as long as the process
    def noise(self, epsilon: float) -> float:
        return noise_for(
            epsilon=epsilon,
            delta=DELTA,
            sample_rate=self.sample_rate,
            steps=self.steps,
            accountant="pld",
        )

    def epsilon(self, noise: float) -> float:
        own = Accounted(noise_multiplier=noise, sample_rate=self.sample_rate, steps=self.steps)
        return own.epsilon(DELTA)

    def allows(self, noise: float, false: float, missed: float) -> bool:
        """Whether a test can have both error rates: Wasserman and Zhou (2010), Theorem 2.4."""
        one, other = (a + np.exp(GRID) * b for a, b in ((missed, false), (false, missed)))
        least = 1 - deltas(noise, self.sample_rate, self.steps)
        return bool((np.minimum(one, other) >= least).all())

    def least(self, false: float, missed: float) -> float:
        """The epsilon of the most noise that allows both error rates; 0 where all noise does."""
        low, high = 0.1, 100.0
        if self.allows(high, false, missed):
            return 0.0
        while high > 1.005 * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.allows(middle, false, missed) else (low, middle)
        return self.epsilon(high)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: see the module."""

    setting: Setting
    claimed: float
    free: float
    tight: float
    point: float
    tight_last: float

    @property
    def largest(self) -> float:
        return max(self.free, self.tight, self.tight_last)


def row(setting: Setting, epsilon: float, trainings: int, confidence: float) -> Row:
    """Train, score, and bound epsilon from below in three ways."""
    mechanism = Mechanism(setting.sample_rate, setting.steps)
    noise = mechanism.noise(epsilon)
    if setting.path is None:
        adversary = Adversary(setting, noise, new_model(WORDS, SHAPE, seed=0))
        attack = partial(attacked, setting, adversary, noise)
    else:
        attack = partial(attacked_with_masks, setting, noise)
    with tempfile.TemporaryDirectory() as folder:
        if setting.command:
            attack = partial(
                attacked_command, _write_worlds(Path(folder)), adversary, setting, noise
            )
        found, missed = (
            np.array([attack(member=member) for _ in range(trainings)]).T
            for member in (True, False)
        )
    wrong = [
        (int((out > 0).sum()), int((inside <= 0).sum()))
        for inside, out in zip(found, missed, strict=True)
    ]

    def bound(counts: tuple[int, int]) -> float:
        return mechanism.least(
            *(clopper_pearson(k, trainings, confidence=confidence).high for k in counts)
        )

    return Row(
        setting=setting,
        claimed=mechanism.epsilon(noise),
        free=threshold_epsilon(found[0], missed[0], delta=DELTA, confidence=confidence).epsilon,
        tight=bound(wrong[0]),
        point=mechanism.least(*((k + 0.5) / (trainings + 1) for k in wrong[0])),
        tight_last=bound(wrong[1]),
    )


def _write_worlds(folder: Path) -> Path:
    """A model to begin with, and the text with the record and without it."""
    save_model(new_model(WORDS, SHAPE, seed=0), folder / "public")
    texts = list(made(UNITS, 1))
    for member in (True, False):
        (folder / f"{member}.txt").write_text("\n".join(texts[: len(texts) - (not member)]) + "\n")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--trainings", type=int, default=200, help="with the record; as many without"
    )
    parser.add_argument("--commands", type=int, default=25, help="the same of `vestige train`")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS, help="claims")
    parser.add_argument("--only", default="", help="settings whose names hold this")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [setting for setting in settings() if asked.only in setting.name]
    sound = sum(not setting.broken for setting in chosen)
    simultaneous = 1 - 0.05 / max(1, 3 * sound * len(asked.epsilons))
    began, rows = time.process_time(), []
    print(f"{asked.trainings} trainings with the record and as many without, delta {DELTA:g}")
    print(f"{'':26}rate steps claimed    free   tight  (point)  last weights")
    for setting, epsilon in (
        (s, e) for s in chosen for e in asked.epsilons if e == 8 or not s.command
    ):
        confidence = 0.95 if setting.broken else simultaneous
        trainings = asked.commands if setting.command else asked.trainings
        found = row(setting, epsilon, trainings, confidence)
        rows.append(found)
        print(
            f"{setting.name:25} {setting.sample_rate:5.2f} {setting.steps:5d} {found.claimed:7.2f} "
            f"{found.free:7.2f} {found.tight:7.2f} {found.point:8.2f} {found.tight_last:13.2f}",
            flush=True,
        )
    holds = all(r.largest <= r.claimed for r in rows if not r.setting.broken)
    sharp = all(r.tight > r.claimed for r in rows if r.setting.broken)
    minutes = (time.process_time() - began) / 60
    print(json.dumps({"holds": holds, "sharp": sharp, "cpu_minutes": round(minutes, 1)}))


if __name__ == "__main__":
    main()
