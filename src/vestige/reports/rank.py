"""A differential rank in a sentence: what is estimated first, then what is proven."""

from collections.abc import Mapping
from typing import Any

from vestige.reports.components.numbers import whole


def describe_rank(summary: Mapping[str, Any]) -> str:
    """A differential rank and its certainty as a sentence."""
    lower = summary["rank_lower"]
    if not summary["exact"]:
        return _estimated(summary) + (
            f"between {_size(summary, 'rank_lower')} and {_size(summary, 'rank_upper')}, both "
            f"proven.{_not_estimated(summary)}"
        )
    higher = "no sequence" if lower == 0 else "1 sequence" if lower == 1 else f"{lower:,} sequences"
    verb = "scores" if lower < 2 else "score"
    return f"Rank {lower:,}, exactly: {higher} of the same length {verb} higher."


def _estimated(summary: Mapping[str, Any]) -> str:
    if not _has_estimate(summary):
        return "Rank "
    low, high = (_size(summary, f"rank_estimate_{end}") for end in ("low", "high"))
    return (
        f"Rank about {_size(summary, 'rank_estimate')}, an estimate from "
        f"{summary['samples']:,} samples (95 % interval {low} to {high}); it is "
    )


def _not_estimated(summary: Mapping[str, Any]) -> str:
    if not summary.get("samples") or _has_estimate(summary):
        return ""
    if not summary["hits"]:
        return (
            f" Of {summary['samples']:,} samples, drawn towards this phrase and towards what was "
            "promoted, none scores higher, which proves nothing."
        )
    return (
        f" No estimate between them: too few of the runs reached what scores higher (worth "
        f"{summary['effective_runs']:.1f} runs). More --samples may give one."
    )


def _size(summary: Mapping[str, Any], name: str) -> str:
    """A rank of a summary, which keeps only the logarithm of one that no float holds."""
    number = summary[name]
    return whole(number) if number is not None else f"10^{summary[f'log10_{name}']:.0f}"


def _has_estimate(summary: Mapping[str, Any]) -> bool:
    names = ("rank_estimate", "log10_rank_estimate")
    return any(summary.get(name) is not None for name in names)
