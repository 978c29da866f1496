"""DP-SGD: differential privacy of a sequence, or of a user, from clipped, noised gradients.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1: each unit's gradient is
clipped to norm C, the sum gets noise of standard deviation sigma C, and is divided by the expected
number of units in a batch. What this proves follows from the chance with which a unit comes into a
batch, sigma, and the number of steps (`accounting`).

Differs from the paper: any optimizer moves on the noised gradient; a sequence's loss is divided by
a fixed number of tokens rather than by its own, so that long and short ones count by the token.

The noise follows from a secret (`training.secret`, `noise`): the training's own, which the loop
hands to the step, or a fresh one that is kept nowhere.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from vestige import _validate
from vestige.defences import example_gradients
from vestige.defences.accounting import Unit
from vestige.defences.clipping import ClipFn, Rule, numbers_of, summed_losses
from vestige.defences.noise_schedule import Noise
from vestige.defences.noisy_step import NoisyStep
from vestige.defences.row_masks import StepChance, refuse_other_chance
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMLanguageModel
from vestige.training.batches import Batch


class DPSGDStep(NoisyStep):
    """A StepFn; give it Poisson-sampled batches, such as `TrainingConfig(batching="poisson")`.

    Args:
        noise_multiplier: sigma, the noise's standard deviation over C, or how it falls over the
            steps (`noise_schedule`); 0 proves nothing.
        max_grad_norm: C, the norm that a unit's gradient is cut to.
        expected_units: sequences, or users, that a batch holds on average: its `batch_size`.
        sequence_length: tokens that a sequence's summed loss is divided by.
        unit: what is clipped as one: a sequence, or all sequences of a user.
        physical_batch_size: rows at most that are computed at once; None: a batch at once.
        bands: steps over which the noise is correlated (`banded_noise`); the batches must be drawn
            in as many turns.
        clip_quantile: share of norms that C is to be above (`adaptive_clipping`); None: C is fixed.

    Raises:
        ValueError: a value is out of range.
    """

    identity: ClassVar[str] = "DPSGD"

    def __init__(
        self,
        *,
        noise_multiplier: Noise,
        max_grad_norm: float,
        expected_units: int,
        sequence_length: int,
        unit: Unit = "sequence",
        physical_batch_size: int | None = None,
        bands: int = 1,
        clip_quantile: float | None = None,
    ) -> None:
        super().__init__(
            noise_multiplier,
            max_grad_norm,
            expected_units,
            bands=bands,
            clip_quantile=clip_quantile,
        )
        _validate.at_least(1, sequence_length=sequence_length)
        _validate.one_of(("sequence", "user"), unit=unit)
        if physical_batch_size is not None:
            _validate.at_least(1, physical_batch_size=physical_batch_size)
        self.sequence_length, self.unit = sequence_length, unit
        self.physical_batch_size = physical_batch_size
        self._checked = False

    @property
    def settings(self) -> dict[str, object]:
        """What the step depends on; how it is computed is left out."""
        return {**self.mechanism, "sequence_length": self.sequence_length, "unit": self.unit}

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the clipped, noised mean gradient into `.grad`; a batch may be empty.

        Raises:
            FloatingPointError: a unit's gradient is not finite, and cannot be clipped.
        """
        self.begin(model, state)
        clip = self._clip(model)
        rule = Rule(
            max_grad_norm=self.clip,
            tokens_per_sequence=self.sequence_length,
            expected_units=self.expected_units,
            chance=self.chance(batch.inputs.device),
        )
        batch = replace(batch, numbers=numbers_of(batch))
        self._check_chance(model, batch, rule.chance)
        loss = torch.zeros((), device=batch.inputs.device)
        norms = []
        for part in self._parts(batch):
            clipped = clip(model, part, rule)
            loss += clipped.loss
            norms.append(clipped.norms)
        self.end(norms)
        return loss / max(batch.tokens, 1), None

    def _check_chance(self, model: LanguageModel, batch: Batch, chance: StepChance | None) -> None:
        """Once: whether rows that are read together draw by dropout alone."""
        if self._checked or chance is None or not (len(batch.inputs) and model.training):
            return
        self._checked = True
        together = self.unit == "sequence" or example_gradients.suits(model)
        if together and not isinstance(model, LSTMLanguageModel):  # whose masks are our own
            refuse_other_chance(chance, lambda rows: summed_losses(model, batch.select(rows)))

    def _clip(self, model: LanguageModel) -> ClipFn:
        by_user, recurrent = self.unit == "user", isinstance(model, LSTMLanguageModel)
        if not recurrent and example_gradients.suits(model):
            of_users = example_gradients.clip_users_examples(self.physical_batch_size)
            return of_users if by_user else example_gradients.clip_examples
        if by_user:
            from vestige.defences.user_clipping import clip_users

            return clip_users(self.physical_batch_size)
        if recurrent:
            from vestige.defences.ghost_lstm import clip_lstm

            return clip_lstm
        from vestige.defences.ghost_opacus import clip_opacus

        return clip_opacus

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch in physical ones; a user is never cut in two."""
        rows = len(batch.inputs)
        size = self.physical_batch_size
        if not rows:
            return
        if size is None or rows <= size or self.unit == "user":
            yield batch
            return
        # Rows of like length together waste little on padding.
        order = torch.arange(rows) if batch.lengths is None else batch.lengths.argsort().cpu()
        for begin in range(0, rows, size):
            yield batch.select(order[begin : begin + size].to(batch.inputs.device))
