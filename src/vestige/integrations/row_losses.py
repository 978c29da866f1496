"""Losses of a training set's rows, as a trainer reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.training.batches import IGNORED

MOST = 5_000
"""Rows that are looked through for canaries, or held of a stream."""


def row_losses(model: Any, inputs: dict[str, Any]) -> Tensor:
    """(rows,) mean cross-entropy of each row's own targets, in nats, in the graph.

    Args:
        model: as Transformers or PEFT has it.
        inputs: of a data collator, with its labels (rows, tokens), on the model's device.
    """
    inputs = dict(inputs)
    labels = inputs.pop("labels")[:, 1:]
    logits = model(**inputs).logits[:, :-1]
    each = cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none"
    )
    summed: Tensor = each.view(labels.shape).sum(1)
    mean: Tensor = summed / (labels != IGNORED).sum(1).clamp(min=1)
    return mean


def from_the_left(inputs: dict[str, Any]) -> dict[str, Any]:
    """Rows that begin in the first place, with all padding behind them.

    Padding in front of a row moves its positions and its dropout masks, and how much there is
    depends on the longest row beside it.

    Args:
        inputs: of a data collator; without a mask of attention they are left as they are.
    """
    seen = inputs.get("attention_mask")
    if not isinstance(seen, Tensor) or seen.dim() != 2:
        return inputs
    order = seen.int().argsort(dim=1, descending=True, stable=True)
    return {
        name: value.gather(1, order)
        if isinstance(value, Tensor) and value.shape == seen.shape
        else value
        for name, value in inputs.items()
    }


def other_loss(model: Any, inputs: dict[str, Any]) -> str:
    """Why `row_losses` are not what a model learns of one row with a target; "" where they are.

    Args:
        model: as `row_losses` takes it, in evaluation mode.
        inputs: of one row, likewise.
    """
    labels, ids = inputs.get("labels"), inputs.get("input_ids")
    if labels is None:
        return "the data collator returns no labels"
    if ids is None or labels.shape != ids.shape or labels.dim() != 2:
        return "the data collator returns labels of another shape than the tokens"
    own = getattr(model(**inputs), "loss", None)
    if own is None or not (labels[:, 1:] != IGNORED).any():
        return ""
    ours = row_losses(model, inputs)[0]
    if torch.isclose(own.float(), ours, rtol=LOSS, atol=LOSS):
        return ""
    return f"{type(model).__name__} trains on another loss than the cross-entropy of next tokens"


LOSS = 1e-3
"""How far two losses of a row may be apart: both are summed in float32, of the same logits."""


@dataclass(frozen=True)
class Rows:
    """Rows of a data set, collated as a trainer does.

    Attributes:
        data: rows by number.
        collate: many of them to inputs of the model.
        cut: whether they are the first of a stream that goes on.
    """

    data: Any
    collate: Callable[[list[Any]], dict[str, Any]]
    cut: bool = False

    @classmethod
    def of(cls, trainer: Any, data: Any) -> "Rows":
        """Those of a data set, without columns that the trainer's model does not take."""
        if hasattr(data, "remove_columns"):
            read = trainer._remove_unused_columns(data)
            return cls(read, trainer.data_collator)
        return cls(data, trainer._get_collator_with_removed_columns(trainer.data_collator))

    @classmethod
    def read_by(cls, trainer: Any, data: Any) -> "Rows | None":
        """Those of a data set, or the first `MOST` of a stream; None of what may be read once."""
        if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            return cls.of(trainer, data)
        if not hasattr(data, "take"):
            return None
        head = list(islice(data, MOST))
        collate = trainer._get_collator_with_removed_columns(trainer.data_collator)
        return cls(head, collate, cut=len(head) == MOST)

    @property
    def all_known(self) -> bool:
        """Whether there are no more than `MOST`."""
        return not self.cut and len(self) <= MOST

    def __len__(self) -> int:
        return len(self.data)

    def inputs(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Inputs of the model for some rows."""
        return dict(self.collate([self.data[int(number)] for number in numbers]))

    @torch.no_grad()
    def losses(self, model: Any, numbers: Sequence[int], at_once: int) -> list[float]:
        """Loss of each of some rows; see `row_losses`.

        Args:
            model: in evaluation mode.
            numbers: of the rows.
            at_once: rows that are read together.
        """
        found: list[float] = []
        for begin in range(0, len(numbers), at_once):
            some = numbers[begin : begin + at_once]
            parts = [self.inputs(some)]
            if len(parts[0]["input_ids"]) < len(some):  # the collator makes one row of them
                parts = [self.inputs([number]) for number in some]
            for inputs in parts:
                moved = {k: v.to(model.device) for k, v in inputs.items() if hasattr(v, "to")}
                found += row_losses(model, inputs | moved).tolist()
        return found
