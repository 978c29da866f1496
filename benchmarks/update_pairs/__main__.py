"""What did an update reveal? Methods compared on pairs of models whose update is known.

    python benchmarks/update_pairs make PAIRS --data CORPORA [--texts NAME ...] [--kinds KIND ...]

makes 20 pairs and a null of each; what is there is not made again.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from update_pairs.pairs import KINDS, make
from update_pairs.texts import TEXTS


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        prog="update_pairs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make", help="make the pairs")
    making.add_argument("pairs", type=Path, help="folder of the pairs")
    making.add_argument("--data", type=Path, default=os.environ.get("VESTIGE_DATA"))
    making.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS)
    making.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = None if asked.data is None else Path(asked.data)
    for pair in make(asked.pairs, data, texts=asked.texts, kinds=asked.kinds):
        print(pair, flush=True)


if __name__ == "__main__":
    main()
