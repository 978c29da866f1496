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

from tests.integrations.worlds import Steps, llama, private, seeded, trained, weights
from vestige.integrations.leakage_callback import LeakageCallback
from vestige.privacy.dp_sgd import NoisyStep


def spread():
    """This process's rank, and how a trainer shares its rows out."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    shared = {"rows": 8 // count, "ddp_backend": "gloo" if count > 1 else None}
    return os.environ.get("RANK", "0"), shared


def leakage(out: Path) -> None:
    """Train beside `out`'s canaries, and write what was measured by this process."""
    rank, shared = spread()
    canaries, own = out.parent / "canaries", out / rank
    own.mkdir(parents=True)
    callback = LeakageCallback(canaries, every=0.5, budget=math.inf, out=out / "run")
    data = load_from_disk(str(out.parent / "data")), canaries
    _, told = trained(data, own, callback, steps=8, **shared)
    told = [logs["vestige/exposure"] for logs in told if "vestige/exposure" in logs]
    moments = [
        [snapshot.step, snapshot.exposure.figures()["exposure_planted"]]
        for snapshot in callback.snapshots
    ]
    (own / "told.json").write_text(json.dumps([moments, told]))


def private_adapter(out: Path) -> None:
    _private(out)


def private_whole(out: Path) -> None:
    """All of a small Llama."""
    _private(out, max_grad_norm=0.5, lora=False, base=llama())


def _private(out: Path, *, lora=None, base=None, **settings) -> None:
    """Write the weights of this process, its gradients, and its norms step by step."""
    rank, shared = spread()
    steps, norms, end = Steps(), [], NoisyStep.end

    def watched(own, found):
        norms.append(found.tolist())
        end(own, found)

    privacy = seeded(noise_multiplier=0.5, **settings)
    own = private(out / "trainer", privacy, steps, lora=lora, base=base, **shared)
    with patch.object(NoisyStep, "end", watched):
        own.train()
    kept = {"weights": _flat(weights(own.model)), "norms": norms}
    kept["gradients"] = [_flat(each) for each in steps.gradients]
    (out / f"{rank}.json").write_text(json.dumps(kept))


def private_few(out: Path) -> None:
    """A lot of one row or two, so that a process may have none."""
    privacy, counts = seeded(noise_multiplier=0.5, max_grad_norm=0.5), []
    own = private(out / "trainer", privacy, rows=1, steps=4, ddp_backend="gloo")
    batch = type(own._rows).batch

    def watched(*args):
        found = batch(*args)
        counts.append(len(found[0]))
        return found

    with patch.object(type(own._rows), "batch", watched):
        own.train()
    kept = {"weights": _flat(weights(own.model)), "counts": counts}
    (out / f"{os.environ['RANK']}.json").write_text(json.dumps(kept))


def _flat(tensors) -> list[float]:
    return [value for tensor in tensors for value in tensor.flatten().tolist()]


def in_ranks(count, work) -> None:
    """What a launcher such as torchrun does, from a process in which everything is imported.

    Each fork of this process has its rank in the environment. RuntimeError: one of them failed.
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
        raise RuntimeError(f"the ranks left with {codes}")


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


WORK = {one.__name__: one for one in (leakage, private_adapter, private_whole, private_few)}

if __name__ == "__main__":
    in_ranks(2, lambda: WORK[sys.argv[1]](Path(sys.argv[2])))
