"""A training in one process of several: `python in_processes.py CANARIES OUT` under torchrun."""

import math
import sys
from pathlib import Path

from tests.integrations.test_leakage_callback import trained
from vestige.integrations.transformers import LeakageCallback


def main() -> None:
    """Train, and write what was measured by this process."""
    import json
    import os

    from datasets import load_from_disk

    canaries, out = map(Path, sys.argv[1:])
    callback = LeakageCallback(canaries, every=0.5, budget=math.inf, out=out / "run")
    own = out / os.environ.get("RANK", "0")
    own.mkdir()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    data = load_from_disk(str(canaries.parent / "data")), canaries
    _, told = trained(data, own, callback, steps=8, rows=8 // processes, ddp_backend="gloo")
    told = [logs["vestige/exposure"] for logs in told if "vestige/exposure" in logs]
    moments = [[one.step, one.found.summary()["exposure_planted"]] for one in callback.moments]
    (own / "told.json").write_text(json.dumps([moments, told]))


if __name__ == "__main__":
    main()
