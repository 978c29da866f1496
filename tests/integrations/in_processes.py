"""A training in one process, or with `python in_processes.py CANARIES OUT` in two."""

import json
import math
import os
import sys
from pathlib import Path

from datasets import load_from_disk

from tests.integrations.ranks import in_ranks
from tests.integrations.test_leakage_callback import trained
from vestige.integrations.leakage_callback import LeakageCallback


def measure(canaries: Path, out: Path) -> None:
    """Train, and write what was measured by this process."""
    callback = LeakageCallback(canaries, every=0.5, budget=math.inf, out=out / "run")
    own = out / os.environ.get("RANK", "0")
    own.mkdir()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    data = load_from_disk(str(canaries.parent / "data")), canaries
    spread = {"rows": 8 // processes, "ddp_backend": "gloo" if processes > 1 else None}
    _, told = trained(data, own, callback, steps=8, **spread)
    told = [logs["vestige/exposure"] for logs in told if "vestige/exposure" in logs]
    moments = [[one.step, one.found.figures()["exposure_planted"]] for one in callback.moments]
    (own / "told.json").write_text(json.dumps([moments, told]))


if __name__ == "__main__":
    in_ranks(2, lambda: measure(*map(Path, sys.argv[1:])))
