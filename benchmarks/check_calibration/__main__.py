"""How often is the verdict of `vestige check` wrong? The unit is the fine-tune.

    VESTIGE_DATA=data python benchmarks/check_calibration WORLD --bases
    VESTIGE_DATA=data python benchmarks/check_calibration WORLD --first 0 --last 200 [--minutes 10]
    python benchmarks/check_calibration WORLD --table
    python benchmarks/check_calibration WORLD --write src/vestige/audits/check/calibration.json

Each number from --first up to, and without, --last is a fine-tune of known truth (`fine_tunes`):
it is trained, checked, and gets a row in WORLD/rows.jsonl, unless it has one. Several processes
may share a world, each with other numbers. `--table` counts the verdicts; `--write` makes the file
that the report of a check cites.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers

import vestige
from check_calibration.fine_tunes import fine_tune
from check_calibration.table import calibration, table
from check_calibration.world import BASES, base, train_base
from vestige.memory import keep_freed_pages

ABOUT = ("number", "kind", "copies", "in_file", "variant", "corpus", "base", "method", "epochs",
         "texts", "rate", "memorized", "memorized_by_base")  # fmt: skip


def checked(world: Path, folder: Path, minutes: float) -> dict[str, Any]:
    """The row of a fine-tune: its truth, the verdict and what led to it."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    listed = folder / "secrets.txt"
    began, spent = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as out:
        result = vestige.check(
            folder / "model",
            base=base(world, truth["base"]),
            trained_on=folder / "trained.jsonl",
            never=folder / "never.jsonl",
            secrets=listed if listed.exists() else None,
            minutes=minutes,
            seed=truth["number"],
            out=Path(out) / "run",
        )
    seconds, spent = time.perf_counter() - began, time.process_time() - spent
    return {
        **{name: truth[name] for name in ABOUT},
        **_said(result),
        "seconds_fine_tune": truth["seconds"],
        "seconds_check": round(seconds, 1),
        "cpu_seconds_check": round(spent, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def _said(result: Any) -> dict[str, Any]:
    """Verdict, states of the checks, what prevents another verdict, and the stages' numbers."""
    claim, summary = result.claim, result.summary
    test = claim.test
    return {
        "verdict": claim.verdict,
        "checks": {one.name: one.state for one in claim.checks},
        "reasons": list(claim.reasons),
        "direct": claim.direct is not None and claim.direct.conclusive,
        "p": None if test is None else test.p,
        "least": None if test is None else test.least,
        "stages": {
            one["name"]: {key: one.get(key) for key in ("state", "passed", "seconds")}
            for one in summary.get("stages", ())
        },
        **{name: value for name, value in summary.items() if _is_number(name)},
    }


def _is_number(name: str) -> bool:
    return name.startswith(("p_", "statistic_"))


def numbers_done(rows: Path) -> set[int]:
    """Numbers that have a row."""
    if not rows.exists():
        return set()
    return {json.loads(line)["number"] for line in rows.read_text(encoding="utf-8").splitlines()}


def append(rows: Path, row: Mapping[str, Any]) -> None:
    """One line in one write, so that several processes may append."""
    file = os.open(rows, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, (json.dumps(row, allow_nan=False) + "\n").encode())
    finally:
        os.close(file)


def main() -> None:
    """Parse, then train bases, count verdicts, or check fine-tunes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("world", type=Path)
    parser.add_argument("--bases", nargs="*", metavar="NAME", help="Train bases and stop.")
    parser.add_argument("--table", action="store_true", help="Count the verdicts so far.")
    parser.add_argument("--write", type=Path, help="Write the counts for the report of a check.")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=100)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0, help="Time limit of a check.")
    parser.add_argument("--discard", action="store_true", help="Delete a model once it is checked.")
    parser.add_argument("--only-train", action="store_true", help="Fine-tune, check nothing.")
    given = parser.parse_args()
    rows = given.world / "rows.jsonl"
    if given.table:
        print(table(rows))
        return
    if given.write is not None:
        given.write.write_text(json.dumps(calibration(rows), indent=1) + "\n", encoding="utf-8")
        return
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    keep_freed_pages()
    torch.set_num_threads(1)
    given.world.mkdir(parents=True, exist_ok=True)
    if given.bases is not None:
        for name in given.bases or BASES:
            train_base(given.world, name)
        return
    for number in range(given.first, given.last, given.step):
        if number in numbers_done(rows):
            continue
        folder = fine_tune(given.world, number)
        if given.only_train:
            print(f"{number}: {(folder / 'truth.json').read_text(encoding='utf-8')}", flush=True)
            continue
        row = checked(given.world, folder, given.minutes)
        append(rows, row)
        print(f"{number}: {row['kind']}, {row['copies']} copies, {row['variant']}: "
              f"{row['verdict']}, {row['seconds_check']} s", flush=True)  # fmt: skip
        if given.discard:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
