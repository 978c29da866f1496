"""DP-FedAvg: user-level differential privacy from clipped, noised updates of users.

McMahan, Ramage, Talwar and Zhang (2018), "Learning Differentially Private Recurrent Language
Models", Algorithm 1 (DP-FedAvg), with the estimator of the fixed denominator. In a round every user
is sampled with probability q. Each sampled user trains a copy of the weights on their own text. The
change of all weights together is clipped to norm S, and the average of the round is

    (sum over sampled users of  update * min(1, S / ||update||_2)  +  noise) / (q * users)

The standard deviation of the noise is z S. One user more or less moves the sum by at most S, so a
round is a Poisson-subsampled Gaussian mechanism (`accounting`) and a step of the loop.

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
    """DP-FedAvg step for batches of `TrainingConfig(batching="poisson-users")`: a step is a round.

    Its gradient is minus the noised average update of the round. SGD with rate 1 is the server of
    the paper; momentum and Adam are alternatives.

    Args, besides those of `NoisyStep` (the paper's z, S and q times all users):
        local_epochs: passes of a sampled user over their own text in a round.
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
        """Put minus the noised average update into `.grad`. A round may have no user.

        Returns:
            the mean loss of the first local epochs, in nats, measured while users train; no state.

        Raises:
            FloatingPointError: a user's update is not finite, and cannot be clipped.
            ValueError: there is a state, or the batch has no users.
        """
        self.begin(model, state)
        parameters = trainable(model)
        sums = [parameter.grad for parameter in parameters]
        starting_weights = [parameter.detach().clone() for parameter in parameters]
        optimizer = torch.optim.SGD(parameters, lr=self.local_learning_rate, fused=True)
        loss = torch.zeros((), device=batch.inputs.device)
        norms = [torch.empty(0, device=batch.inputs.device)]
        randomness, users, batch = (
            self.randomness(batch.inputs.device),
            users_of(batch),
            numbered(batch),
        )
        for user in torch.unique(users):
            user_batch = batch.select((users == user).nonzero().flatten())
            assert user_batch.numbers is not None
            with randomness.for_unit(int(user_batch.numbers[0])):
                loss += self._learn(model, user_batch, optimizer)
            norms.append(self._move(parameters, starting_weights, sums))
        self.end(torch.cat(norms))
        for parameter, summed in zip(parameters, sums, strict=True):
            parameter.grad = summed
        return loss / max(batch.tokens, 1), None

    def _learn(self, model: LanguageModel, user_batch: Batch, optimizer: torch.optim.SGD) -> Tensor:
        """Train on one user's text; the summed loss of their first epoch."""
        loss, rows = torch.zeros((), device=user_batch.inputs.device), len(user_batch.inputs)
        for epoch in range(self.local_epochs):
            order = torch.randperm(rows).to(user_batch.inputs.device)
            for chosen in torch.split(order, self.local_batch_size):
                part = user_batch.select(chosen)
                with autocast(self.precision, user_batch.inputs.device):
                    mean = read(model, part).loss
                descend(model, mean, None)
                optimizer.step()
                if epoch == 0:
                    loss += mean.detach() * part.tokens
        return loss

    @torch.no_grad()
    def _move(
        self, parameters: list[Any], starting_weights: list[Tensor], sums: list[Tensor]
    ) -> Tensor:
        """Subtract a user's clipped update from the sum and restore the weights.

        Returns:
            (1,) the update's norm before clipping.
        """
        for parameter, start in zip(parameters, starting_weights, strict=True):
            parameter.sub_(start)  # the update, in the memory of the weights
        norm = torch.nn.utils.get_total_norm(parameters)
        scale = coefficients(norm, self.max_grad_norm).item() / self.expected_units
        for parameter, start, summed in zip(parameters, starting_weights, sums, strict=True):
            summed.sub_(parameter, alpha=scale)
            parameter.copy_(start)
        return norm[None]
