"""A claim: an estimate, a test, the checks that the verb requires, and the verdict they allow.

- "leak" needs a significant test, or direct evidence, and no failed check that blocks it.
- "no leak shown" needs a test that could have been significant and was not, and that all checks
  passed. A check that could not run does not support it.
- Otherwise the claim is "undecided" and names the checks that did not pass.

A verdict is always computed. A saved verdict that differs from the computed one is rejected.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from numbers import Real
from typing import Any, Literal

from vestige.metrics.estimates import Estimate
from vestige.metrics.tests import Test

Verdict = Literal["leak", "no leak shown", "undecided"]
State = Literal["passed", "failed", "could not run"]

LEAK: Verdict = "leak"
NO_LEAK: Verdict = "no leak shown"
UNDECIDED: Verdict = "undecided"
VERDICTS = (LEAK, NO_LEAK, UNDECIDED)

DIRECT_LEVEL = 1e-3
"""Largest coincidence bound of direct evidence; the error rate of the test grows by as much."""

_TEXTS = ("alive", "read", "independent", "comparable", "powerful")
_SECRETS = ("alive", "read", "independent", "powerful")
_CANARIES = ("alive", "read", "powerful")
_UTTERANCES = ("alive", "powerful")

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "diff": ("alive", "different", "powerful"),
    "exposure": _CANARIES,
    "exposure secrets": _SECRETS,
    "exposure --before": (*_SECRETS, "different"),
    "extract canaries": _CANARIES,
    "extract secrets": _SECRETS,
    "extract texts": _TEXTS,
    "extract utterances": _UTTERANCES,
    "membership": _TEXTS,
    "membership --base": (*_TEXTS, "different"),
    "unlearning": (*_TEXTS, "different"),
    "compare": ("alive", "different", "independent", "powerful"),
    "callback": ("alive", "different", "powerful"),
    "check": (
        "alive",
        "different",
        "secrets",
        "unprompted",
        "passages",
        "positive control",
        "negative control",
    ),
    "report": ("one model",),
}
"""The checks that each verb must make. A claim without one of them raises an error."""


@dataclass(frozen=True)
class Check:
    """A condition that a verdict depends on.

    Attributes:
        state: "passed", "failed" or "could not run".
        sentence: the result with its number; it quotes no text.
        blocks: verdicts that a failure prevents.
    """

    name: str
    state: State
    sentence: str
    blocks: tuple[Verdict, ...] = (LEAK, NO_LEAK)

    def __post_init__(self) -> None:
        if not (_is_text(self.name) and _is_text(self.sentence)):
            raise TypeError("name and sentence must be texts")
        if self.state not in ("passed", "failed", "could not run"):
            raise ValueError("state must be passed, failed or could not run")
        if not set(self.blocks) <= {LEAK, NO_LEAK}:
            raise ValueError("blocks must hold verdicts other than undecided")

    def prevents(self, verdict: Verdict) -> bool:
        if self.state == "could not run":
            return verdict == NO_LEAK
        return self.state == "failed" and verdict in self.blocks


@dataclass(frozen=True)
class Direct:
    """The later model generates a listed secret verbatim, and the earlier one does not.

    `bound`: upper bound on the probability of this for a secret that the model never read.
    """

    sentence: str
    bound: float

    def __post_init__(self) -> None:
        if not (_is_text(self.sentence) and _is_number(self.bound)):
            raise TypeError("sentence must be a text, bound a number")

    @property
    def conclusive(self) -> bool:
        """Whether the coincidence bound is at most `DIRECT_LEVEL`."""
        return isfinite(self.bound) and 0 <= self.bound <= DIRECT_LEVEL


@dataclass(frozen=True)
class Claim:
    """What a result says, with its evidence.

    Attributes:
        verb: a key of `REQUIRED`.
        test: None if nothing could be tested.
        checks: at least those that the verb requires; a name may occur once per model.
        estimate: the main number; None if nothing was measured.
        direct: verbatim evidence, if any.

    Raises:
        ValueError: a required check is missing, or the verb is unknown.
    """

    verb: str
    test: Test | None
    checks: tuple[Check, ...]
    estimate: Estimate | None = None
    direct: Direct | None = None

    def __post_init__(self) -> None:
        if self.verb not in REQUIRED:
            raise ValueError(f"no checks are listed for {self.verb}: add them to REQUIRED")
        if missing := set(REQUIRED[self.verb]) - {check.name for check in self.checks}:
            raise ValueError(f"a claim of {self.verb} needs checks: {', '.join(sorted(missing))}")

    @property
    def verdict(self) -> Verdict:
        """The verdict that the test, direct evidence and checks allow."""
        if self.direct is not None and self.direct.conclusive:
            return LEAK
        if self.test is None:
            return UNDECIDED
        verdict = LEAK if self.test.significant else NO_LEAK
        if any(check.prevents(verdict) for check in self.checks):
            return UNDECIDED
        return verdict if verdict == LEAK or self.test.possible else UNDECIDED

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that did not pass: failures first, then those that could not run."""
        not_passed = [check for check in self.checks if check.state != "passed"]
        return tuple(sorted(not_passed, key=lambda check: check.state != "failed"))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the claim is undecided, one sentence per reason; empty for other verdicts."""
        if self.verdict != UNDECIDED:
            return ()
        if self.test is None:
            return (*(check.sentence for check in self.failed), "Nothing could be tested.")
        verdict = LEAK if self.test.significant else NO_LEAK
        return tuple(check.sentence for check in self.failed if check.prevents(verdict))

    def summary(self) -> dict[str, object]:
        """The entries "verdict" and "claim" of `summary.json`."""
        return {"verdict": self.verdict, "claim": asdict(self)}

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> "Claim":
        """The claim of a saved summary; ValueError if it is malformed or its verdict is wrong."""
        try:
            saved = summary["claim"]
            checks = tuple(
                Check(**{**check, "blocks": tuple(check["blocks"])}) for check in saved["checks"]
            )
            test, estimate, direct = (
                None if saved[name] is None else kind(**saved[name])
                for name, kind in (("test", Test), ("estimate", Estimate), ("direct", Direct))
            )
            claim = cls(str(saved["verb"]), test, checks, estimate, direct)  # type: ignore[arg-type]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("the summary has no readable claim") from error
        if summary.get("verdict") != claim.verdict:
            raise ValueError(f"its checks allow the verdict “{claim.verdict}” only")
        return claim


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
