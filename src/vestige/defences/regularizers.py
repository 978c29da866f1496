"""Privacy regularizers: training that hides the author of a text.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in Language
Models". h is the last hidden state of a sequence. Section 2.1, with a discriminator D of two fully
connected layers:

    the discriminator minimises  -log Pr(author | h; D)
    the model minimises          cross-entropy + weight * KL(uniform || Pr(. | h; D))  (eq. 1, 2)

in turn, one step each per batch. Section 2.2, equation 4, for the last hidden states of a batch and
of an auxiliary batch, paired row by row:

    cross-entropy + weight * (sum over pairs of two users ||h_x - h_a|| - sum over other pairs)

In-batch pairs are our variant: each row is paired with another row of its batch, without a second
forward pass. An auxiliary batch is read in one pass with the batch.

Differs from the paper: equation 2 without its constant, so the term is 0 if authors cannot be
identified. The paper does not state the nonlinearity and optimizer of the discriminator: we use
ReLU and Adam. Equation 4 is a mean over pairs instead of a sum, so the weight does not depend on
the batch size. It has no lower bound; a weight near 1 collapses the hidden states. A low accuracy
of the discriminator proves nothing by itself: see `reproduction.regularization.author_probe`.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, pad, pairwise_distance

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.models.recurrent_network import LSTMLanguageModel
from vestige.training.batches import Batch
from vestige.training.checkpoint import load_optimizer, under
from vestige.training.sequences import SequenceBatches
from vestige.training.steps import (
    Reading,
    autocast,
    descend,
    detached,
    last_hidden,
    no_step,
    read,
    read_hidden,
)

HIDDEN = 1000

Pairing = Literal["auxiliary", "in-batch"]


class RegularizedStep:
    """Step that adds a term of hidden states and users to the loss.

    Args:
        weight: lambda of equation 1, at least 0.
        max_grad_norm: maximum norm of the gradient; None: no clipping.
        precision: of the model's forward pass.
    """

    def __init__(self, weight: float, max_grad_norm: float | None, precision: torch.dtype) -> None:
        self.weight, self.max_grad_norm, self.precision = weight, max_grad_norm, precision
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the gradient of both terms into `.grad`."""
        users_of(batch)
        if not batch.tokens:
            return no_step(model, batch)
        reading, term = self._read(model, batch, state)
        descend(model, reading.loss + self.weight * term, self.max_grad_norm)
        return reading.loss.detach(), detached(reading.state)

    @abstractmethod
    def _read(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Reading, Tensor]:
        """The loss and the term, in the graph."""

    def _note(self, **values: Tensor) -> None:
        """Accumulate scalars on their device, to read them only for the log."""
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def measured(self) -> dict[str, float]:
        """Means since the last call, for the log."""
        means = {name: total.item() / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


class Discriminator(nn.Module):
    """Predicts the author of a sequence from its last hidden state: width -> hidden -> users."""

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
        first, second = self.first, self.second
        hidden = torch.relu(linear(states, first.weight.detach(), first.bias.detach()))
        return linear(hidden, second.weight.detach(), second.bias.detach())


class AdversarialStep(RegularizedStep):
    """Step that hides the author from a discriminator, which it trains as well.

    The log has the KL term, and the accuracy of the discriminator on new batches.

    Args, besides those of `RegularizedStep`:
        width: of the model's last hidden state.
        users: authors, numbered as `EncodedCorpus.users` does; at least 2.
        seed: of the discriminator's weights.
        learning_rate: of the discriminator.
        device: where the model is.
    """

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
        super().__init__(weight, max_grad_norm, precision)
        self.users, self.learning_rate, self.seed = users, learning_rate, seed
        self.discriminator = Discriminator(width, users, seed=seed).to(device)
        self._optimizer = torch.optim.Adam(
            self.discriminator.parameters(), lr=learning_rate, fused=True
        )

    @property
    def settings(self) -> dict[str, object]:
        """Settings that affect the result."""
        names = ("weight", "users", "learning_rate", "seed")
        return {name: getattr(self, name) for name in names}

    def _read(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Reading, Tensor]:
        """Train the discriminator for one step, and compute the term."""
        with autocast(self.precision, batch.inputs.device):
            reading, last = read_linkable(model, batch, state)
        users = users_of(batch)
        logits = self.discriminator(last.detach())
        self._optimizer.zero_grad()
        cross_entropy(logits, users).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        accuracy = (logits.detach().argmax(1) == users).float().mean()
        divergence = kl_from_uniform(self.discriminator.judge(last))
        self._note(discriminator_accuracy=accuracy, kl_from_uniform=divergence.detach())
        return reading, divergence

    def tensors(self) -> dict[str, Tensor]:
        """The discriminator and its optimizer."""
        state = {f"weights.{name}": t for name, t in self.discriminator.state_dict().items()}
        for index, moments in self._optimizer.state_dict()["state"].items():
            state |= {f"moments.{index}.{name}": tensor for name, tensor in moments.items()}
        return state

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` gave."""
        self.discriminator.load_state_dict(under("weights", saved))
        load_optimizer(self._optimizer, under("moments", saved))


def kl_from_uniform(logits: Tensor) -> Tensor:
    r"""Mean KL(uniform || p) in nats of (n, users) logits; 0 where authors cannot be identified.

    .. math:: -\frac{1}{M}\sum_{c=1}^{M}\log p_c - \log M
    """
    return -torch.log_softmax(logits, 1).mean() - math.log(logits.shape[1])


class TripletStep(RegularizedStep):
    """Step that moves hidden states of different users together.

    The log has the term, and the standard deviation of hidden states: near 0 they collapsed.

    Args, besides those of `RegularizedStep`:
        auxiliary: source of auxiliary batches; None: pairs within the batch.
    """

    def __init__(
        self,
        *,
        weight: float,
        auxiliary: SequenceBatches | None = None,
        max_grad_norm: float | None = None,
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(weight, max_grad_norm, precision)
        self.auxiliary = auxiliary

    @property
    def settings(self) -> dict[str, object]:
        """Settings that affect the result."""
        pairing: Pairing = "in-batch" if self.auxiliary is None else "auxiliary"
        return {"weight": self.weight, "pairing": pairing}

    def _read(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Reading, Tensor]:
        with autocast(self.precision, batch.inputs.device):
            reading, last, others, other_users = self._pairs(model, batch, state)
        rows = len(other_users)
        term = triplet_loss(last[:rows], others.float(), users_of(batch)[:rows] == other_users)
        self._note(triplet_loss=term.detach(), hidden_spread=last.detach().std())
        return reading, term

    def _pairs(
        self, model: LanguageModel, batch: Batch, state: Any
    ) -> tuple[Reading, Tensor, Tensor, Tensor]:
        """The batch, its last states, and the states (k, h) and users (k,) paired with its rows."""
        if self.auxiliary is None:
            reading, last = read_linkable(model, batch, state)
            shift = int(torch.randint(1, max(2, len(last)), ()).item())
            return reading, last, last.roll(shift, 0), users_of(batch).roll(shift, 0)
        sampled = self.auxiliary.auxiliary(len(batch.inputs))
        other_users = users_of(sampled)
        if self.weight and state is None and isinstance(model, TwoParts) and model.separate_head:
            return *read_both(model, batch, sampled), other_users
        reading, last = read_linkable(model, batch, state)
        assert isinstance(model, TwoParts)
        with torch.set_grad_enabled(self.weight > 0):  # with weight 0 it is only measured
            hidden, _ = model.body(sampled.inputs)
        return reading, last, last_hidden(hidden, sampled), other_users


def triplet_loss(states: Tensor, others: Tensor, same_user: Tensor) -> Tensor:
    """Mean distance of pairs, negative for pairs of one user.

    Args:
        states: (k, h).
        others: (k, h), paired with them.
        same_user: bool (k,).

    Example:
        >>> states, others = torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([[3.0, 4.0]] * 2)
        >>> triplet_loss(states, others, torch.tensor([False, True])).item()
        0.0
    """
    distance = pairwise_distance(states, others)
    return torch.where(same_user, -distance, distance).mean()


def read_linkable(model: LanguageModel, batch: Batch, state: Any) -> tuple[Reading, Tensor]:
    """The loss of a batch and its last hidden states (b, h), float32, in the graph.

    Raises:
        TrainingError: the model does not expose the input of its head.
    """
    reading = read(model, batch, state)
    if reading.last is None:
        raise TrainingError(
            "The model does not expose the input of its head, which this defence needs",
            remedy="Use another defence, or an LSTM, Transformer, GPT-2, Llama or similar model.",
        )
    return reading, reading.last.float()


def read_both(model: LanguageModel, batch: Batch, other: Batch) -> tuple[Reading, Tensor, Tensor]:
    """`read_linkable`, with the last hidden states (k, h) of another batch, in one pass.

    A step of a recurrent layer reads all its weights for any number of rows, so one pass over both
    is much faster than two. The head reads only the first batch.
    """
    assert isinstance(model, TwoParts)
    rows, length = batch.inputs.shape
    width = max(length, other.inputs.shape[1])
    padded = [pad(each.inputs, (0, width - each.inputs.shape[1])) for each in (batch, other)]
    hidden, _ = model.body(torch.cat(padded))
    reading = read_hidden(model, batch, hidden[:rows, :length], None)
    assert reading.last is not None
    others = last_hidden(hidden[rows:, : other.inputs.shape[1]], other)
    return reading, reading.last.float(), others


def users_of(batch: Batch) -> Tensor:
    """User codes of the rows; TrainingError if the batch has none."""
    if batch.users is None:
        raise TrainingError(
            "This defence needs a user for each document",
            remedy="Pass the user column with --user, and batch by documents or users.",
        )
    return batch.users


def require_users(data: EncodedCorpus, name: str) -> None:
    """Raise TrainingError unless a text has several users."""
    if data.users is None:
        raise TrainingError(
            f"The {name} defence needs a user for each document",
            remedy="Pass the user column with --user.",
        )
    if len(data.names) < 2:
        raise TrainingError(
            f"The {name} defence hides users among one another, but the data has only one",
            remedy="Pass text of several users, or use dp-sgd or goldfish.",
        )


def width_of(model: LanguageModel) -> int:
    """Size of a model's last hidden state."""
    if isinstance(model, LSTMLanguageModel):
        return model.config.hidden_size
    if isinstance(model, TwoParts):
        first = torch.tensor([[model.first_token]], device=model.device)
        with torch.no_grad():
            return int(model.body(first)[0].shape[2])
    raise TrainingError(
        "The model does not expose the input of its head, which this defence needs",
        remedy="Use dp-sgd or goldfish.",
    )
