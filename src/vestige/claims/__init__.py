"""Claims, the checks that they need, and their verdicts."""

from vestige.claims.checks import (
    alive,
    bounded,
    detectable_auc,
    detectable_difference,
    detectable_shift,
    different,
    distinct,
    one_model,
    powerful,
    read,
)
from vestige.claims.claim import (
    DIRECT_LEVEL,
    LEAK,
    NO_LEAK,
    REQUIRED,
    UNDECIDED,
    VERDICTS,
    Check,
    Claim,
    Direct,
    Verdict,
)
from vestige.claims.text_lists import independent, joined, near_duplicates
from vestige.metrics.estimates import Estimate
from vestige.metrics.tests import Test

__all__ = [
    "DIRECT_LEVEL", "LEAK", "NO_LEAK", "REQUIRED", "UNDECIDED", "VERDICTS", "Check", "Claim",
    "Direct", "Estimate", "Test", "Verdict", "alive", "bounded", "detectable_auc",
    "detectable_difference", "detectable_shift", "different", "distinct",
    "independent", "joined", "near_duplicates", "one_model", "powerful", "read",
]  # fmt: skip
