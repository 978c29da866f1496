"""How many cases are drawn, and what is done with each."""

import os

from hypothesis import HealthCheck, Phase, settings

from tests.fuzz.cases import Bench, Case
from tests.fuzz.oracles import complaints

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
