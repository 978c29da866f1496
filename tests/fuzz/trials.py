"""The number of random cases, and the check of each."""

import os

from hypothesis import HealthCheck, Phase, settings

from tests.fuzz.cases import Bench, Case
from tests.fuzz.oracles import complaints

BUDGET = int(os.environ.get("VESTIGE_FUZZ_CASES", "72"))
"""Cases of the test suite; without the variable, the same in each run."""


def each_of(cases: int, *, new: bool = "VESTIGE_FUZZ_CASES" in os.environ) -> settings:
    """Settings for a number of examples, without shrinking; `new` ones differ in each run."""
    return settings(
        max_examples=max(1, cases),
        phases=[Phase.explicit, Phase.generate],
        derandomize=not new,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def check(bench: Bench, case: Case) -> None:
    """Try a case and fail with its complaints and the command that repeats it."""
    faults = complaints(bench.attempt(case))
    text = "\n".join(f"{fault.kind}: {fault.key}\n{fault.text}" for fault in faults)
    assert not faults, f"{text}\n{case.written()}"
