"""Try many new cases and print a command for the first case of each complaint.

python -m tests.fuzz --cases 5000 --seed 1

--cases N       number of cases over all verbs and formats
--seed N        random seed
--only NAME     verbs or formats, separated by commas
--repeat CASE   one case, as a failure prints it
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.arguments import command_lines, verbs
from tests.fuzz.cases import LONG, Bench, Case
from tests.fuzz.formats import FORMATS, damaged
from tests.fuzz.oracles import complaints
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.trials import each_of
from tests.fuzz.world import make_world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--repeat")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vestige-fuzz-") as folder:
        sandbox = Sandbox(Path(folder))
        bench = Bench(sandbox, make_world(sandbox))
        try:
            if options.repeat:
                _repeat(bench, Case.read(options.repeat))
            else:
                _try_many(bench, options.cases, options.seed, options.only)
        finally:
            sandbox.close()


def _repeat(bench: Bench, case: Case) -> None:
    attempt = bench.attempt(case)
    print(attempt.outcome.stdout, attempt.outcome.stderr, sep="\n")
    for complaint in complaints(attempt):
        print(f"{complaint.kind} | {complaint.key}\n{complaint.text}")


def _try_many(bench: Bench, cases: int, seed: int, only: str | None) -> None:
    """The same number of cases of each verb and each format."""
    strategies = {verb: command_lines(verb) for verb in verbs()}
    strategies |= {format: damaged(bench.world, format) for format in FORMATS}
    if only is not None:
        strategies = {name: strategies[name] for name in only.split(",")}
    causes: Counter[tuple[str, str]] = Counter()
    for name, strategy in strategies.items():
        started = time.monotonic()
        share = cases // len(strategies) // (10 if name in LONG else 1)
        _try_each(bench, strategy, share, seed, causes)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    for (kind, key), times in sorted(causes.items()):
        print(f"{times} times {kind} | {key}")


def _try_each(
    bench: Bench,
    strategy: st.SearchStrategy[Case],
    cases: int,
    seed: int,
    causes: Counter[tuple[str, str]],
) -> None:
    @hypothesis.seed(seed)
    @each_of(cases, new=True)
    @given(strategy)
    def each(case: Case) -> None:
        for complaint in complaints(bench.attempt(case)):
            cause = complaint.kind, complaint.key
            if not causes[cause]:
                text = f"{complaint.text[-1500:]}\n    {case.written()[:3000]}"
                section = f"## {complaint.kind} | {complaint.key}\n\n{text}\n"
                print(section.encode("utf-8", "backslashreplace").decode(), flush=True)
            causes[cause] += 1

    each()


if __name__ == "__main__":
    main()
