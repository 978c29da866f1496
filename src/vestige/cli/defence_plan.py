"""From the options of `vestige train` to a defence, and to what a private one will have spent."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Literal

from vestige.cli.terminal import progress

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.defences.accounting import Accountant, PrivacySpent
    from vestige.defences.privacy_statement import PrivacyStatement
    from vestige.defences.registry import Defence
    from vestige.training.config import TrainingConfig
    from vestige.training.history import TrainingHistory

PRIVATE = ("dp-sgd", "dp-fedavg")
OWN = {
    "epsilon": PRIVATE,
    "delta": PRIVATE,
    "noise_multiplier": PRIVATE,
    "clip": PRIVATE,
    "unit": ("dp-sgd",),
    "accountant": PRIVATE,
    "physical_batch_size": ("dp-sgd",),
    "local_epochs": ("dp-fedavg",),
    "local_batch_size": ("dp-fedavg",),
    "local_learning_rate": ("dp-fedavg",),
    "noise_seed_without_guarantee": PRIVATE,
    "accept_private_vocabulary": PRIVATE,
    "weight": ("adversarial", "triplet"),
    "pairing": ("triplet",),
    "goldfish_k": ("goldfish",),
}
"""The defences that each option is for: given with another it would do nothing."""

_SIZES = ("physical_batch_size", "local_epochs", "local_batch_size", "local_learning_rate")
ADAM_RATE = 1e-3
SERVER_RATE = 1.0
HARDLY = 0.1  # of all gradients, or updates


@dataclass(frozen=True, kw_only=True)
class AskedDefence:
    """What was asked for; None where it is left open. See `defence_options`."""

    name: Any
    epsilon: float | None
    delta: float | None
    noise_multiplier: float | None
    clip: float | None
    unit: Any
    accountant: Any
    physical_batch_size: int | None
    local_epochs: int | None
    local_batch_size: int | None
    local_learning_rate: float | None
    weight: float | None
    pairing: Any
    goldfish_k: int | None
    noise_seed_without_guarantee: int | None = None
    accept_private_vocabulary: Literal[True] | None = None

    @property
    def private(self) -> bool:
        """Whether it comes with a guarantee."""
        return self.name in PRIVATE

    @property
    def void(self) -> tuple[str, ...]:
        """What voids the guarantee, in words."""
        if self.noise_seed_without_guarantee is None:
            return ()
        return (
            f"noise and lots come from a seed (--noise-seed-without-guarantee "
            f"{self.noise_seed_without_guarantee}), and whoever knows or tries it subtracts them",
        )

    def chance(self) -> dict[str, Any]:
        """Where noise and lots come from, as `train` takes it; by default nobody knows."""
        if self.noise_seed_without_guarantee is None:
            return {}
        from vestige.training.secret import Secret

        return {"secret": Secret.of_seed(self.noise_seed_without_guarantee)}

    def check(self) -> None:
        """Refuse options that do not go together, before anything is read.

        Raises:
            ValueError: naming the options.
        """
        for name, defences in OWN.items():
            if getattr(self, name) is not None and self.name not in defences:
                option, wanted = f"--{name.replace('_', '-')}", " or ".join(defences)
                raise ValueError(f"{option} must come with --defence {wanted}, got {self.name}")
        if self.name in PRIVATE and (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                f"--defence {self.name} must come with one of --epsilon and --noise-multiplier, "
                "got " + ("neither" if self.epsilon is None else "both")
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        from vestige.defences.accounting import check_accountant, check_delta

        if self.delta is not None:
            with _of_option("delta"):
                check_delta(self.delta)
        if self.accountant is not None:
            with _of_option("accountant"):
                check_accountant(self.accountant)
        for option in ("epsilon", "clip", "local_learning_rate"):
            value = getattr(self, option)
            if value is not None and not 0 < value < math.inf:
                shown = option.replace("_", "-")
                raise ValueError(f"--{shown} must be positive and finite, got {value}")
        for option in ("noise_multiplier", "weight"):
            value = getattr(self, option)
            if value is not None and not 0 <= value < math.inf:
                shown = option.replace("_", "-")
                raise ValueError(f"--{shown} must be at least 0 and finite, got {value}")

    def suited(
        self, config: "TrainingConfig", batching: Any, given: Mapping[str, Any]
    ) -> "TrainingConfig":
        """The configuration with batches that the defence can work with, and a fit optimizer.

        Args:
            config: as preset and options have it.
            batching: the option; None leaves it to the defence.
            given: settings of the training by name that were asked for, None where one was not.
        """
        if batching == "stream" and self.name != "none":
            raise ValueError(
                f"--batching stream must not come with --defence {self.name}, which reads "
                "documents one by one"
            )
        if batching is not None:
            config = replace(config, batching=batching)
        elif self.name == "dp-sgd" and self.unit == "user":
            config = replace(config, batching="poisson-users")
        suited = self._defence(noise=1.0).suited(config)
        if self.name == "dp-fedavg":
            return _averaging(suited, given)
        if self.name != "dp-sgd":
            return suited
        drawn, unit = "user" if suited.batching == "poisson-users" else "sequence", self.unit
        if drawn != (unit or "sequence"):
            raise ValueError(
                f"--unit {unit or 'sequence'} must not come with --batching {suited.batching}, "
                f"whose lots are drawn for a {drawn}"
            )
        return _noise_tolerant(suited, given)

    def defence(self, data: "EncodedCorpus", config: "TrainingConfig") -> "PlannedDefence":
        """The defence, with the noise that keeps within --epsilon over all epochs.

        Raises:
            VestigeError: no noise does, or the data has too few sequences or users.
        """
        if self.name not in PRIVATE:
            return PlannedDefence(self._defence(noise=None))
        from vestige.defences.accounting import check_delta, noise_for
        from vestige.training.sequences import SequenceBatches, Sequences

        sequences = Sequences.of(data, length=config.sequence_length)
        draw: Any = config.batching
        lots = SequenceBatches(sequences, config.batch_size, draw, 0, _cpu())
        delta = self.delta or 10.0 ** -math.ceil(math.log10(10 * lots.units))
        with _of_option("delta"):
            check_delta(delta, lots.units)
        accountant: Accountant = self.accountant or "prv"
        noise, steps = self.noise_multiplier, config.epochs * len(lots)
        if noise is None:
            assert self.epsilon is not None
            with progress("looking for the noise that keeps within epsilon") as bar:
                noise = noise_for(
                    epsilon=self.epsilon,
                    delta=delta,
                    sample_rate=lots.sample_rate,
                    steps=steps,
                    accountant=accountant,
                    progress=lambda tried: bar(tried),
                )
        budget = Budget(lots.sample_rate, delta, lots.unit, accountant)
        return PlannedDefence(self._defence(noise=noise), budget, steps, lots.units)

    def _defence(self, *, noise: float | None) -> "Defence":
        from vestige.defences.registry import NoDefence, defences

        if self.name == NoDefence.name:
            return NoDefence()
        cls = defences()[self.name]
        asked: dict[str, Any] = {
            "noise_multiplier": noise,
            "max_grad_norm": self.clip,
            "k": self.goldfish_k,
            **{name: getattr(self, name) for name in ("unit", "weight", "pairing", *_SIZES)},
        }
        known = {one.name for one in fields(cls)}  # type: ignore[arg-type]
        return cls(**{n: v for n, v in asked.items() if n in known and v is not None})


@dataclass(frozen=True)
class Budget:
    """What epsilon follows from, apart from the noise and the steps."""

    sample_rate: float
    delta: float
    unit: Any
    accountant: Any


@dataclass(frozen=True)
class PlannedDefence:
    """A defence, and how its budget is counted where it has one: over how many steps, of what
    sequences or users."""

    defence: "Defence"
    budget: Budget | None = None
    steps: int = 0
    units: int = 0

    def spent(self, steps: int) -> "PrivacySpent | None":
        """After so many steps, whatever interruptions lay between them."""
        return None if self.budget is None else _spent(self.defence, self.budget, steps)


@dataclass(frozen=True)
class DefendedTraining:
    """A finished training as a run directory holds it: history, defence, what it promises, and
    what word frequencies alone would reach."""

    history: "TrainingHistory"
    defence: str
    statement: "PrivacyStatement | None" = None
    frequencies: Mapping[str, object] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """The kept record, the cost, the defence, and what it promises."""
        return {
            **self.history.summary(),
            **self.frequencies,
            "defence": self.defence,
            **({} if self.statement is None else self.statement.summary()),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row an evaluation."""
        return self.history.rows()


@lru_cache(maxsize=8)  # it takes a second, and is asked before, after and for the record
def _spent(defence: "Defence", budget: Budget, steps: int) -> "PrivacySpent":
    from vestige.defences.accounting import privacy_spent
    from vestige.defences.private import PrivateDefence

    assert isinstance(defence, PrivateDefence)
    return privacy_spent(
        noise_multiplier=defence.noise,
        max_grad_norm=defence.max_grad_norm,
        steps=steps,
        **asdict(budget),
    )


def _noise_tolerant(config: "TrainingConfig", given: Mapping[str, Any]) -> "TrainingConfig":
    """Adam in place of a preset's sgd, whose long steps would carry more noise than text."""
    if config.optimizer == "adam" or given.get("optimizer") is not None:
        return config
    return replace(config, optimizer="adam", learning_rate=given["learning_rate"] or ADAM_RATE)


def _averaging(config: "TrainingConfig", given: Mapping[str, Any]) -> "TrainingConfig":
    """The server of DP-FedAvg, which moves by the users' average unless Adam is asked for."""
    if given.get("optimizer") == "adam":
        return config
    rate = given.get("learning_rate") or SERVER_RATE
    return replace(config, optimizer="sgd", learning_rate=rate, schedule="constant", warmup_steps=0)


def clip_advice(log: Path) -> str | None:
    """What to change where hardly anything was clipped, so that noise was added for nothing."""
    from vestige.training.checkpoint import log_lines

    lines = [entry for _, entry in log_lines(log)]
    known = [line for line in lines if line.get("clipped") is not None]
    if not known or fmean(line["clipped"] for line in known) > HARDLY:
        return None
    norm = median(line["median_norm"] for line in known)
    return (
        f"Hardly anything was clipped: --clip {norm:.1g}, near the median norm, would take as much "
        "privacy for less noise"
    )


@contextmanager
def _of_option(name: str) -> Iterator[None]:
    """What a function says of its argument, said of the option that gave it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"--{error}" if str(error).startswith(name) else str(error)) from error


def _cpu() -> Any:
    import torch

    return torch.device("cpu")
