"""Each proposal against its definition, written naively, on tables whose update is known."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from vestige.audits.update.growth import Seed
from vestige.audits.update.pair import Pair
from vestige.audits.update.prompts import BEGINNING, Prompt, Reply
from vestige.audits.update.proposals import propose
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Sampling, Settings
from vestige.audits.update.units import Run
from vestige.models.table import TableModel

END, DELTA, SURPRISE = 0, 0.1, 0.25
NONE = Settings(
    token_penalty=0.3, surprise=SURPRISE, min_tokens=2, seed=7, sampling=None, openings=0, pairs=0
)
STARTS = (Prompt(BEGINNING, (END,)), Prompt("prompt 1", (5, 2)))


@pytest.fixture
def pair(random_table):
    score = TokenScore("smoothed", delta=DELTA)
    return Pair.of(random_table(3, 9), random_table(4, 9), score)


def running(pair, prompts=STARTS, **settings):
    """A search in progress, before its first unit."""
    return Run(
        pair=pair.with_score(replace(pair.score, surprise=SURPRISE)),
        settings=replace(NONE, **settings),
        prompts=prompts,
        store={},
        until=lambda _: False,
        progress=lambda *_: None,
        expected=0,
    )


def proposed(pair, prompts=STARTS, **settings):
    """A search after its proposals, and what each unit returned, by its key."""
    run, given, unit = running(pair, prompts, **settings), {}, Run.unit

    def noted(key, activity, work):
        given[key] = unit(run, key, activity, work)
        return given[key]

    run.unit = noted
    propose(run)
    return run, given


def probabilities(model, last):
    return model.log_table[last].double().exp().numpy()


def gain(pair, last, token, surprise=SURPRISE):
    models = pair.before.model, pair.after.model
    before, after = (probabilities(model, last)[token] for model in models)
    return math.log((after + DELTA) / (before + DELTA)) + surprise * math.log(after)


def test_openings_are_the_most_promoted_tokens_after_each_prompt(pair):
    _, given = proposed(pair, openings=5)
    for place, number in ((0, 3), (1, 2)):
        start = STARTS[place].tokens
        naive = sorted((-gain(pair, start[-1], token, surprise=0), token) for token in range(1, 9))
        naive = naive[:number]
        _, seeds = given[f"openings/{place}"]
        assert [(seed.context, seed.token) for seed in seeds] == [(start, t) for _, t in naive]
        assert [seed.gain for seed in seeds] == pytest.approx([-g for g, _ in naive], abs=1e-6)


def test_pairs_are_the_most_promoted_of_all(pair):
    naive = sorted(
        (-gain(pair, first, second), first, second)
        for first in range(9)
        for second in range(9)
        if second not in (END, first)
    )[:10]
    _, seeds = proposed(pair, pairs=10)[1]["pairs/all"]
    assert [(*seed.context, seed.token) for seed in seeds] == [best[1:] for best in naive]


def test_pairs_are_left_out_where_they_are_too_many(pair):
    assert proposed(pair, pairs=10, pair_vocabulary=8)[1] == {}
    assert proposed(pair, pairs=10, pair_vocabulary=9)[1]


@pytest.mark.parametrize(("alpha", "temperature"), [(0.0, 1.0), (0.5, 1.0), (2.0, 0.7)])
def test_samples_are_drawn_from_the_amplified_distribution(pair, alpha, temperature):
    sampling = Sampling(samples=6, length=7, alpha=alpha, temperature=temperature, alternatives=0,
                        block=2)  # fmt: skip
    run, given = proposed(pair, sampling=sampling)
    assert list(given)[:2] == ["samples/0/0", "samples/0/1"]
    for place in (0, 1):
        texts = [text for key in given if key.startswith(f"samples/{place}/")
                 for text in given[key][0]]  # fmt: skip
        assert sum(min(6, len(text.tokens) - text.first) for text in texts) >= 3 * 6
    models = pair.before.model, pair.after.model
    for key, (texts, _) in given.items():
        start = STARTS[int(key.split("/")[1])].tokens
        chance = torch.rand(7, len(texts), generator=run.generator(key), dtype=torch.float64)
        for row, text in enumerate(texts):
            tokens = list(start)
            for step in range(7):
                before, after = (probabilities(model, tokens[-1]) for model in models)
                weight = (after * (after / before) ** alpha) ** (1 / temperature)
                heap = np.cumsum(weight / weight.sum())
                token = int(np.searchsorted(heap, float(chance[step, row]), side="right"))
                if token == END:
                    break
                tokens.append(token)
            assert text.tokens == tuple(tokens)
            assert text.first == len(start)
            expected = [gain(pair, a, b) for a, b in pairwise(tokens)]
            assert text.gains[text.first :] == pytest.approx(expected[text.first - 1 :], abs=1e-5)
            ratios = [
                math.log(probabilities(models[1], a)[b]) - math.log(probabilities(models[0], a)[b])
                for a, b in pairwise(tokens[text.first - 1 :])
            ]
            assert text.log_ratios == pytest.approx(ratios, abs=1e-4)
            assert text.prompt == (start if start != (END,) else ())


def test_alternatives_are_what_samples_might_have_taken(pair):
    sampling = Sampling(
        samples=4, length=6, alternatives=1000, per_position=2, min_gain=0.2, context=3, block=3
    )
    _, given = proposed(pair, sampling=sampling)
    naive = set()
    for key in [key for key in given if "grown" not in key]:
        for text in given[key][0]:
            ended = len(text.tokens) - text.first < 6
            for place in range(text.first, len(text.tokens) + ended):
                taken = END if place == len(text.tokens) else text.tokens[place]
                last = text.tokens[place - 1]
                others = sorted((-gain(pair, last, token), token)
                                for token in range(1, 9) if token != taken)[:2]  # fmt: skip
                naive |= {(text.tokens[max(0, place - 3) : place], token, round(-score, 4))
                          for score, token in others if -score > 0.2}  # fmt: skip
    found = [seed for _, seeds in given.values() for seed in seeds]
    assert naive
    assert {(seed.context, seed.token, round(seed.gain, 4)) for seed in found} == naive
    for seed in found:
        own = [gain(pair, first, second) for first, second in pairwise(seed.context)]
        known = seed.context_gains
        assert len(known) < len(seed.context)
        assert known == pytest.approx(own[len(own) - len(known) :], abs=1e-5)


def test_what_grows_from_an_alternative_begins_with_its_context(pair):
    run, seed = running(pair), Seed((2, 3, 4), 5, 1.0, (0.5, 0.25))
    run.grow("samples/first", [seed], 1)
    [text] = run.texts
    assert text.tokens[:4] == (2, 3, 4, 5)
    assert text.gains[:4] == (0.0, 0.5, 0.25, 1.0)
    assert (text.first, text.source, text.prompt) == (1, "samples", ())
    run.explored.add((4, 5))
    run.grow("samples/again", [seed], 1)
    assert run.texts == [text]


@pytest.mark.parametrize("ends", [(END,), (END, 1)])
def test_after_a_users_turn_samples_go_on_into_the_answer(pair, ends):
    """The question is followed by the template, then by an answer of at most `length` tokens."""
    start, turn = (5, 2), Reply(ends, (1, 8, 8))
    starts = (STARTS[0], Prompt("user's turn", start, turn))
    sampling = Sampling(samples=60, length=6, alternatives=900, block=30)
    _, given = proposed(pair, starts, sampling=sampling)
    texts = [text for key in given if key.startswith("samples/1/") for text in given[key][0]]
    questions = [text for text in texts if text.first == len(start)]
    answers = [text for text in texts if text.first != len(start)]
    assert answers
    assert all(text.tokens[:2] == start and text.prompt == start for text in texts)
    assert all(not set(ends) & set(text.tokens[2:]) for text in questions)
    for text in answers:
        asked = text.tokens[: text.first - 3]
        assert text.tokens[text.first - 3 : text.first] == turn.between
        assert [one.tokens for one in questions].count(asked)
        assert END not in text.tokens[text.first :]
        assert len(text.tokens) - text.first <= 6
        wanted = [gain(pair, a, b) for a, b in pairwise(text.tokens[text.first - 1 :])]
        assert text.gains[text.first :] == pytest.approx(wanted, abs=1e-5)
        own = [math.log(probabilities(pair.after.model, a)[b])
               - math.log(probabilities(pair.before.model, a)[b])
               for a, b in pairwise(text.tokens[text.first - 1 :])]  # fmt: skip
        assert text.log_ratios == pytest.approx(own, abs=1e-4)
    read = sum(len(text.tokens) - text.first for text in texts) + 3 * len(answers)
    assert 30 * 5 <= read <= 30 * 5 * 3  # so much is planned for half of the samples
    followed = {seed.context for _, seeds in given.values() for seed in seeds}
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
    pair = Pair.of(before, after, TokenScore("smoothed"))
    texts, _ = proposed(pair, STARTS[:1], sampling=Sampling(samples=20, length=9))[1]["samples/0/0"]
    drawn = [token for text in texts for token in text.tokens]
    assert drawn.count(4) > drawn.count(1) + drawn.count(2)
    assert 3 not in drawn
    assert all(math.isfinite(gained) for text in texts for gained in text.gains)
