"""Adversarial privacy regularizer: training against a discriminator of authors.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in Language
Models", section 2.1. With h the last hidden state of a sequence and D two fully connected layers:

    the discriminator minimises  -log Pr(author | h; D)
    the model minimises          cross-entropy + weight * KL(uniform || Pr(. | h; D))  (eq. 1, 2)

in turns, one step each on every batch.

Differs from the paper: equation 2 without its constant, so that the term is 0 where authors cannot
be identified; the paper states neither the discriminator's nonlinearity nor its optimizer: ReLU and
Adam.
A low accuracy of this discriminator proves nothing by itself: see `author_probe`.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from vestige import _validate
from vestige.defences.user_hidden_states import RunningMeans, read_linkable, users_of
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch
from vestige.training.checkpoint import load_optimizer, under
from vestige.training.precision import autocast
from vestige.training.steps import descend, detached, no_step

HIDDEN = 1000


class Discriminator(nn.Module):
    """Author of a sequence from the last hidden state: h -> 1000 -> users.

    Args:
        width: h.
        users: how many there are.
        seed: of the weights.
        hidden: units of the layer between.
    """

    def __init__(self, width: int, users: int, *, seed: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, users)

    def forward(self, states: Tensor) -> Tensor:
        """(n, h) -> (n, users) logits."""
        logits: Tensor = self.second(torch.relu(self.first(states)))
        return logits

    def judge(self, states: Tensor) -> Tensor:
        """Forward pass with the discriminator's weights detached."""
        one, two = self.first, self.second
        inner = torch.relu(linear(states, one.weight.detach(), one.bias.detach()))
        return linear(inner, two.weight.detach(), two.bias.detach())


class AdversarialStep:
    """A StepFn that hides the author from a discriminator which it trains along.

    Args:
        weight: lambda of equation 1, at least 0.
        width: of the model's last hidden state.
        users: authors, numbered as `EncodedCorpus.users` does; at least 2.
        seed: of the discriminator's weights.
        learning_rate: of the discriminator.
        max_grad_norm: the norm that the model's gradient is cut to; None leaves it.
        precision: of the model's forward pass.
        device: where the model is.

    Raises:
        ValueError: a value is out of range.
    """

    identity: ClassVar[str] = "Adversarial"

    def __init__(
        self,
        *,
        weight: float,
        width: int,
        users: int,
        seed: int,
        learning_rate: float = 1e-3,
        max_grad_norm: float | None = None,
        precision: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        _validate.at_least(0, weight=weight)
        _validate.at_least(1, width=width)
        _validate.at_least(2, users=users)
        _validate.positive(learning_rate=learning_rate)
        self.weight, self.users, self.max_grad_norm = weight, users, max_grad_norm
        self.precision, self.learning_rate, self.seed = precision, learning_rate, seed
        self.discriminator = Discriminator(width, users, seed=seed).to(device)
        self._optimizer = torch.optim.Adam(
            self.discriminator.parameters(), lr=learning_rate, fused=True
        )
        self._means = RunningMeans()

    @property
    def settings(self) -> dict[str, object]:
        """What the step depends on."""
        return {
            "weight": self.weight,
            "users": self.users,
            "learning_rate": self.learning_rate,
            "seed": self.seed,
        }

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """One step of the discriminator; the model's gradient for its own."""
        users_of(batch)
        if not batch.tokens:
            return no_step(model, batch)
        with autocast(self.precision, batch.inputs.device):
            found = read_linkable(model, batch, state)
        self._improve(found.last.detach(), found.users)
        divergence = kl_from_uniform(self.discriminator.judge(found.last))
        descend(model, found.reading.loss + self.weight * divergence, self.max_grad_norm)
        self._means.add(kl_from_uniform=divergence.detach())
        return found.reading.loss.detach(), detached(found.reading.state)

    def _improve(self, states: Tensor, users: Tensor) -> None:
        logits = self.discriminator(states)
        self._optimizer.zero_grad()
        cross_entropy(logits, users).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        accuracy = (logits.detach().argmax(1) == users).float().mean()
        self._means.add(discriminator_accuracy=accuracy)

    def measured(self) -> dict[str, float]:
        """The discriminator's accuracy on batches that it had not seen, and the KL term."""
        return self._means.take()

    def tensors(self) -> dict[str, Tensor]:
        """The discriminator and its optimizer."""
        found = {f"weights.{name}": t for name, t in self.discriminator.state_dict().items()}
        for index, moments in self._optimizer.state_dict()["state"].items():
            found |= {f"moments.{index}.{name}": tensor for name, tensor in moments.items()}
        return found

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` gave."""
        self.discriminator.load_state_dict(under("weights", kept))
        load_optimizer(self._optimizer, under("moments", kept))


def kl_from_uniform(logits: Tensor) -> Tensor:
    r"""Mean KL(uniform || p) in nats of (n, users) logits; 0 where authors cannot be identified.

    .. math:: -\frac{1}{M}\sum_{c=1}^{M}\log p_c - \log M
    """
    return -torch.log_softmax(logits, 1).mean() - math.log(logits.shape[1])
