"""What memaudit's reports claim, by rules that are stated before anything is measured."""

from collections.abc import Mapping
from typing import Any

RATE = 0.01
"""False positives that memaudit's threshold is set for."""
LEAKY = 0.10
"""Of canaries above the threshold: from here on memaudit's own recommendations call it leaky."""


def record(secret: str) -> str:
    """A canary as memaudit's `inject` writes it into texts."""
    from memaudit.injection import TEXT_PREFIX

    return f"{TEXT_PREFIX}{secret}"


def claims(report: Mapping[str, Any]) -> dict[str, Any]:
    """Its membership figures, and two readings of them as yes or no.

    memaudit writes a rate with its interval, and no verdict. "strict" is yes where the interval
    lies above the false positives that are allowed; "leaky" where its own recommendations say so,
    by the rate or by any canary that comes back.
    """
    own, said = report["membership"], report["regurgitation"]["overall"]["n_regurgitated"]
    rate = own["exploratory_tpr"]
    return {
        "detected": own["n_detected"],
        "of": own["n_members"],
        "rate": rate,
        "low": own["exploratory_ci_low"],
        "high": own["exploratory_ci_high"],
        "auc": own["auc"],
        "strict": bool(own["exploratory_ci_low"] > RATE),
        "leaky": bool(rate >= LEAKY or said > 0),
    }
