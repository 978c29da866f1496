"""The rank of a phrase against counting every phrase of its length, and how it is said."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vestige
from vestige import results
from vestige.audits.update import pair
from vestige.audits.update import rank as rank_module
from vestige.audits.update.rank import Bounds, most_continuations, rank_of_phrase
from vestige.audits.update.report import rank_of
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel


def ranked(*args, **settings):
    """The summary of a rank, as attributes."""
    return SimpleNamespace(**rank_of_phrase(*args, **settings).summary)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 110])
def test_a_phrase_may_be_as_long_as_it_likes(random_table, length):
    before, after = random_table(0, 1000), random_table(1, 1000)
    found = rank_of_phrase(before, after, (3, 5) * (length // 2), budget=10).summary
    low, high = found["log10_rank_lower"] or 0.0, found["log10_rank_upper"] or 0.0
    assert 0 <= low <= high <= 3 * length
    assert "proven" in rank_of(found) or found["exact"]


# The verb: a phrase in words.


WORDS = ("red", "blue", "green")


DELTA = 0.1


def model(seed, words=WORDS):
    size, chance = len(words) + 2, np.random.default_rng(seed)
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    start, table = chance.dirichlet(np.ones(size)), chance.dirichlet(np.ones(size), size)
    return TableModel(start, table, vocabulary)


BEFORE, AFTER = model(0), model(1)


def rank(before, after, phrase, **settings):
    return vestige.diff(before, after, phrase=phrase, **settings)


def probabilities(one, tokens):
    """Of each token of a phrase after those before it."""
    table = one.log_table.double().exp().numpy()
    places = [len(table) - 1, *tokens[:-1]]
    return np.array([table[row, token] for row, token in zip(places, tokens, strict=True)])


@pytest.mark.parametrize("phrase", ["red", "green green red"])
def test_both_scores_are_their_definitions(phrase):
    tokens = BEFORE.vocabulary.encode(phrase)
    before, after = (probabilities(one, tokens) for one in (BEFORE, AFTER))
    found = rank(BEFORE, AFTER, phrase, delta=DELTA).summary
    smoothed = np.log((after + DELTA) / (before + DELTA)).sum()
    assert found["smoothed_score"] == pytest.approx(float(smoothed), abs=1e-5)
    assert found["score"] == pytest.approx(float((after - before).sum()), abs=1e-5)


def test_paths_and_objects_give_the_same_rank_and_no_terminal_or_page_shows_the_phrase(
    shell, tmp_path
):
    for name, one in (("before", BEFORE), ("after", AFTER)):
        save_model(one, tmp_path / name)
    pair = (tmp_path / "before", tmp_path / "after")
    done = shell("diff", *pair, "--phrase", "red blue", "--out", tmp_path / "run")
    assert done.exit_code == 0, (done.stderr, done.exception)
    run = results.load(tmp_path / "run")
    found = rank(BEFORE, AFTER, "red blue")
    assert run.result == "DifferentialRank"
    assert (run.rows, run.run["arguments"]["phrase"]) == (
        list(results.plain(found.rows)),
        "red blue",
    )
    assert run.summary["rank_lower"] == found.summary["rank_lower"]
    assert found.record["arguments"]["before"] == "<TableModel>"
    assert shell("report", tmp_path / "run", "--out", tmp_path / "page.html").finished
    assert "(exact)" in done.stdout
    for shown in (done.stdout, (tmp_path / "page.html").read_text("utf-8")):
        assert "red blue" not in shown


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("", "`phrase` must hold at least one token"),
        (" \t", "`phrase` must hold at least one token"),
        ("red lamp blue door", "got others at 2, 4 of its 4 words"),
    ],
)
def test_a_phrase_that_cannot_be_ranked_is_refused_by_name(phrase, message):
    with pytest.raises(ValueError, match=message) as caught:
        rank(BEFORE, AFTER, phrase)
    assert "lamp" not in str(caught.value)


def test_a_phrase_longer_than_the_shorter_model_and_models_of_other_words_are_refused():
    short = model(1)
    short.longest = 2
    rank(BEFORE, short, "red blue")
    with pytest.raises(ValueError, match=r"`phrase` must have at most 2 tokens, .* got 3"):
        rank(BEFORE, short, "red blue red")
    with pytest.raises(IncompatibleModels):
        rank(BEFORE, model(1, ("red", "blue", "lamp")), "red")


# Wording.


@pytest.mark.parametrize(
    ("lower", "upper", "line"),
    [
        (
            149_980,
            18 * 10**37,
            "Between 149,980 and 1.8 × 10^38 phrases of the same length score higher (proven bounds"
            ").",
        ),
        (0, 0, "Rank 1 (exact): no phrase of the same length scores higher."),
        (1, 1, "Rank 2 (exact): 1 phrase of the same length scores higher."),
        (1200, 1200, "Rank 1,201 (exact): 1,200 phrases of the same length score higher."),
        (
            0,
            10**330,
            "Between 0 and 10^330 phrases of the same length score higher (proven bounds).",
        ),
    ],
)
def test_a_rank_starts_at_1_and_is_exact_or_has_proven_bounds(monkeypatch, lower, upper, line):
    monkeypatch.setattr(rank_module, "rank_bounds", lambda *_, **__: Bounds(lower, upper, 1))
    summary = vestige.diff(BEFORE, AFTER, phrase="red blue").summary
    assert rank_of(summary) == line
    assert (summary["rank_upper"] is None) == (upper > 10**300)


def test_runs_of_before_there_were_logarithms_are_read():
    old = {"rank_lower": 3, "rank_upper": 59 * 10**33, "exact": False}
    assert rank_of(old).startswith("Between 3 and 5.9 × 10^34 phrases")
