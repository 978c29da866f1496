"""What all benchmarks share: the command line, paired times, peak memory, counts, kept rows.

A benchmark is a file with named parts, each a function of a `Run`. A part returns a row, or a list
of rows, which are printed as a table.

    python benchmarks/NAME.py [PART ...] [--times N] [--rows FILE] [--work DIR] [--data DIR]
    python benchmarks/NAME.py --quick

`--times` sets how often a part repeats, draws or trains. `--rows FILE` keeps every draw as a line
of JSON; the same command resumes, and several processes may share a file. `--work DIR` keeps
models.
Progress goes to stderr. The last line of output is JSON: the result of each part by its name.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
sys.path.insert(1, str(Path(__file__).parents[1]))  # `reproduction` stands beside this folder

import torch

from vestige.memory import PeakMemory, keep_freed_pages
from vestige.metrics.estimates import clopper_pearson

Row = dict[str, Any]
Work = Callable[[], object]
Parts = Mapping[str, Callable[["Run"], Row | Sequence[Row]]]


@dataclass
class Run:
    """One call of a benchmark.

    Attributes:
        options: of the command line, those of the benchmark included.
        folder: for models and other files; temporary unless `--work` names one.
        kept: rows by case and number, read from `--rows` and added to it.
    """

    options: argparse.Namespace
    folder: Path
    kept: dict[tuple[str, int], Row] = field(default_factory=dict)

    @property
    def quick(self) -> bool:
        return bool(self.options.quick)

    @property
    def data(self) -> Path:
        """The folder of corpora."""
        if self.options.data is None:
            raise SystemExit("Set VESTIGE_DATA or --data to the folder of corpora, or use --quick.")
        return Path(self.options.data)

    def times(self, full: int, quick: int = 1) -> int:
        """How often to repeat: `--times`, or a default."""
        return self.options.times or self.size(full, quick)

    def size(self, full: Any, quick: Any) -> Any:
        """A setting, smaller with `--quick`."""
        return quick if self.quick else full

    def draw(self, case: str, make: Callable[[int], Row], numbers: Iterable[int]) -> list[Row]:
        """One row a number, those that are kept already not made again."""
        found, numbers, began = [], list(numbers), time.monotonic()
        for place, number in enumerate(numbers, 1):
            if (case, number) not in self.kept:
                self.keep(case, number, make(number))
            found.append(self.kept[case, number])
            if time.monotonic() - began > 10 or (place == len(numbers) > 1):
                began = time.monotonic()
                log(f"{case}: {place} of {len(numbers)}")
        return found

    def keep(self, case: str, number: int, row: Row) -> None:
        """Add a row, in one write."""
        self.kept[case, number] = row
        if self.options.rows is not None:
            line = json.dumps({"case": case, "number": number, "row": row}, default=float) + "\n"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            file = os.open(self.options.rows, flags, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)


def log(line: str) -> None:
    """Progress, to stderr."""
    print(line, file=sys.stderr, flush=True)


# Counts ------------------------------------------------------------------------------------------


def rate(hits: int, of: int) -> Row:
    """A share with Clopper and Pearson's 95 % interval."""
    low, high = clopper_pearson(hits, of)
    return {"hits": hits, "of": of, "rate": hits / of, "low": low, "high": high}


def rates(rows: Sequence[Row], *names: str) -> Row:
    """The share of rows in which each column is true; None is not counted."""
    told = {name: [row[name] for row in rows if row[name] is not None] for name in names}
    return {name: rate(sum(map(bool, flags)), len(flags)) for name, flags in told.items() if flags}


def verdicts(rows: Sequence[Row], column: str = "verdict") -> Row:
    """The share of each verdict."""
    counts = Counter(str(row[column]) for row in rows)
    return {verdict: rate(count, len(rows)) for verdict, count in sorted(counts.items())}


# Time and memory ---------------------------------------------------------------------------------


def now(device: str = "cpu") -> float:
    """Seconds of this process on one thread, so that no other program counts; else the clock's."""
    if device != "cpu":
        torch.cuda.synchronize()
    elif torch.get_num_threads() == 1:
        return time.process_time()
    return time.perf_counter()


def seconds(work: Work, device: str = "cpu") -> float:
    """Seconds of one call."""
    began = now(device)
    work()
    return now(device) - began


def paired(works: Mapping[str, Work], repeats: int, device: str = "cpu") -> dict[str, Row]:
    """Times relative to the first of some works, all in turns in this process.

    Every other round runs them in reverse; a round before the first is not counted. `ratio` is that
    of the medians, `fastest` that of the fastest calls.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name in list(works)[:: 1 if repeat % 2 else -1]:
            spent = seconds(works[name], device)
            if repeat:
                taken[name].append(spent)
    middle = {name: statistics.median(times) for name, times in taken.items()}
    base = next(iter(works))
    return {
        name: {
            "seconds": middle[name],
            "ratio": middle[name] / middle[base],
            "fastest": min(taken[name]) / min(taken[base]),
        }
        for name in works
    }


def peak_mib(prepare: Callable[[], Work], device: str = "cpu") -> float:
    """Peak memory in MiB of a process that prepares some work and does it.

    Args:
        prepare: returns the work; both are counted. It must be picklable: a function of a module,
            or a `functools.partial` of one.
        device: whose memory.
    """
    return apart(_peak, prepare, device)


def _peak(prepare: Callable[[], Work], device: str) -> float:
    peak = PeakMemory(torch.device(device))
    prepare()()
    return float(peak.mib() or float("nan"))


def apart(function: Callable[..., Any], *given: Any) -> Any:
    """The answer of a function in a new process."""
    reading, writing = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_answered, args=(writing, function, given)
    )
    process.start()
    writing.close()
    try:
        answer = reading.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"{function} ended with exit code {process.exitcode}") from None
    process.join()
    return answer


def _answered(writing: Any, function: Callable[..., Any], given: Sequence[Any]) -> None:
    _prepare_process()
    writing.send(function(*given))


def _prepare_process() -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    keep_freed_pages()


# The command line --------------------------------------------------------------------------------


def main(
    name: str,
    description: str,
    parts: Parts,
    options: Callable[[argparse.ArgumentParser], object] | None = None,
    words: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run the parts that the command line names, print them, and return their results.

    Args:
        name: of the benchmark.
        description: its docstring.
        parts: by name, in the order in which they run.
        options: adds options of the benchmark to the parser.
        words: of the command line; None: this process's.
    """
    given = _parse(description, parts, options, words)
    _prepare_process()
    results: dict[str, Any] = {"benchmark": name, "quick": given.quick}
    with tempfile.TemporaryDirectory() as temporary:
        run = Run(given, given.work or Path(temporary), _read_rows(given.rows))
        run.folder.mkdir(parents=True, exist_ok=True)
        for part in given.parts or parts:
            found = parts[part](run)
            results[part] = found
            print(f"## {part}\n\n{table([found] if isinstance(found, dict) else found)}\n")
            sys.stdout.flush()
    print(json.dumps(results, default=float))
    return results


def _parse(
    description: str,
    parts: Parts,
    options: Callable[[argparse.ArgumentParser], object] | None,
    words: Sequence[str] | None,
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; or all")
    parser.add_argument("--quick", action="store_true", help="small models and invented texts")
    parser.add_argument("--times", type=int, help="repeats, draws or trainings of a part")
    parser.add_argument("--rows", type=Path, help="file of finished draws, to resume")
    parser.add_argument("--work", type=Path, help="folder of models, to resume")
    parser.add_argument("--data", default=os.environ.get("VESTIGE_DATA"), help="corpora")
    if options is not None:
        options(parser)
    given = parser.parse_args(words)
    if unknown := set(given.parts) - set(parts):
        parser.error(f"no part {', '.join(sorted(unknown))}; choose of {', '.join(parts)}")
    return given


def _read_rows(file: Path | None) -> dict[tuple[str, int], Row]:
    if file is None or not file.exists():
        return {}
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return {(line["case"], line["number"]): line["row"] for line in lines}


def table(rows: Iterable[Row]) -> str:
    """Rows as Markdown, one column for each key."""
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(column)) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        if value.keys() >= {"hits", "of", "low", "high"}:
            ends = f"{100 * value['low']:.1f} to {100 * value['high']:.1f} %"
            return f"{value['hits']} of {value['of']} ({ends})"
        return ", ".join(f"{key} {_cell(part)}" for key, part in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    return "" if value is None else str(value)
