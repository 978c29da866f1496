"""Whether a private training leaks more of a record than the epsilon that it claims.

A distinguishing attack, the strongest that the threat model allows. Many trainings have one record
(one user) in their data and as many do not. The adversary knows all other records, the first
weights and every setting, has made the record so that its gradient is clipped and resembles no
other, and sees the weights after each step. By the lemma of Neyman and Pearson the best score is
the likelihood ratio of what each step added to the weights. It is exact where every step reads all
units; elsewhere it treats the contributions of the other sampled units as Gaussian.

Two lower bounds on epsilon follow from how often that ratio is above 1. Both hold with 95 % for the
whole table (Bonferroni), and no threshold is chosen on the scores:

- `free`: the ends of Clopper and Pearson for both rates, at several thresholds that share the error
  (`vestige.metrics.epsilon`). It assumes nothing; 1,000 trainings of each kind cannot prove more
  than about 5.
- `tight`: the same ends at ratio 1 refute every Poisson-subsampled Gaussian mechanism with more
  noise than some z; `last weights` uses only the last weights. Nasr et al. (2023), "Tight Auditing
  of Differentially Private Machine Learning", section 5.

A bound above the claim says that the guarantee is broken. To show that the attack can notice this,
`broken` attacks trainings with half the noise, with a clipped batch instead of clipped records, and
with a hold-out by position, whose sample is another one if a record is missing; there every tight
bound should be above its claim. Where there is dropout, the adversary knows the masks.
`PrivateTrainer` also evaluates all records after every step; the evaluation chooses nothing.
`command` attacks `vestige train` itself.

    python benchmarks/dp_attack.py [sound] [broken] [command] [--times 200]

A few hundred weights, four records or users. Steps are short, so that the gradient in the last is
that in the first; the adversary may choose them so.
"""

import contextlib
import io
import math
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from attacked_trainings import (
    CLIP,
    DELTA,
    EPOCHS,
    LENGTH,
    RATE,
    SHAPE,
    UNITS,
    WORDS,
    BatchClipped,
    Setting,
    Step,
    Without,
    settings,
    training_config,
    unit_texts,
    weights,
)
from dp_accounting import dp_event, pld
from harness import Row, Run, main
from networks import whole_batch
from numpy.typing import NDArray

from vestige.cli.app import run as run_command
from vestige.metrics.estimates import clopper_pearson
from vestige.metrics.f_dp_epsilon import threshold_epsilon
from vestige.models.checkpoints import load_model, save_model
from vestige.models.protocols import LanguageModel
from vestige.privacy.accounting import Mechanism as Accounted
from vestige.privacy.accounting import noise_for
from vestige.privacy.taps import trainable
from vestige.training.batches import Batch
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.secret import Secret

EPSILONS = (1.0, 3.0, 8.0)

# Bounds ------------------------------------------------------------------------------------------

GRID = np.linspace(0, 25, 51)
"""Epsilons at which a pair of error rates may refute a mechanism."""


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

    @cache  # noqa: B019 - few instances, kept as long as the process
    def noise(self, epsilon: float) -> float:
        return noise_for(
            epsilon=epsilon,
            delta=DELTA,
            sample_rate=self.sample_rate,
            steps=self.steps,
            accountant="pld",
        )

    def epsilon(self, noise: float) -> float:
        mechanism = Accounted(
            noise_multiplier=noise, sample_rate=self.sample_rate, steps=self.steps
        )
        return mechanism.epsilon(DELTA)

    def allows(self, noise: float, false: float, missed: float) -> bool:
        """Whether a test can have both error rates: Wasserman and Zhou (2010), Theorem 2.4."""
        sums = (a + np.exp(GRID) * b for a, b in ((missed, false), (false, missed)))
        least = 1 - deltas(noise, self.sample_rate, self.steps)
        return bool((np.minimum(*sums) >= least).all())

    def least_epsilon(self, false: float, missed: float) -> float:
        """The epsilon with the most noise that allows both error rates; 0 if all noise does."""
        low, high = 0.1, 100.0
        if self.allows(high, false, missed):
            return 0.0
        while high > 1.005 * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.allows(middle, false, missed) else (low, middle)
        return self.epsilon(high)


# Attacks -----------------------------------------------------------------------------------------


def attack_with_masks(setting: Setting, noise: float, *, member: bool) -> tuple[float, float]:
    """The score of one training, twice, from what each step adds without noise."""
    assert setting.path is not None
    path_of, seed = setting.path, secrets.randbits(60)

    def added(noise: float, member: bool) -> NDArray[np.float64]:
        path = path_of(seed, noise, member)
        return (path[:-1] - path[1:]) * (UNITS / RATE)

    without = added(0.0, False)
    shift = added(0.0, True) - without
    observed = added(noise, member) - without
    score = float(((observed - shift / 2) * shift).sum() / (noise * CLIP) ** 2)
    return score, score


class Adversary:
    """The likelihood ratio of steps, from what a step without noise does with both data sets.

    A step adds a Gaussian to the sum of the sampled units. Where not all units are sampled, the
    others vary too; their part of the covariance is known.
    """

    def __init__(self, setting: Setting, noise: float, start: LanguageModel) -> None:
        self.rate, self.scale = setting.sample_rate, setting.batch_size / RATE
        with_it, without, missing = setting.data_sets
        batch = whole_batch(with_it, LENGTH, start.first_token)
        factor = setting.batch_size if setting.step is BatchClipped else 1
        step = setting.step(0.0, factor)
        if self.rate == 1:
            gradient = _gradient(step, start, batch)
            step_without = Without(step, missing)
            batch_without = whole_batch(without, LENGTH, start.first_token)
            other = _gradient(step_without, start, batch_without)
            self.base, shift = factor * other, factor * (gradient - other)
            others = np.zeros((0, len(shift)))
        else:
            gradients = [
                _gradient(step, start, batch.select((batch.users == unit).nonzero().flatten()))
                for unit in range(UNITS)
            ]
            others, shift = np.array(gradients[:-1]), gradients[-1]
            self.base = self.rate * others.sum(0)
        # the stated noise, also for a setting that adds less
        deviation = noise * CLIP
        covariance = self.rate * (1 - self.rate) * others.T @ others
        covariance += deviation**2 * np.eye(len(shift))
        direction = np.linalg.solve(covariance, shift)
        self.distance = math.sqrt(direction @ shift)
        self.direction = direction / self.distance

    def ratio(self, path: NDArray[np.float64]) -> float:
        """Log-likelihood ratio of all steps, in nats, from the weights before and after them."""
        steps = (path[:-1] - path[1:]) * self.scale
        deviations = (steps - self.base) @ self.direction
        sampled = deviations * self.distance - self.distance**2 / 2
        not_sampled = math.log1p(-self.rate) if self.rate < 1 else -math.inf
        return float(np.logaddexp(not_sampled, math.log(self.rate) + sampled).sum())

    def last(self, path: NDArray[np.float64], steps: int) -> float:
        """The score of the last weights alone: the shift along the record, centred."""
        change = (path[0] - path[-1]) * self.scale
        deviations = (change - steps * self.base) @ self.direction
        return float(deviations - steps * self.rate * self.distance / 2)


def _gradient(step: Step, model: LanguageModel, batch: Batch) -> NDArray[np.float64]:
    model.zero_grad()
    step(model, batch, None)
    return torch.cat([p.grad.flatten() for p in trainable(model)]).double().numpy()


def attack_loop(
    setting: Setting,
    adversary: Adversary,
    noise: float,
    *,
    member: bool,
    secret: Secret | None = None,
) -> tuple[float, float]:
    """Both scores of one training by the loop; with a fresh secret, unless a test gives one."""
    with_it, without, missing = setting.data_sets
    model = new_model(WORDS, SHAPE, seed=0)
    path = [weights(model)]
    train(
        model,
        with_it if member else without,
        config=training_config(setting.batching, setting.batch_size),
        step=Without(setting.step(noise, setting.batch_size), None if member else missing),
        observe=lambda model, _: path.append(weights(model)),
        secret=secret,
    )
    return adversary.ratio(np.array(path)), adversary.last(np.array(path), setting.steps)


def attack_command(
    folder: Path, adversary: Adversary, setting: Setting, noise: float, *, member: bool
) -> tuple[float, float]:
    """The last weights' score, twice, of a training by `vestige train`.

    The record is in the file or it is not, so the others' sample rate differs a little as well.
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
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = run_command(["train", str(folder / f"{member}.txt"), *words])
    if code:
        raise RuntimeError(output.getvalue())
    path = np.array([weights(load_model(model)) for model in (public, out)])
    score = adversary.last(path, setting.steps)
    return score, score


def attack_of(setting: Setting, noise: float, folder: Path) -> Callable[..., tuple[float, float]]:
    """The attack on one training, with the record or without it."""
    if setting.path is not None:
        return partial(attack_with_masks, setting, noise)
    adversary = Adversary(setting, noise, new_model(WORDS, SHAPE, seed=0))
    if not setting.command:
        return partial(attack_loop, setting, adversary, noise)
    save_model(new_model(WORDS, SHAPE, seed=0), folder / "public")
    texts = list(unit_texts(UNITS, 1))
    for member in (True, False):
        (folder / f"{member}.txt").write_text("\n".join(texts[: len(texts) - (not member)]) + "\n")
    return partial(attack_command, folder, adversary, setting, noise)


# Parts -------------------------------------------------------------------------------------------


def attack_row(setting: Setting, epsilon: float, times: int, confidence: float) -> Row:
    """Train, score, and bound epsilon from below in three ways."""
    mechanism = Mechanism(setting.sample_rate, setting.steps)
    noise = mechanism.noise(epsilon)
    with tempfile.TemporaryDirectory() as folder:
        attack = attack_of(setting, noise, Path(folder))
        inside, outside = (
            np.array([attack(member=member) for _ in range(times)]).T for member in (True, False)
        )
    tight, last = (
        mechanism.least_epsilon(
            *(clopper_pearson(int(errors.sum()), times, confidence=confidence).high
              for errors in (out > 0, member <= 0))
        )
        for member, out in zip(inside, outside, strict=True)
    )  # fmt: skip
    free = threshold_epsilon(inside[0], outside[0], delta=DELTA, confidence=confidence).epsilon
    claimed = mechanism.epsilon(noise)
    return {
        "training": setting.name, "rate": setting.sample_rate, "steps": setting.steps,
        "claimed": claimed, "free": free, "tight": tight, "last weights": last,
        "above its claim": max(free, tight, last) > claimed,
    }  # fmt: skip


def attack_rows(run: Run, times: int, *, broken: bool = False, command: bool = False) -> list[Row]:
    """A row for each setting and claim."""
    chosen = [s for s in settings() if s.broken is broken and s.command is command]
    chosen, epsilons = chosen[: run.size(None, 2)], run.size(EPSILONS, (3.0,))
    confidence = 0.95 if broken else 1 - 0.05 / (3 * len(chosen) * len(epsilons))
    return [
        attack_row(setting, epsilon, times, confidence)
        for setting in chosen
        for epsilon in epsilons
    ]


def sound(run: Run) -> list[Row]:
    """Trainings whose bounds should be at or below their claims."""
    return attack_rows(run, run.times(200, 4))


def broken(run: Run) -> list[Row]:
    """Trainings that are broken on purpose."""
    return attack_rows(run, run.times(200, 4), broken=True)


def command(run: Run) -> list[Row]:
    """`vestige train`, where the record is in the file or is not."""
    return attack_rows(run, run.times(25, 1), command=True)


PARTS = {"sound": sound, "broken": broken, "command": command}

if __name__ == "__main__":
    main("dp_attack", __doc__, PARTS)
