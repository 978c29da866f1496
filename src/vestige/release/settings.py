"""Settings that decide what a run measures, without which two numbers are not of one thing.

A number with an interval is of the same thing however much was read for it. A count of what was
tested one by one (phrases, secrets, people) has none, so that what gives a test more power counts
as another setting. Neither a seed nor a path is one.
"""

from collections.abc import Mapping
from typing import Any

from vestige.reports.numbers import listed
from vestige.reports.quantities import QUANTITIES
from vestige.reports.report import guarded
from vestige.reports.words import words_of
from vestige.results import Run

SUMMARY: Mapping[str, tuple[str, ...]] = {
    "CanaryExposure": ("references", "space", "canaries_planted"),
    "Completion": ("prefix", "canaries"),
    "Deletion": ("deleted",),
    "Extraction": ("objective", "trials", "length", "space_bits"),
    "SecretAudit": ("objective", "patterns", "models", "planted"),
    "SecretCompletion": ("parts",),
    "SecretExposure": ("secrets", "level"),
    "SecretRank": ("secrets", "level"),
    "TextAudit": ("texts", "units"),
    "TextMemorization": (
        *("prefix_tokens", "suffix_tokens", "tries", "chance", "top_k", "temperature"),
    ),
    "UpdateDiff": ("search", "score", "null_searches", "places"),
    "UserAudit": ("users", "rate", "k", "references"),
}
"""In `summary.json`, by the result's class; None there is not known, and forbids nothing."""

CONFIGURATION: Mapping[str, tuple[str, ...]] = {
    "DefendedTraining": ("sequence_length",),
    "Extraction": ("budget", "sample"),
    "PairTraining": ("sequence_length",),
    "SecretAudit": ("budget", "sample"),
    "SecretCompletion": ("question",),
    "SecretExposure": ("question", "references"),
    "SecretRank": ("question", "samples"),
    "UpdateDiff": ("search", "score", "removed", "top"),
    "UserAudit": ("how", "queries", "calls"),
}
"""In the configuration of `run.json`; None there is a setting, and a key that is not there none."""


def unlike(now: Run, then: Run) -> str:
    """Which settings forbid a comparison, as a sentence; "" where none does."""
    with guarded(now), guarded(then):
        told = [*_summaries(now, then), *_configurations(now, then), *_others(now, then)]
    return f"measured with other settings: {listed(list(dict.fromkeys(told)))}" if told else ""


def _summaries(now: Run, then: Run) -> list[str]:
    pairs = {key: (now.summary.get(key), then.summary.get(key)) for key in _keys(SUMMARY, now)}
    return [
        _differing(key, ours, before)
        for key, (ours, before) in pairs.items()
        if None not in (ours, before) and not _alike(ours, before)
    ]


def _configurations(now: Run, then: Run) -> list[str]:
    ours, before = (run.run.get("configuration") or {} for run in (now, then))
    return [
        _differing(key, ours[key], before[key])
        for key in _keys(CONFIGURATION, now)
        if key in ours and key in before and not _alike(ours[key], before[key])
    ]


def _others(now: Run, then: Run) -> list[str]:
    """What no single setting says."""
    asked = {
        "copies of the canaries": _copies,
        "validation text": _validation,
        "vocabulary": _vocabulary,
        "texts that were never seen": _with_reference,
    }
    found = {name: (of(now), of(then)) for name, of in asked.items()}
    return [name for name, both in found.items() if None not in both and both[0] != both[1]]


def _keys(table: Mapping[str, tuple[str, ...]], run: Run) -> tuple[str, ...]:
    return table.get(run.result, ())


def _alike(ours: Any, before: Any) -> bool:
    """Whether two settings are one; of nested ones, those that both sides know."""
    if isinstance(ours, Mapping) and isinstance(before, Mapping):
        shared = (ours.keys() & before.keys()) - {"seed"}
        return all(_alike(ours[key], before[key]) for key in shared)
    return bool(ours == before)


def _differing(key: str, ours: Any, before: Any) -> str:
    if all(isinstance(one, int | float) for one in (ours, before)):
        return f"{words_of(key)} {before:g} then and {ours:g} now"
    return words_of(key)


def _copies(run: Run) -> Mapping[str, Any] | None:
    """How many canaries were planted how often."""
    if run.result == "CanaryExposure":
        return {
            key: value
            for key, value in run.summary.items()
            if key.startswith("canaries_") and key.endswith("_copies")
        }
    if run.result != "Completion":
        return None
    planted = [row["copies"] for row in run.rows if row["kind"] == "canary"]
    return {f"canaries_{copies}_copies": planted.count(copies) for copies in planted}


def _validation(run: Run) -> Any:
    """The checksum of the text on which perplexity was measured; None where it is not known."""
    told = (run.run.get("data") or {}).get("validation")
    return told.get("sha256") if _has_perplexity(run) and isinstance(told, Mapping) else None


def _vocabulary(run: Run) -> Any:
    """The checksum of the words that perplexity counts; None where it is not known."""
    told = (run.run.get("models") or {}).get("trained")
    return told.get("vocabulary") if _has_perplexity(run) and isinstance(told, Mapping) else None


def _has_perplexity(run: Run) -> bool:
    return run.result in QUANTITIES["perplexity"].of


def _with_reference(run: Run) -> bool | None:
    """Whether what is said of any text is taken off what is said of these."""
    if run.result != "TextMemorization":
        return None
    return run.summary.get("sampled_difference") is not None
