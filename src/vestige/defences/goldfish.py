"""Goldfish loss: some tokens of a text are never learned, the same ones in every copy.

Hans et al. (2024), "Be like a Goldfish, Don't Memorize! Mitigating Memorization in Generative
LLMs", section 3: a token is excluded from the loss if a hash of the h tokens before it falls into
one of k buckets. All copies of a text lack the same tokens, and a model must guess them.

Differs from the paper: near the beginning of a text, the available tokens are hashed, because texts
may be short; in the paper the first h tokens are always learned. A document longer than a sequence
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
    """Step that excludes one token in k, by a hash of its context.

    Attributes:
        k: one token in k is excluded, at least 2.
        context: h, number of hashed tokens.
        seed: of the hash.
        max_grad_norm: maximum norm of the gradient; None: no clipping.
        precision: of the forward pass.
    """

    k: int = 4
    context: int = 13
    seed: int = 0
    max_grad_norm: float | None = None
    precision: torch.dtype = torch.float32

    @property
    def settings(self) -> dict[str, object]:
        """Settings that affect the result."""
        return {"k": self.k, "context": self.context, "seed": self.seed}

    def __call__(self, model: LanguageModel, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Put the gradient of the remaining tokens into `.grad`."""
        masked = self.drop(batch)
        if not masked.tokens:
            return no_step(model, batch)
        with autocast(self.precision, batch.inputs.device):
            reading = read(model, masked, state)
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
        factors = np.random.default_rng(self.seed).integers(2**62, size=self.context)
        total = torch.zeros_like(inputs)
        for offset, factor in enumerate((factors * 2 + 1).tolist()):
            if offset >= inputs.shape[1]:
                break
            # Sums and products of a multiplicative hash wrap at 64 bits.
            total[:, offset:] += (inputs[:, : inputs.shape[1] - offset] + 1) * factor
        total ^= (total >> 32) & 0xFFFFFFFF
        return (total * 0x2545F4914F6CDD1D >> 33) & 0x7FFFFFFF
