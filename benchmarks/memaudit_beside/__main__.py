"""memaudit and Vestige side by side: its own demo, one training with both, and what each misses.

memaudit 0.2.0 (Apache-2.0) plants canaries and audits a fine-tune by them, as Vestige does in
`vestige.integrations.transformers`. It is no dependency; without it this says what to install.
Each line is JSON, one answer of one tool.

    python benchmarks/memaudit_beside demo [--seeds 5]
    VESTIGE_DATA=data python benchmarks/memaudit_beside repeated [--seeds 5]
    VESTIGE_DATA=data python benchmarks/memaudit_beside null [--seeds 20]
    VESTIGE_DATA=data python benchmarks/memaudit_beside own [--seeds 5]
    VESTIGE_DATA=data python benchmarks/memaudit_beside private [--seeds 5]
    VESTIGE_DATA=data python benchmarks/memaudit_beside mistakes [--seeds 1]
    VESTIGE_DATA=data python benchmarks/memaudit_beside check WORLD
    python benchmarks/memaudit_beside tables FILE...

"demo" is memaudit's own demo, of whose trained model Vestige is asked the same. "repeated" trains
once with both callbacks, each canary standing in the text 1, 4 or 16 times; "null" trains on text
without any, and asks for what nobody read; "own" has secrets of the user's sixteen times in the
text, and canaries once; "private" trains with DP-SGD; "mistakes" are trainings in which canaries
cannot be learnt. "check" asks memaudit
about ten fine-tunes of the calibration in WORLD (`check_calibration`), beside what `vestige check`
said of them. "tables" counts the lines of files, with intervals. `--first N` begins at seed N.
"""

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[2]))

import torch

from memaudit_beside.peer import require_memaudit

SEEDS = {"demo": 5, "repeated": 5, "null": 20, "own": 5, "private": 5, "mistakes": 1}


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=[*SEEDS, "check", "tables"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    if given.stage == "tables":
        from memaudit_beside.tables import tables

        print(tables(given.files))
        return
    require_memaudit()
    if given.stage == "check" and len(given.files) != 1:
        parser.error("check needs one folder, the world of check_calibration")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    number = given.seeds or SEEDS[given.stage]
    seeds = range(given.first, given.first + number)
    with tempfile.TemporaryDirectory(prefix="beside-") as place:
        tempfile.tempdir = place  # of what trainers write
        for row in answers(given.stage, seeds, given.files):
            print(json.dumps({"stage": given.stage} | row), flush=True)


def answers(stage: str, seeds: Iterable[int], files: Sequence[Path]) -> Iterator[dict[str, object]]:
    """Rows of a stage."""
    if stage == "check":
        from memaudit_beside import releases

        yield from releases.rows(files[0])
        return
    if stage == "demo":
        from memaudit_beside import demo

        for seed in seeds:
            yield from demo.rows(seed)
        return
    from memaudit_beside import mistakes, trials
    from memaudit_beside.worlds import World

    world = World.made()
    ask: dict[str, Callable[[int], Iterable[dict[str, object]]]] = {
        "repeated": lambda seed: [
            row for copies in trials.COPIES for row in trials.repeated(world, seed, copies)
        ],
        "null": lambda seed: trials.null(world, seed),
        "own": lambda seed: trials.own_text(world, seed),
        "private": lambda seed: trials.private_training(world, seed),
        "mistakes": lambda seed: mistakes.rows(world, seed),
    }
    for seed in seeds:
        yield from ask[stage](seed)


if __name__ == "__main__":
    main()
