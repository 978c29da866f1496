"""Beam search on bigram models equals brute force and naive beams."""

import math

import pytest
import torch

from reproduction.updates.searches import (
    Beams,
    beam_search,
    best_children,
    findings,
    group_beam_search,
)
from tests.audits.update.conftest import every_phrase, naive_score
from tests.tables import one_thread, other_bits, random_table
from vestige.audits.update import pair as module
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.models.table import TableModel

__all__ = ["every_phrase", "naive_score", "one_thread", "other_bits", "random_table"]

DIFFERENTIAL = TokenScore("differential")
SMOOTHED = TokenScore("smoothed", delta=1e-6)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_full_beam_ranks_every_phrase(random_table, naive_score, every_phrase, length):
    before, after = random_table(0), random_table(1)
    phrases = every_phrase(5, length)
    best = sorted(phrases, key=lambda s: -naive_score(before, after, s))

    beam = beam_search(Pair.of(before, after, DIFFERENTIAL), [5**length] * length)

    assert len(beam.tokens) == len(phrases)
    expected = torch.tensor([naive_score(before, after, s) for s in best])
    torch.testing.assert_close(beam.score, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(beam.gains.sum(1), beam.score)


def test_a_beam_equals_a_naive_beam(random_table, naive_score):
    before, after = random_table(2), random_table(3)
    best = [()]
    for width in (4, 2, 2):
        children = [(*phrase, token) for phrase in best for token in range(5)]
        best = sorted(children, key=lambda s: -naive_score(before, after, s))[:width]

    beam = beam_search(Pair.of(before, after, DIFFERENTIAL), [4, 2, 2])

    assert [tuple(tokens) for tokens in beam.tokens.tolist()] == best


@pytest.fixture
def slices(monkeypatch):
    """Sets the number of cells in a slice."""

    def set_cells(cells):
        monkeypatch.setattr(module, "CELLS_PER_SLICE", cells)
        monkeypatch.setattr(module, "LEAST_ROWS", 1)

    return set_cells


def test_slices_do_not_change_the_result(random_table, slices):
    pair = Pair.of(random_table(4, 12), random_table(5, 12), DIFFERENTIAL)
    expected = beam_search(pair, [12, 30, 20])
    slices(24)
    sliced = beam_search(pair, [12, 30, 20])
    assert torch.equal(expected.tokens, sliced.tokens)
    assert torch.equal(expected.score, sliced.score)


def test_the_best_children_are_the_best_cells_of_the_table(random_table, slices):
    slices(36)
    pair = Pair.of(random_table(6, 12), random_table(7, 12), DIFFERENTIAL)
    score = torch.linspace(-0.5, 0.5, 12)
    state = pair.start_anywhere(torch.arange(12)[:, None])

    children = best_children(pair, state, score, 9)

    table = score[:, None] + pair.gains(state)
    best, cell = table.flatten().topk(9)
    torch.testing.assert_close(children.score, best)
    assert torch.equal(children.parent * 12 + children.token, cell)


def test_groups_split_the_first_tokens(random_table):
    pair = Pair.of(random_table(8, 6), random_table(9, 6), DIFFERENTIAL)
    groups = group_beam_search(pair, [6, 36], groups=3)
    firsts = [set(beam.tokens[:, 0].tolist()) for beam in groups]
    assert sorted(token for first in firsts for token in first) == list(range(6))
    gains = [float(beam.gains[:, 0].min()) for beam in groups]
    assert gains == sorted(gains, reverse=True)


def test_at_most_one_group_per_first_token(random_table):
    pair = Pair.of(random_table(8, 6), random_table(9, 6), DIFFERENTIAL)
    groups = group_beam_search(pair, [6, 36], groups=2**63)
    assert [len(set(beam.tokens[:, 0].tolist())) for beam in groups] == [1] * 6


def test_equal_scores_are_sorted_by_id_on_every_processor(other_bits):
    """130 words in several slices; nine others are as probable as each."""
    ids = torch.arange(130)
    rows = 1.0 + (ids[:, None] * 7 + ids) % 13
    before = TableModel(torch.full((130,), 1 / 130), torch.full((130, 130), 1 / 130))
    after = TableModel(rows[0] / rows[0].sum(), rows / rows.sum(1, keepdim=True))
    gains = (rows.double() / rows.sum(1, keepdim=True)).log() + math.log(130)
    best = [((), 0.0)]
    for width in (6, 50):
        children = [
            ((*phrase, token), score + float(gains[phrase[-1] if phrase else 0, token]))
            for phrase, score in best
            for token in range(130)
        ]
        best = sorted(children, key=lambda child: -round(child[1], 9))[:width]
    for seed in range(4):
        pair = Pair.of(other_bits(before, seed), other_bits(after, 9 - seed), SMOOTHED)
        tokens = beam_search(pair, [6, 50]).tokens.tolist()
        assert tokens == [list(phrase) for phrase, _ in best]


def test_a_full_beam_puts_the_best_phrase_first(random_table, naive_score, every_phrase):
    before, after = random_table(0), random_table(1)
    best = max(every_phrase(5, 3), key=lambda s: naive_score(before, after, s))
    pair = Pair.of(before, after, DIFFERENTIAL)
    first = findings(pair, Beams(length=3, width=125))[0].phrase
    assert first.phrase == best
    assert first.score == pytest.approx(naive_score(before, after, best), abs=1e-5)


def test_findings_have_their_groups(random_table):
    pair = Pair.of(random_table(0, 6), random_table(1, 6), SMOOTHED)
    assert {finding.group for finding in findings(pair, Beams(length=2, groups=3))} == {0, 1, 2}
