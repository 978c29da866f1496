"""DP-FedAvg: user-level differential privacy from clipped, noised updates of users.

McMahan, Ramage, Talwar and Zhang (2018), "Learning Differentially Private Recurrent Language
Models", Algorithm 1 (DP-FedAvg), with the estimator of the fixed denominator. In a round every user
is sampled with probability q. Each sampled user trains a copy of the weights on their own text;
what they changed is clipped to norm S as a whole, and the round's average is

    (sum over sampled users of  update * min(1, S / ||update||_2)  +  noise) / (q * users)

where the noise has standard deviation z S. One user more or less moves the sum by S at most, so
that a round is a Poisson-subsampled Gaussian mechanism (`accounting`) and a step of the loop.

Differs from the paper: every user counts alike, where the paper can weigh them by their text
(w_k = min(n_k / w, 1)); updates are clipped once, after the local training, where the paper also
projects them back after every local step; a user's text is not cut to a number of tokens; the
whole update is clipped together, never layer by layer.
"""

from typing import Any

import torch
from torch import Tensor

from vestige import _validate
from vestige.models.protocols import LanguageModel
from vestige.privacy.dp_sgd import NoisyStep, coefficients, numbered, users_of
from vestige.privacy.taps import trainable
from vestige.training.batches import Batch
from vestige.training.steps import autocast, descend, read


class DPFedAvgStep(NoisyStep):
    """A StepFn; give it `TrainingConfig(batching="poisson-users")`: a step is a round.

    The gradient it leaves is minus the round's average update, so that SGD of rate 1 is the
    paper's server, and momentum or Adam are others; both only see what is noised.

    Args, besides those of `NoisyStep` (the paper's z, S and q times all users):
        local_epochs: how often a sampled user reads their own text in a round.
        local_batch_size: sequences in one local step.
        local_learning_rate: of the local steps, which are plain SGD on the mean over tokens.
        precision: of the local forward passes.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        expected_units: int,
        local_epochs: int = 1,
        local_batch_size: int = 8,
        local_learning_rate: float = 1.0,
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(noise_multiplier, max_grad_norm, expected_units)
        _validate.positive(local_learning_rate=local_learning_rate)
        _validate.finite(local_learning_rate=local_learning_rate)
        _validate.at_least(1, local_epochs=local_epochs, local_batch_size=local_batch_size)
        self.local_epochs, self.local_batch_size = local_epochs, local_batch_size
        self.local_learning_rate, self.precision = local_learning_rate, precision

    @property
    def settings(self) -> dict[str, object]:
        """Settings of the step."""
        return {
            **self.mechanism,
            "local_epochs": self.local_epochs,
            "local_batch_size": self.local_batch_size,
            "local_learning_rate": self.local_learning_rate,
        }

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put minus the noised average update into `.grad`; a round may sample nobody.

        Returns:
            the mean loss of the first local epochs, in nats, taken while users train; no state.

        Raises:
            FloatingPointError: a user's update is not finite, and cannot be clipped.
            ValueError: a state is carried on, or the batch does not say whose its rows are.
        """
        self.begin(model, state)
        learning = trainable(model)
        total = [parameter.grad for parameter in learning]
        start = [parameter.detach().clone() for parameter in learning]
        optimizer = torch.optim.SGD(learning, lr=self.local_learning_rate, fused=True)
        loss = torch.zeros((), device=batch.inputs.device)
        norms = [torch.empty(0, device=batch.inputs.device)]
        randomness, users, batch = (
            self.randomness(batch.inputs.device),
            users_of(batch),
            numbered(batch),
        )
        for user in torch.unique(users):
            own = batch.select((users == user).nonzero().flatten())
            assert own.numbers is not None
            with randomness.alone(int(own.numbers[0])):
                loss += self._learn(model, own, optimizer)
            norms.append(self._move(learning, start, total))
        self.end(torch.cat(norms))
        for parameter, summed in zip(learning, total, strict=True):
            parameter.grad = summed
        return loss / max(batch.tokens, 1), None

    def _learn(self, model: LanguageModel, own: Batch, optimizer: torch.optim.SGD) -> Tensor:
        """Train on one user's text; the summed loss of their first epoch."""
        loss, rows = torch.zeros((), device=own.inputs.device), len(own.inputs)
        for epoch in range(self.local_epochs):
            order = torch.randperm(rows).to(own.inputs.device)
            for chosen in torch.split(order, self.local_batch_size):
                part = own.select(chosen)
                with autocast(self.precision, own.inputs.device):
                    mean = read(model, part).loss
                descend(model, mean, None)
                optimizer.step()
                if epoch == 0:
                    loss += mean.detach() * part.tokens
        return loss

    @torch.no_grad()
    def _move(self, learning: list[Any], start: list[Tensor], total: list[Tensor]) -> Tensor:
        """Take a user's clipped update off the sum and bring the weights back to the start.

        Returns:
            (1,) the update's norm before clipping.
        """
        for parameter, before in zip(learning, start, strict=True):
            parameter.sub_(before)  # the difference is formed in the weights' own memory
        norm = torch.nn.utils.get_total_norm(learning)
        scale = coefficients(norm, self.max_grad_norm).item() / self.expected_units
        for parameter, before, summed in zip(learning, start, total, strict=True):
            summed.sub_(parameter, alpha=scale)
            parameter.copy_(before)
        return norm[None]
