"""Checks that pass, for results that no verb made."""

from vestige.claims import REQUIRED, Check

PASSED = (
    Check("alive", "passed", "The model predicts text 3.00 nats per token better."),
    Check("read", "passed", "100% of the canaries and controls were read."),
)
"""Of a model that predicts and reads all canaries."""


def passed(verb: str) -> tuple[Check, ...]:
    """All that the verb requires but "powerful", which results make themselves."""
    return tuple(
        Check(name, "passed", f"{name} passed.") for name in REQUIRED[verb] if name != "powerful"
    )
