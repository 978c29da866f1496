"""A private training in one process of several: `python private_in_processes.py OUT MECHANISM`."""

import json
import os
import sys
from pathlib import Path

from tests.integrations.test_private_trainer import seeded, trainer, weights


def main() -> None:
    """Train, and write the weights of this process."""
    out = Path(sys.argv[1])
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    more = {} if sys.argv[2] == "independent" else {"bands": 2, "clip_quantile": 0.5}
    privacy = seeded(noise_multiplier=0.5, **more)
    own = trainer(out / "trainer", privacy, rows=8 // processes, ddp_backend="gloo")
    own.train()
    kept = [value for one in weights(own.model) for value in one.flatten().tolist()]
    (out / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
