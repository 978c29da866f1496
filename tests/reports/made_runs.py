"""One small result of each kind that has a page of its own."""

from collections.abc import Callable
from typing import Any

from tests.reports.conftest import DefenceComparison, DifferentialRank, UpdateDiff
from tests.reports.made_audits import audit_of, uniform
from tests.reports.test_anatomy import anatomy
from tests.reports.test_completion import attempt
from tests.reports.test_exposure import canary
from tests.reports.test_extraction import audit, counted, extraction
from tests.reports.test_training import DefendedTraining, IntentSlotTraining, PairTraining
from vestige.attacks.exposure.completion import Completion
from vestige.attacks.exposure.exposure_result import CanaryExposure
from vestige.experiments.tables import Table

RESULTS: dict[str, Callable[[], Any]] = {
    "UpdateDiff": lambda: UpdateDiff([["the", " code"], ["a", " gate"], ["b"]], threshold=2.0),
    "DifferentialRank": lambda: DifferentialRank(["the", " code"], 1, 7),
    "Completion": lambda: Completion(
        attempts=(
            attempt("canary", 20, True, 1, best=True, kept=True),
            attempt("canary", 3, False, 2),
            attempt("control", 0, False, None),
        ),
        beam=5,
        prefix=1,
    ),
    "DefenceComparison": lambda: DefenceComparison(["plain", "goldfish"], notes=["Little text."]),
    "CanaryExposure": lambda: CanaryExposure(
        canaries=(canary(20, 9.0), canary(3, 6.0, shuffled=5.0), canary(0, 1.0), canary(0, 2.0)),
        words=50,
        fit_distance=0.01,
        seed=4,
    ),
    "Extraction": lambda: extraction(counted(1), counted(30)),
    "SecretAudit": lambda: audit([counted(1), counted(3)], [counted(400), counted(700)]),
    "Table": lambda: Table(
        name="t", title="T", note="N", columns=("a", "b"), entries=({"a": 1, "b": "x"},)
    ),
    "UserAudit": lambda: audit_of([0.2, 0.01, None], null=uniform(20)),
    "Anatomy": anatomy,
    "DefendedTraining": DefendedTraining,
    "IntentSlotTraining": IntentSlotTraining,
    "PairTraining": PairTraining,
}
