"""What did an update reveal? Methods compared on pairs of models whose update is known.

    python benchmarks/update_pairs make PAIRS --data CORPORA [--texts NAME ...] [--kinds KIND ...]

makes 20 pairs and a null of each; what is there is not made again.

    python benchmarks/update_pairs search PAIRS SEARCHES [--methods NAME ...] [--seeds N ...]

searches the pairs that are whole, and their nulls, by every method; what is there stays.

    python benchmarks/update_pairs tables PAIRS SEARCHES [--methods NAME ...]

prints the tables of all searches, and writes updates.csv and nulls.csv beside them.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[2]))

import torch

from update_pairs import tables
from update_pairs.methods import METHODS
from update_pairs.pairs import KINDS, make
from update_pairs.searches import BUDGET, Kept
from update_pairs.texts import TEXTS

ROLES = ("after", "null")


def main() -> None:
    """Parse and run."""
    asked = _parser().parse_args()
    torch.set_num_threads(1)
    if asked.verb == "make":
        data = None if asked.data is None else Path(asked.data)
        for pair in make(asked.pairs, data, texts=asked.texts, kinds=asked.kinds):
            print(pair, flush=True)
        return
    kept = Kept(pairs=asked.pairs, searches=asked.searches)
    if asked.verb == "search":
        kept = replace(kept, budget=asked.budget)
        names = asked.only or kept.names()
        for line in kept.search(asked.methods, asked.roles, asked.seeds, pairs=names):
            print(line, flush=True)
        return
    updates = tables.records(kept, asked.methods, seed=asked.update_seed)
    nulls = [one for name in asked.methods for one in tables.alarms(kept, name, asked.seeds)]
    for title, rows in (
        ("Methods", tables.methods_table(updates)),
        ("Kinds of pair, first 50 rows", tables.kinds_table(updates)),
        ("Rows that null searches hardly reach", tables.found_table(updates)),
        ("Pairs on which the hybrid recalls as much", tables.duels_table(updates)),
        ("Null searches", tables.alarms_table(nulls)),
    ):
        print(f"## {title}\n\n{tables.markdown(rows)}\n")
    tables.write_csv(updates, asked.searches / "updates.csv")
    tables.write_csv(nulls, asked.searches / "nulls.csv")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="update_pairs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make", help="make the pairs")
    making.add_argument("pairs", type=Path, help="folder of the pairs")
    making.add_argument("--data", type=Path, default=os.environ.get("VESTIGE_DATA"))
    making.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS)
    making.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    searching = verbs.add_parser("search", help="search the pairs that are whole")
    searching.add_argument("--only", nargs="+", help="names of pairs; all by default")
    searching.add_argument("--budget", type=int, default=BUDGET, help="forward tokens of a search")
    searching.add_argument("--roles", nargs="+", choices=ROLES, default=ROLES)
    telling = verbs.add_parser("tables", help="print the tables")
    telling.add_argument("--update-seed", type=int, default=0, help="of the searches of updates")
    for verb in (searching, telling):
        verb.add_argument("pairs", type=Path, help="folder of the pairs")
        verb.add_argument("searches", type=Path, help="folder of what was found")
        verb.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
        verb.add_argument("--seeds", nargs="+", type=int, default=[0])
    return parser


if __name__ == "__main__":
    main()
