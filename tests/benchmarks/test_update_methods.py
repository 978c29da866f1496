"""Search methods on bigram models stay within their budget and follow their definitions."""

import pytest
import torch
import update_methods as methods
from update_methods import METHODS, SearchRow, open_pair, ranked, sample

from vestige.models.table import TableModel

V, BUDGET = 12, 6000
CHAIN = (3, 7, 5, 9, 4, 11)


@pytest.fixture(scope="module")
def pair():
    """A uniform model, and one whose documents often consist of a chain of tokens."""
    start, table = torch.full((V,), 1 / V), torch.full((V, V), 1 / V)
    later, rows = start.clone(), table.clone()
    later[:] = 0.4 / (V - 1)
    later[CHAIN[0]] = 0.6
    for token, following in zip(CHAIN, (*CHAIN[1:], 0), strict=True):
        rows[token] = 0.1 / (V - 1)
        rows[token, following] = 0.9
    return TableModel(start, table), TableModel(later / later.sum(), rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_rows_are_sorted_reproducible_and_within_the_budget(name, pair):
    result = METHODS[name](*pair, BUDGET, 0)
    assert result.rows
    scores = [row.score for row in result.rows if not row.fragment]
    assert scores == sorted(scores, reverse=True)
    if name != "hybrid":  # has its own budget
        assert 0 < result.before + result.after <= BUDGET
    assert METHODS[name](*pair, BUDGET, 0) == result


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"Diff Mining", "beams"}))
def test_the_learned_chain_is_among_the_first_rows(name, pair):
    texts = [row.tokens for row in METHODS[name](*pair, BUDGET, 0).rows[:10]]
    assert any(text[i : i + len(CHAIN)] == CHAIN for text in texts for i in range(len(text)))


def test_diff_mining_counts_the_hundred_tokens_with_the_largest_gains():
    generator = torch.Generator().manual_seed(0)
    later, earlier = torch.rand(2, 3, 200, generator=generator).log()
    best = methods.raised(later, earlier)
    for row in range(3):
        order = sorted(range(200), key=lambda t: float(earlier[row, t] - later[row, t]))
        assert set(best[row].tolist()) == set(order[:100])


def test_amplified_and_guided_logits_follow_their_formulas():
    later, earlier = torch.tensor([[-1.0, -2.0, -8.0]]), torch.tensor([[-2.0, -1.0, -9.5]])
    amplified = methods.amplified(later, earlier)
    assert amplified.tolist() == [[-0.5, -2.5, -7.25]]
    guided = methods.guided(later, earlier)
    assert guided.tolist() == [[0.0, -3.0, float("-inf")]]


def test_a_beam_uses_its_budget():
    widths = methods.beam_widths(4096, 50_000)
    read = 2 * (sum(widths[:-1]) + 1)
    assert 0.95 * 50_000 < read <= 50_000
    assert len(widths) == methods.BEAM_TOKENS


def test_sampled_texts_have_the_log_probabilities_of_both_models(pair):
    before, after = pair
    generator = torch.Generator().manual_seed(3)
    models = open_pair(before, after)
    texts = sample(models, lambda later, _: later, 20, length=8, generator=generator)
    read = sum(min(len(text.tokens), 7) for text in texts)
    assert models.tokens_read == (read + 1, read + 1)
    for text in texts:
        for model, values in ((after, text.later), (before, text.earlier)):
            state, expected = model.start(1), []
            for token in text.tokens:
                expected.append(float(model.log_probs(state)[0, token]))
                state = model.advance(state, torch.tensor([token]))
            assert values == pytest.approx(expected, abs=1e-5)


def test_duplicate_samples_are_one_row():
    result = ranked([((2, 3), 1.0), ((4,), 2.0), ((2, 3), 1.0), ((), 9.0)], (5, 6))
    assert result.rows == (SearchRow((4,), 2.0), SearchRow((2, 3), 1.0))
    assert (result.before, result.after, result.null_scores) == (5, 6, (2.0, 1.0))
