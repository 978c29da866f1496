"""What is proven of a rank is called that; earlier versions estimated more from samples."""

import pytest

from vestige.audits.update import rank
from vestige.audits.update.rank import Bounds, rank_of_phrase
from vestige.audits.update.report import estimate_of, rank_of


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
        summary = ranked(higher, higher)
        assert (rank_of(summary), estimate_of(summary)) == (line, "")


def test_ranks_that_no_float_holds_are_said_by_their_size(ranked):
    summary = ranked(0, 10**330)
    assert summary["rank_upper"] is None
    assert rank_of(summary).startswith("Between 0 and 10^330 phrases")


OLD = {"rank_lower": 3, "rank_upper": 40, "exact": False}


def test_runs_of_before_there_were_estimates_are_read():
    assert (
        rank_of(OLD) == "Between 3 and 40 phrases of the same length score higher (proven bounds)."
    )
    assert estimate_of(OLD) == ""
    large = {**OLD, "rank_upper": 59 * 10**33}
    assert rank_of(large).startswith("Between 3 and 5.9 × 10^34 phrases")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            {"rank_estimate": 10, "rank_estimate_low": 5, "rank_estimate_high": 20, "hits": 9},
            "Estimate: about 10 (95% CI 5 to 20; 4,096 samples).",
        ),
        (
            {"rank_estimate": None, "hits": 9, "effective_runs": 2.5},
            "No estimate: too few samples score higher (worth 2.5 runs).",
        ),
        (
            {"rank_estimate": None, "hits": 0, "effective_runs": 0.0},
            "None of 4,096 samples scores higher, which proves nothing.",
        ),
    ],
)
def test_estimates_of_earlier_versions_are_shown_as_such(more, line):
    assert estimate_of({**OLD, "samples": 4096, **more}) == line
