"""Losses of a training set's rows, as a trainer reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.training.batches import IGNORED


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


@dataclass(frozen=True)
class Rows:
    """Rows of a data set, collated as a trainer does.

    Attributes:
        data: rows by number.
        collate: many of them to inputs of the model.
    """

    data: Any
    collate: Callable[[list[Any]], dict[str, Any]]

    @classmethod
    def of(cls, trainer: Any, data: Any) -> "Rows":
        """Those of a data set, without columns that the trainer's model does not take."""
        if hasattr(data, "remove_columns"):
            read = trainer._remove_unused_columns(data)
            return cls(read, trainer.data_collator)
        return cls(data, trainer._get_collator_with_removed_columns(trainer.data_collator))

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
            inputs = self.inputs(numbers[begin : begin + at_once])
            moved = {k: v.to(model.device) for k, v in inputs.items() if hasattr(v, "to")}
            found += row_losses(model, moved).tolist()
        return found
