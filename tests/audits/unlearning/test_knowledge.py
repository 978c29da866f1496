"""Knowledge of deleted texts: simulations with a known truth."""

import numpy as np
import pytest
from scipy import stats

from tests.audits.passed import passed
from vestige.audits.unlearning import knowledge
from vestige.audits.unlearning.knowledge import Knowledge, different_models, remaining_share
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.models.token_statistics import TokenStatistics


def verify(*known, **more):
    """The result of the verb if all checks of lists and models passed."""
    return knowledge.verify(*known, checks=passed("unlearning"), **more)


def interval(result, name="left"):
    """The ends of an interval of the summary."""
    return result.summary[f"{name}_low"], result.summary[f"{name}_high"]


def drawn(rng, *, gains, count=(25, 60), difficulty=0.5):
    """Knowledge of one model per gain: difficulty of texts, gain on deleted texts, noise."""
    rng, sides = np.random.default_rng(rng), []
    for n, gained in zip(count, (1, 0), strict=True):
        texts = rng.normal(-4, difficulty, n)
        sides.append([texts + gain * gained + rng.normal(0, 0.1, n) for gain in gains])
    return [
        Knowledge(deleted=deleted, reference=reference)
        for deleted, reference in zip(*sides, strict=True)
    ]


@pytest.mark.slow
def test_the_rate_of_false_leaks_is_alpha():
    rng, leaks = np.random.default_rng(1), 0
    for seed in range(150):
        before, after = drawn(rng, gains=(1.0, 0.0))
        leaks += verify(before, after, seed=seed).verdict == LEAK
    assert 0.01 < leaks / 150 < 0.104  # 0.05 and three standard errors


def test_the_interval_of_the_remaining_share_has_its_coverage():
    rng = np.random.default_rng(2)
    shares = [remaining_share(*drawn(rng, gains=(0.8, 0.2))) for _ in range(800)]
    covered = [share.low <= 0.25 <= share.high for share in shares if share is not None]
    assert len(covered) > 700
    assert 0.93 < np.mean(covered) < 0.97


def test_the_ends_of_fiellers_interval_solve_its_equation():
    before, after = drawn(3, gains=(1.5, 0.5))
    for share in remaining_share(before, after).interval:
        rest = Knowledge(
            deleted=after.deleted - share * before.deleted,
            reference=after.reference - share * before.reference,
        )
        spread = rest.deleted.var(ddof=1) / 25 + rest.reference.var(ddof=1) / 60
        assert rest.value**2 / spread == pytest.approx(stats.t.isf(0.025, 24) ** 2)


def test_the_p_value_is_two_sided():
    before, after = drawn(3, gains=(1.5, 0.5))
    test = verify(before, after).claim.test
    smaller = min(after.p_value(seed=0), after.p_value(seed=0, less=True))
    assert test.p == pytest.approx(2 * smaller)
    assert test.least == pytest.approx(2 / (knowledge.PERMUTATIONS + 1))
    few = verify(*drawn(3, gains=(1.5, 0.5), count=(2, 3)))  # five texts have ten splits
    assert few.claim.test.least == pytest.approx(2 / 10)


def test_a_remaining_share_needs_two_texts_on_each_side():
    too_few, enough = (drawn(3, gains=(50.0, 20.0), count=(n, 60), difficulty=0.1) for n in (1, 2))
    assert remaining_share(*too_few) is None
    result = remaining_share(*enough)
    assert result.low < result.value < result.high


def test_a_retrained_model_removes_the_difficulty_of_texts():
    before, after, retrained = drawn(4, gains=(1.0, 0.1, 0.0), difficulty=1.0)
    without, compared = verify(before, after), verify(before, after, retrained=retrained)
    assert without.verdict != LEAK
    assert (compared.verdict, compared.summary["finding"]) == (LEAK, "still known")
    (wide_low, wide_high), (low, high) = interval(without), interval(compared)
    assert high - low < (wide_high - wide_low) / 3
    assert low <= 0.1 <= high


@pytest.mark.parametrize(
    ("seed", "gains", "verdict", "finding"),
    [
        (5, (1.0, -1.0), LEAK, "suppressed"),
        (5, (-1.0, -1.0), UNDECIDED, None),  # as low before
        (8, (0.5, 0.0), UNDECIDED, None),  # more than a quarter may remain
        (8, (3.0, 0.0), NO_LEAK, None),
        (6, (0.0, 0.0), UNDECIDED, None),  # nothing was known
    ],
)
def test_the_verdict_follows_from_the_knowledge_of_both_models(seed, gains, verdict, finding):
    result = verify(*drawn(seed, gains=gains))
    assert (result.verdict, result.summary["finding"]) == (verdict, finding)
    if gains == (0.0, 0.0):
        assert result.summary["left"] is None
        [reason] = result.claim.reasons
        assert "BEFORE is not shown to know the deleted texts" in reason
    elif seed == 8:
        assert (interval(result)[1] > 0.25) == (verdict == UNDECIDED)


def test_copies_of_texts_are_one_unit_in_every_number():
    single = drawn(9, gains=(1.0, 0.3), count=(12, 20))
    units = tuple(np.repeat(np.arange(size), 4) for size in (12, 20))
    four = [
        Knowledge(deleted=np.repeat(k.deleted, 4), reference=np.repeat(k.reference, 4), units=units)
        for k in single
    ]
    once, copied = verify(*single), verify(*four)
    assert copied.summary["p_value"] == once.summary["p_value"]
    for name in ("left", "after_knows"):
        assert interval(copied, name) == pytest.approx(interval(once, name))
    assert copied.summary["deleted_units"] == 12


def test_scores_that_are_not_finite_are_undecided():
    before, after = drawn(7, gains=(1.0, 1.0))
    after.deleted[3] = np.nan
    result = verify(before, after)
    assert (result.verdict, result.claim.test) == (UNDECIDED, None)
    assert result.summary["after_knows"] is None


@pytest.mark.parametrize(
    ("equal", "blocks"),
    [(("before", "after"), (NO_LEAK,)), (("before", "retrained"), (LEAK, NO_LEAK)),
     (("after", "retrained"), (LEAK, NO_LEAK))],
)  # fmt: skip
def test_only_equality_of_before_and_after_allows_a_leak(equal, blocks):
    rng = np.random.default_rng(0)
    scores = {role: rng.normal(size=50) for role in ("before", "after", "retrained")}
    scores[equal[1]] = scores[equal[0]]
    [failed] = [check for check in different_models(scores) if check.state == "failed"]
    assert failed.blocks == blocks


# From token statistics.


def statistics_of(rows):
    """Token statistics with these log-probabilities."""
    flat = np.concatenate(rows).astype(np.float32)
    zeros = np.zeros(flat.size, dtype=np.int32)
    return TokenStatistics(
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]), tokens=zeros,
        log_probs=flat, ranks=zeros, means=flat, deviations=flat, likeliest=zeros[:, None],
        likeliest_log_probs=flat[:, None],
    )  # fmt: skip


def test_texts_are_compared_over_the_positions_that_both_lists_reach():
    rng = np.random.default_rng(3)
    easier = np.log(np.arange(1, 41) / 41)  # later tokens are more probable
    short, long = (
        statistics_of([easier[:n] + rng.normal(0, 0.1, n) for _ in range(20)]) for n in (10, 40)
    )
    result = Knowledge.of(short, long)
    assert abs(result.value) < 0.02
    assert result.p_value(seed=0) > 0.05
    assert Knowledge.of(long, short).compared == 20 * 10


def test_scores_are_means_of_tokens_minus_means_at_their_positions():
    rows = [np.array([-1.0, -3.0]), np.array([-2.0, -5.0])]
    reference = statistics_of([np.array([-3.0, -1.0])] * 16)
    result = Knowledge.of(statistics_of(rows * 8), reference)
    means = [-2.25, -2.5]
    assert result.deleted[:2] == pytest.approx([-2 - np.mean(means), -3.5 - np.mean(means)])
    assert result.value == pytest.approx(-2.75 + 2.0)
