"""What is estimated of a rank is called an estimate, and what is proven is called that."""

from vestige.reports.rank import describe_rank

from vestige.attacks.update.differential_rank import DifferentialRank
from vestige.attacks.update.sampled_rank import RankEstimate


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


def test_an_estimate_is_said_first_and_the_proof_after_it():
    found = ranked(149_980, 18 * 10**37, estimate(3_204_000, 2_900_000, 3_540_000))
    assert describe_rank(found.summary()) == (
        "Rank about 3,204,000, an estimate from 4,096 samples (95 % interval 2,900,000 to "
        "3,540,000); it is between 149,980 and 1.8 × 10^38, both proven."
    )


def test_no_estimate_is_said_where_too_few_samples_count():
    found = ranked(3, 10**20, estimate(None, None, None, effective=2.5))
    assert describe_rank(found.summary()) == (
        "Rank between 3 and 10^20, both proven. No estimate between them: too few of the runs "
        "reached what scores higher (worth 2.5 runs). More --samples may give one."
    )


def test_samples_that_all_score_lower_are_said_to_prove_nothing():
    found = ranked(0, 10**20, estimate(None, None, None, effective=0.0, hits=0))
    assert describe_rank(found.summary()) == (
        "Rank between 0 and 10^20, both proven. Of 4,096 samples, drawn towards this phrase and "
        "towards what was promoted, none scores higher, which proves nothing."
    )


def test_an_estimate_is_never_outside_of_what_is_proven():
    summary = ranked(10, 50, estimate(4, 2, 80)).summary()
    assert [summary[f"rank_estimate{end}"] for end in ("_low", "", "_high")] == [10, 10, 50]


def test_ranks_that_no_float_holds_are_said_by_their_size():
    found = ranked(0, 10**330, estimate(10**320, 10**319, 10**321))
    assert found.summary()["rank_upper"] is None
    assert describe_rank(found.summary()) == (
        "Rank about 10^320, an estimate from 4,096 samples (95 % interval 10^319 to 10^321); it is "
        "between 0 and 10^330, both proven."
    )


def test_runs_of_before_there_were_estimates_are_read():
    old = {"rank_lower": 3, "rank_upper": 40, "exact": False}
    assert describe_rank(old) == "Rank between 3 and 40, both proven."
