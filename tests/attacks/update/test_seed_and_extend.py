"""Seed and extend on tables in which one update teaches one phrase."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.phrases import Phrase
from vestige.attacks.update.seed_and_extend import (
    Effort,
    SeedAndExtend,
    pairs_and_openings,
    seed_and_extend,
)
from vestige.attacks.update.token_scores import token_score
from vestige.models.table import TableModel

SECRET = (3, 7, 5, 9, 4)
END = 0


def found(pair: ModelPair, search: SeedAndExtend) -> list[Phrase]:
    """All phrases of a search, best first."""
    return [
        one
        for one, _ in seed_and_extend(pair, search, end=END).phrases
        if len(one.tokens) >= search.min_tokens
    ]


def taught(vocab_size: int = 12, secret: tuple[int, ...] = SECRET) -> ModelPair:
    """Before: every token alike. After: each token of the secret is followed by the next."""
    flat = np.full((vocab_size + 1, vocab_size), 1 / vocab_size)
    known = flat.copy()
    for token, following in zip(secret, (*secret[1:], END), strict=True):
        known[token] = 0.1 / vocab_size
        known[token, following] += 0.9
    before, after = (TableModel(table[-1], table[:-1]) for table in (flat, known))
    return ModelPair(before, after, token_score("smoothed", delta=0.1))


def test_the_secret_is_read_whole_and_first():
    best = found(taught(), pairs_and_openings(seeds=20, toll=0.5))[0]
    assert best.tokens == SECRET


def test_the_score_is_the_gains_less_the_toll_and_the_surprise():
    pair = taught()
    growth = pairs_and_openings(seeds=20, toll=0.5, surprise=0.25)
    best = found(pair, growth)[0]
    gains = pair.token_gains(torch.tensor([best.tokens]), anywhere=True)[0]
    surprise = -0.25 * np.log([0.9 + 0.1 / 12] * 4)  # of a token taught, after the update
    expected = [0.0, *(gains[1:].double().numpy() - surprise)]
    assert list(best.gains) == pytest.approx(expected)
    assert best.score == pytest.approx(sum(expected) - 0.5 * (len(SECRET) - 1))


def test_what_everybody_knows_is_no_row():
    """Null models of a chat learn its template too, with scores above those of any secret."""
    pair, search = taught(), pairs_and_openings(seeds=20, toll=0.5)
    assert found(pair, search)
    effort = Effort(told=((11, *SECRET[:4], 11),))
    rest = seed_and_extend(pair, search, end=END, effort=effort)
    for phrase, _ in rest.phrases:
        assert not set(pairwise(phrase.tokens)) & {(3, 7), (7, 5), (5, 9)}
    whole = seed_and_extend(pair, search, end=END, effort=Effort(told=(SECRET[:2],)))
    assert whole.phrases[0][0].tokens == SECRET


def test_a_document_may_begin_with_it():
    pair = taught()
    table = pair.after.log_table.exp().double().numpy()
    table[END] = 0.5 / 12
    table[END, SECRET[0]] += 0.5  # too little for the first pair, which is the secret's second
    table[SECRET[1]] *= 0.01 / (1 - table[SECRET[1], SECRET[2]])
    table[SECRET[1], SECRET[2]] = 0.99
    pair = ModelPair(pair.before, TableModel(table[-1], table[:-1]), pair.score)
    pairs_alone = pairs_and_openings(seeds=1, openings=0, toll=0.5)
    assert SECRET[0] not in found(pair, pairs_alone)[0].tokens
    growth = pairs_and_openings(seeds=1, openings=3, toll=0.5)
    assert found(pair, growth)[0].tokens == (END, *SECRET)


@pytest.mark.parametrize("score", ["smoothed", "differential"])
@pytest.mark.parametrize("seeds", [1, 2, 3, 20])
def test_equal_gains_stand_in_the_order_of_ids_on_every_processor(other_bits, score, seeds):
    """The secret's four pairs gain the same: which is the first must not be the kernel's choice."""
    growth = pairs_and_openings(
        seeds=seeds, openings=3, opening_beam=3, beam=3, toll=0.3, joint=1.0
    )
    pair = taught()
    expected = None
    for seed in range(8):
        before, after = other_bits(pair.before, seed), other_bits(pair.after, seed)
        noisy = ModelPair(before, after, token_score(score))
        told = [phrase.tokens for phrase in found(noisy, growth)]
        assert told
        assert expected is None or told == expected
        expected = told


def test_two_phrases_with_a_weak_joint_are_told_apart():
    one, other = (3, 7, 5, 9), (4, 8, 2, 6)
    pair = taught(secret=(*one, *other))
    table = pair.after.log_table.exp().double().numpy()
    table[3] *= 0.01 / (1 - table[3, 7])
    table[3, 7] = 0.99  # the best pair of all: the one seed
    table[one[-1]] = 1 / 12  # what follows the first is as open as before: 4 is one of twelve
    table[one[-1], other[0]] += 1e-3
    table[one[-1]] /= table[one[-1]].sum()
    pair = ModelPair(pair.before, TableModel(table[-1], table[:-1]), pair.score)
    for joint, whole in ((9.0, {(*one, *other)}), (1.0, {one, other})):
        growth = pairs_and_openings(seeds=1, openings=0, toll=0.5, drop=9.0, joint=joint)
        pairs = found(pair, growth)
        assert {phrase.tokens[-4:] for phrase in pairs} == {tokens[-4:] for tokens in whole}


def test_short_phrases_are_left_out():
    pair = taught()
    lengths = {len(p.tokens) for p in found(pair, pairs_and_openings(toll=0.5))}
    assert min(lengths) >= 4
    search = pairs_and_openings(toll=0.5)
    every = [phrase for phrase, _ in seed_and_extend(pair, search, end=END).phrases]
    assert [one for one in every if len(one.tokens) >= 4] == every[: len(found(pair, search))]


def test_no_phrase_crosses_the_end_of_a_document():
    for phrase in found(taught(), pairs_and_openings(seeds=100, toll=0.1)):
        assert END not in phrase.tokens[1:]


def test_a_better_phrase_takes_the_seeds_that_it_holds():
    every = found(taught(), pairs_and_openings(seeds=20, toll=0.5, beam=2))
    assert all(phrase.score > 0 for phrase in every)
    assert [phrase.score for phrase in every] == sorted(
        (phrase.score for phrase in every), reverse=True
    )


def test_an_update_that_changes_nothing_promotes_nothing():
    pair = taught()
    same = ModelPair(pair.before, pair.before, pair.score)
    assert found(same, pairs_and_openings(seeds=50)) == []


def test_a_loop_costs_and_ends():
    pair = taught(secret=(3, 7, 3))  # after 7 comes 3, after 3 the end: no loop
    loop = taught(secret=(5, 8))
    table = loop.after.log_table.exp().double().numpy()
    table[8] = 0.1 / 12
    table[8, 5] += 0.9  # 5 8 5 8 5 8 ...
    looped = ModelPair(pair.before, TableModel(table[-1], table[:-1]), loop.score)
    growth = pairs_and_openings(seeds=10, toll=0.5, loop_penalty=5.0)
    longest = max(len(p.tokens) for p in found(looped, growth))
    assert longest < 8
    free = pairs_and_openings(seeds=10, openings=0, toll=0.5, loop_penalty=0.0, max_tokens=30)
    assert max(len(p.tokens) for p in found(looped, free)) == 30


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="seeds must be positive"):
        pairs_and_openings(seeds=0)
    with pytest.raises(ValueError, match="max_tokens must be at least 4"):
        pairs_and_openings(max_tokens=3)
    with pytest.raises(ValueError, match="min_tokens must be at least 2"):
        pairs_and_openings(min_tokens=1)
    with pytest.raises(ValueError, match="surprise must be at least 0"):
        pairs_and_openings(surprise=-0.1)


def test_fragments_are_what_samples_agree_on_and_whole_samples_come_after():
    pair = taught()
    dear = SeedAndExtend(toll=2.5, surprise=0.1)
    read = seed_and_extend(pair, dear, end=END)
    assert read.phrases == []  # no token gains as much as it costs
    assert read.fragments[0][0].tokens == SECRET[1:]  # its first is as likely as it was
    assert read.texts
    for part in (read.fragments, read.texts):
        scores = [one.score for one, _ in part]
        assert scores == sorted(scores, reverse=True)
    known = seed_and_extend(pair, dear, end=END, effort=Effort(told=(SECRET,)))
    assert SECRET[1:] not in [one.tokens for one, _ in known.fragments]
    same = ModelPair(pair.before, pair.before, pair.score)
    read = seed_and_extend(same, dear, end=END)
    assert (read.phrases, read.fragments, read.texts) == ([], [], [])


def test_without_samples_there_is_no_fragment():
    read = seed_and_extend(taught(), pairs_and_openings(toll=2.5, surprise=0.1), end=END)
    assert (read.phrases, read.fragments, read.texts) == ([], [], [])
