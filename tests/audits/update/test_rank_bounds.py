"""The bounded search against counting every phrase, and what a page says of its bounds."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.audits.update import pair, rank
from vestige.audits.update.rank import Bounds, most_continuations, rank_of_phrase
from vestige.audits.update.report import rank_of


def ranked(*args, **settings):
    """The summary of a rank, as attributes."""
    return SimpleNamespace(**rank_of_phrase(*args, **settings).summary)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_an_exact_rank_is_the_count_of_better_phrases(
    random_table, naive_score, every_phrase, seed, length
):
    before, after = random_table(2 * seed), random_table(2 * seed + 1)
    scores = {s: naive_score(before, after, s) for s in every_phrase(5, length)}
    for phrase in [max(scores, key=scores.get), *list(scores)[:: max(1, len(scores) // 7)]]:
        count = sum(other > scores[phrase] + 1e-5 for other in scores.values())
        found = ranked(before, after, phrase, budget=10_000)
        assert found.rank_lower <= count <= found.rank_upper
        assert found.score == pytest.approx(scores[phrase], abs=1e-5)
        if not any(s != phrase and abs(v - scores[phrase]) < 1e-5 for s, v in scores.items()):
            assert found.exact


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), budget=st.integers(1, 12), cells=st.sampled_from([6, 12, 600]))
def test_whatever_the_budget_the_bounds_hold(seed, budget, cells):
    from vestige.models.table import TableModel

    rng = np.random.default_rng(seed)
    alpha = np.full(4, 0.3)
    before, after = (TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, 4)) for _ in range(2))
    gains = (after.log_table.exp() - before.log_table.exp()).double().numpy()

    def score(s):
        return sum(gains[4 if i == 0 else s[i - 1], s[i]] for i in range(len(s)))

    phrases = list(itertools.product(range(4), repeat=4))
    phrase = phrases[rng.integers(len(phrases))]
    count = sum(score(other) > score(phrase) + 1e-6 for other in phrases)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair, "CELLS_PER_SLICE", cells)
        patch.setattr(pair, "LEAST_ROWS", 1)
        found = ranked(before, after, phrase, budget=budget)
    assert found.rank_lower <= count <= found.rank_upper


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(-0.5, 2.5), st.integers(1, 3))
def test_no_more_continuations_pass_than_the_bound_says(seed, needed, steps):
    rng = np.random.default_rng(seed)
    gains = []
    for _ in range(6**steps):  # each context has its own gains; the positive ones sum to <= 1
        p, q = rng.dirichlet(np.full(6, 0.2), 2)
        gains.append(q - p)
    contexts = iter(range(len(gains)))
    table = {}

    def gain(context, token):
        if context not in table:
            table[context] = gains[next(contexts)]
        return table[context][token]

    passing = sum(
        sum(gain(s[:i], s[i]) for i in range(steps)) > needed
        for s in itertools.product(range(6), repeat=steps)
    )
    assert passing <= most_continuations(torch.tensor([needed]), steps, 6)


def test_the_profile_holds_each_tokens_probabilities(random_table):
    before, after = random_table(0), random_table(1)
    rows = rank_of_phrase(before, after, (2, 4, 1)).rows
    assert [row["token"] for row in rows] == [2, 4, 1]
    expected = [after.log_table[5, 2], after.log_table[2, 4], after.log_table[4, 1]]
    assert [row["after"] for row in rows] == pytest.approx([float(e.exp()) for e in expected])
    assert rows[-1]["cumulative"] == pytest.approx(sum(row["gain"] for row in rows))


def test_an_update_that_changes_nothing_ranks_nothing_higher(random_table):
    model = random_table(0)
    found = ranked(model, model, (1, 2, 3))
    assert (found.score, found.rank_lower) == (0, 0)
    assert not found.exact, "every phrase ties, and ties are said"


@pytest.mark.parametrize("length", [2, 30, 110])
def test_a_phrase_may_be_as_long_as_it_likes(random_table, length):
    before, after = random_table(0, 1000), random_table(1, 1000)
    found = rank_of_phrase(before, after, (3, 5) * (length // 2), budget=10).summary
    low, high = found["log10_rank_lower"] or 0.0, found["log10_rank_upper"] or 0.0
    assert 0 <= low <= high <= 3 * length
    assert "proven" in rank_of(found) or found["exact"]


@pytest.fixture
def bounded(monkeypatch, random_table):
    """Summaries of ranks with given bounds."""

    def summary(lower, upper):
        monkeypatch.setattr(rank, "rank_bounds", lambda *_, **__: Bounds(lower, upper, 1))
        return rank_of_phrase(random_table(0), random_table(1), (1, 2)).summary

    return summary


def test_a_rank_that_is_not_decided_has_proven_bounds(bounded):
    assert rank_of(bounded(149_980, 18 * 10**37)) == (
        "Between 149,980 and 1.8 × 10^38 phrases of the same length score higher (proven bounds)."
    )


def test_an_exact_rank_starts_at_1(bounded):
    wanted = {
        0: "Rank 1 (exact): no phrase of the same length scores higher.",
        1: "Rank 2 (exact): 1 phrase of the same length scores higher.",
        1200: "Rank 1,201 (exact): 1,200 phrases of the same length score higher.",
    }
    for higher, line in wanted.items():
        assert rank_of(bounded(higher, higher)) == line


def test_ranks_that_no_float_holds_are_said_by_their_size(bounded):
    summary = bounded(0, 10**330)
    assert summary["rank_upper"] is None
    assert rank_of(summary).startswith("Between 0 and 10^330 phrases")


def test_runs_of_before_there_were_logarithms_are_read():
    old = {"rank_lower": 3, "rank_upper": 59 * 10**33, "exact": False}
    assert rank_of(old).startswith("Between 3 and 5.9 × 10^34 phrases")
