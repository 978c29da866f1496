"""Goldfish loss: some tokens of a text are never learnt, the same ones in every copy.

Hans et al. (2024), "Be like a Goldfish, Don't Memorize! Mitigating Memorization in Generative
LLMs", section 3: a token is left out of the loss where a hash of the h tokens before it falls into
one of k buckets, so that copies of a text all lack the same tokens, and a model that goes on with
it must guess there.

Differs from the paper: near a text's beginning the tokens that there are are hashed, where the
paper's first h tokens are always learnt; short texts need that. A document longer than a sequence
is hashed piece by piece.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vestige.models.protocols import LanguageModel
from vestige.training.batches import IGNORED, Batch
from vestige.training.steps import autocast, descend, detached, no_step, read


@dataclass(frozen=True, kw_only=True)
class GoldfishStep:
    """A StepFn that leaves every k-th token out, by a hash of its context.

    Attributes:
        k: one token in k is left out, at least 2.
        context: h, tokens that are hashed.
        seed: of the hash.
        max_grad_norm: the norm that the gradient is cut to; None leaves it.
        precision: of the forward pass.
    """

    k: int = 4
    context: int = 13
    seed: int = 0
    max_grad_norm: float | None = None
    precision: torch.dtype = torch.float32

    @property
    def settings(self) -> dict[str, object]:
        """What the step depends on."""
        return {"k": self.k, "context": self.context, "seed": self.seed}

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the gradient of the tokens that are kept into `.grad`."""
        kept = self.drop(batch)
        if not kept.tokens:
            return no_step(model, batch)
        with autocast(self.precision, batch.inputs.device):
            reading = read(model, kept, state)
        descend(model, reading.loss, self.max_grad_norm)
        return reading.loss.detach(), detached(reading.state)

    def drop(self, batch: Batch) -> Batch:
        """The batch with one target in k IGNORED."""
        dropped = self.hashes(batch.inputs) % self.k == 0
        targets = batch.targets.masked_fill(dropped, IGNORED)
        padding = int((targets == IGNORED).sum())
        return Batch(batch.inputs, targets, padding, batch.lengths, batch.users, batch.numbers)

    def hashes(self, inputs: Tensor) -> Tensor:
        """(b, t) ids -> int64 (b, t) in [0, 2^31): of the last h tokens up to each."""
        drawn = np.random.default_rng(self.seed).integers(2**62, size=self.context)
        total = torch.zeros_like(inputs)
        for back, odd in enumerate((drawn * 2 + 1).tolist()):
            if back >= inputs.shape[1]:
                break
            # Sums and products wrap around at 64 bits, as a multiplicative hash wants it.
            total[:, back:] += (inputs[:, : inputs.shape[1] - back] + 1) * odd
        total ^= (total >> 32) & 0xFFFFFFFF
        return (total * 0x2545F4914F6CDD1D >> 33) & 0x7FFFFFFF
