"""The rank of a phrase against the naive count of better phrases, and its sentence."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vestige
from tests.audits.update.worlds import probabilities, word_table
from vestige import results
from vestige.audits.update import pair
from vestige.audits.update import rank as rank_module
from vestige.audits.update.rank import Bounds, most_continuations, rank_of_phrase
from vestige.audits.update.report import rank_sentence
from vestige.errors import IncompatibleModels
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_rank_is_the_count_of_better_phrases(
    random_table, naive_score, every_phrase, seed, length
):
    before, after = random_table(2 * seed), random_table(2 * seed + 1)
    scores = {s: naive_score(before, after, s) for s in every_phrase(5, length)}
    for phrase in [max(scores, key=scores.get), *list(scores)[:: max(1, len(scores) // 7)]]:
        count = sum(other > scores[phrase] + 1e-5 for other in scores.values())
        bounds = rank_of_phrase(before, after, phrase, budget=10_000).summary
        assert bounds["rank_lower"] <= count <= bounds["rank_upper"]
        assert bounds["score"] == pytest.approx(scores[phrase], abs=1e-5)
        tied = any(s != phrase and abs(v - scores[phrase]) < 1e-5 for s, v in scores.items())
        assert bounds["exact"] or tied


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), budget=st.integers(1, 12), cells=st.sampled_from([6, 12, 600]))
def test_the_bounds_of_a_rank_hold_with_any_budget(seed, budget, cells):
    rng, alpha = np.random.default_rng(seed), np.full(4, 0.3)
    before, after = (TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, 4)) for _ in range(2))
    gains = (after.log_table.exp() - before.log_table.exp()).double().numpy()

    def score(s):
        return sum(gains[4 if i == 0 else s[i - 1], s[i]] for i in range(len(s)))

    phrases = list(product(range(4), repeat=4))
    phrase = phrases[rng.integers(len(phrases))]
    count = sum(score(other) > score(phrase) + 1e-6 for other in phrases)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair, "CELLS_PER_SLICE", cells)
        patch.setattr(pair, "LEAST_ROWS", 1)
        bounds = rank_of_phrase(before, after, phrase, budget=budget).summary
    assert bounds["rank_lower"] <= count <= bounds["rank_upper"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(-0.5, 2.5), st.integers(1, 3))
def test_the_bound_on_passing_continuations_holds(seed, needed, steps):
    """Gains are differences of probabilities, so positive ones sum to at most 1."""
    rng = np.random.default_rng(seed)
    contexts = [tokens for n in range(steps) for tokens in product(range(6), repeat=n)]
    earlier, later = rng.dirichlet(np.full(6, 0.2), (2, len(contexts)))
    gains = dict(zip(contexts, later - earlier, strict=True))
    passing = sum(
        sum(gains[s[:i]][s[i]] for i in range(steps)) > needed
        for s in product(range(6), repeat=steps)
    )
    assert passing <= most_continuations(torch.tensor([needed]), steps, 6)


def test_the_profile_has_the_probabilities_of_each_token(random_table):
    before, after = random_table(0), random_table(1)
    rows = rank_of_phrase(before, after, (2, 4, 1)).rows
    assert [row["token"] for row in rows] == [2, 4, 1]
    expected = [probabilities(after, last)[token] for last, token in ((5, 2), (2, 4), (4, 1))]
    assert [row["after"] for row in rows] == pytest.approx(expected)
    assert rows[-1]["cumulative"] == pytest.approx(sum(row["gain"] for row in rows))


def test_without_a_change_no_phrase_ranks_higher(random_table):
    model = random_table(0)
    bounds = rank_of_phrase(model, model, (1, 2, 3)).summary
    assert (bounds["score"], bounds["rank_lower"]) == (0, 0)
    assert not bounds["exact"], "every phrase ties"


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 110])
def test_a_phrase_may_have_any_length(random_table, length):
    before, after = random_table(0, 1000), random_table(1, 1000)
    bounds = rank_of_phrase(before, after, (3, 5) * (length // 2), budget=10).summary
    low, high = bounds["log10_rank_lower"] or 0.0, bounds["log10_rank_upper"] or 0.0
    assert 0 <= low <= high <= 3 * length
    assert "proven" in rank_sentence(bounds) or bounds["exact"]


# `diff --phrase`: a phrase in words.

BEFORE, AFTER, DELTA = word_table(0), word_table(1), 0.1


def rank(phrase, *, before=BEFORE, after=AFTER, **options):
    return vestige.diff(before, after, phrase=phrase, **options)


@pytest.mark.parametrize("phrase", ["red", "green green red"])
def test_both_scores_follow_their_definitions(phrase):
    tokens = BEFORE.vocabulary.encode(phrase)
    steps = list(zip((-1, *tokens), tokens, strict=False))
    before, after = (
        np.array([probabilities(model, last)[token] for last, token in steps])
        for model in (BEFORE, AFTER)
    )
    bounds = rank(phrase, delta=DELTA).summary
    smoothed = np.log((after + DELTA) / (before + DELTA)).sum()
    assert bounds["smoothed_score"] == pytest.approx(float(smoothed), abs=1e-5)
    assert bounds["score"] == pytest.approx(float((after - before).sum()), abs=1e-5)


def test_the_command_saves_the_same_rank_and_shows_no_phrase(shell, tmp_path):
    for name, model in (("before", BEFORE), ("after", AFTER)):
        save_model(model, tmp_path / name)
    pair = (tmp_path / "before", tmp_path / "after")
    done = shell("diff", *pair, "--phrase", "red blue", "--out", tmp_path / "run")
    assert done.exit_code == 0, (done.stderr, done.exception)
    run, result = results.load(tmp_path / "run"), rank("red blue")
    assert (run.result, run.rows) == ("DifferentialRank", list(results.plain(result.rows)))
    assert run.summary["rank_lower"] == result.summary["rank_lower"]
    assert run.run["arguments"]["phrase"] == "red blue"
    assert "(exact)" in done.stdout
    assert shell("report", tmp_path / "run", "--out", tmp_path / "page.html").finished
    assert "red blue" not in done.stdout + (tmp_path / "page.html").read_text("utf-8")


SHORT = word_table(1)
SHORT.longest = 2


@pytest.mark.parametrize(
    ("phrase", "after", "error", "message"),
    [
        ("", AFTER, ValueError, "`phrase` must hold at least one token"),
        (" \t", AFTER, ValueError, "`phrase` must hold at least one token"),
        ("red lamp blue door", AFTER, ValueError, "got others at 2, 4 of its 4 words"),
        ("red blue red", SHORT, ValueError, "`phrase` must have at most 2 tokens, .* got 3"),
        ("red", word_table(1, ("red", "blue", "lamp")), IncompatibleModels, "vocabular"),
    ],
)
def test_empty_unknown_and_long_phrases_and_other_vocabularies_are_refused(
    phrase, after, error, message
):
    assert rank("red blue", after=SHORT).rows
    with pytest.raises(error, match=message) as raised:
        rank(phrase, after=after)
    assert "lamp" not in str(raised.value)


@pytest.mark.parametrize(
    ("lower", "upper", "line"),
    [
        (0, 0, "Rank 1 (exact): no phrase of the same length scores higher."),
        (1, 1, "Rank 2 (exact): 1 phrase of the same length scores higher."),
        (1200, 1200, "Rank 1,201 (exact): 1,200 phrases of the same length score higher."),
        (149_980, 18 * 10**37, "Between 149,980 and 1.8 × 10^38 phrases"),
        (0, 10**330, "Between 0 and 10^330 phrases of the same length score higher (proven"),
    ],
)
def test_a_rank_starts_at_1_and_is_exact_or_has_proven_bounds(monkeypatch, lower, upper, line):
    monkeypatch.setattr(rank_module, "rank_bounds", lambda *_, **__: Bounds(lower, upper, 1))
    summary = rank("red blue").summary
    assert rank_sentence(summary).startswith(line)
    assert (summary["rank_upper"] is None) == (upper > 10**300)


def test_old_runs_without_logarithms_are_read():
    old = {"rank_lower": 3, "rank_upper": 59 * 10**33, "exact": False}
    assert rank_sentence(old).startswith("Between 3 and 5.9 × 10^34 phrases")
