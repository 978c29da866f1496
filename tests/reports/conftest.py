"""Handmade results in the form of those of attacks."""

import sys
from dataclasses import dataclass, field

import pytest

from vestige import results


@dataclass(frozen=True)
class UpdateDiff:
    """Phrases as lists of pieces; token i of a phrase scores i + 1.

    With a threshold, each of 19 null searches reached it; otherwise `nulls` searches reached none.
    """

    phrases: list[list[str]]
    threshold: float | None = None
    nulls: int = 0
    kinds: dict[int, str] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)

    def summary(self):
        rows = [row for row in self.rows() if row["kind"] == "phrase"]
        is_found = [row["found"] for row in rows if row["found"] is not None]
        return {
            "search": "beam",
            "phrases": len(rows),
            "fragments": sum(row["kind"] == "fragment" for row in self.rows()),
            "found": sum(is_found) if self.threshold is not None else None,
            "threshold": self.threshold,
            "null_searches": self.nulls if self.threshold is None else 19,
            "null_top_score": self.threshold,
            "top_score": rows[0]["score"] if rows else None,
            "top_reached_by": rows[0]["reached_by"] if rows else None,
        }

    def rows(self):
        for rank, pieces in enumerate(self.phrases):
            scores = [float(i + 1) for i in range(len(pieces))]
            below = self.threshold is not None and sum(scores) <= self.threshold
            yield {
                "rank": rank + 1,
                "score": sum(scores),
                "phrase": "".join(pieces),
                "tokens": list(range(len(pieces))),
                "pieces": pieces,
                "token_scores": scores,
                "group": self.groups.get(rank, rank),
                "copies": 0,
                "kind": self.kinds.get(rank, "phrase"),
                "found": None if self.threshold is None else not below,
                "e_value": None,
                "reached_by": 19 if below else 0 if self.nulls or self.threshold else None,
            }


@dataclass(frozen=True)
class DifferentialRank:
    """One phrase whose tokens go from 0.1 to 0.9."""

    pieces: list[str]
    lower: int = 0
    upper: int = 0

    def summary(self):
        bounds = {"rank_lower": self.lower, "rank_upper": self.upper}
        return {"score": 0.8 * len(self.pieces), "exact": self.lower == self.upper, **bounds}

    def rows(self):
        for i, piece in enumerate(self.pieces):
            scores = {"gain": 0.8, "cumulative": 0.8 * (i + 1)}
            yield {"position": i, "piece": piece, "token": i, "before": 0.1, "after": 0.9, **scores}


@dataclass(frozen=True)
class DefenceComparison:
    """Trainings, of which the first is undefended and the second recommended.

    Attributes:
        names: names of the trainings.
        notes: notes on missing measurements.
        changes: entries that replace those of every row.
    """

    names: list[str]
    notes: list[str] = field(default_factory=list)
    changes: dict[str, object] = field(default_factory=dict)

    def summary(self):
        advice = f"{self.names[1]} leaks less."
        levels = {"tolerance": 0.05, "confidence": 0.95}
        return {"advice": advice, "answer": f"{advice} It helps.", "notes": self.notes, **levels}

    def rows(self):
        for number, name in enumerate(self.names):
            yield {**comparison_row(name, number), **self.changes}


def comparison_row(name, number):
    """A training that leaks 9 - 2 * number bits at perplexity 100 + number."""
    bits, points = 9.0 - 2 * number, (1, 5, 20)
    by_copies = [
        {"copies": n, "canaries": 4, **around("exposure", bits + n / 5), **around("shuffled", 2.0),
         **rate("completion", number)}
        for n in points
    ]  # fmt: skip
    ratio = around("perplexity_ratio", 1 + number / 100, 0.01)
    if number == 0:
        ratio |= {"perplexity_ratio_low": None, "perplexity_ratio_high": None}
    fairness = ("top_drop", "low_drop", "gap", "correlation")
    return {
        "name": name, "defence": "none" if number == 0 else "goldfish",
        "undefended": number == 0, "recommended": number == 1,
        "verdict": "helps", "verdict_short": "leaks less", "sentence": f"{name} leaks less.",
        "test_perplexity": 100.0 + number, "test_accuracy": 0.25, **ratio,
        **around("exposure", bits), **around("shuffled", 2.0), **around("never_planted", 1.4),
        **around("exposure_change", -2.0 * number), "by_copies": by_copies,
        **rate("completion", number), **rate("completion_control", 0),
        **{k: v for name in fairness for k, v in around(name, 0.5).items()}, "p_value": 0.0004,
        "epsilon": 4.93, "delta": 1e-5, "unit": "sequence", "empirical_epsilon": 0.7,
        "empirical_ceiling": 5.0, "empirical_assumes": "fair coins",
        "threshold_epsilon": 0.4, "audit_unit": "sequence",
        "audit_claim": 4.93, "audit_verdict": "consistent",
        "trainings": 3, "steps": 400 * (number + 1), "tokens": 9000 * (number + 1),
        "tokens_ratio": 1.0 + number, "presentations_per_copy": 4.0, "seconds": 2.0,
        "peak_memory_mib": 50.0, "memory_ratio": 1.0, "at_ceiling": 0.0,
    }  # fmt: skip


def around(name, value, margin=0.5):
    return {name: value, f"{name}_low": value - margin, f"{name}_high": value + margin}


def rate(name, completed):
    ends = {f"{name}_low": 0.0, f"{name}_high": 0.6}
    return {f"{name}_completed": completed, f"{name}_trials": 4, **ends}


@pytest.fixture
def no_charts(monkeypatch):
    """Pages without charts, which are slow to draw."""
    for name, module in sys.modules.items():
        if name.startswith("vestige.") and hasattr(module, "svg_of"):
            monkeypatch.setattr(module, "svg_of", lambda chart: "<svg></svg>")


@pytest.fixture
def saved(tmp_path):
    """Save a result as a run folder and load it again."""

    def save(result, name="run", **run):
        return results.load(results.save(result, tmp_path / name, run=run))

    return save


@pytest.fixture(scope="session")
def diff():
    return UpdateDiff


@pytest.fixture(scope="session")
def rank():
    return DifferentialRank


@pytest.fixture(scope="session")
def comparison():
    return DefenceComparison
