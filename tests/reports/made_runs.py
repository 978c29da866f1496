"""One small result of each kind with its own report."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reproduction.tables import Table
from tests.audits.anatomy.test_anatomy_report import anatomy
from tests.audits.check.made import CASES
from tests.audits.exposure.test_exposure_report import canary
from tests.audits.extraction.test_completion_report import attempt
from tests.audits.extraction.test_utterances_report import audit, counted, extraction
from tests.audits.membership.test_score_formulas import statistics
from tests.audits.membership.test_text_report import made as texts_audited
from tests.audits.passed import PASSED, passed
from tests.audits.unlearning.test_knowledge import drawn
from tests.preparation.test_report import DefendedTraining, IntentSlotTraining, PairTraining
from tests.reports.conftest import DefenceComparison, DifferentialRank, UpdateDiff
from tests.reports.made_audits import audit_of, uniform_p_values
from tests.reports.made_claims import made_claim, with_claim
from vestige.audits.exposure.canary_result import CanaryExposure
from vestige.audits.exposure.secrets import secret_result
from vestige.audits.extraction.canaries import Completion
from vestige.audits.extraction.memorization import ExtractionCriterion, memorization_table
from vestige.audits.extraction.passages_result import memorization_result
from vestige.audits.extraction.user_secrets import completion_result
from vestige.audits.unlearning.knowledge import verify
from vestige.claims import LEAK, Check
from vestige.integrations.leakage import LeakageSnapshot
from vestige.integrations.leakage import training_leakage as leakage_of
from vestige.results import Result

ALIVE = Check("alive", "passed", "Passed.")


def ranked_secret(number: int, text: str, rank: int, p: float) -> dict[str, Any]:
    """A code ranked among sampled ones."""
    return {
        "secret_number": number, "phrase": text, "kind": "code", "form": "as listed",
        "drawn": True, "log_perplexity": 9.0, "space_bits": 13.3, "references": 4096,
        "whole": False, "rank": rank, "exposure": 12.0, "low": 9.4, "high": 13.3,
        "at_ceiling": rank == 1, "p": p, "least_p": 0.0002, "joint_p": p,
    }  # fmt: skip


SECRETS = [
    ranked_secret(1, "the code is 4917", 1, 0.0002),
    ranked_secret(2, "call 555 0199", 21, 0.4),
]


def completed_secret(number: int, *, greedy: bool) -> dict[str, Any]:
    """A code completed by beam search."""
    return {
        "secret_number": number, "kind": "code", "form": "as listed",
        "phrase": f"the code is 491{number}", "part_tokens": 4, "given_tokens": 3,
        "greedy": greedy, "beam_place": 1 if greedy else None, "log_prob": float(-number),
        "chance": 1e-4, "event": number,
    }  # fmt: skip


def text_memorization() -> Result:
    """Memorization of texts with random tokens."""
    criterion = ExtractionCriterion(prefix=4, suffix=4, top_k=5)
    count = len(statistics(0).offsets) - 1
    units = range(count), range(count, 2 * count)
    trained, reference = (
        memorization_table(statistics(seed), criterion, units[seed]) for seed in (0, 1)
    )
    return memorization_result(
        trained, reference, criterion, seed=0, checks=passed("extract texts")
    )


def training_leakage() -> Result:
    """Two measurements during a training, with a limit."""
    exposure, completion = RESULTS["CanaryExposure"](), RESULTS["Completion"]()
    check = Check("different", "passed", "It differs from the one before by 1 nat per token.")
    exposure = replace(exposure, checks=(*PASSED, check))
    snapshots = [
        LeakageSnapshot(step=step, exposure=exposure, completion=completion) for step in (0, 1200)
    ]
    return leakage_of(snapshots, limits={"exposure": 3.0})


RESULTS: dict[str, Callable[[], Any]] = {
    "UpdateDiff": lambda: with_claim(
        UpdateDiff([["the", " code"], ["a", " gate"], ["b"]], threshold=2.0),
        made_claim("diff", LEAK),
    ),
    "DifferentialRank": lambda: DifferentialRank(["the", " code"], 1, 7),
    "Completion": lambda: Completion(
        attempts=(
            attempt("canary", 20, True, 1, best=True, kept=True),
            attempt("canary", 3, False, 2),
            attempt("control", 0, False, None),
        ),
        beam=5,
        prefix=1,
        checks=PASSED,
    ),
    "DefenceComparison": lambda: with_claim(
        DefenceComparison(["plain", "goldfish"], notes=["Little text."]), made_claim("compare")
    ),
    "CanaryExposure": lambda: CanaryExposure(
        canaries=(canary(20, 9.0), canary(3, 6.0, shuffled=5.0), canary(0, 1.0), canary(0, 2.0)),
        words=50,
        seed=4,
        checks=PASSED,
    ),
    "TrainingLeakage": training_leakage,
    "SecretRank": lambda: secret_result(
        SECRETS,
        level=0.05,
        seed=0,
        checks=(ALIVE, replace(ALIVE, name="different")),
        update=True,
    ),
    "SecretExposure": lambda: secret_result(SECRETS, level=0.05, seed=0, checks=(ALIVE,)),
    "SecretCompletion": lambda: completion_result(
        [completed_secret(1, greedy=True), completed_secret(2, greedy=False)],
        beam=10,
        checks=(ALIVE,),
    ),
    "Extraction": lambda: extraction(counted(1), counted(30)),
    "SecretAudit": lambda: audit([counted(1), counted(3)], [counted(400), counted(700)]),
    "Table": lambda: Table(
        name="t", title="T", note="N", columns=("a", "b"), entries=({"a": 1, "b": "x"},)
    ),
    "UserAudit": lambda: audit_of([0.2, 0.01, None], null=uniform_p_values(20)),
    "Anatomy": anatomy,
    "ReleaseCheck": lambda: replace(CASES["leak by secrets"](), record={}),
    "DefendedTraining": DefendedTraining,
    "IntentSlotTraining": IntentSlotTraining,
    "PairTraining": PairTraining,
    "TextAudit": lambda: texts_audited(12, 28),
    "TextMemorization": text_memorization,
    "Deletion": lambda: verify(
        *drawn(np.random.default_rng(1), gains=(1.0, 0.2)),
        checks=passed("unlearning"),
        seed=0,
    ),
}
