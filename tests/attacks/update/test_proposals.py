"""Each proposal against its definition, written naively, on tables whose update is known."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from vestige.attacks.update.extension import Seed
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.phrases import Growth
from vestige.attacks.update.proposals.openings import Openings
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.protocol import Ground, Turn
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.token_scores import token_score
from vestige.models.table import TableModel

END, DELTA, GROWTH = 0, 0.1, Growth(toll=0.3, surprise=0.25, min_tokens=2)


@pytest.fixture
def ground(random_table):
    pair = ModelPair(random_table(3, 9), random_table(4, 9), token_score("smoothed", delta=DELTA))
    return Ground(pair, GROWTH, END, ((END,), (5, 2)), seed=7)


def outcomes(proposal, ground):
    """What each unit gave, by its key."""
    given, units, outcome = {}, proposal.units(ground), None
    while True:
        try:
            unit = next(units) if outcome is None else units.send(outcome)
        except StopIteration:
            return given
        outcome = given[unit.key] = unit.run()
        ground.add(outcome.texts)


def probabilities(model, last):
    return model.log_table[last].double().exp().numpy()


def gain(pair, last, token, surprise=GROWTH.surprise):
    before, after = (probabilities(model, last)[token] for model in (pair.before, pair.after))
    return math.log((after + DELTA) / (before + DELTA)) + surprise * math.log(after)


def test_openings_are_the_most_promoted_tokens_behind_each_start(ground):
    given = outcomes(Openings(openings=5), ground)
    for place, number in ((0, 3), (1, 2)):
        start = ground.starts[place]
        naive = sorted(
            (-gain(ground.plain, start[-1], token, surprise=0), token) for token in range(1, 9)
        )[:number]
        seeds = given[f"openings/{place}"].seeds
        assert [(seed.context, seed.token) for seed in seeds] == [(start, t) for _, t in naive]
        assert [seed.gain for seed in seeds] == pytest.approx([-g for g, _ in naive], abs=1e-6)


def test_pairs_are_the_most_promoted_of_all(ground):
    naive = sorted(
        (-gain(ground.plain, first, second), first, second)
        for first in range(9)
        for second in range(9)
        if second not in (END, first)
    )[:10]
    seeds = outcomes(Pairs(seeds=10), ground)["pairs/all"].seeds
    assert [(*seed.context, seed.token) for seed in seeds] == [pair[1:] for pair in naive]


def test_pairs_are_left_out_where_they_are_too_many(ground):
    assert outcomes(Pairs(largest=8), ground) == {}
    assert Pairs(largest=8).planned(ground.plain, ground.starts).units == 0
    assert outcomes(Pairs(largest=9), ground)


@pytest.mark.parametrize(("alpha", "temperature"), [(0.0, 1.0), (0.5, 1.0), (2.0, 0.7)])
def test_samples_are_drawn_from_the_amplified_distribution(ground, alpha, temperature):
    settings = Samples(samples=6, length=7, alpha=alpha, temperature=temperature, alternatives=0,
                       block=2)  # fmt: skip
    given = outcomes(settings, ground)
    assert list(given)[:2] == ["samples/0/0", "samples/0/1"]
    for place in (0, 1):
        texts = [text for key in given if key.startswith(f"samples/{place}/")
                 for text in given[key].texts]  # fmt: skip
        assert sum(min(6, len(text.tokens) - text.first) for text in texts) >= 3 * 6
    for key, outcome in given.items():
        start = ground.starts[int(key.split("/")[1])]
        rows = len(outcome.texts)
        chance = torch.rand(7, rows, generator=ground.generator(key), dtype=torch.float64)
        for row, text in enumerate(outcome.texts):
            tokens = list(start)
            for step in range(7):
                before, after = (
                    probabilities(model, tokens[-1])
                    for model in (ground.plain.before, ground.plain.after)
                )
                weight = (after * (after / before) ** alpha) ** (1 / temperature)
                heap = np.cumsum(weight / weight.sum())
                token = int(np.searchsorted(heap, float(chance[step, row]), side="right"))
                if token == END:
                    break
                tokens.append(token)
            assert text.tokens == tuple(tokens)
            assert text.first == len(start)
            expected = [gain(ground.plain, a, b) for a, b in pairwise(tokens)]
            assert text.gains[text.first :] == pytest.approx(expected[text.first - 1 :], abs=1e-5)
            ratios = [
                math.log(probabilities(ground.plain.after, a)[b])
                - math.log(probabilities(ground.plain.before, a)[b])
                for a, b in pairwise(tokens[text.first - 1 :])
            ]
            assert text.ratios == pytest.approx(ratios, abs=1e-4)
            assert text.context == (start if start != (END,) else ())


def test_alternatives_are_what_samples_might_have_taken(ground):
    settings = Samples(
        samples=4, length=6, alternatives=1000, each=2, least=0.2, context=3, block=3
    )
    given = outcomes(settings, ground)
    naive = set()
    for key in [key for key in given if "grown" not in key]:
        for text in given[key].texts:
            ended = len(text.tokens) - text.first < 6
            for place in range(text.first, len(text.tokens) + ended):
                taken = END if place == len(text.tokens) else text.tokens[place]
                last = text.tokens[place - 1]
                others = sorted((-gain(ground.plain, last, token), token)
                                for token in range(1, 9) if token != taken)[:2]  # fmt: skip
                naive |= {(text.tokens[max(0, place - 3) : place], token, round(-score, 4))
                          for score, token in others if -score > 0.2}  # fmt: skip
    found = [seed for key in given for seed in given[key].seeds]
    assert naive
    assert {(seed.context, seed.token, round(seed.gain, 4)) for seed in found} == naive


def test_what_grows_from_an_alternative_begins_with_its_context(ground):
    seed = Seed((2, 3, 4), 5, 1.0, (0.5, 0.25))
    text = ground.grown([seed], "samples").texts[0]
    assert text.tokens[:4] == (2, 3, 4, 5)
    assert text.gains[:4] == (0.0, 0.5, 0.25, 1.0)
    assert (text.first, text.proposal, text.context) == (1, "samples", ())
    ground.pairs.add((4, 5))
    assert ground.grown([seed], "samples").texts == ()


@pytest.mark.parametrize("ends", [(END,), (END, 1)])
def test_behind_a_users_turn_samples_go_on_into_the_answer(ground, ends):
    """Where the question ends the template stands, then an answer of at most `length` tokens."""
    start, turn = (5, 2), Turn(ends, (1, 8, 8))
    ground = replace(ground, turns={start: turn})
    given = outcomes(Samples(samples=60, length=6, alternatives=900, block=30), ground)
    texts = [text for key in given if key.startswith("samples/1/") for text in given[key].texts]
    questions = [text for text in texts if text.first == len(start)]
    answers = [text for text in texts if text.first != len(start)]
    assert answers
    assert all(text.tokens[:2] == start and text.context == start for text in texts)
    assert all(not set(ends) & set(text.tokens[2:]) for text in questions)
    for text in answers:
        asked = text.tokens[: text.first - 3]
        assert text.tokens[text.first - 3 : text.first] == turn.then
        assert [one.tokens for one in questions].count(asked)
        assert END not in text.tokens[text.first :]
        assert len(text.tokens) - text.first <= 6
        wanted = [gain(ground.plain, a, b) for a, b in pairwise(text.tokens[text.first - 1 :])]
        assert text.gains[text.first :] == pytest.approx(wanted, abs=1e-5)
        own = [math.log(probabilities(ground.plain.after, a)[b])
               - math.log(probabilities(ground.plain.before, a)[b])
               for a, b in pairwise(text.tokens[text.first - 1 :])]  # fmt: skip
        assert text.ratios == pytest.approx(own, abs=1e-4)
    read = sum(len(text.tokens) - text.first for text in texts) + 3 * len(answers)
    assert 30 * 5 <= read <= 30 * 5 * 3  # so much is planned for half of the samples
    followed = {seed.context for one in given.values() for seed in one.seeds}
    free = {text.tokens[max(0, place - 4) : place]
            for text in texts for place in range(text.first, len(text.tokens) + 1)}  # fmt: skip
    forced = {text.tokens[max(0, place - 4) : place]
              for text in answers for place in (text.first - 2, text.first - 1)}  # fmt: skip
    assert followed & free
    assert not followed & (forced - free)


def test_a_token_that_only_the_later_model_knows_is_drawn():
    """Ids that an update added have probability 0 before it, and others 0 after it."""
    rows = np.full((6, 5), 0.25)
    old, new = rows.copy(), rows.copy()
    old[:, 4], new[:, 3] = 0, 0
    before, after = (TableModel(table[-1], table[:-1]) for table in (old, new))
    pair = ModelPair(before, after, token_score("smoothed"))
    ground = Ground(pair, GROWTH, END, ((END,),))
    texts = outcomes(Samples(samples=20, length=9), ground)["samples/0/0"].texts
    drawn = [token for text in texts for token in text.tokens]
    assert drawn.count(4) > drawn.count(1) + drawn.count(2)
    assert 3 not in drawn
    assert all(math.isfinite(gained) for text in texts for gained in text.gains)
