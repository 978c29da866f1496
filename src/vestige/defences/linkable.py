"""What both privacy regularizers look at: the last hidden state of a sequence, and whose it is."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch
from vestige.training.steps import Reading, read


@dataclass(frozen=True)
class Linkable:
    """A batch, read.

    Attributes:
        reading: the loss, in the graph.
        last: (b, h) float32, in the graph.
        users: int64 (b,).
    """

    reading: Reading
    last: Tensor
    users: Tensor


def read_linkable(model: LanguageModel, batch: Batch, state: Any) -> Linkable:
    """Read a batch whose sequences have users.

    Raises:
        TrainingError: they have none, or the model hides what its head reads.
    """
    users = users_of(batch)
    reading = read(model, batch, state)
    if reading.last is None:
        raise TrainingError(
            "The model does not show what its head reads, which this defence needs",
            remedy="Take another defence, or an LSTM, Transformer, GPT-2, Llama or like model.",
        )
    return Linkable(reading, reading.last.float(), users)


def users_of(batch: Batch) -> Tensor:
    """Whose each row is.

    Raises:
        TrainingError: nobody said.
    """
    if batch.users is None:
        raise TrainingError(
            "This defence needs to know whose each document is",
            remedy="Name the column with the users (--user), and batch by documents or users.",
        )
    return batch.users
