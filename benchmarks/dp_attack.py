"""Whether a private training leaks more of a record than the epsilon that it claims.

A distinguishing attack, the strongest that the threat model allows. Many trainings have one record
(one user) among their data and as many do not. The adversary knows all the others, the first
weights and every setting, has made the record so that its gradient is clipped and looks like no
other's, and sees the weights after each step. By the lemma of Neyman and Pearson the best score is
the likelihood ratio of what each step added to the weights; it is exact where every step reads all
units, and elsewhere takes what the lots of the others add for one more Gaussian.

Two lower bounds on epsilon follow from how often that ratio is above 1. Both hold with 95 % for the
whole table (Bonferroni), and no threshold is chosen on the scores:

- `free`: Clopper and Pearson's ends of both rates, at thresholds that are all paid for
  (`vestige.metrics.epsilon`). It assumes nothing; 1,000 trainings of each kind cannot prove more
  than about 5.
- `tight`: the same ends at ratio 1 refute every Poisson-subsampled Gaussian mechanism with more
  noise than some z (`mechanism_bounds.py`); `last weights` sees only these. `point` takes the
  rates.

A bound above the claim says that the guarantee is broken. So that this can fail, `broken` attacks
trainings with half the noise, with a clipped batch in place of clipped records, and with a hold-out
drawn by place, which one record less draws anew; there every tight bound should be above its claim.
Where there is dropout, the adversary knows the masks. `PrivateTrainer` also evaluates all records
after every step; the evaluation chooses nothing. `command` attacks `vestige train` itself.

    python benchmarks/dp_attack.py [sound] [broken] [command] [--times 200] [--epsilons 1 3 8]

A few hundred weights, four records or users. Steps are short, so that the gradient in the last is
that in the first: the adversary may choose them so.
"""

import contextlib
import io
import math
import secrets
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attacked_trainings import (
    CLIP,
    DELTA,
    EPOCHS,
    EPSILONS,
    LENGTH,
    RATE,
    SHAPE,
    UNITS,
    WORDS,
    BatchClipped,
    Setting,
    Step,
    Without,
    made,
    settings,
    training_config,
    weights,
)
from harness import Row, Run, main
from mechanism_bounds import Mechanism
from numpy.typing import NDArray

from vestige.cli.app import run as command
from vestige.data.encoded import EncodedCorpus
from vestige.metrics.estimates import clopper_pearson
from vestige.metrics.f_dp_epsilon import threshold_epsilon
from vestige.models.checkpoints import load_model, save_model
from vestige.models.protocols import LanguageModel
from vestige.privacy.taps import trainable
from vestige.training.batches import Batch
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.secret import Secret
from vestige.training.sequences import Sequences


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
    path = [weights(model)]
    train(
        model,
        with_it if member else without,
        config=training_config(setting.draw, setting.batch_size),
        step=Without(setting.step(noise, setting.batch_size), None if member else missing),
        observe=lambda seen, _: path.append(weights(seen)),
        secret=secret,
    )
    return adversary.ratio(np.array(path)), adversary.last(np.array(path), setting.steps)


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
        np.array([weights(load_model(path)) for path in (public, out)]), setting.steps
    )
    return score, score


def of_settings(run: Run, chosen: list[Setting], times: int) -> list[Row]:
    """A row a setting and claim."""
    epsilons = run.options.epsilons or run.size(EPSILONS, (3.0,))
    bounds = 3 * len(chosen) * len(epsilons)
    return [
        attack_row(
            setting, epsilon, times, confidence=0.95 if setting.broken else 1 - 0.05 / bounds
        )
        for setting in chosen
        for epsilon in epsilons
    ]


def attack_row(setting: Setting, epsilon: float, times: int, confidence: float) -> Row:
    """Train, score, and bound epsilon from below in three ways."""
    mechanism = Mechanism(setting.sample_rate, setting.steps)
    noise = mechanism.noise(epsilon)
    with tempfile.TemporaryDirectory() as folder:
        attack = attack_of(setting, noise, Path(folder))
        found, missed = (
            np.array([attack(member=member) for _ in range(times)]).T for member in (True, False)
        )
    wrong = [
        (int((out > 0).sum()), int((inside <= 0).sum()))
        for inside, out in zip(found, missed, strict=True)
    ]
    tight, last = (
        mechanism.least(*(clopper_pearson(k, times, confidence=confidence).high for k in counts))
        for counts in wrong
    )
    free = threshold_epsilon(found[0], missed[0], delta=DELTA, confidence=confidence).epsilon
    claimed = mechanism.epsilon(noise)
    return {
        "training": setting.name, "rate": setting.sample_rate, "steps": setting.steps,
        "claimed": claimed, "free": free, "tight": tight, "last weights": last,
        "point": mechanism.least(*((k + 0.5) / (times + 1) for k in wrong[0])),
        "above its claim": max(free, tight, last) > claimed,
    }  # fmt: skip


def attack_of(setting: Setting, noise: float, folder: Path) -> Callable[..., tuple[float, float]]:
    """The attack on one training, with the record and without it."""
    if setting.path is not None:
        return partial(attacked_with_masks, setting, noise)
    adversary = Adversary(setting, noise, new_model(WORDS, SHAPE, seed=0))
    if setting.command:
        return partial(attacked_command, _write_worlds(folder), adversary, setting, noise)
    return partial(attacked, setting, adversary, noise)


def _write_worlds(folder: Path) -> Path:
    """A model to begin with, and the text with the record and without it."""
    save_model(new_model(WORDS, SHAPE, seed=0), folder / "public")
    texts = list(made(UNITS, 1))
    for member in (True, False):
        (folder / f"{member}.txt").write_text("\n".join(texts[: len(texts) - (not member)]) + "\n")
    return folder


def chosen(run: Run, *, broken: bool, by_command: bool = False) -> list[Setting]:
    """Settings of a part."""
    found = [s for s in settings() if s.broken is broken and s.command is by_command]
    return [s for s in found if run.options.only in s.name][: run.size(None, 2)]


def sound(run: Run) -> list[Row]:
    """Trainings whose bounds should be at or below their claims."""
    return of_settings(run, chosen(run, broken=False), run.times(200, 4))


def broken(run: Run) -> list[Row]:
    """Trainings that are broken on purpose."""
    return of_settings(run, chosen(run, broken=True), run.times(200, 4))


def by_command(run: Run) -> list[Row]:
    """`vestige train`, where the record is in the file or is not."""
    return of_settings(run, chosen(run, broken=False, by_command=True), run.times(25, 1))


def options(parser: Any) -> None:
    """Claims and settings."""
    parser.add_argument("--epsilons", type=float, nargs="+", help="claims")
    parser.add_argument("--only", default="", help="settings whose names hold this")


PARTS = {"sound": sound, "broken": broken, "command": by_command}

if __name__ == "__main__":
    main("dp_attack", __doc__, PARTS, options)
