"""Fragments that samples share, near-copies of phrases, and repaired shortcuts."""

import math
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from vestige.audits.update.folding import MIN_LOG_RATIO, agreed, fold
from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text, uncovered
from vestige.audits.update.repair import edited, is_sure, repaired, with_repairs
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Settings
from vestige.models.protocols import read_each
from vestige.models.table import TableModel

SECRET = (11, 12, 13, 14, 15, 16, 17, 18)

# Fragments: joined trigrams that several samples share.


def sample(*tokens, ratio=3.0, prompt=()):
    """A sample whose tokens have the same log-ratio."""
    gains = (0.0,) * (1 + len(tokens))
    return Text((0, *tokens), gains, 1, "samples", prompt, (ratio,) * len(tokens))


def fragments(*samples, longest=48):
    return [phrase.tokens for phrase in agreed(samples, longest=longest)]


FREQUENT = [sample(1, 2, 3, 4)] * 7
PIECES = [sample(*SECRET[i : i + 4], 90 + i) for i in range(5)]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (PIECES, [SECRET[1:-1]]),  # the trigrams at both ends are in one sample only
        ([*PIECES, sample(*SECRET)], [SECRET]),
        ([sample(1, 2, 3, 1, 2, 3), sample(4, 5, 6, 7)], []),
        ([sample(1, 2, 3, ratio=MIN_LOG_RATIO - 0.1)] * 9, []),
        ([sample(1, 2, 3, ratio=MIN_LOG_RATIO)] * 2, [(1, 2, 3)]),
        ([Text((0, 1, 2, 3), (9.0,) * 4)] * 9, []),  # a grown text, not a sample
        ([*FREQUENT, *[sample(1, 2, 9, 8)] * 2], [(1, 2, 3, 4), (2, 9, 8)]),
        ([*FREQUENT, *[sample(1, 2, 9, 8)] * 4], [(1, 2, 3, 4), (1, 2, 9, 8)]),
        ([*FREQUENT, *[sample(9, 3, 4)] * 2], [(1, 2, 3, 4)]),  # rare at its other end
        ([sample(*(1, 2, 3) * 10)] * 3, [(1, 2, 3, 1, 2)]),  # a loop ends
    ],
)
def test_trigrams_that_samples_share_are_joined_and_rare_variants_are_errors(samples, expected):
    assert fragments(*samples) == expected


def test_a_fragment_has_its_score_its_prompt_and_a_longest_length():
    [phrase] = agreed([sample(1, 2, 3, 4)] * 3 + [sample(2, 3, 4)] * 2, longest=48)
    assert phrase.tokens == (1, 2, 3, 4)
    assert phrase.score == pytest.approx(math.log(3) + math.log(5))
    assert phrase.gains == pytest.approx((0.0, 0.0, math.log(3), math.log(5)))
    assert [len(phrase) for phrase in fragments(*[sample(*SECRET)] * 2, longest=5)] == [5, 5]
    after = [sample(1, 2, 3, prompt=(5,)), sample(1, 2, 3), sample(7, 8, 9), sample(7, 8, 9)]
    prompts = {phrase.tokens: phrase.prompt for phrase in agreed(after, longest=48)}
    assert prompts == {(1, 2, 3): (5,), (7, 8, 9): ()}


@pytest.mark.parametrize("seed", range(3))
def test_every_correct_trigram_is_listed_once(seed):
    rng = random.Random(seed)
    samples = [
        sample(*rng.choices([1, 2, 3, 4, 5], k=12), ratio=rng.choice([1.9, 2.1])) for _ in range(12)
    ]
    counts = Counter()
    for text in samples:
        if text.log_ratios[0] > MIN_LOG_RATIO:
            counts.update({text.tokens[i : i + 3] for i in range(1, 11)})
    shared = {gram: n for gram, n in counts.items() if n >= 2}
    expected = [
        gram
        for gram, n in shared.items()
        if 3 * n >= max(m for other, m in shared.items() if other[:2] == gram[:2])
        and 3 * n >= max(m for other, m in shared.items() if other[1:] == gram[1:])
    ]
    listed = fragments(*samples)
    assert listed == fragments(*rng.sample(samples, len(samples)))
    trigrams = sorted(phrase[i : i + 3] for phrase in listed for i in range(len(phrase) - 2))
    assert trigrams == sorted(expected)


# Folding: a near-copy of a better phrase is merged; its remaining parts are phrases.

GROWTH = Settings(token_penalty=0.5, split_threshold=2.0, min_tokens=3)


def phrase(*tokens, gain=1.5):
    """A phrase whose tokens after the first have the same gain."""
    gains = (0.0, *[gain] * (len(tokens) - 1))
    return Text(tokens, gains, score=(gain - GROWTH.token_penalty) * (len(tokens) - 1))


WHOLE = phrase(*range(1, 9))
COPY = phrase(21, 22, 23, 4, 5, 6, 7, 8, gain=1.3)


def test_the_remaining_parts_of_a_near_copy_are_phrases():
    distinct = phrase(20, 21, 22, 23, 4, 5, 6, 7, gain=1.3)  # two of its six trigrams: not half
    assert fold([WHOLE, distinct]) == [(WHOLE, 0), (distinct, 0)]
    assert fold([WHOLE, COPY]) == [(WHOLE, 1)]
    rest = partial(uncovered, settings=GROWTH)
    [(best, copies), (part, none)] = fold([WHOLE, COPY], rest=rest)
    assert (best, copies, none) == (WHOLE, 1, 0)
    assert (part.phrase, part.score) == ((21, 22, 23), phrase(21, 22, 23, gain=1.3).score)
    other = phrase(30, 31, 32, 33, gain=1.25)
    order = [phrase.phrase for phrase, _ in fold([WHOLE, COPY, other], rest=rest)]
    assert order == [WHOLE.tokens, other.tokens, (21, 22, 23)]  # the part has its own score


def test_uncovered_tokens_have_the_token_before_them_as_context():
    covered = [False, False, True, True, False, False, False, True]
    [part] = uncovered(phrase(*range(8)), covered, settings=GROWTH)
    assert (part.prefix, part.phrase, part.score) == ((0, 1, 2), (3, 4, 5, 6), 3.0)
    assert part.gains == (0.0, 0.0, 0.0, 0.0, 1.5, 1.5, 1.5)
    loose = replace(GROWTH, min_tokens=2)
    parts = uncovered(phrase(*range(8)), covered, settings=loose)
    assert [part.phrase for part in parts] == [(0, 1), (3, 4, 5, 6)]


def test_short_phrases_come_last_and_copies_of_earlier_ones_are_dropped():
    long, short, apart = phrase(1, 2, 3, 4), phrase(2, 3, 4, gain=9.0), phrase(7, 8, gain=2.0)
    assert fold([short, apart], already=[long]) == [(apart, 0)]
    assert fold([short, long]) == [(short, 1)]
    assert fold([short, long], long=4) == [(long, 1)]
    assert [leader for leader, _ in fold([apart, short, long], long=4)] == [long, apart]


@pytest.mark.parametrize(
    ("tokens", "sampled", "length"),
    [
        ((1, 7, 8, 7, 8, 7, 8), False, 7),  # gains of grown texts include the penalty
        ((1, 7, 8, 7, 8, 7, 8), True, 6),  # the last token repeats four tokens
        ((1, 0, 9, 0, 7, 0, 7, 0, 4), True, 9),  # digits separated by spaces are no loop
    ],
)
def test_loops_cost_the_same_in_samples_and_in_grown_texts(tokens, sampled, length):
    settings = replace(GROWTH, split_threshold=9.0, loop_penalty=1.25)
    gains = (0.0,) + (1.5,) * (len(tokens) - 1)
    ratios = (1.0,) * (len(tokens) - 1) if sampled else ()
    [phrase] = Text(tokens, gains, log_ratios=ratios).cut(settings)
    assert phrase.tokens == tokens[:length]
    assert (phrase.gains, phrase.score) == (gains[:length], length - 1.0)


# Repair: a model knows one text verbatim, and a phrase is a shortcut of it.

END, SIZE = 0, 20
UNIFORM = TableModel(np.full(SIZE, 1 / SIZE), np.full((SIZE, SIZE), 1 / SIZE))
TEXT = (3, 7, 5, 9, 4, 11, 6, 8)
SHORTCUTS = {
    "repeated": (3, 7, 5, 9, 4, 9, 4, 11, 6, 8),
    "one token repeated": (3, 7, 5, 9, 9, 4, 11, 6, 8),
    "left out": (3, 7, 5, 9, 11, 6, 8),
    "another token": (3, 7, 5, 9, 15, 11, 6, 8),
}


class Rows:
    """A state that holds the tokens of every row."""

    has_read, nbytes = True, 0

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        rows = self.rows
        return Rows(rows[index] if isinstance(index, slice) else [rows[i] for i in index.tolist()])


class Verbatim:
    """A model that continues one text after its last one or two tokens; otherwise uniform."""

    def __init__(self, probability):
        self.vocabulary = UNIFORM.vocabulary
        self.probability, self.vocab_size = probability, SIZE
        self.device = torch.device("cpu")

    def start(self, n, *, anywhere=False):
        return Rows([() if anywhere else (END,)] * n)

    def advance(self, state, tokens):
        return Rows([(*row, t) for row, t in zip(state.rows, tokens.tolist(), strict=True)])

    read = read_each

    def logits(self, state):
        out = torch.full((len(state), SIZE), (1 - self.probability) / (SIZE - 1)).log()
        for i, row in enumerate(state.rows):
            following = self.following(tuple(token for token in row if token != END))
            if following is None:
                out[i] = -math.log(SIZE)
            else:
                out[i, following] = math.log(self.probability)
        return out

    def following(self, row):
        text = (*TEXT, END)
        starts = [(i, n) for n in (2, 1) for i in range(len(text) - n)]
        return next((text[i + n] for i, n in starts if row[-n:] == text[i : i + n]), None)


def verbatim_pair(probability):
    return Pair.of(UNIFORM, Verbatim(probability), TokenScore("smoothed"))


@pytest.fixture
def pair():
    return verbatim_pair(0.95)


def unscored(tokens):
    return Text(tuple(tokens), (0.0,) * len(tokens), score=9.0)


@pytest.mark.parametrize("kind", SHORTCUTS)
def test_a_shortcut_is_repaired(pair, kind):
    of_shortcut, of_text = pair.predictions([SHORTCUTS[kind], TEXT])
    assert of_text.total > of_shortcut.total
    assert edited(pair, [unscored(SHORTCUTS[kind])]) == [TEXT]


def test_correct_phrases_and_phrases_of_unsure_models_are_not_edited(pair):
    unsure = verbatim_pair(0.4)
    assert not is_sure(unsure.predictions([TEXT])[0], 1)
    for models, tokens in ((pair, TEXT), (unsure, TEXT), (unsure, SHORTCUTS["left out"])):
        assert edited(models, [unscored(tokens)]) == [tokens]


def test_a_batch_of_different_lengths_is_scored_like_single_texts(random_table):
    pair = Pair.of(random_table(1, SIZE), random_table(2, SIZE), TokenScore("smoothed"))
    texts = [(3, 4), (5, 6, 7, 8, 9), (2,), (9, 8, 7)]
    table = pair.after.model.log_table
    together = pair.predictions(texts), pair.token_gains(texts)
    for text, prediction, gains in zip(texts, *together, strict=True):
        logs = [0.0, *(float(table[a, b]) for a, b in pairwise(text))]
        assert prediction.log_probs == pytest.approx(logs)
        assert gains == pytest.approx(pair.token_gains([text])[0])
        best = [int(table[token].argmax()) for token in text[:-1]]
        assert [top[0] for top in prediction.top_tokens[1:]] == best


def test_a_repaired_phrase_has_new_gains_and_folds_into_an_equal_phrase(pair):
    settings = Settings(token_penalty=0.3, surprise=0.1)
    shortcut = SHORTCUTS["repeated"]
    phrase = Text((2, *shortcut), (0.0, 0.0) + (1.5,) * 9, 2, "samples", score=2.7)
    surprised = pair.with_score(replace(pair.score, surprise=0.1))
    [text] = repaired(surprised, [phrase], settings)
    assert text.tokens == (2, *TEXT)
    assert text.gains == pytest.approx(surprised.token_gains([(2, *TEXT)])[0])
    other = unscored((12, 13, 14, 15, 16))
    repaired_phrases = with_repairs([(phrase, 3), (other, 1)], [text, other], settings)
    phrases = {(phrase.phrase, copies) for phrase, copies in repaired_phrases}
    assert phrases == {(TEXT, 3), (other.tokens, 1)}
    correct = Text(TEXT, (0.0,) + (2.0,) * 7, score=11.9)
    folded = with_repairs([(correct, 2), (unscored(shortcut), 4)], [correct, correct], settings)
    assert [(phrase.tokens, copies) for phrase, copies in folded] == [(TEXT, 3)]
