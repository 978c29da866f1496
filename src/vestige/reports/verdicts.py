"""Verdicts of runs, from their claims and never from a word alone; and whether runs of one page
measured one model."""

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
"""Verbs whose claim a kind of result may hold. "membership --base" counts as "membership"."""

NOT_CHECKED = "not checked"
"""In place of a verdict that nothing supports."""

UNCHECKED = (
    "This run has no checked verdict: its claim or its checksums are missing. Repeat the run."
)
NOTHING_MEASURED = "Nothing was measured."

LEAST = 1e-300
"""Shown for a smaller p-value: no p-value is 0."""

ROLES = ("after", "target", "model")
"""Of the audited model in a record; the others are what it is compared with."""


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
        return (*(f"✗ {one}" for one in self.failed), *(f"? {one}" for one in self.open))


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
    verdict = verdict_of_run(run)
    return "" if verdict is None else verdict.word.lower()


def verdict_of_run(run: Run, *, without: Collection[str] = ()) -> Verdict | None:
    """The verdict of a run as it is shown; None for kinds without one.

    Args:
        run: a run folder, or a result in memory.
        without: names of checks that are stated elsewhere.
    """
    claim = claim_of(run)
    if claim is not None:
        return verdict_of(claim, without=without)
    return Verdict(word=NOT_CHECKED.upper(), sentence=UNCHECKED) if is_unchecked(run) else None


def verdict_of(claim: Claim, *, without: Collection[str] = ()) -> Verdict:
    """A claim ready to be shown, every character of it visible; some checks are left out."""
    checks = [one for one in claim.checks if one.name not in without]

    def sentences(state: str) -> tuple[str, ...]:
        return tuple(printable(one.sentence) for one in checks if one.state == state)

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
    """The evidence: what was generated verbatim, the estimate, and the test."""
    measured = "; ".join(filter(None, (_estimate(claim.estimate), _test(claim.test))))
    direct = claim.direct.sentence if claim.direct is not None else ""
    found = f"{measured}." if measured else "" if direct else NOTHING_MEASURED
    return " ".join(filter(None, (direct, found)))


def _estimate(found: Estimate | None) -> str:
    if found is None or not _known(found.value):
        return ""
    share = not found.unit and "share" in found.name.split()
    value, low, high = (
        _number(one, share=share) if _known(one) else ""
        for one in (found.value, found.low, found.high)
    )
    both = f"{low} to {high}" if low and high else f"from {low}" if low else f"up to {high}"
    interval = f" (95% CI {both})" if low or high else ""
    unit = f" {found.unit}" if found.unit else ""
    return f"{found.name[:1].upper()}{found.name[1:]}: {value}{unit}{interval}"


def _test(test: Test | None) -> str:
    if test is None:
        return ""
    return f"p = {max(test.p, LEAST):.2g} compared with {test.against} (level {test.alpha:g})"


def _number(value: float, *, share: bool) -> str:
    if share:
        return f"{100 * value:.3g}%"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _known(value: float | None) -> TypeGuard[float]:
    """Whether it is a number; a saved one that is not finite is None."""
    return value is not None and isfinite(value)


def same_model(runs: Sequence[Run]) -> Check | None:
    """The check "one model" over runs; None if fewer than two audited a model.

    Weights in a file and in memory have hashes of different kinds, and a served model has only an
    address: these cannot be compared with each other.
    """
    audited = [
        (f"{place} {run.name}", _identity(run)) for place, run in enumerate(runs) if _audits(run)
    ]
    if len(audited) < 2:
        return None
    by_kind: dict[str, dict[str, str]] = {}
    for name, one in audited:
        kind, value = one or ("", "")
        by_kind.setdefault(kind, {})[name] = value
    checks = [one_model(by_kind[kind]) for kind in sorted(by_kind.keys() - {""})]
    failed = [check for check in checks if check.state == "failed"]
    if failed:
        return failed[0]
    given = ((run.run.get("data") or {}).get("manifest") for run in runs)
    manifests = {one for one in given if isinstance(one, str)}
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


def _audits(run: Run) -> bool:
    models = run.run.get("models") or {}
    return any(role in models for role in ROLES)


def _identity(run: Run) -> tuple[str, str] | None:
    """What identifies the audited models (file, memory or address), and hashes or addresses."""
    models = run.run.get("models") or {}
    roles: Sequence[str] = [role for role in ROLES if role in models][:1] or sorted(models)
    each = [_of_model(models[role]) for role in roles]
    found = [one for one in each if one is not None]
    if not found or len(found) < len(each):
        return None
    return found[0][0], " ".join(value for _, value in found)


def _of_model(record: Any) -> tuple[str, str] | None:
    if not isinstance(record, Mapping):
        return None
    if not record.get("sha256"):
        return ("address", str(record["path"])) if record.get("path") else None
    base = record.get("base")
    of_base = base.get("sha256") if isinstance(base, Mapping) else None
    return "file" if record.get("path") else "memory", f"{record['sha256']} {of_base}"
