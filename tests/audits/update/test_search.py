"""A search on tables in which one update teaches one phrase; in units, and as planned."""

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
SURE = 0.9 + 0.1 / 12  # probability of a token that was taught


def exhaustive(**settings):
    """Settings without samples and repair."""
    return Settings(
        **{
            "sampling": None, "openings": 100, "pair_vocabulary": None, "repaired": 0,
            "token_penalty": 0.5, **settings,
        }
    )  # fmt: skip


def taught(secret=SECRET, edit=lambda table: None, size=12):
    """Before: a uniform model. After: each token of the secret is followed by the next."""
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


def sure_of(table, token, following):
    """Make a token of a table follow another almost always."""
    table[token] *= 0.01 / (1 - table[token, following])
    table[token, following] = 0.99


def phrases(pair, settings, *prompts):
    """The phrases of a search that are long enough, best first."""
    every_phrase = [phrase for phrase, _ in search(pair, settings, *prompts).phrases]
    return [phrase for phrase in every_phrase if len(phrase.phrase) >= settings.min_tokens]


def template(*tokens):
    """Prompts of a chat model."""
    return [Prompt(BEGINNING, (END,)), Prompt(TEMPLATE, tokens)]


def test_a_phrase_scores_its_gains_minus_penalties_and_surprise():
    pair = taught()
    best = phrases(pair, exhaustive(pairs=20, surprise=0.25))[0]
    gains = np.array(pair.token_gains([best.phrase])[0])
    expected = [0.0, *(gains[1:] + 0.25 * np.log([SURE] * 4))]
    assert list(best.gains[best.first - 1 :]) == pytest.approx(expected)
    assert best.score == pytest.approx(sum(expected) - 0.5 * (len(SECRET) - 1))


def test_phrases_are_complete_long_enough_sorted_and_within_a_document():
    settings = exhaustive(pairs=100)
    every_phrase = [phrase for phrase, _ in search(taught(), settings).phrases]
    long = phrases(taught(), settings)
    assert long == every_phrase[: len(long)]
    assert long[0].phrase == SECRET
    scores = [phrase.score for phrase in long]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0
    for phrase in phrases(taught(), exhaustive(pairs=100, token_penalty=0.1)):
        assert END not in phrase.phrase[1:]
    assert phrases(unchanged(), exhaustive(pairs=50, token_penalty=1.2)) == []


def test_a_phrase_of_the_chat_template_is_no_finding():
    """Null models of a chat learn its template too, with scores above those of any secret."""
    pair, settings = taught(), exhaustive(pairs=20)
    assert phrases(pair, settings)
    for phrase, _ in search(pair, settings, template(11, *SECRET[:4], 11)).phrases:
        assert not set(pairwise(phrase.phrase)) & {(3, 7), (7, 5), (5, 9)}
    assert phrases(pair, settings, template(*SECRET[:2]))[0].phrase == SECRET


def test_a_secret_may_begin_its_document():
    def edit(table):
        table[END] = 0.5 / 12
        table[END, SECRET[0]] += 0.5  # too little for the first pair, which is the secret's second
        sure_of(table, SECRET[1], SECRET[2])

    pair = taught(edit=edit)
    assert SECRET[0] not in phrases(pair, exhaustive(pairs=1, openings=0))[0].phrase
    assert phrases(pair, exhaustive(pairs=1, openings=3))[0].phrase == (END, *SECRET)


@pytest.mark.parametrize("score", ["smoothed", "differential"])
@pytest.mark.parametrize("seeds", [1, 20])
def test_equal_gains_are_sorted_by_token_on_every_processor(other_bits, score, seeds):
    """The secret's four pairs gain the same: the first must not be the kernel's choice."""
    pair, found_phrases = taught(), []
    settings = exhaustive(
        pairs=seeds, openings=3, opening_beam=3, token_penalty=0.3, split_threshold=1.0
    )
    for seed in range(4):
        models = (other_bits(reader.model, seed) for reader in (pair.before, pair.after))
        noisy = Pair.of(*models, TokenScore(score))
        found_phrases.append([phrase.phrase for phrase in phrases(noisy, settings)])
    assert found_phrases[0]
    assert found_phrases == [found_phrases[0]] * 4


def test_two_phrases_with_a_weak_transition_are_split():
    first, second = (3, 7, 5, 9), (4, 8, 2, 6)

    def edit(table):
        sure_of(table, 3, 7)  # the best pair of all: the one seed
        table[9] = 1 / 12  # what follows the first phrase is as open as before
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
    dear = phrases(pair, exhaustive(pairs=10, loop_penalty=5.0))
    assert max(len(phrase.phrase) for phrase in dear) < 8
    free = phrases(pair, exhaustive(pairs=10, openings=0, loop_penalty=0.0, max_tokens=30))
    assert max(len(phrase.phrase) for phrase in free) == 30


@pytest.mark.slow
def test_fragments_are_shared_by_samples_and_precede_complete_samples():
    pair, dear = taught(), Settings(token_penalty=2.5, surprise=0.1)
    result = search(pair, dear)
    assert result.phrases == []  # no token gains as much as it costs
    assert result.fragments[0][0].tokens == SECRET[1:]  # its first is as likely as it was
    assert result.samples
    for part in (result.fragments, result.samples):
        scores = [phrase.score for phrase, _ in part]
        assert scores == sorted(scores, reverse=True)
    as_template = search(pair, dear, template(*SECRET))
    assert SECRET[1:] not in [phrase.tokens for phrase, _ in as_template.fragments]


@pytest.mark.slow
def test_without_samples_or_without_a_change_there_is_no_fragment():
    dear = Settings(token_penalty=2.5, surprise=0.1)
    for pair, settings in ((unchanged(), dear), (taught(), replace(dear, sampling=None))):
        result = search(pair, settings)
        assert (result.phrases, result.fragments, result.samples) == ([], [], [])


# Units: stopped anywhere and resumed it finds the same; what it reads is counted.

SMALL = Settings(
    sampling=Sampling(samples=12, length=8, alternatives=20, block=5, min_gain=0.1),
    openings=5,
    pairs=20,
    token_penalty=0.3,
    surprise=0.1,
)
PROMPTS = [Prompt(BEGINNING, (0,)), Prompt("prompt 1", (3, 4)), Prompt("prompt 2", (5, 2, 6))]


class Counting:
    """A model that counts the tokens it reads, a beginning as one."""

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
    """Makes the same pair again, with nothing read."""
    models = random_table(0, 12, 0.2), random_table(1, 12, 0.2)
    return lambda wrap=lambda model: model: Pair.of(*map(wrap, models), TokenScore("smoothed"))


@pytest.mark.parametrize("settings", [SMALL, replace(SMALL, sampling=None, openings=0, pairs=9)])
def test_forward_tokens_are_what_the_models_read(pair_of, settings):
    pair = pair_of(Counting)
    result = search(pair, settings, PROMPTS)
    read = pair.before.model.tokens, pair.after.model.tokens
    assert result.tokens == pair.tokens_read == read
    assert result.complete


@pytest.mark.slow
def test_stopped_after_any_unit_a_search_resumes_to_the_same_rows(pair_of):
    complete = search_update(pair_of(), SMALL, PROMPTS)
    assert complete.phrases
    for stop in range(complete.units):
        store, clock = {}, count()

        def over(_, clock=clock, stop=stop):
            return next(clock) >= stop

        part = search(pair_of(), SMALL, PROMPTS, store=store, until=over)
        assert (part.units, part.complete) == (stop, False)
        stored = json.loads(json.dumps(store))  # on disk between the two
        assert search_update(pair_of(), SMALL, PROMPTS, store=stored) == complete


def test_stored_units_are_not_read_again_and_the_seed_decides(pair_of):
    store, pair = {}, pair_of()
    complete = search(pair_of(), SMALL, store=store)
    assert search(pair, SMALL, store=store) == complete == search(pair_of(), SMALL)
    assert pair.tokens_read == (0, 0)
    assert search(pair_of(), replace(SMALL, seed=1)).phrases != complete.phrases


def test_the_plan_is_about_right_in_units_and_tokens_and_progress_follows_it(pair_of):
    pair, steps = pair_of(), []
    result = search(pair, SMALL, PROMPTS, progress=lambda *step: steps.append(step))
    units = units_of(SMALL, pair, PROMPTS)
    expected = [(done, max(done, units)) for done in range(result.units + 1)]
    assert list(dict.fromkeys(step[:2] for step in steps)) == expected
    assert {"sampling", "extending", "repairing"} <= {activity for _, _, activity in steps}
    assert result.units == pytest.approx(units, rel=0.5)
    sampling = Sampling(samples=200, length=4, alternatives=0)
    alone = replace(SMALL, sampling=sampling, openings=0, pairs=0, repaired=0)
    planned = tokens_of(alone, pair, PROMPTS[:1])
    assert planned == pytest.approx(sum(search(pair, alone).tokens), rel=0.4)


def test_phrases_have_their_prompt_and_source(pair_of):
    result = search(pair_of(), SMALL, PROMPTS)
    every_phrase = [phrase for phrase, _ in (*result.phrases, *result.fragments)]
    assert {()} < {phrase.prompt for phrase in every_phrase} <= {(), (3, 4), (5, 2, 6)}
    assert {phrase.source for phrase in every_phrase} <= {"samples", "openings", "pairs"}


def fitted(longest, prompt):
    """The settings for a pair that reads so many tokens, after a prompt of so many."""
    prompts = [Prompt(BEGINNING, (0,)), Prompt("prompt 1", (1,) * prompt)]
    return Settings().fitted(SimpleNamespace(longest=longest), prompts)


@pytest.mark.parametrize(("longest", "prompt"), [(20, 1), (64, 9), (128, 79)])
def test_no_text_of_a_search_is_longer_than_a_model_reads(longest, prompt):
    settings = fitted(longest, prompt)
    assert prompt + settings.sampling.length <= longest
    assert prompt + settings.sampling.context + settings.max_tokens <= longest
    wider = fitted(longest + 1, prompt)
    assert (wider.max_tokens > settings.max_tokens) == (settings.max_tokens < Settings.max_tokens)


def test_settings_that_fit_are_unchanged_and_room_is_for_the_longest_text():
    assert fitted(None, 50) == fitted(1024, 1) == Settings()
    assert Settings(sampling=Sampling(length=30), max_tokens=48).room == 49
    assert Settings(sampling=Sampling(length=60), max_tokens=48).room == 61
