"""What all benchmarks share: the command line, resumable draws, paired times, peak memory, rates.

A benchmark is a file with named parts, each a function of a `Run`. A part returns a row, or a list
of rows, which are printed as a table.

    python benchmarks/NAME.py [PART ...] [--times N] [--rows FILE] [--work DIR] [--data DIR]
    python benchmarks/NAME.py --quick

`--times` sets how often a part repeats, draws or trains. `--rows FILE` saves every draw as a line
of JSON; the same command resumes, and several processes may share a file. `--work DIR` saves
models. Progress goes to stderr. The last line of output is JSON: the result of each part by name.
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
sys.path.insert(1, str(Path(__file__).parents[1]))  # for `reproduction`

import torch

from vestige.memory import PeakMemory, keep_freed_pages
from vestige.metrics.estimates import clopper_pearson

Row = dict[str, Any]
Task = Callable[[], object]
Parts = Mapping[str, Callable[["Run"], Row | Sequence[Row]]]


@dataclass
class Run:
    """One call of a benchmark.

    Attributes:
        options: from the command line, including the benchmark's own.
        folder: for models and other files; temporary unless `--work` names one.
        saved: rows by case and number, read from `--rows` and added to it.
    """

    options: argparse.Namespace
    folder: Path
    saved: dict[tuple[str, int], Row] = field(default_factory=dict)

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
        """The number of repeats: `--times`, or a default."""
        return self.options.times or self.size(full, quick)

    def size(self, full: Any, quick: Any) -> Any:
        """A setting, smaller with `--quick`."""
        return quick if self.quick else full

    def draw(
        self, case: str, make: Callable[[int], Row], times: int = 1, *, first: int = 0
    ) -> list[Row]:
        """The rows that `make` returns for `times` numbers; saved rows are not computed again."""
        rows, logged = [], time.monotonic()
        for count, number in enumerate(range(first, first + times), 1):
            if (case, number) not in self.saved:
                self._save(case, number, make(number))
            rows.append(self.saved[case, number])
            if time.monotonic() - logged > 10 or (count == times > 1):
                logged = time.monotonic()
                log(f"{case}: {count} of {times}")
        return rows

    def _save(self, case: str, number: int, row: Row) -> None:
        self.saved[case, number] = row
        if self.options.rows is not None:
            line = json.dumps({"case": case, "number": number, "row": row}, default=float) + "\n"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            file = os.open(self.options.rows, flags, 0o600)
            try:
                os.write(file, line.encode())  # one write, because processes share the file
            finally:
                os.close(file)


def log(line: str) -> None:
    """Write progress to stderr."""
    print(line, file=sys.stderr, flush=True)


# Rates -------------------------------------------------------------------------------------------


def rate(hits: int, of: int) -> Row:
    """A share with the 95 % interval of Clopper and Pearson."""
    low, high = clopper_pearson(hits, of)
    return {"hits": hits, "of": of, "rate": hits / of, "low": low, "high": high}


def rates(rows: Sequence[Row], *columns: str) -> Row:
    """The share of rows in which each column is true; None is not counted."""
    flags = {name: [row[name] for row in rows if row[name] is not None] for name in columns}
    return {name: rate(sum(map(bool, column)), len(column))
            for name, column in flags.items() if column}  # fmt: skip


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in some columns."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def verdicts(rows: Sequence[Row]) -> Row:
    """The share of each verdict."""
    counts = Counter(str(row["verdict"]) for row in rows)
    return {verdict: rate(count, len(rows)) for verdict, count in sorted(counts.items())}


# Time and memory ---------------------------------------------------------------------------------


def seconds(task: Task) -> float:
    """Seconds of one call, of this process only if it has one thread."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    task()
    return clock() - started


def paired(tasks: Mapping[str, Task], repeats: int) -> dict[str, Row]:
    """Times relative to the first task; the tasks take turns in this process.

    Every other round runs them in reverse; a round before the first is not counted. `ratio` is that
    of the medians, `fastest` that of the fastest calls.
    """
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name in list(tasks)[:: 1 if repeat % 2 else -1]:
            taken = seconds(tasks[name])
            if repeat:
                times[name].append(taken)
    medians = {name: statistics.median(column) for name, column in times.items()}
    base = next(iter(tasks))
    return {
        name: {
            "seconds": medians[name],
            "ratio": medians[name] / medians[base],
            "fastest": min(times[name]) / min(times[base]),
        }
        for name in tasks
    }


def peak_mib(prepare: Callable[[], Task]) -> float:
    """Peak memory in MiB of a new process that prepares a task and runs it.

    Args:
        prepare: returns the task; both are counted. It must be picklable: a function of a module,
            or a `functools.partial` of one.
    """
    return float(in_new_process(_peak_mib, prepare))


def _peak_mib(prepare: Callable[[], Task]) -> float:
    peak = PeakMemory(torch.device("cpu"))
    prepare()()
    return float(peak.mib() or float("nan"))


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a new process."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_send_result, args=(sender, function, arguments)
    )
    process.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"{function} ended with exit code {process.exitcode}") from None
    process.join()
    return result


def _send_result(sender: Any, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    _prepare_process()
    sender.send(function(*arguments))


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
    arguments: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run the parts that the command line names, print them, and return their results.

    Args:
        name: of the benchmark.
        description: its docstring.
        parts: by name, in the order in which they run.
        options: adds options of the benchmark to the parser.
        arguments: of the command line; None: this process's.
    """
    parsed = _parse(description, parts, options, arguments)
    _prepare_process()
    results: dict[str, Any] = {"benchmark": name, "quick": parsed.quick}
    with tempfile.TemporaryDirectory() as temporary:
        run = Run(parsed, parsed.work or Path(temporary), _read_rows(parsed.rows))
        run.folder.mkdir(parents=True, exist_ok=True)
        for part in parsed.parts or parts:
            result = parts[part](run)
            results[part] = result
            print(f"## {part}\n\n{table([result] if isinstance(result, dict) else result)}\n")
            sys.stdout.flush()
    print(json.dumps(results, default=float))
    return results


def _parse(
    description: str,
    parts: Parts,
    options: Callable[[argparse.ArgumentParser], object] | None,
    arguments: Sequence[str] | None,
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
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.parts) - set(parts):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(parts)}")
    return parsed


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
