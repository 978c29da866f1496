"""How many cases are drawn, from which strategies, and what is done with each."""

import os
import time

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.arguments import command_lines, verbs
from tests.fuzz.cases import LONG, Bench, Case
from tests.fuzz.formats import FORMATS, damaged
from tests.fuzz.oracles import complaints
from tests.fuzz.table import Table

BUDGET = int(os.environ.get("VESTIGE_FUZZ_CASES", "72"))
"""Cases of the test suite: the same ones each time, unless the variable asks for a number."""


def each_of(cases: int, *, drawn: bool = "VESTIGE_FUZZ_CASES" in os.environ) -> settings:
    """So many examples, other ones each time if `drawn`; none shrunk, a case is small."""
    return settings(
        max_examples=max(1, cases),
        phases=[Phase.explicit, Phase.generate],
        derandomize=not drawn,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def check(bench: Bench, case: Case) -> None:
    """Try a case and fail with what is wrong, and with the command that repeats it."""
    found = list(complaints(bench.attempt(case)))
    told = "\n".join(f"{each.kind}: {each.key}\n{each.text}" for each in found)
    assert not found, f"{told}\n{case.written()}"


def trials(bench: Bench, table: Table, *, cases: int, seed: int, only: str | None = None) -> None:
    """Count so many cases in the table, as many of each verb and of each format.

    Args:
        bench: where they are tried.
        table: what is filled, whatever becomes of each.
        cases: how many in all.
        seed: decides which.
        only: the verbs and formats to try, with commas between them.
    """
    strategies = {verb: command_lines(verb) for verb in verbs()}
    strategies |= {format: damaged(bench.world, format) for format in FORMATS}
    if only is not None:
        strategies = {name: strategies[name] for name in only.split(",")}
    for name, strategy in strategies.items():
        started = time.monotonic()
        share = cases // len(strategies) // (10 if name in LONG else 1)
        _tabulate(strategy, bench, table, share, seed)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


def _tabulate(
    strategy: st.SearchStrategy[Case], bench: Bench, table: Table, cases: int, seed: int
) -> None:
    @hypothesis.seed(seed)
    @each_of(cases, drawn=True)
    @given(strategy)
    def each(case: Case) -> None:
        tried = bench.attempt(case)
        for complaint in table.add(tried, complaints(tried)):
            print(f"{complaint.kind} | {complaint.key}\n    {case.written()[:1000]}", flush=True)

    each()
