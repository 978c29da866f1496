"""Proposals of a search against naive definitions, on tables."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.audits.update.worlds import log_ratios, probabilities, smoothed_gain
from vestige.audits.update.growth import Seed
from vestige.audits.update.pair import Pair
from vestige.audits.update.prompts import BEGINNING, Prompt, Reply
from vestige.audits.update.proposals import propose
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Sampling, Settings
from vestige.audits.update.units import SearchRun
from vestige.models.table import TableModel

END, SURPRISE = 0, 0.25
NONE = Settings(
    token_penalty=0.3, surprise=SURPRISE, min_tokens=2, seed=7, sampling=None, openings=0, pairs=0
)
STARTS = (Prompt(BEGINNING, (END,)), Prompt("prompt 1", (5, 2)))


@pytest.fixture
def pair(random_table):
    return Pair.of(random_table(3, 9), random_table(4, 9), TokenScore("smoothed", delta=0.1))


def running(pair, prompts=STARTS, **settings):
    """A search before its first unit."""
    return SearchRun(
        pair=pair.with_score(replace(pair.score, surprise=SURPRISE)),
        settings=replace(NONE, **settings),
        prompts=prompts,
        store={},
        until=lambda _: False,
        progress=lambda *_: None,
        expected_units=0,
    )


def proposed(pair, prompts=STARTS, **settings):
    """A search after its proposals, and the results of its units by key."""
    run, results, unit = running(pair, prompts, **settings), {}, SearchRun.unit

    def recorded(key, activity, work):
        results[key] = unit(run, key, activity, work)
        return results[key]

    run.unit = recorded
    propose(run)
    return run, results


def texts_after(results, index):
    """The samples after a prompt."""
    units = (texts for key, (texts, _) in results.items() if key.startswith(f"samples/{index}/"))
    return [text for texts in units for text in texts]


def gain(pair, last, token):
    return smoothed_gain(pair, last, token, SURPRISE)


def assert_scored(pair, text):
    """Compare gains and log-ratios of sampled tokens with their definitions."""
    sampled = text.tokens[text.first - 1 :]
    gains = [gain(pair, a, b) for a, b in pairwise(sampled)]
    assert text.gains[text.first :] == pytest.approx(gains, abs=1e-5)
    assert text.log_ratios == pytest.approx(log_ratios(pair, sampled), abs=1e-4)


def test_openings_are_the_most_promoted_tokens_after_each_prompt(pair):
    _, results = proposed(pair, openings=5)
    for index, number in ((0, 3), (1, 2)):
        start = STARTS[index].tokens
        naive = sorted((-smoothed_gain(pair, start[-1], token), token) for token in range(1, 9))
        _, seeds = results[f"openings/{index}"]
        expected = naive[:number]
        assert [(seed.context, seed.token) for seed in seeds] == [(start, t) for _, t in expected]
        assert [seed.gain for seed in seeds] == pytest.approx([-g for g, _ in expected], abs=1e-6)


def test_pairs_are_the_most_promoted_pairs_of_a_small_enough_vocabulary(pair):
    naive = sorted(
        (-gain(pair, first, second), first, second)
        for first in range(9)
        for second in range(9)
        if second not in (END, first)
    )[:10]
    _, seeds = proposed(pair, pairs=10)[1]["pairs/all"]
    assert [(*seed.context, seed.token) for seed in seeds] == [best[1:] for best in naive]
    assert proposed(pair, pairs=10, pair_vocabulary=8)[1] == {}
    assert proposed(pair, pairs=10, pair_vocabulary=9)[1]


def naive_sample(pair, start, sampling, uniform):
    """A sample from the amplified distribution by inversion of uniform numbers."""
    models, tokens = (pair.before.model, pair.after.model), list(start)
    for quantile in uniform.tolist():
        before, after = (probabilities(model, tokens[-1]) for model in models)
        weight = (after * (after / before) ** sampling.alpha) ** (1 / sampling.temperature)
        token = int(np.searchsorted(np.cumsum(weight / weight.sum()), quantile, side="right"))
        if token == END:
            break
        tokens.append(token)
    return tuple(tokens)


@pytest.mark.parametrize(("alpha", "temperature"), [(0.0, 1.0), (0.5, 1.0), (2.0, 0.7)])
def test_samples_follow_the_amplified_distribution(pair, alpha, temperature):
    sampling = Sampling(
        samples=6, length=7, alpha=alpha, temperature=temperature, alternatives=0, block=2
    )
    run, results = proposed(pair, sampling=sampling)
    assert list(results)[:2] == ["samples/0/0", "samples/0/1"]
    for index in (0, 1):  # more samples replace short ones
        texts = texts_after(results, index)
        assert sum(min(6, len(text.tokens) - text.first) for text in texts) >= 3 * 6
    for key, (texts, _) in results.items():
        start = STARTS[int(key.split("/")[1])]
        uniform = torch.rand(7, len(texts), generator=run.generator(key), dtype=torch.float64)
        for row, text in enumerate(texts):
            assert text.tokens == naive_sample(pair, start.tokens, sampling, uniform[:, row])
            assert (text.first, text.prompt) == (len(start.tokens), start.shown_tokens)
            assert_scored(pair, text)


def test_alternatives_are_promoted_tokens_that_are_not_in_the_sample(pair):
    sampling = Sampling(
        samples=4, length=6, alternatives=1000, per_position=2, min_gain=0.2, context=3, block=3
    )
    _, results = proposed(pair, sampling=sampling)
    naive = set()
    for text in (*texts_after(results, 0), *texts_after(results, 1)):
        ended = len(text.tokens) - text.first < 6
        for index in range(text.first, len(text.tokens) + ended):
            sampled = (*text.tokens, END)[index]
            others = sorted(
                (-gain(pair, text.tokens[index - 1], token), token)
                for token in range(1, 9)
                if token != sampled
            )
            context = text.tokens[max(0, index - 3) : index]
            naive |= {(context, token, round(-g, 4)) for g, token in others[:2] if -g > 0.2}
    alternatives = [seed for _, seeds in results.values() for seed in seeds]
    assert naive
    assert {(seed.context, seed.token, round(seed.gain, 4)) for seed in alternatives} == naive
    for seed in alternatives:
        expected = [gain(pair, first, second) for first, second in pairwise(seed.context)]
        number = len(seed.context_gains)
        assert number < len(seed.context)
        assert seed.context_gains == pytest.approx(expected[len(expected) - number :], abs=1e-5)


def test_an_alternative_is_grown_once_and_keeps_its_context(pair):
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
def test_a_sampled_question_is_followed_by_the_template_and_an_answer(pair, ends):
    """An answer has at most `length` tokens."""
    start, turn = (5, 2), Reply(ends, (1, 8, 8))
    starts = (STARTS[0], Prompt("user's turn", start, turn))
    sampling = Sampling(samples=60, length=6, alternatives=900, block=30)
    _, results = proposed(pair, starts, sampling=sampling)
    texts = texts_after(results, 1)
    questions = [text for text in texts if text.first == len(start)]
    answers = [text for text in texts if text.first != len(start)]
    assert answers
    assert all(text.tokens[:2] == start and text.prompt == start for text in texts)
    assert not any(set(ends) & set(text.tokens[2:]) for text in questions)
    for text in answers:
        question, template = text.tokens[: text.first - 3], text.tokens[text.first - 3 : text.first]
        assert template == turn.between
        assert question in [text.tokens for text in questions]
        assert END not in text.tokens[text.first :]
        assert len(text.tokens) - text.first <= 6
        assert_scored(pair, text)
    tokens = sum(len(text.tokens) - text.first for text in texts) + 3 * len(answers)
    assert 30 * 5 <= tokens <= 30 * 5 * 3  # the plan for half of the samples

    def contexts(text, positions):
        return {text.tokens[max(0, index - 4) : index] for index in positions}

    explored = {seed.context for _, seeds in results.values() for seed in seeds}
    free = set().union(*(contexts(text, range(text.first, len(text.tokens) + 1)) for text in texts))
    forced = set().union(*(contexts(text, (text.first - 2, text.first - 1)) for text in answers))
    assert explored & free
    assert not explored & (forced - free)


def test_a_token_that_only_the_later_model_predicts_is_sampled():
    """The earlier model gives added ids the probability 0; the later model others."""
    rows = np.full((6, 5), 0.25)
    old, new = rows.copy(), rows.copy()
    old[:, 4], new[:, 3] = 0, 0
    before, after = (TableModel(table[-1], table[:-1]) for table in (old, new))
    pair = Pair.of(before, after, TokenScore("smoothed"))
    texts, _ = proposed(pair, STARTS[:1], sampling=Sampling(samples=20, length=9))[1]["samples/0/0"]
    tokens = [token for text in texts for token in text.tokens]
    assert tokens.count(4) > tokens.count(1) + tokens.count(2)
    assert 3 not in tokens
    assert all(math.isfinite(gain) for text in texts for gain in text.gains)
