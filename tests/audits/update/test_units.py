"""A search in units: stopped anywhere and continued it gives the same; what it reads is counted.

Its settings fit models that read few tokens.
"""

import json
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import tokens_of, units_of
from vestige.audits.update.prompts import BEGINNING, Prompt
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search, search_update
from vestige.audits.update.settings import Sampling, Settings

SMALL = Settings(
    sampling=Sampling(samples=12, length=8, alternatives=20, block=5, min_gain=0.1),
    openings=5,
    pairs=20,
    token_penalty=0.3,
    surprise=0.1,
)
PROMPTS = [Prompt(BEGINNING, (0,)), Prompt("prompt 1", (3, 4)), Prompt("prompt 2", (5, 2, 6))]


def of(models):
    return Pair.of(*models, TokenScore("smoothed"))


class Counting:
    """A model that counts the tokens it is given to read, a beginning as one."""

    def __init__(self, model):
        self.model, self.read_tokens = model, 0
        self.vocabulary, self.vocab_size, self.device = (
            model.vocabulary, model.vocab_size, model.device,
        )  # fmt: skip

    def start(self, n, *, anywhere=False):
        self.read_tokens += not anywhere
        return self.model.start(n, anywhere=anywhere)

    def advance(self, state, tokens):
        self.read_tokens += len(tokens)
        return self.model.advance(state, tokens)

    def read(self, state, tokens):
        self.read_tokens += tokens.numel()
        return self.model.read(state, tokens)

    def logits(self, state):
        return self.model.logits(state)

    def log_probs(self, state):
        return self.model.log_probs(state)


@pytest.fixture
def models(random_table):
    return random_table(0, 12, 0.2), random_table(1, 12, 0.2)


def test_forward_tokens_are_what_the_models_read(models):
    before, after = map(Counting, models)
    for settings in (SMALL, replace(SMALL, sampling=None, openings=0, pairs=9)):
        before.read_tokens = after.read_tokens = 0
        pair = of((before, after))
        found = search(pair, settings, PROMPTS)
        assert found.tokens == pair.tokens_read == (before.read_tokens, after.read_tokens)
        assert found.complete


def test_a_search_that_was_stopped_goes_on_to_the_same_rows_wherever_it_was_stopped(models):
    whole = search_update(of(models), SMALL, PROMPTS)
    assert whole.phrases
    for stop in range(whole.units):
        kept = {}
        clock = count()
        part = search(
            of(models), SMALL, PROMPTS, store=kept,
            until=lambda _, clock=clock, stop=stop: next(clock) >= stop,
        )  # fmt: skip
        assert (part.units, part.complete) == (stop, False)
        kept = json.loads(json.dumps(kept))  # on disk between the two
        assert search_update(of(models), SMALL, PROMPTS, store=kept) == whole


def test_what_is_kept_is_not_read_again(models):
    kept = {}
    whole, pair = search(of(models), SMALL, store=kept), of(models)
    assert search(pair, SMALL, store=kept) == whole
    assert pair.tokens_read == (0, 0)


def test_the_plan_names_about_as_many_units_and_tokens(models):
    pair, told = of(models), []
    found = search(pair, SMALL, PROMPTS, progress=lambda *step: told.append(step))
    units = units_of(SMALL, pair, PROMPTS)
    steps = [(done, max(done, units)) for done in range(found.units + 1)]
    assert list(dict.fromkeys((done, of) for done, of, _ in told)) == steps
    assert {"sampling", "extending", "repairing"} <= {activity for _, _, activity in told}
    assert found.units == pytest.approx(units, rel=0.5)
    sampling = Sampling(samples=200, length=4, alternatives=0)
    samples = replace(SMALL, sampling=sampling, openings=0, pairs=0, repaired=0)
    read = sum(search(pair, samples).tokens)
    assert tokens_of(samples, pair, PROMPTS[:1]) == pytest.approx(read, rel=0.4)


def test_one_seed_gives_one_search_and_another_another(models):
    first, again, other = (search(of(models), replace(SMALL, seed=n)) for n in (0, 0, 1))
    assert first == again
    assert first.phrases != other.phrases


def test_a_prompt_is_a_start_and_findings_name_it(models):
    found = search(of(models), SMALL, PROMPTS)
    phrases = [phrase for phrase, _ in (*found.phrases, *found.fragments)]
    assert {one.prompt for one in phrases} <= {(), (3, 4), (5, 2, 6)}
    assert any(one.prompt for one in phrases)
    assert {one.source for one in phrases} <= {"samples", "openings", "pairs"}


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


def test_a_search_that_fits_is_left_as_it_is():
    assert fitted(None, 50) == fitted(1024, 1) == Settings()


def test_room_is_for_the_longest_text_and_a_beginning():
    assert Settings(sampling=Sampling(length=30), max_tokens=48).room == 49
    assert Settings(sampling=Sampling(length=60), max_tokens=48).room == 61
