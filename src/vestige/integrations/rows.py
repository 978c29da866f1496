"""Rows of a data set as a trainer reads them, and their losses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.errors import NotFinite
from vestige.training.batches import IGNORED

MAX_ROWS = 5_000
"""Most rows to search for canaries, or to read from a stream."""

LOSS_TOLERANCE = 1e-3
"""Tolerance for two losses of a row, both float32 sums over the same logits."""


def row_losses(model: Any, inputs: dict[str, Any]) -> Tensor:
    """(rows,) mean cross-entropy of the targets of each row in nats, with gradients."""
    inputs = dict(inputs)
    labels = inputs.pop("labels")[:, 1:]
    logits = model(**inputs).logits[:, :-1]
    losses = cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none"
    )
    summed: Tensor = losses.view(labels.shape).sum(1)
    mean: Tensor = summed / (labels != IGNORED).sum(1).clamp(min=1)
    return mean


def left_aligned(inputs: dict[str, Any]) -> dict[str, Any]:
    """Move left padding to the right, so that positions and masks are those of a row alone.

    Inputs without an attention mask are unchanged.
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


def loss_problem(model: Any, inputs: dict[str, Any]) -> str:
    """Why `row_losses` is not the training loss of a model on one row; "" if it is.

    Raises:
        NotFinite: the loss is NaN or infinite.
    """
    labels, ids = inputs.get("labels"), inputs.get("input_ids")
    if labels is None:
        return "the data collator returns no labels"
    if ids is None or labels.shape != ids.shape or labels.dim() != 2:
        return "the data collator returns labels of another shape than the tokens"
    model_loss = getattr(model(**inputs), "loss", None)
    if model_loss is None or not (labels[:, 1:] != IGNORED).any():
        return ""
    row_loss = row_losses(model, inputs)[0]
    if not (model_loss.isfinite() and row_loss.isfinite()):
        raise NotFinite("the loss of the first row is not finite: the weights are broken")
    if torch.isclose(model_loss.float(), row_loss, rtol=LOSS_TOLERANCE, atol=LOSS_TOLERANCE):
        return ""
    return f"{type(model).__name__} trains on another loss than the cross-entropy of next tokens"


@dataclass(frozen=True)
class Rows:
    """Rows of a data set by index, collated as by a trainer; `cut`: a part of a stream."""

    data: Any
    collate: Callable[[list[Any]], dict[str, Any]]
    cut: bool = False

    @classmethod
    def of(cls, trainer: Any, data: Any) -> "Rows | None":
        """Rows of a data set, or the first `MAX_ROWS` of a stream; None for an iterator."""
        collate = trainer._get_collator_with_removed_columns(trainer.data_collator)
        if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            if hasattr(data, "remove_columns"):
                return cls(trainer._remove_unused_columns(data), trainer.data_collator)
            return cls(data, collate)
        if not hasattr(data, "take"):
            return None
        first = list(islice(data, MAX_ROWS))
        return cls(first, collate, cut=len(first) == MAX_ROWS)

    @property
    def all_known(self) -> bool:
        """Whether the data set has at most `MAX_ROWS` rows."""
        return not self.cut and len(self) <= MAX_ROWS

    def __len__(self) -> int:
        return len(self.data)

    def inputs(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Model inputs for some rows."""
        return dict(self.collate([self.data[int(number)] for number in numbers]))
