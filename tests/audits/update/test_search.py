"""A search on tables in which one update teaches one phrase; in units, and within memory."""

import json
from dataclasses import replace
from itertools import count, pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text
from vestige.audits.update.plan import tokens_of, units_of
from vestige.audits.update.prompts import BEGINNING, TEMPLATE, Prompt
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search, search_update
from vestige.audits.update.settings import Sampling, Settings
from vestige.models.table import TableModel

SECRET = (3, 7, 5, 9, 4)


END = 0


PAIRS_AND_OPENINGS = Settings(sampling=None, openings=100, pair_vocabulary=None, repaired=0)


def pairs_and_openings(**settings) -> Settings:
    """Settings without samples and repair."""
    return replace(PAIRS_AND_OPENINGS, **settings)


def found(pair: Pair, settings: Settings) -> list[Text]:
    """All phrases of a search, best first."""
    phrases = (phrase for phrase, _ in search(pair, settings).phrases)
    return [one for one in phrases if len(one.phrase) >= settings.min_tokens]


def taught(vocab_size: int = 12, secret: tuple[int, ...] = SECRET) -> Pair:
    """Before: every token alike. After: each token of the secret is followed by the next."""
    flat = np.full((vocab_size + 1, vocab_size), 1 / vocab_size)
    known = flat.copy()
    for token, following in zip(secret, (*secret[1:], END), strict=True):
        known[token] = 0.1 / vocab_size
        known[token, following] += 0.9
    before, after = (TableModel(table[-1], table[:-1]) for table in (flat, known))
    return Pair.of(before, after, TokenScore("smoothed", delta=0.1))


def test_the_score_is_the_gains_less_the_toll_and_the_surprise():
    pair = taught()
    growth = pairs_and_openings(pairs=20, token_penalty=0.5, surprise=0.25)
    best = found(pair, growth)[0]
    gains = np.array(pair.token_gains([best.phrase])[0])
    surprise = -0.25 * np.log([0.9 + 0.1 / 12] * 4)  # of a token taught, after the update
    expected = [0.0, *(gains[1:] - surprise)]
    assert list(best.gains[best.first - 1 :]) == pytest.approx(expected)
    assert best.score == pytest.approx(sum(expected) - 0.5 * (len(SECRET) - 1))


def template(*tokens: int) -> list[Prompt]:
    """Where a search of a chat model begins."""
    return [Prompt(BEGINNING, (END,)), Prompt(TEMPLATE, tokens)]


def test_what_everybody_knows_is_no_row():
    """Null models of a chat learn its template too, with scores above those of any secret."""
    pair, settings = taught(), pairs_and_openings(pairs=20, token_penalty=0.5)
    assert found(pair, settings)
    for phrase, _ in search(pair, settings, template(11, *SECRET[:4], 11)).phrases:
        assert not set(pairwise(phrase.phrase)) & {(3, 7), (7, 5), (5, 9)}
    whole = search(pair, settings, template(*SECRET[:2]))
    assert whole.phrases[0][0].phrase == SECRET


def test_a_document_may_begin_with_it():
    pair = taught()
    table = pair.after.model.log_table.exp().double().numpy()
    table[END] = 0.5 / 12
    table[END, SECRET[0]] += 0.5  # too little for the first pair, which is the secret's second
    table[SECRET[1]] *= 0.01 / (1 - table[SECRET[1], SECRET[2]])
    table[SECRET[1], SECRET[2]] = 0.99
    pair = Pair.of(pair.before.model, TableModel(table[-1], table[:-1]), pair.score)
    pairs_alone = pairs_and_openings(pairs=1, openings=0, token_penalty=0.5)
    assert SECRET[0] not in found(pair, pairs_alone)[0].phrase
    growth = pairs_and_openings(pairs=1, openings=3, token_penalty=0.5)
    assert found(pair, growth)[0].phrase == (END, *SECRET)


@pytest.mark.parametrize("score", ["smoothed", "differential"])
@pytest.mark.parametrize("seeds", [1, 20])
def test_equal_gains_stand_in_the_order_of_ids_on_every_processor(other_bits, score, seeds):
    """The secret's four pairs gain the same: which is the first must not be the kernel's choice."""
    growth = pairs_and_openings(
        pairs=seeds, openings=3, opening_beam=3, token_penalty=0.3, split_threshold=1.0
    )
    pair = taught()
    expected = None
    for seed in range(4):
        before, after = (other_bits(one.model, seed) for one in (pair.before, pair.after))
        noisy = Pair.of(before, after, TokenScore(score))
        told = [phrase.phrase for phrase in found(noisy, growth)]
        assert told
        assert expected is None or told == expected
        expected = told


def test_two_phrases_with_a_weak_joint_are_told_apart():
    one, other = (3, 7, 5, 9), (4, 8, 2, 6)
    pair = taught(secret=(*one, *other))
    table = pair.after.model.log_table.exp().double().numpy()
    table[3] *= 0.01 / (1 - table[3, 7])
    table[3, 7] = 0.99  # the best pair of all: the one seed
    table[one[-1]] = 1 / 12  # what follows the first is as open as before: 4 is one of twelve
    table[one[-1], other[0]] += 1e-3
    table[one[-1]] /= table[one[-1]].sum()
    pair = Pair.of(pair.before.model, TableModel(table[-1], table[:-1]), pair.score)
    for joint, whole in ((9.0, {(*one, *other)}), (1.0, {one, other})):
        growth = pairs_and_openings(
            pairs=1, openings=0, token_penalty=0.5, drop=9.0, split_threshold=joint
        )
        pairs = found(pair, growth)
        assert {phrase.phrase[-4:] for phrase in pairs} == {tokens[-4:] for tokens in whole}


def test_phrases_are_whole_long_enough_in_order_and_end_with_their_document():
    settings = pairs_and_openings(pairs=100, token_penalty=0.5)
    every = [phrase for phrase, _ in search(taught(), settings).phrases]
    long = [one for one in every if len(one.phrase) >= 4]
    assert long == every[: len(long)] == found(taught(), settings)
    assert long[0].phrase == SECRET
    assert [one.score for one in long] == sorted((one.score for one in long), reverse=True)
    assert long[-1].score > 0
    for phrase in found(taught(), replace(settings, token_penalty=0.1)):
        assert END not in phrase.phrase[1:]
    pair = taught()
    same = Pair.of(pair.before.model, pair.before.model, pair.score)
    assert found(same, pairs_and_openings(pairs=50)) == []


def test_a_loop_costs_and_ends():
    pair = taught(secret=(3, 7, 3))  # after 7 comes 3, after 3 the end: no loop
    loop = taught(secret=(5, 8))
    table = loop.after.model.log_table.exp().double().numpy()
    table[8] = 0.1 / 12
    table[8, 5] += 0.9  # 5 8 5 8 5 8 ...
    looped = Pair.of(pair.before.model, TableModel(table[-1], table[:-1]), loop.score)
    growth = pairs_and_openings(pairs=10, token_penalty=0.5, loop_penalty=5.0)
    longest = max(len(p.phrase) for p in found(looped, growth))
    assert longest < 8
    free = pairs_and_openings(
        pairs=10, openings=0, token_penalty=0.5, loop_penalty=0.0, max_tokens=30
    )
    assert max(len(p.phrase) for p in found(looped, free)) == 30


@pytest.mark.slow
def test_fragments_are_what_samples_agree_on_and_whole_samples_come_after():
    pair = taught()
    dear = Settings(token_penalty=2.5, surprise=0.1)
    read = search(pair, dear)
    assert read.phrases == []  # no token gains as much as it costs
    assert read.fragments[0][0].tokens == SECRET[1:]  # its first is as likely as it was
    assert read.samples
    for part in (read.fragments, read.samples):
        scores = [one.score for one, _ in part]
        assert scores == sorted(scores, reverse=True)
    known = search(pair, dear, template(*SECRET))
    assert SECRET[1:] not in [one.tokens for one, _ in known.fragments]
    same = Pair.of(pair.before.model, pair.before.model, pair.score)
    read = search(same, dear)
    assert (read.phrases, read.fragments, read.samples) == ([], [], [])


def test_without_samples_there_is_no_fragment():
    read = search(taught(), pairs_and_openings(token_penalty=2.5, surprise=0.1))
    assert (read.phrases, read.fragments, read.samples) == ([], [], [])


# Units: stopped anywhere and continued it gives the same; what it reads is counted.


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


@pytest.mark.slow
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


def test_what_is_kept_is_not_read_again_and_the_seed_decides(models):
    kept = {}
    whole, pair = search(of(models), SMALL, store=kept), of(models)
    assert search(pair, SMALL, store=kept) == whole == search(of(models), SMALL)
    assert pair.tokens_read == (0, 0)
    assert search(of(models), replace(SMALL, seed=1)).phrases != whole.phrases


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


def test_a_search_that_fits_is_left_as_it_is_and_its_room_is_for_the_longest_text():
    assert fitted(None, 50) == fitted(1024, 1) == Settings()
    assert Settings(sampling=Sampling(length=30), max_tokens=48).room == 49
    assert Settings(sampling=Sampling(length=60), max_tokens=48).room == 61
