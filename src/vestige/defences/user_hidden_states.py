"""What the privacy regularizers share: users' last hidden states, and running means for the log."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel, TwoParts
from vestige.models.recurrent_network import LSTMLanguageModel
from vestige.training.batches import Batch
from vestige.training.steps import Reading, last_hidden, read, read_hidden


@dataclass(frozen=True)
class UserHiddenStates:
    """A batch, read.

    Attributes:
        reading: the loss, in the graph.
        last: (b, h) float32, in the graph.
        users: int64 (b,).
    """

    reading: Reading
    last: Tensor
    users: Tensor


def read_linkable(model: LanguageModel, batch: Batch, state: Any) -> UserHiddenStates:
    """Read a batch whose sequences have users.

    Raises:
        TrainingError: they have none, or the model hides what its head reads.
    """
    users = users_of(batch)
    reading = read(model, batch, state)
    if reading.last is None:
        raise TrainingError(
            "The model does not expose the input of its head, which this defence needs",
            remedy="Use another defence, or an LSTM, Transformer, GPT-2, Llama or similar model.",
        )
    return UserHiddenStates(reading, reading.last.float(), users)


def read_both(model: LanguageModel, batch: Batch, other: Batch) -> tuple[UserHiddenStates, Tensor]:
    """Read a batch, and another of which only the last hidden states are wanted, in one pass.

    Each step of a recurrent layer reads and writes all of its weights, for few rows as for many:
    one pass over both costs much less than two. The head reads the first batch alone.

    Args:
        model: with a separate head.
        batch: its rows begin with a text, as all do that know whose they are.
        other: likewise.

    Returns:
        (the batch, read; (k, h) last hidden states of the other, in the graph).
    """
    assert isinstance(model, TwoParts)
    rows, wide = batch.inputs.shape
    width = max(wide, other.inputs.shape[1])
    both = [pad(one.inputs, (0, width - one.inputs.shape[1])) for one in (batch, other)]
    hidden, _ = model.body(torch.cat(both))
    reading = read_hidden(model, batch, hidden[:rows, :wide], None)
    assert reading.last is not None
    others = last_hidden(hidden[rows:, : other.inputs.shape[1]], other)
    return UserHiddenStates(reading, reading.last.float(), users_of(batch)), others


def users_of(batch: Batch) -> Tensor:
    """User codes of the rows.

    Raises:
        TrainingError: the batch has no users.
    """
    if batch.users is None:
        raise TrainingError(
            "This defence needs a user for each document",
            remedy="Pass the user column with --user, and batch by documents or users.",
        )
    return batch.users


def require_users(data: EncodedCorpus, name: str) -> None:
    """Raise TrainingError unless a text has several users, among whom a defence hides each."""
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


def width(model: LanguageModel) -> int:
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


class RunningMeans:
    """Sums on the device, read only when a line of the log is due."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, **values: Tensor) -> None:
        """Count scalars in."""
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means since the last call."""
        means = {name: total.item() / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means
