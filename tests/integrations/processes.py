"""Trainings in one process, or with `python processes.py WORK OUT` in two."""

import json
import math
import os
import socket
import sys
import traceback
from pathlib import Path
from unittest.mock import patch

from datasets import load_from_disk

from tests.integrations.worlds import Steps, llama, private_trainer, seeded, trained, weights
from vestige.integrations.leakage_callback import LeakageCallback
from vestige.privacy.dp_sgd import NoisyStep


def process_settings():
    """The rank of this process, and settings that divide 8 rows among the processes."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    settings = {"rows": 8 // count, "ddp_backend": "gloo" if count > 1 else None}
    return os.environ.get("RANK", "0"), settings


def leakage(out: Path) -> None:
    """Train on the canaries next to `out`, and write the measurements of this process."""
    rank, settings = process_settings()
    canaries, directory = out.parent / "canaries", out / rank
    directory.mkdir(parents=True)
    callback = LeakageCallback(canaries, every=0.5, budget=math.inf, out=out / "run")
    data = load_from_disk(str(out.parent / "data")), canaries
    _, logs = trained(data, directory, callback, steps=8, **settings)
    logged = [entry["vestige/exposure"] for entry in logs if "vestige/exposure" in entry]
    measured = [
        [snapshot.step, snapshot.exposure.figures()["exposure_planted"]]
        for snapshot in callback.snapshots
    ]
    (directory / "measured.json").write_text(json.dumps([measured, logged]))


def private_adapter(out: Path) -> None:
    _private(out)


def private_whole(out: Path) -> None:
    """All weights of a small Llama."""
    _private(out, max_grad_norm=0.5, lora=False, base=llama())


def _private(out: Path, *, lora=None, base=None, **privacy) -> None:
    """Write weights, gradients and norms of this process."""
    rank, settings = process_settings()
    steps, norms, end = Steps(), [], NoisyStep.end

    def recorded(step, squares):
        norms.append(squares.tolist())
        end(step, squares)

    noise = seeded(noise_multiplier=0.5, **privacy)
    trainer = private_trainer(out / "trainer", noise, steps, lora=lora, base=base, **settings)
    with patch.object(NoisyStep, "end", recorded):
        trainer.train()
    gradients = [_flat(step) for step in steps.gradients]
    result = {"weights": _flat(weights(trainer.model)), "norms": norms, "gradients": gradients}
    (out / f"{rank}.json").write_text(json.dumps(result))


def private_few(out: Path) -> None:
    """Lots of one row or two, so that a process may have none."""
    privacy, counts = seeded(noise_multiplier=0.5, max_grad_norm=0.5), []
    trainer = private_trainer(out / "trainer", privacy, rows=1, steps=4, ddp_backend="gloo")
    batch = type(trainer._rows).batch

    def recorded(*args):
        result = batch(*args)
        counts.append(len(result[0]))
        return result

    with patch.object(type(trainer._rows), "batch", recorded):
        trainer.train()
    result = {"weights": _flat(weights(trainer.model)), "counts": counts}
    (out / f"{os.environ['RANK']}.json").write_text(json.dumps(result))


def _flat(tensors) -> list[float]:
    return [value for tensor in tensors for value in tensor.flatten().tolist()]


def in_ranks(count, work) -> None:
    """Do what torchrun does by forks, so that each process need not import everything again.

    Each fork has its rank in the environment. RuntimeError: one of them failed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = [
        _forked(work, {**shared, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in range(count)
    ]
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        raise RuntimeError(f"exit codes of the ranks: {codes}")


def _forked(work, environment) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.environ.update(environment)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


WORK = {work.__name__: work for work in (leakage, private_adapter, private_whole, private_few)}

if __name__ == "__main__":
    in_ranks(2, lambda: WORK[sys.argv[1]](Path(sys.argv[2])))
