"""What a model knows of the texts that it is trained on, more than of others.

Yeom et al. (2018), "Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting",
section 3: the gap between the losses of both, and the membership attack by the loss. Here the score
is how far a text's loss fell since the training began, as with the reference model of Mireshghallah
et al. (2022), "Quantifying Privacy Risks of Masked Language Models Using Membership Inference
Attacks": what was easy before does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vestige.errors import DataError
from vestige.integrations.row_losses import Rows
from vestige.metrics.differences import difference_of_means
from vestige.metrics.intervals import columns
from vestige.metrics.separation import separation

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
        gap = float(np.mean(self.others) - np.mean(self.trained))
        interval = difference_of_means(self.others, self.trained)
        area = separation(self.fell, self.others_fell)
        return {
            "texts": len(self.trained),
            "other_texts": len(self.others),
            **columns("loss_gap", gap, interval),
            **columns("auc", area.value, area.interval),
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
    def of(cls, trainer: Any, *, number: int, left_out: Sequence[int], seed: int) -> "TextSample":
        """Draw rows of both sets.

        Args:
            trainer: whose `train_dataset` and `eval_dataset` are drawn from.
            number: of rows of each at most.
            left_out: rows of the training set that hold canaries.
            seed: draws them.

        Raises:
            DataError: the trainer has no evaluation set.
        """
        held = trainer.eval_dataset
        if isinstance(held, dict):
            held = next(iter(held.values()), None)
        if held is None or not len(held):
            raise DataError(
                "the trainer has no evaluation set to compare its training texts with",
                remedy="Give `eval_dataset`, or leave out `texts`.",
            )
        generator = np.random.default_rng(seed)
        rows = np.arange(len(trainer.train_dataset))
        pools = (np.setdiff1d(rows, np.array(left_out, np.int64)), np.arange(len(held)))
        trained, others = (
            generator.choice(pool, min(number, len(pool)), replace=False).tolist() for pool in pools
        )
        both = (Rows.of(trainer, trainer.train_dataset), Rows.of(trainer, held))
        return cls(both, (trained, others))

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
