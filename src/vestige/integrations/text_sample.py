"""Losses of training texts beside those of evaluation texts.

Yeom et al. (2018), "Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting",
section 3: the gap of both losses, and membership inference by the loss. Here the membership score
is the decrease of a text's loss since the training began, as with the reference model of
Mireshghallah et al. (2022), "Quantifying Privacy Risks of Masked Language Models Using Membership
Inference Attacks".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np

from vestige.errors import DataError
from vestige.integrations.canary_search import CanarySearch
from vestige.integrations.leakage import TextGap
from vestige.integrations.rows import MOST, Rows

AT_ONCE = 8

Losses = Sequence[Sequence[float]]
"""Of both samples."""


@dataclass(frozen=True)
class TextSample:
    """A sample of a trainer's training and evaluation rows.

    Attributes:
        rows: of both sets.
        chosen: numbers of the rows of each.
    """

    rows: tuple[Rows, Rows]
    chosen: tuple[list[int], list[int]]

    @classmethod
    def of(cls, trainer: Any, *, number: int, search: CanarySearch, seed: int) -> "TextSample":
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

    def _parts(self) -> Iterator[tuple[Rows, list[int]]]:
        return zip(self.rows, self.chosen, strict=True)

    @cached_property
    def sha256(self) -> str:
        """Hash of the rows' tokens."""
        found = sha256()
        for rows, numbers in self._parts():
            for number in numbers:
                found.update(repr(rows.inputs([number])["input_ids"].tolist()).encode())
        return found.hexdigest()

    def losses(self, model: Any) -> tuple[list[float], list[float]]:
        """Losses of both samples; the model is in evaluation mode."""
        first, second = (rows.losses(model, numbers, AT_ONCE) for rows, numbers in self._parts())
        return first, second


def text_gap(now: Losses, before: Losses) -> TextGap:
    """Losses of both samples now, and their decrease."""
    fell = [np.array(one) - two for one, two in zip(before, now, strict=True)]
    return TextGap(*map(tuple, now), *(tuple(one.tolist()) for one in fell))


def _sampled(
    rows: Rows, number: int, search: CanarySearch, generator: np.random.Generator
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
