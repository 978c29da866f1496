"""What is estimated of a rank is called an estimate, and what is proven is called that."""

from vestige.attacks.update.differential_rank import DifferentialRank
from vestige.attacks.update.sampled_rank import RankEstimate

from vestige.audits.update.report import estimate_of, rank_of


def ranked(lower, upper, estimate=None):
    return DifferentialRank(
        phrase="a b",
        positions=(),
        score=1.0,
        relative_score=1.0,
        smoothed_score=1.0,
        rank_lower=lower,
        rank_upper=upper,
        beam_rank=0,
        in_beam=True,
        prefixes=1,
        estimate=estimate,
    )


def estimate(value, low, high, effective=15.0, hits=2000):
    return RankEstimate(
        value=value, low=low, high=high, samples=4096, hits=hits, effective=effective, seen=5
    )


def test_the_proof_and_the_estimate_are_told_apart():
    summary = ranked(149_980, 18 * 10**37, estimate(3_204_000, 2_900_000, 3_540_000)).summary()
    assert rank_of(summary) == (
        "Between 149,980 and 1.8 × 10^38 phrases of the same length score higher (proven bounds)."
    )
    assert estimate_of(summary) == (
        "Estimate: about 3,204,000 (95% CI 2,900,000 to 3,540,000; 4,096 samples)."
    )


def test_no_estimate_is_given_where_too_few_samples_count():
    summary = ranked(3, 10**20, estimate(None, None, None, effective=2.5)).summary()
    assert rank_of(summary).startswith("Between 3 and 10^20 phrases")
    assert estimate_of(summary) == ("No estimate: too few samples score higher (worth 2.5 runs).")


def test_samples_that_all_score_lower_are_said_to_prove_nothing():
    summary = ranked(0, 10**20, estimate(None, None, None, effective=0.0, hits=0)).summary()
    assert estimate_of(summary) == "None of 4,096 samples scores higher, which proves nothing."


def test_an_exact_rank_starts_at_1():
    wanted = {
        0: "Rank 1 (exact): no phrase of the same length scores higher.",
        1: "Rank 2 (exact): 1 phrase of the same length scores higher.",
        1200: "Rank 1,201 (exact): 1,200 phrases of the same length score higher.",
    }
    for higher, line in wanted.items():
        summary = ranked(higher, higher).summary()
        assert (rank_of(summary), estimate_of(summary)) == (line, "")


def test_an_estimate_is_never_outside_of_what_is_proven():
    summary = ranked(10, 50, estimate(4, 2, 80)).summary()
    assert [summary[f"rank_estimate{end}"] for end in ("_low", "", "_high")] == [10, 10, 50]


def test_ranks_that_no_float_holds_are_said_by_their_size():
    found = ranked(0, 10**330, estimate(10**320, 10**319, 10**321))
    assert found.summary()["rank_upper"] is None
    assert rank_of(found.summary()).startswith("Between 0 and 10^330 phrases")
    assert estimate_of(found.summary()) == (
        "Estimate: about 10^320 (95% CI 10^319 to 10^321; 4,096 samples)."
    )


def test_runs_of_before_there_were_estimates_are_read():
    old = {"rank_lower": 3, "rank_upper": 40, "exact": False}
    assert (
        rank_of(old) == "Between 3 and 40 phrases of the same length score higher (proven bounds)."
    )
    assert estimate_of(old) == ""
    large = {**old, "rank_upper": 59 * 10**33}
    assert rank_of(large).startswith("Between 3 and 5.9 × 10^34 phrases")
