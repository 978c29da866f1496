"""Private trainings in one process, or with `python private_in_processes.py OUT` in two."""

import json
import os
import sys
from pathlib import Path
from unittest.mock import patch

from tests.integrations.ranks import in_ranks
from tests.integrations.test_private_trainer import Steps, llama, seeded, trainer, weights
from vestige.privacy.dp_sgd import NoisyStep

MECHANISMS = {
    "independent": {},
    "whole": {"max_grad_norm": 0.5},
}
"""Of an adapter; "whole" is all of a small Llama."""


def train_all(out: Path) -> None:
    """Train by each mechanism in turn."""
    for mechanism in MECHANISMS:
        train(out / mechanism, mechanism)


def train_few(out: Path) -> None:
    """Train with a lot of one row or two, so that a process may have none."""
    steps = Steps()
    own = trainer(
        out / "trainer", seeded(noise_multiplier=0.5, max_grad_norm=0.5), steps, rows=1, steps=4,
        ddp_backend="gloo",
    )  # fmt: skip
    counts = []
    batch = type(own._rows).batch

    def watched(*args):
        found = batch(*args)
        counts.append(len(found[0]))
        return found

    with patch.object(type(own._rows), "batch", watched):
        own.train()
    kept = {"weights": _flat(weights(own.model)), "counts": counts}
    (out / f"{os.environ['RANK']}.json").write_text(json.dumps(kept))


def train(out: Path, mechanism: str) -> None:
    """Train, and write the weights of this process, its gradients, and its norms step by step."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    steps, norms, end = Steps(), [], NoisyStep.end

    def watched(own, found):
        norms.append(found.tolist())
        end(own, found)

    own = trainer(
        out / "trainer", seeded(noise_multiplier=0.5, **MECHANISMS[mechanism]), steps,
        rows=8 // processes, ddp_backend="gloo" if processes > 1 else None,
        lora=False if mechanism == "whole" else None,
        base=llama() if mechanism == "whole" else None,
    )  # fmt: skip
    with patch.object(NoisyStep, "end", watched):
        own.train()
    kept = {"weights": _flat(weights(own.model)), "norms": norms}
    kept["gradients"] = [_flat(each) for each in steps.gradients]
    (out / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(kept))


def _flat(tensors) -> list[float]:
    return [value for one in tensors for value in one.flatten().tolist()]


if __name__ == "__main__":
    work = train_few if sys.argv[2:] == ["few"] else train_all
    in_ranks(2, lambda: work(Path(sys.argv[1])))
