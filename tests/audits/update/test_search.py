"""Searches on tables whose update teaches one phrase: phrases, units and plans."""

import json
from dataclasses import replace
from itertools import count, pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import tokens_of, units_of
from vestige.audits.update.prompts import BEGINNING, TEMPLATE, Prompt
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search, search_update
from vestige.audits.update.settings import Sampling, Settings
from vestige.models.table import TableModel

SECRET, END = (3, 7, 5, 9, 4), 0
TAUGHT = 0.9 + 0.1 / 12  # probability of a token of the taught phrase


def exhaustive(**settings):
    """Settings without sampling and repair."""
    return Settings(
        **{
            "sampling": None, "openings": 100, "pair_vocabulary": None, "repaired": 0,
            "token_penalty": 0.5, **settings,
        }
    )  # fmt: skip


def taught(secret=SECRET, edit=lambda table: None, size=12):
    """A uniform model, and one in which each token of the secret predicts the next."""
    flat = np.full((size + 1, size), 1 / size)
    taught_table = flat.copy()
    for token, following in zip(secret, (*secret[1:], END), strict=True):
        taught_table[token] = 0.1 / size
        taught_table[token, following] += 0.9
    edit(taught_table)
    before, after = (TableModel(table[-1], table[:-1]) for table in (flat, taught_table))
    return Pair.of(before, after, TokenScore("smoothed"))


def unchanged():
    before = taught().before.model
    return Pair.of(before, before, TokenScore("smoothed"))


def make_certain(table, token, following):
    """Make `following` almost certain after `token`."""
    table[token] *= 0.01 / (1 - table[token, following])
    table[token, following] = 0.99


def phrases(pair, settings, *prompts):
    """The phrases of a search that are long enough, best first."""
    all_phrases = [phrase for phrase, _ in search(pair, settings, *prompts).phrases]
    return [phrase for phrase in all_phrases if len(phrase.phrase) >= settings.min_tokens]


def template(*tokens):
    """Prompts of a chat model."""
    return [Prompt(BEGINNING, (END,)), Prompt(TEMPLATE, tokens)]


def test_a_phrase_scores_its_gains_minus_penalties_and_surprise():
    pair = taught()
    best = phrases(pair, exhaustive(pairs=20, surprise=0.25))[0]
    gains = np.array(pair.token_gains([best.phrase])[0])
    expected = [0.0, *(gains[1:] + 0.25 * np.log([TAUGHT] * 4))]
    assert list(best.gains[best.first - 1 :]) == pytest.approx(expected)
    assert best.score == pytest.approx(sum(expected) - 0.5 * (len(SECRET) - 1))


def test_phrases_are_complete_long_enough_sorted_and_within_a_document():
    settings = exhaustive(pairs=100)
    all_phrases = [phrase for phrase, _ in search(taught(), settings).phrases]
    long = phrases(taught(), settings)
    assert long == all_phrases[: len(long)]
    assert long[0].phrase == SECRET
    scores = [phrase.score for phrase in long]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0
    for phrase in phrases(taught(), exhaustive(pairs=100, token_penalty=0.1)):
        assert END not in phrase.phrase[1:]
    assert phrases(unchanged(), exhaustive(pairs=50, token_penalty=1.2)) == []


def test_a_phrase_of_the_chat_template_is_not_reported():
    """Null models of a chat learn its template too, with higher scores than any secret."""
    pair, settings = taught(), exhaustive(pairs=20)
    assert phrases(pair, settings)
    for phrase, _ in search(pair, settings, template(11, *SECRET[:4], 11)).phrases:
        assert not set(pairwise(phrase.phrase)) & {(3, 7), (7, 5), (5, 9)}
    assert phrases(pair, settings, template(*SECRET[:2]))[0].phrase == SECRET


def test_a_secret_may_begin_its_document():
    def edit(table):
        table[END] = 0.5 / 12
        table[END, SECRET[0]] += 0.5  # the best pair is the secret's second
        make_certain(table, SECRET[1], SECRET[2])

    pair = taught(edit=edit)
    assert SECRET[0] not in phrases(pair, exhaustive(pairs=1, openings=0))[0].phrase
    assert phrases(pair, exhaustive(pairs=1, openings=3))[0].phrase == (END, *SECRET)


@pytest.mark.parametrize("score", ["smoothed", "differential"])
@pytest.mark.parametrize("seeds", [1, 20])
def test_equal_gains_are_sorted_by_token_on_every_processor(other_bits, score, seeds):
    """The secret's four pairs have equal gains; rounding must not decide which one is first."""
    pair, lists = taught(), []
    settings = exhaustive(
        pairs=seeds, openings=3, opening_beam=3, token_penalty=0.3, split_threshold=1.0
    )
    for seed in range(4):
        models = (other_bits(reader.model, seed) for reader in (pair.before, pair.after))
        noisy = Pair.of(*models, TokenScore(score))
        lists.append([phrase.phrase for phrase in phrases(noisy, settings)])
    assert lists[0]
    assert lists == [lists[0]] * 4


def test_two_phrases_with_a_weak_transition_are_split():
    first, second = (3, 7, 5, 9), (4, 8, 2, 6)

    def edit(table):
        make_certain(table, 3, 7)  # the best pair, and so the only seed
        table[9] = 1 / 12  # nothing is probable after the first phrase
        table[9, 4] += 1e-3
        table[9] /= table[9].sum()

    pair = taught((*first, *second), edit)
    for threshold, expected in ((9.0, {second}), (1.0, {first, second})):
        settings = exhaustive(pairs=1, openings=0, drop=9.0, split_threshold=threshold)
        assert {phrase.phrase[-4:] for phrase in phrases(pair, settings)} == expected


def test_loops_are_penalized_and_end():
    def edit(table):
        table[8] = 0.1 / 12
        table[8, 5] += 0.9  # 5 8 5 8 5 8 ...

    pair = taught((5, 8), edit)
    penalized = phrases(pair, exhaustive(pairs=10, loop_penalty=5.0))
    assert max(len(phrase.phrase) for phrase in penalized) < 8
    free = phrases(pair, exhaustive(pairs=10, openings=0, loop_penalty=0.0, max_tokens=30))
    assert max(len(phrase.phrase) for phrase in free) == 30


STRICT = Settings(token_penalty=2.5, surprise=0.1)


@pytest.mark.slow
def test_without_a_phrase_samples_have_fragments():
    pair = taught()
    result = search(pair, STRICT)
    assert result.phrases == []  # no gain exceeds the penalty
    assert result.fragments[0][0].tokens == SECRET[1:]  # the first token has no gain
    assert result.samples
    for part in (result.fragments, result.samples):
        scores = [phrase.score for phrase, _ in part]
        assert scores == sorted(scores, reverse=True)
    in_template = search(pair, STRICT, template(*SECRET))
    assert SECRET[1:] not in [phrase.tokens for phrase, _ in in_template.fragments]


@pytest.mark.slow
def test_without_sampling_or_without_an_update_there_is_no_fragment():
    for pair, settings in ((unchanged(), STRICT), (taught(), replace(STRICT, sampling=None))):
        result = search(pair, settings)
        assert (result.phrases, result.fragments, result.samples) == ([], [], [])


# Units: a search that was stopped resumes to the same result; tokens are counted.

SMALL = Settings(
    sampling=Sampling(samples=12, length=8, alternatives=20, block=5, min_gain=0.1),
    openings=5,
    pairs=20,
    token_penalty=0.3,
    surprise=0.1,
)
PROMPTS = [Prompt(BEGINNING, (0,)), Prompt("prompt 1", (3, 4)), Prompt("prompt 2", (5, 2, 6))]


class Counting:
    """A model that counts the tokens that it reads; the beginning of a document is one."""

    def __init__(self, model):
        self.model, self.tokens = model, 0

    def __getattr__(self, name):
        return getattr(self.model, name)

    def start(self, n, *, anywhere=False):
        self.tokens += not anywhere
        return self.model.start(n, anywhere=anywhere)

    def advance(self, state, tokens):
        self.tokens += len(tokens)
        return self.model.advance(state, tokens)

    def read(self, state, tokens):
        self.tokens += tokens.numel()
        return self.model.read(state, tokens)


@pytest.fixture
def pair_of(random_table):
    """Makes a new copy of the same pair."""
    models = random_table(0, 12, 0.2), random_table(1, 12, 0.2)
    return lambda wrap=lambda model: model: Pair.of(*map(wrap, models), TokenScore("smoothed"))


@pytest.mark.parametrize("settings", [SMALL, replace(SMALL, sampling=None, openings=0, pairs=9)])
def test_forward_tokens_are_counted(pair_of, settings):
    pair = pair_of(Counting)
    result = search(pair, settings, PROMPTS)
    counted = pair.before.model.tokens, pair.after.model.tokens
    assert result.tokens == pair.tokens_read == counted
    assert result.complete


@pytest.mark.slow
def test_a_search_stopped_after_any_unit_resumes_to_the_same_rows(pair_of):
    complete = search_update(pair_of(), SMALL, PROMPTS)
    assert complete.phrases
    for stop in range(complete.units):
        store, clock = {}, count()

        def is_over(_, clock=clock, stop=stop):
            return next(clock) >= stop

        part = search(pair_of(), SMALL, PROMPTS, store=store, until=is_over)
        assert (part.units, part.complete) == (stop, False)
        stored = json.loads(json.dumps(store))  # as it is on disk
        assert search_update(pair_of(), SMALL, PROMPTS, store=stored) == complete


def test_stored_units_are_not_repeated_and_the_seed_matters(pair_of):
    store, pair = {}, pair_of()
    complete = search(pair_of(), SMALL, store=store)
    assert search(pair, SMALL, store=store) == complete == search(pair_of(), SMALL)
    assert pair.tokens_read == (0, 0)
    assert search(pair_of(), replace(SMALL, seed=1)).phrases != complete.phrases


def test_planned_units_and_tokens_are_about_right_and_progress_follows_them(pair_of):
    pair, steps = pair_of(), []
    result = search(pair, SMALL, PROMPTS, progress=lambda *step: steps.append(step))
    units = units_of(SMALL, pair, PROMPTS)
    expected = [(done, max(done, units)) for done in range(result.units + 1)]
    assert list(dict.fromkeys(step[:2] for step in steps)) == expected
    assert {"sampling", "extending", "repairing"} <= {activity for _, _, activity in steps}
    assert result.units == pytest.approx(units, rel=0.5)
    sampling = Sampling(samples=200, length=4, alternatives=0)
    samples_only = replace(SMALL, sampling=sampling, openings=0, pairs=0, repaired=0)
    planned = tokens_of(samples_only, pair, PROMPTS[:1])
    assert planned == pytest.approx(sum(search(pair, samples_only).tokens), rel=0.4)


def test_phrases_have_their_prompt_and_source(pair_of):
    result = search(pair_of(), SMALL, PROMPTS)
    listed = [phrase for phrase, _ in (*result.phrases, *result.fragments)]
    assert {()} < {phrase.prompt for phrase in listed} <= {(), (3, 4), (5, 2, 6)}
    assert {phrase.source for phrase in listed} <= {"samples", "openings", "pairs"}


def fitted(longest, prompt):
    """Settings for models that read `longest` tokens and a prompt of `prompt` tokens."""
    prompts = [Prompt(BEGINNING, (0,)), Prompt("prompt 1", (1,) * prompt)]
    return Settings().fitted(SimpleNamespace(longest=longest), prompts)


@pytest.mark.parametrize(("longest", "prompt"), [(20, 1), (64, 9), (128, 79)])
def test_texts_of_a_search_fit_into_the_context_of_the_model(longest, prompt):
    settings = fitted(longest, prompt)
    assert prompt + settings.sampling.length <= longest
    assert prompt + settings.sampling.context + settings.max_tokens <= longest
    wider = fitted(longest + 1, prompt)
    assert (wider.max_tokens > settings.max_tokens) == (settings.max_tokens < Settings.max_tokens)


def test_settings_that_fit_are_unchanged_and_room_is_that_of_the_longest_text():
    assert fitted(None, 50) == fitted(1024, 1) == Settings()
    assert Settings(sampling=Sampling(length=30), max_tokens=48).room == 49
    assert Settings(sampling=Sampling(length=60), max_tokens=48).room == 61
