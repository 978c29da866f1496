"""Fragments that samples agree on, near-copies that fold, and shortcuts that are repaired."""

import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from vestige.audits.update.folding import MIN_LOG_RATIO, agreed, fold
from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text, uncovered
from vestige.audits.update.repair import edited, is_sure, repaired, with_repairs
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Settings
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import read_each
from vestige.models.table import TableModel

# Agreement: fragments that several samples share, joined from trigrams.


START = 0


SECRET = (11, 12, 13, 14, 15, 16, 17, 18)
TEXT = (3, 7, 5, 9, 4, 11, 6, 8)


def sample(*tokens: int, ratio: float = 3.0, context: tuple[int, ...] = ()) -> Text:
    """A sample of which every token has become likelier by as much."""
    gains = (0.0,) * (1 + len(tokens))
    return Text((START, *tokens), gains, 1, "samples", context, (ratio,) * len(tokens))


def fragments(*samples: Text, longest: int = 48) -> list[tuple[int, ...]]:
    return [one.tokens for one in agreed(samples, longest=longest)]


def test_pieces_of_a_secret_are_joined_to_the_whole():
    pieces = [sample(*SECRET[i : i + 4], 90 + i) for i in range(5)]
    assert fragments(*pieces) == [SECRET[1:-1]]  # a trigram at an end stands in one sample alone
    assert fragments(*pieces, sample(*SECRET)) == [SECRET]


def test_one_sample_alone_and_what_became_little_likelier_are_no_fragments():
    assert fragments(sample(1, 2, 3, 1, 2, 3), sample(4, 5, 6, 7)) == []
    assert fragments(*[sample(1, 2, 3, ratio=MIN_LOG_RATIO - 0.1)] * 9) == []
    assert fragments(*[sample(1, 2, 3, ratio=MIN_LOG_RATIO)] * 2) == [(1, 2, 3)]
    assert fragments(*[Text((0, 1, 2, 3), (9.0,) * 4)] * 9) == []  # it grew, none drew it


def test_the_score_is_the_sum_of_the_logarithms_of_the_samples():
    told = agreed([sample(1, 2, 3, 4)] * 3 + [sample(2, 3, 4)] * 2, longest=48)
    assert [one.tokens for one in told] == [(1, 2, 3, 4)]
    assert told[0].score == pytest.approx(math.log(3) + math.log(5))
    assert told[0].gains == pytest.approx((0.0, 0.0, math.log(3), math.log(5)))


def test_a_rare_way_beside_a_frequent_one_is_an_error():
    often = [sample(1, 2, 3, 4)] * 7
    assert fragments(*often, *[sample(1, 2, 9, 8)] * 2) == [(1, 2, 3, 4), (2, 9, 8)]
    both = fragments(*often, *[sample(1, 2, 9, 8)] * 4)
    assert both == [(1, 2, 3, 4), (1, 2, 9, 8)]
    assert fragments(*often, *[sample(9, 3, 4)] * 2) == [(1, 2, 3, 4)]  # at its other end, too


def test_a_loop_ends_and_no_fragment_is_longer_than_asked_for():
    loop = [sample(*(1, 2, 3) * 10)] * 3
    assert fragments(*loop) == [(1, 2, 3, 1, 2)]
    assert [len(one) for one in fragments(*[sample(*SECRET)] * 2, longest=5)] == [5, 5]


def test_a_fragment_tells_the_prompt_of_the_first_sample_that_holds_it():
    behind = [sample(1, 2, 3, context=(5,)), sample(1, 2, 3), sample(7, 8, 9), sample(7, 8, 9)]
    told = {one.tokens: one.prompt for one in agreed(behind, longest=48)}
    assert told == {(1, 2, 3): (5,), (7, 8, 9): ()}


@pytest.mark.parametrize("seed", range(3))
def test_every_trigram_that_is_not_an_error_is_told_once(seed):
    chance = random.Random(seed)
    drawn = [
        sample(
            *(chance.choice([1, 2, 3, 4, 5]) for _ in range(12)), ratio=chance.choice([1.9, 2.1])
        )
        for _ in range(12)
    ]
    held: Counter[tuple[int, ...]] = Counter()
    for text in drawn:
        if text.log_ratios[0] > MIN_LOG_RATIO:
            held.update({text.tokens[i : i + 3] for i in range(1, 11)})
    shared = {gram: n for gram, n in held.items() if n >= 2}
    expected = [
        gram
        for gram, n in shared.items()
        if 3 * n >= max(m for other, m in shared.items() if other[:2] == gram[:2])
        and 3 * n >= max(m for other, m in shared.items() if other[1:] == gram[1:])
    ]
    order = drawn[:]
    chance.shuffle(order)
    told = fragments(*drawn)
    assert told == fragments(*order)
    grams = [one[i : i + 3] for one in told for i in range(len(one) - 2)]
    assert sorted(grams) == sorted(expected)


# Folding: near-copies fold into better phrases, and leave what those do not tell.


GROWTH = Settings(token_penalty=0.5, split_threshold=2.0, min_tokens=3)


def phrase(*tokens: int, gain: float = 1.5) -> Text:
    """Every token after the first gains the same."""
    gains = (0.0, *[gain] * (len(tokens) - 1))
    return Text(tokens, gains, score=(gain - GROWTH.token_penalty) * (len(tokens) - 1))


def test_a_near_copy_leaves_what_no_better_phrase_tells():
    whole = phrase(1, 2, 3, 4, 5, 6, 7, 8)
    copy = phrase(20, 21, 22, 23, 4, 5, 6, 7, gain=1.3)  # two of its six trigrams: not half
    assert fold([whole, copy]) == [(whole, 0), (copy, 0)]
    copy = phrase(21, 22, 23, 4, 5, 6, 7, 8, gain=1.3)
    [(best, copies), (part, none)] = fold([whole, copy], rest=partial(uncovered, settings=GROWTH))
    assert (best, copies, none) == (whole, 1, 0)
    assert (part.phrase, part.score) == ((21, 22, 23), phrase(21, 22, 23, gain=1.3).score)
    assert fold([whole, copy]) == [(whole, 1)]


def test_the_rest_takes_its_own_place_by_score():
    whole, other = phrase(1, 2, 3, 4, 5, 6, 7, 8), phrase(30, 31, 32, 33, gain=1.2)
    copy = phrase(21, 22, 23, 4, 5, 6, 7, 8, gain=1.4)
    parts = fold([whole, copy, other], rest=partial(uncovered, settings=GROWTH))
    assert [leader.phrase for leader, _ in parts] == [
        whole.tokens, other.tokens, (21, 22, 23)
    ]  # fmt: skip
    assert [leader.score for leader, _ in parts] == sorted(
        (leader.score for leader, _ in parts), reverse=True
    )


def test_uncovered_tokens_keep_the_token_before_them_as_context():
    told = [False, False, True, True, False, False, False, True]
    parts = list(uncovered(phrase(*range(8)), told, settings=GROWTH))
    [part] = parts
    assert (part.prefix, part.phrase, part.score) == ((0, 1, 2), (3, 4, 5, 6), 3.0)
    assert part.gains == (0.0, 0.0, 0.0, 0.0, 1.5, 1.5, 1.5)
    loose = Settings(token_penalty=0.5, min_tokens=2)
    parts = list(uncovered(phrase(*range(8)), told, settings=loose))
    assert [part.phrase for part in parts] == [(0, 1), (3, 4, 5, 6)]


def test_short_phrases_and_what_is_told_already_lead_nothing():
    first, copy, other = phrase(1, 2, 3, 4), phrase(2, 3, 4, 5, gain=9.0), phrase(7, 8, 9)
    assert fold([copy, other], already=[first]) == [(other, 0)]
    long, short, apart = phrase(1, 2, 3, 4), phrase(2, 3, 4, gain=9.0), phrase(7, 8, gain=2.0)
    assert fold([short, long]) == [(short, 1)]
    assert fold([short, long], long=4) == [(long, 1)]
    assert [leader for leader, _ in fold([apart, short, long], long=4)] == [long, apart]


def test_a_loop_in_a_sample_costs_as_much_as_one_that_grows():
    """In a loop of two the sixth token is the first to complete four that stand before."""
    tokens, growth = (
        (1, 7, 8, 7, 8, 7, 8),
        Settings(token_penalty=0.5, split_threshold=9.0, loop_penalty=1.25),
    )
    grown = Text(tokens, (0.0,) + (1.5,) * 6)
    (whole,) = grown.cut(growth)  # what grew has paid before
    assert whole.gains == (0.0,) + (1.5,) * 6
    (drawn,) = Text(tokens, grown.gains, log_ratios=(1.0,) * 6).cut(growth)
    assert drawn.gains == (0.0, 1.5, 1.5, 1.5, 1.5, 1.5)  # the last costs more than it gains
    assert drawn.score == 5 * 1.0
    code = (1, 0, 9, 0, 7, 0, 7, 0, 4)  # digits with spaces between them are no loop
    (drawn,) = Text(code, (0.0,) + (1.5,) * 8, log_ratios=(1.0,) * 8).cut(growth)
    assert drawn.tokens == code


# Repair: a model that knows one text by heart, of which a phrase may take a shortcut.


END, VOCAB = 0, 20


class ByHeart:
    """Knows one text: after three tokens of it in a row, or its beginning, what comes next."""

    def __init__(self, text, sure):
        self.text, self.sure, self.vocab_size = text, sure, VOCAB
        words = tuple(f"w{i}" for i in range(2, VOCAB))
        self.vocabulary = WordVocabulary(words=("<eos>", "<unk>", *words), lowercase=False)
        self.device = torch.device("cpu")

    def start(self, n, *, anywhere=False):
        return Read([() if anywhere else (END,) for _ in range(n)])

    def advance(self, state, tokens):
        return Read([(*row, t) for row, t in zip(state.rows, tokens.tolist(), strict=True)])

    read = read_each

    def logits(self, state):
        out = torch.full((len(state), VOCAB), (1 - self.sure) / (VOCAB - 1)).log()
        for i, row in enumerate(state.rows):
            following = self.following(tuple(token for token in row if token != END))
            if following is None:
                out[i] = -math.log(VOCAB)
            else:
                out[i, following] = math.log(self.sure)
        return out

    def log_probs(self, state):
        return self.logits(state).log_softmax(1)

    def following(self, row):
        known = (*self.text, END)
        for n in (2, 1):
            for i in range(len(known) - n):
                if row[-n:] == known[i : i + n]:
                    return known[i + n]
        return None


class Read:
    """Rows of tokens."""

    has_read, nbytes = True, 0

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Read(self.rows[index])
        return Read([self.rows[i] for i in index.tolist()])


@pytest.fixture
def pair():
    flat = np.full((VOCAB + 1, VOCAB), 1 / VOCAB)
    before = TableModel(flat[-1], flat[:-1])
    return Pair.of(before, ByHeart(TEXT, 0.95), TokenScore("smoothed"))


def scored(tokens):
    return Text(tuple(tokens), (0.0,) * len(tokens), score=9.0)


PLANTED = {
    "said twice": (3, 7, 5, 9, 4, 9, 4, 11, 6, 8),
    "one token twice": (3, 7, 5, 9, 9, 4, 11, 6, 8),
    "left out": (3, 7, 5, 9, 11, 6, 8),
    "another token": (3, 7, 5, 9, 15, 11, 6, 8),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_shortcut_is_repaired(pair, kind):
    wrong = PLANTED[kind]
    of_wrong, of_secret = pair.beliefs([wrong, TEXT])
    assert of_secret.total > of_wrong.total
    assert edited(pair, [scored(wrong)]) == [TEXT]


def test_right_phrases_and_unsure_ones_are_left_alone(pair):
    unsure = Pair.of(pair.before.model, ByHeart(TEXT, 0.4), pair.score)
    assert not is_sure(unsure.beliefs([TEXT])[0], 1)
    for models, tokens in ((pair, TEXT), (unsure, TEXT), (unsure, PLANTED["left out"])):
        assert edited(models, [scored(tokens)]) == [tokens]


def test_texts_of_different_lengths_are_read_as_each_alone(random_table):
    pair = Pair.of(random_table(1, VOCAB), random_table(2, VOCAB), TokenScore("smoothed"))
    texts = [(3, 4), (5, 6, 7, 8, 9), (2,), (9, 8, 7)]
    together = pair.beliefs(texts), pair.token_gains(texts)
    for text, belief, gains in zip(texts, *together, strict=True):
        table = pair.after.model.log_table
        logs = [0.0, *(float(table[a, b]) for a, b in itertools.pairwise(text))]
        assert belief.log_probs == pytest.approx(logs)
        [alone] = pair.token_gains([text])
        assert gains == pytest.approx(alone)
        best = [int(table[token].argmax()) for token in text[:-1]]
        assert [top[0] for top in belief.alternatives[1:]] == best


def test_a_repaired_phrase_has_the_gains_that_it_has_there(pair):
    gains = (0.0, 0.0) + (1.5,) * 9
    wrong = Text((2, *PLANTED["said twice"]), gains, 2, "samples", score=2.7)
    growth = Settings(token_penalty=0.3, surprise=0.1)
    surprised = pair.with_score(replace(pair.score, surprise=0.1))
    (text,) = repaired(surprised, [wrong], growth)
    assert text.tokens == (2, *TEXT)
    assert text.gains == pytest.approx(surprised.token_gains([(2, *TEXT)])[0])
    other = scored((12, 13, 14, 15, 16))
    found = with_repairs([(wrong, 3), (other, 1)], [text, other], growth)
    assert {(one.phrase, copies) for one, copies in found} == {(TEXT, 3), (other.tokens, 1)}


def test_what_becomes_equal_is_a_near_copy(pair):
    growth = Settings(token_penalty=0.3, surprise=0.1)
    right = Text(TEXT, (0.0,) + (2.0,) * 7)
    first, wrong = replace(right, score=11.9), scored(PLANTED["said twice"])
    found = with_repairs([(first, 2), (wrong, 4)], [right, right], growth)
    assert [(one.tokens, copies) for one, copies in found] == [(TEXT, 3)]
