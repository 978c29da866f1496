"""Check for infinite and NaN weights."""

from pathlib import Path

import torch

from vestige.errors import ModelError
from vestige.models.protocols import Network
from vestige.models.table import TableModel

_ROUNDING = 1e-6


@torch.no_grad()
def require_finite(model: Network, path: str | Path) -> None:
    """Require finite weights.

    Args:
        model: with its weights.
        path: where they come from.

    Raises:
        ModelError: a weight is infinite or not a number. A table's -inf is the logarithm of 0.
    """
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not tensor.is_floating_point():
            continue
        table = isinstance(model, TableModel)
        sound = tensor <= _ROUNDING if table else torch.isfinite(tensor)  # NaN is not <=, either
        if not bool(sound.all()):
            raise ModelError(
                f"{path} holds {name} with numbers that are not finite: NaN or infinities",
                remedy="Take a checkpoint from before its training went wrong, or train again at "
                "a lower rate.",
            )
