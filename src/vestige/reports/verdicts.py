"""Verdicts of runs: read from their claims, never from a word alone, and as they are shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from vestige.claims import Claim, Estimate, Test
from vestige.errors import RunError
from vestige.reports.disclosure import printable
from vestige.results import Run

VERBS: Mapping[str, tuple[str, ...]] = {
    "UpdateDiff": ("diff",),
    "SecretRank": ("exposure --before", "rank"),
    "CanaryExposure": ("exposure", "callback"),
    "TrainingLeakage": ("callback",),
    "SecretExposure": ("exposure secrets", "exposure --secrets"),
    "Completion": ("extract canaries", "complete", "callback"),
    "SecretCompletion": ("extract secrets", "complete --secrets"),
    "SecretAudit": ("extract utterances", "extract-nlu"),
    "UserAudit": ("membership", "audit-users"),
    "TextAudit": ("membership", "audit-texts"),
    "TextMemorization": ("extract texts", "memorization"),
    "Deletion": ("unlearning", "verify-deletion"),
    "DefenceComparison": ("compare",),
}
"""Verbs whose claim a kind of result may hold. "membership --base" counts as "membership"."""

NOT_CHECKED = "not checked"
"""In place of a verdict that nothing supports."""

UNCHECKED = (
    "This run has no checked verdict: an older version of Vestige wrote it, or its checksums are "
    "missing. Repeat the run."
)
OLD_UNDECIDED = ("not decided", "underpowered", "too few controls")
"""Names of an undecided verdict in older versions."""

NOTHING_MEASURED = "Nothing was measured."

LEAST = 1e-300
"""Shown for a smaller p-value: no p-value is 0."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verdict, safe to show.

    Attributes:
        word: in capitals.
        sentence: the estimate, its interval and its test.
        failed: a sentence for each check that failed.
        open: a sentence for each check that could not run.
        passed: a sentence for each check that passed.
        names: of the checks that passed, each once.
    """

    word: str
    sentence: str
    failed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The class in the style sheet."""
        return self.word.lower().replace(" ", "-")

    @property
    def all_passed(self) -> str:
        """The passed checks in one line; "" where none passed."""
        return f"Checks passed: {', '.join(self.names)}." if self.names else ""

    @property
    def line(self) -> str:
        """The verdict in one line of text."""
        return f"{self.word}  {self.sentence}"

    @property
    def against(self) -> tuple[str, ...]:
        """Checks that failed or could not run, as lines of text."""
        failed = (f"✗ {sentence}" for sentence in self.failed)
        return (*failed, *(f"? {sentence}" for sentence in self.open))


def claim_of(run: Run) -> Claim | None:
    """The claim of a run; None where it has no verdict, or one that cannot be checked.

    Raises:
        RunError: it is the claim of another verb.
    """
    if "claim" not in run.summary or not run.sealed:
        return None
    claim = Claim.from_summary(run.summary)
    verbs = VERBS.get(run.result, (claim.verb,))
    if not any(claim.verb == verb or claim.verb.startswith(f"{verb} ") for verb in verbs):
        raise RunError(
            f"{run.directory / 'summary.json'} holds the verdict of another verb",
            remedy="The run was changed or is damaged. Repeat it.",
        )
    return claim


def is_unchecked(run: Run) -> bool:
    """Whether a run should have a verdict, and has none that can be checked."""
    return run.result in VERBS and claim_of(run) is None


def verdict_word(run: Run) -> str:
    """The verdict of a run; `NOT_CHECKED` where it cannot be checked, "" for kinds without one."""
    claim = claim_of(run)
    if claim is not None:
        return claim.verdict
    return NOT_CHECKED if is_unchecked(run) else ""


def verdict_of_run(run: Run) -> Verdict | None:
    """The verdict of a run as it is shown; None for kinds without one."""
    claim = claim_of(run)
    if claim is not None:
        return verdict_of(claim)
    return Verdict(word=NOT_CHECKED.upper(), sentence=UNCHECKED) if is_unchecked(run) else None


def verdict_of(claim: Claim) -> Verdict:
    """A claim ready to be shown, every character of it visible."""

    def sentences(state: str) -> tuple[str, ...]:
        return tuple(printable(one.sentence) for one in claim.checks if one.state == state)

    passed = [check.name for check in claim.checks if check.state == "passed"]
    open_ = {check.name for check in claim.failed}
    return Verdict(
        word=claim.verdict.upper(),
        sentence=printable(sentence_of(claim)),
        failed=sentences("failed"),
        open=sentences("could not run"),
        passed=sentences("passed"),
        names=tuple(dict.fromkeys(printable(name) for name in passed if name not in open_)),
    )


def sentence_of(claim: Claim) -> str:
    """The evidence: what was generated verbatim, the estimate, and the test."""
    measured = "; ".join(filter(None, (_estimate(claim.estimate), _test(claim.test))))
    direct = claim.direct.sentence if claim.direct is not None else ""
    told = f"{measured}." if measured else "" if direct else NOTHING_MEASURED
    return " ".join(filter(None, (direct, told)))


def _estimate(found: Estimate | None) -> str:
    if found is None or not _known(found.value):
        return ""
    unit = f" {found.unit}" if found.unit else ""
    low, high = (end if _known(end) else None for end in (found.low, found.high))
    name = found.name[:1].upper() + found.name[1:]
    return f"{name}: {_number(found.value)}{unit}{_interval(low, high)}"


def _interval(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f" (95% CI from {_number(low)})"
    if low is None:
        return f" (95% CI up to {_number(high)})"
    return f" (95% CI {_number(low)} to {_number(high)})"


def _test(test: Test | None) -> str:
    if test is None:
        return ""
    against = test.against.removeprefix("against ")  # as older versions wrote it
    return f"p = {max(test.p, LEAST):.2g} compared with {against} (level {test.alpha:g})"


def _number(value: float | None) -> str:
    return f"{value:,.3g}" if value is not None and abs(value) < 1000 else f"{value:,.0f}"


def _known(value: float | None) -> bool:
    """Whether it is a number; a saved one that is not finite is None."""
    return value is not None and isfinite(value)
