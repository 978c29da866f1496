"""Shortcuts in what the later model knows by heart are repaired, right phrases left alone."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text
from vestige.audits.update.repair import edited, is_sure, repaired, with_repairs
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Settings
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import read_each
from vestige.models.table import TableModel

END, VOCAB = 0, 20
SECRET = (3, 7, 5, 9, 4, 11, 6, 8)


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
    return Pair.of(before, ByHeart(SECRET, 0.95), TokenScore("smoothed"))


def phrase(tokens):
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
    of_wrong, of_secret = pair.beliefs([wrong, SECRET])
    assert of_secret.total > of_wrong.total
    assert edited(pair, [phrase(wrong)]) == [SECRET]


def test_right_phrases_and_unsure_ones_are_left_alone(pair):
    unsure = Pair.of(pair.before.model, ByHeart(SECRET, 0.4), pair.score)
    assert not is_sure(unsure.beliefs([SECRET])[0], 1)
    for models, tokens in ((pair, SECRET), (unsure, SECRET), (unsure, PLANTED["left out"])):
        assert edited(models, [phrase(tokens)]) == [tokens]


def test_only_the_later_model_is_asked_for_beliefs(pair):
    pair.beliefs([SECRET, SECRET[:4]])
    assert pair.tokens_read == (0, len(SECRET) - 1 + 3)


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
    assert text.tokens == (2, *SECRET)
    assert text.gains == pytest.approx(surprised.token_gains([(2, *SECRET)])[0])
    other = phrase((12, 13, 14, 15, 16))
    found = with_repairs([(wrong, 3), (other, 1)], [text, other], growth)
    assert {(one.phrase, copies) for one, copies in found} == {(SECRET, 3), (other.tokens, 1)}


def test_what_becomes_equal_is_a_near_copy(pair):
    growth = Settings(token_penalty=0.3, surprise=0.1)
    right = Text(SECRET, (0.0,) + (2.0,) * 7)
    first, wrong = replace(right, score=11.9), phrase(PLANTED["said twice"])
    found = with_repairs([(first, 2), (wrong, 4)], [right, right], growth)
    assert [(one.tokens, copies) for one, copies in found] == [(SECRET, 3)]
