"""Rows of data sets as a trainer reads them: their losses, and those of training texts.

Yeom et al. (2018), "Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting",
section 3: the gap of the losses of training and other texts, and membership inference by the loss.
Here the membership score is the decrease of a text's loss since the training began, as with the
reference model of Mireshghallah et al. (2022), "Quantifying Privacy Risks of Masked Language Models
Using Membership Inference Attacks".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.errors import DataError
from vestige.integrations.leakage import TextGap
from vestige.training.batches import IGNORED

if TYPE_CHECKING:
    from vestige.integrations.canary_search import CanarySearch

MOST = 5_000
"""Rows that are searched for canaries, or read of a stream."""

TOLERANCE = 1e-3
"""Of two losses of a row: both are sums in float32 over the same logits."""

AT_ONCE = 8

Losses = Sequence[Sequence[float]]
"""Of training and of evaluation texts."""


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

    @torch.no_grad()
    def losses(self, model: Any, numbers: Sequence[int], at_once: int) -> list[float]:
        """`row_losses` of some rows, several at once; the model is in evaluation mode."""
        found: list[float] = []
        for begin in range(0, len(numbers), at_once):
            some = numbers[begin : begin + at_once]
            parts = [self.inputs(some)]
            if len(parts[0]["input_ids"]) < len(some):  # the collator joins them into one row
                parts = [self.inputs([number]) for number in some]
            for inputs in parts:
                moved = {k: v.to(model.device) for k, v in inputs.items() if hasattr(v, "to")}
                found += row_losses(model, inputs | moved).tolist()
        return found


@dataclass(frozen=True)
class TextSample:
    """Numbers of the chosen rows of a trainer's training and evaluation sets."""

    rows: tuple[Rows, Rows]
    chosen: tuple[list[int], list[int]]

    @classmethod
    def of(cls, trainer: Any, *, number: int, search: "CanarySearch", seed: int) -> "TextSample":
        """Sample at most so many rows of each set, without those that have a part of a canary.

        Raises:
            DataError: the trainer has no evaluation set, or a set has no such row.
        """
        held = trainer.eval_dataset
        if isinstance(held, dict):
            held = next(iter(held.values()), None)
        others = None if held is None else Rows.of(trainer, held)
        if not others:
            raise DataError(
                "the trainer has no evaluation set to compare its training texts with",
                remedy="Pass `eval_dataset`, or leave out `texts`.",
            )
        rows = Rows.of(trainer, trainer.train_dataset)
        if rows is None:
            raise DataError(
                f"the training set is a {type(trainer.train_dataset).__name__}, whose rows cannot "
                "be sampled",
                remedy="Train on a data set of `datasets`, or leave out `texts`.",
            )
        generator = np.random.default_rng(seed)
        trained, compared = (_sampled(one, number, search, generator) for one in (rows, others))
        return cls((rows, others), (trained, compared))

    @cached_property
    def sha256(self) -> str:
        """Hash of the rows' tokens."""
        found = sha256()
        for rows, numbers in zip(self.rows, self.chosen, strict=True):
            for number in numbers:
                found.update(repr(rows.inputs([number])["input_ids"].tolist()).encode())
        return found.hexdigest()

    def losses(self, model: Any) -> tuple[list[float], list[float]]:
        """Losses of both samples; the model is in evaluation mode."""
        (first, second), (trained, others) = self.rows, self.chosen
        return first.losses(model, trained, AT_ONCE), second.losses(model, others, AT_ONCE)


def text_gap(now: Losses, before: Losses) -> TextGap:
    """Losses of both samples now, and their decrease."""
    fell = [np.array(one) - two for one, two in zip(before, now, strict=True)]
    return TextGap(*map(tuple, now), *(tuple(one.tolist()) for one in fell))


def _sampled(
    rows: Rows, number: int, search: "CanarySearch", generator: np.random.Generator
) -> list[int]:
    order = generator.permutation(len(rows))[:MOST].tolist()
    chosen = list(islice((one for one in order if not search.anywhere(rows, one)), number))
    if not chosen:
        raise DataError(
            f"each of {len(order):,} rows has a canary or a part of one, so no text is left to "
            "compare",
            remedy="Plant fewer copies, pack fewer texts into a row, or leave out `texts`.",
        )
    return chosen
