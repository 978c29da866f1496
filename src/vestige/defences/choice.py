"""Which defence, with which settings: a description that can be stored, and the step it becomes."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.defences.triplet import Pairing
from vestige.errors import TrainingError
from vestige.models.lstm import LSTMLanguageModel
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.training.config import Batching, TrainingConfig
from vestige.training.loop import batches_of
from vestige.training.precision import choose_precision
from vestige.training.sequences import SequenceBatches
from vestige.training.steps import StepFn

Name = Literal["none", "dp-sgd", "dp-fedavg", "adversarial", "triplet", "goldfish"]

PRIVATE = ("dp-sgd", "dp-fedavg")
"""Those that come with a proof, and need noise for it."""

WEIGHTS = {"adversarial": 1.0, "triplet": 0.1}
"""Lambda where none is given. A triplet weight near 1 collapses the hidden states."""


@dataclass(frozen=True, kw_only=True)
class Defence:
    """A defence by name.

    Attributes:
        name: "none" is an undefended training.
        weight: lambda of the regularizers; None: the usual one.
        pairing: of the triplet defence.
        noise_multiplier: of DP-SGD and DP-FedAvg.
        max_grad_norm: what a unit's gradient (DP-SGD) or update (DP-FedAvg) is clipped to.
        physical_batch_size: of DP-SGD: rows computed at once.
        k: of the goldfish loss: one token in k is left out.
        context: of the goldfish loss: tokens that are hashed.
        local_epochs: of DP-FedAvg: how often a drawn user reads their text in a round.
        local_batch_size: of DP-FedAvg: sequences in a local step.
        local_learning_rate: of DP-FedAvg: of local steps.

    Raises:
        ValueError: a value is out of range, or a private training has no noise multiplier.
    """

    name: Name = "none"
    weight: float | None = None
    pairing: Pairing = "auxiliary"
    noise_multiplier: float | None = None
    max_grad_norm: float = 1.0
    physical_batch_size: int | None = None
    k: int = 4
    context: int = 13
    local_epochs: int = 1
    local_batch_size: int = 8
    local_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        _validate.one_of(get_args(Name), name=self.name)
        _validate.one_of(get_args(Pairing), pairing=self.pairing)
        if self.weight is not None:
            _validate.at_least(0, weight=self.weight)
            _validate.finite(weight=self.weight)
        if self.name in PRIVATE and self.noise_multiplier is None:
            raise ValueError(f"noise_multiplier must be given for {self.name}, got None")

    def suited(self, config: TrainingConfig) -> TrainingConfig:
        """The training with batches that this defence can work with.

        A stream has neither users nor sequences: the regularizers then read a user at a time,
        as the paper advises, DP-SGD draws lots for sequences, and DP-FedAvg for users.
        """
        usual: dict[str, Batching] = {
            "dp-sgd": "poisson",
            "dp-fedavg": "poisson-users",
            "adversarial": "users",
            "triplet": "users",
        }
        if self.name == "triplet" and self.pairing == "in-batch":
            usual["triplet"] = "documents"  # within a batch of one user all pairs are of one
        if self.name in usual and config.batching == "stream":
            config = replace(config, batching=usual[self.name])
        if self.name == "goldfish" and config.batching == "stream":
            config = replace(config, batching="documents")
        self._require_lots(config)
        return config

    def step(
        self, model: LanguageModel, data: EncodedCorpus, config: TrainingConfig
    ) -> StepFn | None:
        """The step of this defence for a model and its data; None for an undefended training.

        Raises:
            ValueError: a private defence is given batches that are not drawn by lot.
            TrainingError: the data has no users, or one only, and the defence needs them.
        """
        if self.name in PRIVATE:
            self._require_lots(config)
        precision = choose_precision(config.precision, model.device)
        if self.name == "none":
            return None
        if self.name == "goldfish":
            from vestige.defences.goldfish import Goldfish

            return Goldfish(
                k=self.k,
                context=self.context,
                seed=config.seed,
                max_grad_norm=config.max_grad_norm,
                precision=precision,
            )
        if self.name == "dp-sgd":
            return self._dp_sgd(config)
        if self.name == "dp-fedavg":
            return self._dp_fedavg(config, precision)
        _require_users(data, self.name)
        weight = WEIGHTS[self.name] if self.weight is None else self.weight
        if self.name == "adversarial":
            from vestige.defences.adversarial import Adversarial

            return Adversarial(
                weight=weight,
                width=_width(model),
                users=len(data.names),
                seed=config.seed,
                max_grad_norm=config.max_grad_norm,
                precision=precision,
                device=model.device,
            )
        from vestige.defences.triplet import Triplet

        batches = batches_of(data, model, config)
        own = batches if isinstance(batches, SequenceBatches) else None
        return Triplet(
            weight=weight,
            auxiliary=own if self.pairing == "auxiliary" else None,
            max_grad_norm=config.max_grad_norm,
            precision=precision,
        )

    def _require_lots(self, config: TrainingConfig) -> None:
        """Privacy is amplified by lots, and by nothing else."""
        if self.name == "dp-sgd" and "poisson" not in config.batching:
            raise ValueError(
                "batching must be poisson or poisson-users with dp-sgd, whose guarantee counts on "
                f"lots, got {config.batching!r}"
            )
        if self.name == "dp-fedavg" and config.batching != "poisson-users":
            raise ValueError(
                "batching must be poisson-users with dp-fedavg, which draws lots for users, got "
                f"{config.batching!r}"
            )

    def _dp_sgd(self, config: TrainingConfig) -> StepFn:
        from vestige.defences.dp_sgd import DPSGD

        assert self.noise_multiplier is not None
        return DPSGD(
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_units=config.batch_size,
            sequence_length=config.sequence_length,
            unit="user" if config.batching == "poisson-users" else "sequence",
            physical_batch_size=self.physical_batch_size,
        )

    def _dp_fedavg(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        from vestige.defences.dp_fedavg import DPFedAvg

        assert self.noise_multiplier is not None
        return DPFedAvg(
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_units=config.batch_size,
            local_epochs=self.local_epochs,
            local_batch_size=self.local_batch_size,
            local_learning_rate=self.local_learning_rate,
            precision=precision,
        )


def _require_users(data: EncodedCorpus, name: str) -> None:
    if data.users is None:
        raise TrainingError(
            f"The {name} defence needs to know whose each document is",
            remedy="Name the column that holds the users when the corpus is read (--user).",
        )
    if len(data.names) < 2:
        raise TrainingError(
            f"The {name} defence hides users among one another, and the data has one only",
            remedy="Give the text of several users, or take dp-sgd or goldfish.",
        )


def _width(model: LanguageModel) -> int:
    """Of the model's last hidden state."""
    if isinstance(model, LSTMLanguageModel):
        return model.config.hidden_size
    if isinstance(model, TwoParts):
        first = torch.tensor([[model.first_token]], device=model.device)
        with torch.no_grad():
            return int(model.body(first)[0].shape[2])
    raise TrainingError(
        "The model does not show what its head reads, which this defence needs",
        remedy="Take dp-sgd or goldfish.",
    )
