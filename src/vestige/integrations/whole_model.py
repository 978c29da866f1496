"""Whether each process that trains has the whole model, which is what a measurement asks."""

from typing import Any

from vestige.errors import VestigeError


def require_whole(model: Any, trainer: Any) -> None:
    """Refuse a model that is spread over processes.

    Args:
        model: as the training has it.
        trainer: of Transformers; None where it is not known.

    Raises:
        VestigeError: by what it is spread, and what to do.
    """
    parameters = list(model.parameters())
    spread = {
        "FSDP": getattr(trainer, "is_fsdp_enabled", False)
        or any(type(module).__name__.startswith("FSDP") for module in model.modules()),
        "DeepSpeed ZeRO 3": any(hasattr(one, "ds_tensor") for one in parameters),
        "tensor parallelism": any(hasattr(one, "placements") for one in parameters),
    }
    for name, given in spread.items():
        if given:
            raise VestigeError(
                f"the model is split over processes by {name}",
                remedy=(
                    "Train without the callback, then audit the saved model: `vestige exposure "
                    "MODEL CANARIES`, `vestige extract MODEL CANARIES`. With DDP (torchrun) each "
                    "process has a copy."
                ),
            )
