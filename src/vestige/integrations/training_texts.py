"""What a model knows of the texts that it is trained on, more than of others.

Yeom et al. (2018), "Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting",
section 3: the gap between the losses of both, and the membership attack by the loss. Here the score
is how far a text's loss fell since the training began, as with the reference model of Mireshghallah
et al. (2022), "Quantifying Privacy Risks of Masked Language Models Using Membership Inference
Attacks": what was easy before does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np

from vestige.errors import DataError
from vestige.integrations.canary_search import CanarySearch
from vestige.integrations.row_losses import MOST, Rows
from vestige.metrics.estimates import auc, columns, difference_of_means

AT_ONCE = 8


@dataclass(frozen=True)
class TextGap:
    """Losses of texts that are trained on and of others, in nats a token.

    Attributes:
        trained: mean loss of each text of the training set.
        others: of each text of the evaluation set.
        fell: how far each training text's fell since the training began.
        others_fell: how far each other text's did.
    """

    trained: tuple[float, ...]
    others: tuple[float, ...]
    fell: tuple[float, ...]
    others_fell: tuple[float, ...]

    def summary(self) -> dict[str, object]:
        """Gap of losses and area under the ROC curve, with 95 % intervals over texts."""
        return {
            "texts": len(self.trained),
            "other_texts": len(self.others),
            **columns("loss_gap", difference_of_means(self.others, self.trained)),
            **columns("auc", auc(self.fell, self.others_fell)),
        }


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
        """Draw rows of both sets, without those that hold a canary or a part of one.

        Args:
            trainer: whose `train_dataset` and `eval_dataset` are drawn from; the first `MOST` rows
                of a stream.
            number: of rows of each at most.
            search: for the canaries.
            seed: draws them.

        Raises:
            DataError: the trainer has no evaluation set, or a set has no such row.
        """
        held = trainer.eval_dataset
        if isinstance(held, dict):
            held = next(iter(held.values()), None)
        others = None if held is None else Rows.read_by(trainer, held)
        if others is None or not len(others):
            raise DataError(
                "the trainer has no evaluation set to compare its training texts with",
                remedy="Pass `eval_dataset`, or leave out `texts`.",
            )
        rows = Rows.read_by(trainer, trainer.train_dataset)
        if rows is None:
            raise DataError(
                f"the training set is a {type(trainer.train_dataset).__name__}, whose rows cannot "
                "be sampled",
                remedy="Train on a data set of `datasets`, or leave out `texts`.",
            )
        generator, both = np.random.default_rng(seed), (rows, others)
        trained, compared = (_drawn(own, number, search, generator) for own in both)
        return cls(both, (trained, compared))

    @cached_property
    def sha256(self) -> str:
        """Hash of what the rows say, in tokens."""
        found = sha256()
        for rows, numbers in zip(self.rows, self.chosen, strict=True):
            for number in numbers:
                found.update(repr(rows.inputs([number])["input_ids"].tolist()).encode())
        return found.hexdigest()

    def losses(self, model: Any) -> tuple[list[float], list[float]]:
        """Losses of both samples; the model is in evaluation mode."""
        first, second = (
            own.losses(model, numbers, AT_ONCE)
            for own, numbers in zip(self.rows, self.chosen, strict=True)
        )
        return first, second

    def gap(self, now: Sequence[Sequence[float]], before: Sequence[Sequence[float]]) -> TextGap:
        """What the model knows now.

        Args:
            now: `losses` of both samples.
            before: those at the beginning of the training.
        """
        fell = [np.array(one) - two for one, two in zip(before, now, strict=True)]
        return TextGap(*map(tuple, now), *(tuple(one.tolist()) for one in fell))


def _drawn(
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
