"""The verdicts that summaries hold: read from their claims, never from a word alone.

`docs/summary.schema.json` describes them as a JSON Schema.
"""

from collections.abc import Mapping

from vestige.claims import VERDICTS, Claim
from vestige.errors import RunError
from vestige.results import Run

VERBS: Mapping[str, tuple[str, ...]] = {
    "UpdateDiff": ("diff",),
    "SecretRank": ("rank",),
    "CanaryExposure": ("exposure", "callback"),
    "TrainingLeakage": ("callback",),
    "SecretExposure": ("exposure --secrets",),
    "Completion": ("complete", "callback"),
    "SecretCompletion": ("complete --secrets",),
    "SecretAudit": ("extract-nlu",),
    "UserAudit": ("audit-users",),
    "TextAudit": ("audit-texts",),
    "TextMemorization": ("memorization",),
    "Deletion": ("verify-deletion",),
    "DefenceComparison": ("compare",),
}
"""The verbs whose claim a result may hold, by the name of its class. A verb with another option,
such as "audit-texts --base", counts as that verb with more checks."""

NOT_CHECKED = "not checked"
"""In place of a verdict that nothing supports."""

UNCHECKED = (
    "This run has no checked verdict: an older version of Vestige wrote it, or its checksums are "
    "missing. Repeat the run."
)


OLD_UNDECIDED = ("not decided", "underpowered", "too few controls")
"""What older versions called an undecided verdict."""


def claim_of(run: Run) -> Claim | None:
    """The claim of a run; None where it has no verdict, or none that can be checked.

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
            remedy="It was changed or is damaged; repeat the run.",
        )
    return claim


def is_unchecked(run: Run) -> bool:
    """Whether a run should have a verdict, and has none that can be checked."""
    return run.result in VERBS and claim_of(run) is None


def verdict_word(run: Run) -> str:
    """The verdict of a run; `NOT_CHECKED` where it should have one, "" where its kind has none."""
    claim = claim_of(run)
    if claim is not None:
        return claim.verdict
    return NOT_CHECKED if is_unchecked(run) else ""


def summary_schema() -> dict[str, object]:
    """JSON Schema of `summary.json`: a definition for each kind of result that has a verdict."""
    number, maybe = {"type": "number"}, {"type": ["number", "null"]}
    text = {"type": "string"}
    check = _object(
        name=text,
        state={"enum": ["passed", "failed", "could not run"]},
        sentence=text,
        blocks={"type": "array", "items": {"enum": list(VERDICTS[:2])}},
    )
    estimate = _object(name=text, value=maybe, low=maybe, high=maybe, unit=text)
    claim = _object(
        verb=text,
        test=_or_null(_object(p=number, least=number, alpha=number, against=text)),
        checks={"type": "array", "items": check},
        estimate=_or_null(estimate),
        direct=_or_null(_object(sentence=text, bound=number)),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "summary.json of a Vestige run directory",
        "description": "`run.json` names the kind of result in `result`; see $defs by that name.",
        "$defs": {
            "claim": claim,
            **{
                result: {
                    "type": "object",
                    "required": ["verdict", "claim"],
                    "properties": {
                        "verdict": {"enum": list(VERDICTS)},
                        "claim": {
                            "$ref": "#/$defs/claim",
                            "properties": {"verb": {"pattern": _beginning(verbs)}},
                        },
                    },
                }
                for result, verbs in VERBS.items()
            },
        },
    }


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _or_null(schema: object) -> dict[str, object]:
    return {"anyOf": [schema, {"type": "null"}]}


def _beginning(verbs: tuple[str, ...]) -> str:
    return f"^({'|'.join(verbs)})( |$)"
