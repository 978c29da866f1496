"""Rows of a language model's output layer: tokens with like rows have like logits."""

import numpy as np
import torch
from numpy.typing import NDArray

from vestige.models.protocols import LanguageModel, TwoParts


@torch.no_grad()
def output_rows(model: LanguageModel) -> NDArray[np.float32] | None:
    """(v, d) weights of the last layer; None where logits are more than a linear layer's.

    Args:
        model: in evaluation mode.
    """
    if not (isinstance(model, TwoParts) and model.separate_head):
        return None
    first = torch.full((1, 1), model.first_token, device=model.device)
    hidden = model.body(first)[0][0, 0]
    each = torch.eye(len(hidden), dtype=hidden.dtype, device=hidden.device)
    rows = model.predict(each) - model.predict(torch.zeros_like(hidden))
    return np.asarray(rows.float().T.contiguous().cpu().numpy(), dtype=np.float32)
