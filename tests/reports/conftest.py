"""Results made by hand, shaped as the attacks shape theirs."""

from dataclasses import dataclass, field

import pytest

from vestige import results


@dataclass(frozen=True)
class UpdateDiff:
    """Phrases given as lists of pieces; token i of a phrase scores i + 1."""

    phrases: list[list[str]]
    threshold: float | None = None
    kinds: dict[int, str] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)

    def summary(self):
        return {"search": "beam", "phrases": len(self.phrases), "threshold": self.threshold}

    def rows(self):
        for rank, pieces in enumerate(self.phrases):
            scores = [float(i + 1) for i in range(len(pieces))]
            yield {
                "rank": rank,
                "score": sum(scores),
                "phrase": "".join(pieces),
                "tokens": list(range(len(pieces))),
                "pieces": pieces,
                "token_scores": scores,
                "group": self.groups.get(rank, rank),
                "copies": 0,
                "kind": self.kinds.get(rank, "phrase"),
                "found": None if self.threshold is None else sum(scores) > self.threshold,
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


@pytest.fixture
def saved(tmp_path):
    """Save a result as a run directory and load it again."""

    def save(result, name="run", **run):
        return results.load(results.save(result, tmp_path / name, run=run))

    return save


@pytest.fixture
def diff():
    return UpdateDiff


@pytest.fixture
def rank():
    return DifferentialRank
