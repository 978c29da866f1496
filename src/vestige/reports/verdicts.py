"""Verdicts of runs, from their claims; and a check that the runs of a page audited one model."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeGuard

from vestige.claims import Check, Claim, Estimate, Test, one_model
from vestige.errors import RunError
from vestige.reports.disclosure import printable
from vestige.results import Run

VERBS: Mapping[str, tuple[str, ...]] = {
    "UpdateDiff": ("diff",),
    "SecretRank": ("exposure --before",),
    "CanaryExposure": ("exposure", "callback"),
    "TrainingLeakage": ("callback",),
    "SecretExposure": ("exposure secrets",),
    "Completion": ("extract canaries", "callback"),
    "SecretCompletion": ("extract secrets",),
    "SecretAudit": ("extract utterances",),
    "UserAudit": ("membership",),
    "TextAudit": ("membership",),
    "TextMemorization": ("extract texts",),
    "Deletion": ("unlearning",),
    "DefenceComparison": ("compare",),
    "ReleaseCheck": ("check",),
}
"""Verbs whose claims a kind of result may contain. "membership --base" counts as "membership"."""

NOT_CHECKED = "not checked"
"""The word for a verdict without a claim."""

UNCHECKED = (
    "This run has no checked verdict: its claim or its checksums are missing. Repeat the run."
)
NOTHING_MEASURED = "Nothing was measured."

SMALLEST_P = 1e-300
"""Smallest p-value that is shown: no p-value is 0."""

AUDITED_ROLES = ("after", "target", "model")
"""Roles of the audited model in a record; other roles are models to compare with."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verdict as escaped text.

    Attributes:
        word: the verdict in capitals.
        sentence: the estimate, its interval and its test.
        failed: one sentence per failed check.
        open: one sentence per check that could not run.
        passed: one sentence per passed check.
        names: names of the passed checks without duplicates.
    """

    word: str
    sentence: str
    failed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """CSS class."""
        return self.word.lower().replace(" ", "-")

    @property
    def all_passed(self) -> str:
        """The passed checks in one line; "" if none passed."""
        return f"Checks passed: {', '.join(self.names)}." if self.names else ""

    @property
    def line(self) -> str:
        """The verdict in one line of text."""
        return f"{self.word}  {self.sentence}"

    @property
    def against(self) -> tuple[str, ...]:
        """Checks that failed or could not run, as lines of text."""
        return (*(f"✗ {check}" for check in self.failed), *(f"? {check}" for check in self.open))


def claim_of(run: Run) -> Claim | None:
    """The claim of a run; None without a claim or without checksums.

    Raises:
        RunError: the claim belongs to another verb.
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
    """Whether the kind of a run has verdicts, but the run has no claim that can be checked."""
    return run.result in VERBS and claim_of(run) is None


def verdict_word(run: Run) -> str:
    """The verdict in a word; `NOT_CHECKED` without a claim, "" for kinds without verdicts."""
    verdict = verdict_of_run(run)
    return "" if verdict is None else verdict.word.lower()


def verdict_of_run(run: Run, *, without: Collection[str] = ()) -> Verdict | None:
    """The verdict of a run, without some checks; None for kinds without verdicts."""
    claim = claim_of(run)
    if claim is not None:
        return verdict_of(claim, without=without)
    return Verdict(word=NOT_CHECKED.upper(), sentence=UNCHECKED) if is_unchecked(run) else None


def verdict_of(claim: Claim, *, without: Collection[str] = ()) -> Verdict:
    """A claim as escaped text, without some checks."""
    checks = [check for check in claim.checks if check.name not in without]

    def sentences(state: str) -> tuple[str, ...]:
        return tuple(printable(check.sentence) for check in checks if check.state == state)

    failed = {check.name for check in claim.failed}
    passed = (c.name for c in checks if c.state == "passed" and c.name not in failed)
    return Verdict(
        word=claim.verdict.upper(),
        sentence=printable(sentence_of(claim)),
        failed=sentences("failed"),
        open=sentences("could not run"),
        passed=sentences("passed"),
        names=tuple(dict.fromkeys(map(printable, passed))),
    )


def sentence_of(claim: Claim) -> str:
    """The evidence of a claim: verbatim generation, estimate and test."""
    parts = "; ".join(filter(None, (_estimate(claim.estimate), _test(claim.test))))
    direct = claim.direct.sentence if claim.direct is not None else ""
    numbers = f"{parts}." if parts else "" if direct else NOTHING_MEASURED
    return " ".join(filter(None, (direct, numbers)))


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None or not _is_number(estimate.value):
        return ""
    is_share = not estimate.unit and "share" in estimate.name.split()
    value, low, high = (
        _number(number, is_share=is_share) if _is_number(number) else ""
        for number in (estimate.value, estimate.low, estimate.high)
    )
    ends = f"{low} to {high}" if low and high else f"from {low}" if low else f"up to {high}"
    interval = f" (95% CI {ends})" if low or high else ""
    unit = f" {estimate.unit}" if estimate.unit else ""
    return f"{estimate.name[:1].upper()}{estimate.name[1:]}: {value}{unit}{interval}"


def _test(test: Test | None) -> str:
    if test is None:
        return ""
    return f"p = {max(test.p, SMALLEST_P):.2g} compared with {test.against} (level {test.alpha:g})"


def _number(value: float, *, is_share: bool) -> str:
    if is_share:
        return f"{100 * value:.3g}%"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _is_number(value: float | None) -> TypeGuard[float]:
    """Whether a value is a finite number; infinite values are saved as None."""
    return value is not None and isfinite(value)


def same_model(runs: Sequence[Run]) -> Check | None:
    """The check "one model" over runs; None if fewer than two audited a model.

    Hashes of weights in files and in memory differ, and a served model has only an address. Models
    of different kinds cannot be compared.
    """
    identities = [
        (f"{number} {run.name}", _identity(run))
        for number, run in enumerate(runs)
        if _audits_model(run)
    ]
    if len(identities) < 2:
        return None
    by_kind: dict[str, dict[str, str]] = {}
    for name, identity in identities:
        kind, value = identity or ("", "")
        by_kind.setdefault(kind, {})[name] = value
    checks = [one_model(by_kind[kind]) for kind in sorted(by_kind.keys() - {""})]
    failed = [check for check in checks if check.state == "failed"]
    if failed:
        return failed[0]
    hashes = ((run.run.get("data") or {}).get("manifest") for run in runs)
    manifests = {sha256 for sha256 in hashes if isinstance(sha256, str)}
    if len(manifests) > 1:
        return Check(
            "one model", "failed", f"The runs used {len(manifests)} different manifests of secrets."
        )
    if "" in by_kind or len(by_kind) > 1:
        return Check(
            "one model",
            "could not run",
            "Not all runs have a hash of the weights that they measured: some models were served "
            "or in memory.",
        )
    return checks[0]


def _audits_model(run: Run) -> bool:
    models = run.run.get("models") or {}
    return any(role in models for role in AUDITED_ROLES)


def _identity(run: Run) -> tuple[str, str] | None:
    """Kind of the audited models (file, memory or address), and their hashes or addresses."""
    models = run.run.get("models") or {}
    roles: Sequence[str] = [role for role in AUDITED_ROLES if role in models][:1] or sorted(models)
    identities = [_model_identity(models[role]) for role in roles]
    known = [identity for identity in identities if identity is not None]
    if not known or len(known) < len(identities):
        return None
    return known[0][0], " ".join(value for _, value in known)


def _model_identity(record: Any) -> tuple[str, str] | None:
    if not isinstance(record, Mapping):
        return None
    if not record.get("sha256"):
        return ("address", str(record["path"])) if record.get("path") else None
    base = record.get("base")
    base_sha256 = base.get("sha256") if isinstance(base, Mapping) else None
    return "file" if record.get("path") else "memory", f"{record['sha256']} {base_sha256}"
