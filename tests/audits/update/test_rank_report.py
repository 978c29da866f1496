"""What is proven of a rank is called that."""

import pytest

from vestige.audits.update import rank
from vestige.audits.update.rank import Bounds, rank_of_phrase
from vestige.audits.update.report import rank_of


@pytest.fixture
def ranked(monkeypatch, random_table):
    """Summaries of ranks with given bounds."""

    def summary(lower, upper):
        monkeypatch.setattr(rank, "rank_bounds", lambda *_, **__: Bounds(lower, upper, 1))
        return rank_of_phrase(random_table(0), random_table(1), (1, 2)).summary

    return summary


def test_a_rank_that_is_not_decided_has_proven_bounds(ranked):
    assert rank_of(ranked(149_980, 18 * 10**37)) == (
        "Between 149,980 and 1.8 × 10^38 phrases of the same length score higher (proven bounds)."
    )


def test_an_exact_rank_starts_at_1(ranked):
    wanted = {
        0: "Rank 1 (exact): no phrase of the same length scores higher.",
        1: "Rank 2 (exact): 1 phrase of the same length scores higher.",
        1200: "Rank 1,201 (exact): 1,200 phrases of the same length score higher.",
    }
    for higher, line in wanted.items():
        assert rank_of(ranked(higher, higher)) == line


def test_ranks_that_no_float_holds_are_said_by_their_size(ranked):
    summary = ranked(0, 10**330)
    assert summary["rank_upper"] is None
    assert rank_of(summary).startswith("Between 0 and 10^330 phrases")


def test_runs_of_before_there_were_logarithms_are_read():
    old = {"rank_lower": 3, "rank_upper": 59 * 10**33, "exact": False}
    assert rank_of(old).startswith("Between 3 and 5.9 × 10^34 phrases")
