"""Checks of a model that predicts and reads all canaries, as a workflow makes them."""

from vestige.claims import Check

PASSED = (
    Check("alive", "passed", "The model predicts text 3.00 nats per token better."),
    Check("read", "passed", "100% of the canaries and controls were read."),
)
