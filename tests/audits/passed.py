"""Passed checks, for results that tests construct by hand."""

from vestige.claims import REQUIRED, Check

PASSED = (
    Check("alive", "passed", "The model predicts text 3.00 nats per token better."),
    Check("read", "passed", "100% of the canaries and controls were read."),
)


def passed(verb: str) -> tuple[Check, ...]:
    """Every check that the verb requires except "powerful", which results add themselves."""
    return tuple(
        Check(name, "passed", f"{name} passed.") for name in REQUIRED[verb] if name != "powerful"
    )
