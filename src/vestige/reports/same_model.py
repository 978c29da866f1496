"""Whether several runs measured one model, by the hashes in their records."""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.claims import Check, one_model
from vestige.results import Run

ROLES = ("after", "target", "model")
"""Of the audited model in a record; the others are what it is compared with."""

SEVERAL = ("SecretAudit",)
"""Results that may audit several models at once."""

Identity = tuple[str, str]
"""What identifies a model (file, memory or address), and its hash or address."""


def same_model(runs: Sequence[Run]) -> Check | None:
    """The check "one model" over runs; None if fewer than two audited a model.

    Weights in a file and in memory have hashes of different kinds, and a served model has only an
    address: these cannot be compared with each other.
    """
    audited = {f"{place} {run.name}": _identity(run) for place, run in enumerate(runs)
               if _audits(run)}  # fmt: skip
    if len(audited) < 2:
        return None
    unknown = sum(one is None for one in audited.values())
    known = {name: one for name, one in audited.items() if one is not None}
    kinds = {kind for kind, _ in known.values()}
    for kind in sorted(kinds):
        check = one_model({name: value for name, (own, value) in known.items() if own == kind})
        if check.state == "failed":
            return check
    manifests = {_manifest(run) for run in runs} - {None}
    if len(manifests) > 1:
        return Check(
            "one model", "failed", f"The runs used {len(manifests)} different manifests of secrets."
        )
    if unknown or len(kinds) > 1:
        return Check(
            "one model", "could not run",
            "Not all runs have a hash of the weights that they measured: some models were served "
            "or in memory.",
        )  # fmt: skip
    return one_model({name: value for name, (_, value) in known.items()})


def models_notice(runs: Sequence[Run]) -> str:
    """The check as a sentence of a page; "" if there is nothing to compare."""
    check = same_model(runs)
    if check is None:
        return ""
    return check.sentence + " There is no joint verdict." * (check.state != "passed")


def _audits(run: Run) -> bool:
    models = run.run.get("models") or {}
    return run.result in SEVERAL or any(role in models for role in ROLES)


def _identity(run: Run) -> Identity | None:
    models = run.run.get("models") or {}
    roles: Sequence[str] = [role for role in ROLES if role in models][:1] or sorted(models)
    each = [_of_model(models[role]) for role in roles]
    found = [one for one in each if one is not None]
    if not found or len(found) < len(each):
        return None
    return found[0][0], " ".join(value for _, value in found)


def _of_model(record: Any) -> Identity | None:
    if not isinstance(record, Mapping):
        return None
    if not record.get("sha256"):
        return ("address", str(record["path"])) if record.get("path") else None
    base = record.get("base")
    of_base = base.get("sha256") if isinstance(base, Mapping) else None
    return "file" if record.get("path") else "memory", f"{record['sha256']} {of_base}"


def _manifest(run: Run) -> str | None:
    found = (run.run.get("data") or {}).get("manifest")
    return found if isinstance(found, str) else None
