"""Rows of data sets as a trainer reads them, and their losses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.training.batches import IGNORED

MOST = 5_000
"""Rows that are searched for canaries, or read of a stream."""

TOLERANCE = 1e-3
"""Of two losses of a row: both are sums in float32 over the same logits."""


def row_losses(model: Any, inputs: dict[str, Any]) -> Tensor:
    """(rows,) mean cross-entropy of each row's own targets, in nats, in the graph.

    Args:
        model: of Transformers or PEFT.
        inputs: of a data collator, with labels (rows, tokens), on the model's device.
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
    """Inputs with all padding after the rows: before one, it would move positions and masks.

    Without an attention mask they stay as they are.
    """
    mask = inputs.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        return inputs
    order = mask.int().argsort(dim=1, descending=True, stable=True)
    return {
        name: value.gather(1, order)
        if isinstance(value, Tensor) and value.shape == mask.shape
        else value
        for name, value in inputs.items()
    }


def other_loss(model: Any, inputs: dict[str, Any]) -> str:
    """Why `row_losses` is not the loss that a model trains on; "" if it is.

    Args:
        model: in evaluation mode.
        inputs: of one row.
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
    if torch.isclose(own.float(), ours, rtol=TOLERANCE, atol=TOLERANCE):
        return ""
    return f"{type(model).__name__} trains on another loss than the cross-entropy of next tokens"


@dataclass(frozen=True)
class Rows:
    """Rows of a data set by number, collated as by a trainer; `cut`: the first ones of a stream."""

    data: Any
    collate: Callable[[list[Any]], dict[str, Any]]
    cut: bool = False

    @classmethod
    def of(cls, trainer: Any, data: Any) -> "Rows | None":
        """Rows of a data set, or the first `MOST` of a stream; None if it can be read only once."""
        collate = trainer._get_collator_with_removed_columns(trainer.data_collator)
        if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            if hasattr(data, "remove_columns"):
                return cls(trainer._remove_unused_columns(data), trainer.data_collator)
            return cls(data, collate)
        if not hasattr(data, "take"):
            return None
        first = list(islice(data, MOST))
        return cls(first, collate, cut=len(first) == MOST)

    @property
    def all_known(self) -> bool:
        """Whether there are no more than `MOST`."""
        return not self.cut and len(self) <= MOST

    def __len__(self) -> int:
        return len(self.data)

    def inputs(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Inputs of the model for some rows."""
        return dict(self.collate([self.data[int(number)] for number in numbers]))
