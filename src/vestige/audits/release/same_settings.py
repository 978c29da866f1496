"""Settings that must be equal before two runs can be compared.

A number with an interval is comparable however much was read for it. A count of tested phrases,
secrets or users has no interval, so settings that give a test more power must be equal, too. Seeds
and paths may differ.
"""

from collections.abc import Mapping
from typing import Any

from vestige.reports.quantities import QUANTITIES
from vestige.reports.report import guarded
from vestige.reports.words import listed, words_of
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
"""Keys of `summary.json` by kind of result. An unknown value (None) is equal to any."""

CONFIGURATION: Mapping[str, tuple[str, ...]] = {
    "DefendedTraining": ("sequence_length",),
    "Extraction": ("search_budget", "rank_sample"),
    "PairTraining": ("sequence_length",),
    "SecretAudit": ("search_budget", "rank_sample"),
    "SecretCompletion": ("question",),
    "SecretExposure": ("question", "references"),
    "SecretRank": ("question", "references"),
    "UpdateDiff": ("search", "score", "removed", "top"),
    "UserAudit": ("how", "queries", "calls"),
}
"""Keys of the configuration in `run.json`. None is a value; a missing key is equal to any."""

OLDER: Mapping[str, Mapping[str, str]] = {
    "Extraction": {"search_budget": "budget", "rank_sample": "sample"},
    "SecretAudit": {"search_budget": "budget", "rank_sample": "sample"},
    "SecretRank": {"references": "samples"},
}
"""Names of these keys in runs of older versions."""


def difference_in_settings(now: Run, then: Run) -> str:
    """Which settings differ, as a sentence; "" where none does."""
    with guarded(now), guarded(then):
        names = [*_summaries(now, then), *_configurations(now, then), *_others(now, then)]
    return f"measured with other settings: {listed(list(dict.fromkeys(names)))}" if names else ""


def _summaries(now: Run, then: Run) -> list[str]:
    pairs = {key: (now.summary.get(key), then.summary.get(key)) for key in _keys(SUMMARY, now)}
    return [
        _differing(key, ours, before)
        for key, (ours, before) in pairs.items()
        if None not in (ours, before) and not _alike(ours, before)
    ]


def _configurations(now: Run, then: Run) -> list[str]:
    ours, before = (_configuration(run) for run in (now, then))
    return [
        _differing(key, ours[key], before[key])
        for key in _keys(CONFIGURATION, now)
        if key in ours and key in before and not _alike(ours[key], before[key])
    ]


def _configuration(run: Run) -> dict[str, Any]:
    """The configuration of a run, under the names of today."""
    found = dict(run.run.get("configuration") or {})
    for key, older in OLDER.get(run.result, {}).items():
        if key not in found and older in found:
            found[key] = found[older]
    return found


def _others(now: Run, then: Run) -> list[str]:
    """Settings that are more than one key."""
    properties = {
        "copies of the canaries": _copies,
        "validation text": _validation,
        "vocabulary": _vocabulary,
        "reference texts": _with_reference,
    }
    found = {name: (of(now), of(then)) for name, of in properties.items()}
    return [name for name, both in found.items() if None not in both and both[0] != both[1]]


def _keys(table: Mapping[str, tuple[str, ...]], run: Run) -> tuple[str, ...]:
    return table.get(run.result, ())


def _alike(ours: Any, before: Any) -> bool:
    """Whether two settings are equal; of nested ones, the keys that both sides have."""
    if isinstance(ours, Mapping) and isinstance(before, Mapping):
        shared = (ours.keys() & before.keys()) - {"seed"}
        return all(_alike(ours[key], before[key]) for key in shared)
    return bool(ours == before)


def _differing(key: str, ours: Any, before: Any) -> str:
    if all(isinstance(one, int | float) for one in (ours, before)):
        return f"{words_of(key)} {before:g} then and {ours:g} now"
    return words_of(key)


def _copies(run: Run) -> Mapping[str, Any] | None:
    """The number of canaries by copies."""
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
    """The checksum of the validation text; None where it is unknown."""
    text = (run.run.get("data") or {}).get("validation")
    return text.get("sha256") if _has_perplexity(run) and isinstance(text, Mapping) else None


def _vocabulary(run: Run) -> Any:
    """The checksum of the vocabulary; None where it is unknown."""
    model = (run.run.get("models") or {}).get("trained")
    return model.get("vocabulary") if _has_perplexity(run) and isinstance(model, Mapping) else None


def _has_perplexity(run: Run) -> bool:
    return run.result in QUANTITIES["perplexity"].of


def _with_reference(run: Run) -> bool | None:
    """Whether the result of reference texts is subtracted."""
    if run.result != "TextMemorization":
        return None
    return run.summary.get("sampled_difference") is not None
