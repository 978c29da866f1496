"""The rank of a phrase is what counting every phrase of its length gives."""

from itertools import product

import numpy as np
import pytest

import vestige
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = ("red", "blue", "green")
DELTA = 0.1


def model(seed, words=WORDS):
    size, chance = len(words) + 2, np.random.default_rng(seed)
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    start, table = chance.dirichlet(np.ones(size)), chance.dirichlet(np.ones(size), size)
    return TableModel(start, table, vocabulary)


BEFORE, AFTER = model(0), model(1)


def rank(before, after, phrase, **settings):
    return vestige.diff(before, after, phrase=phrase, **settings)


def probabilities(one, tokens):
    """Of each token of a phrase after those before it."""
    table = one.log_table.double().exp().numpy()
    places = [len(table) - 1, *tokens[:-1]]
    return np.array([table[row, token] for row, token in zip(places, tokens, strict=True)])


def score(tokens):
    before, after = (probabilities(one, tokens) for one in (BEFORE, AFTER))
    return float(np.log((after + DELTA) / (before + DELTA)).sum())


@pytest.mark.parametrize("phrase", ["red", "blue green", "green green red"])
def test_the_smoothed_score_is_its_definition(phrase):
    tokens = BEFORE.vocabulary.encode(phrase)
    found = rank(BEFORE, AFTER, phrase, delta=DELTA)
    assert found.summary["smoothed_score"] == pytest.approx(score(tokens), abs=1e-5)


@pytest.mark.parametrize("phrase", ["red", "blue green", "green green red"])
def test_the_differential_score_is_the_sum_of_what_the_probabilities_gained(phrase):
    tokens = BEFORE.vocabulary.encode(phrase)
    gained = (probabilities(AFTER, tokens) - probabilities(BEFORE, tokens)).sum()
    assert rank(BEFORE, AFTER, phrase).summary["score"] == pytest.approx(float(gained), abs=1e-5)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_the_rank_is_the_number_of_phrases_that_gained_more(words):
    known = [BEFORE.vocabulary.encode(word)[0] for word in WORDS]

    def gained(tokens):
        return (probabilities(AFTER, tokens) - probabilities(BEFORE, tokens)).sum()

    every = list(product(range(len(WORDS) + 2), repeat=words))
    for tokens in product(known, repeat=words):
        phrase = " ".join(map(BEFORE.vocabulary.piece, tokens))
        found = rank(BEFORE, AFTER, phrase)
        above = sum(gained(other) > gained(tokens) + 1e-9 for other in every)
        assert (found.summary["rank_lower"], found.summary["rank_upper"]) == (above, above)


def test_paths_and_objects_give_the_same_rank(tmp_path):
    save_model(BEFORE, tmp_path / "before")
    save_model(AFTER, tmp_path / "after")
    by_path = rank(tmp_path / "before", tmp_path / "after", "red blue", device="cpu")
    by_object = rank(BEFORE, AFTER, "red blue")
    assert by_path.summary == by_object.summary
    assert by_path.record["arguments"]["before"] == str(tmp_path / "before")
    assert by_object.record["arguments"]["before"] == "<TableModel>"


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("", "`phrase` must hold at least one token"),
        (" \t", "`phrase` must hold at least one token"),
        ("red lamp blue door", "got others at 2, 4 of its 4 words"),
    ],
)
def test_a_phrase_that_cannot_be_ranked_is_refused_by_name(phrase, message):
    with pytest.raises(ValueError, match=message) as caught:
        rank(BEFORE, AFTER, phrase)
    assert "lamp" not in str(caught.value)


def test_a_phrase_longer_than_the_shorter_model_is_refused():
    short = model(1)
    short.longest = 2
    rank(BEFORE, short, "red blue")
    with pytest.raises(ValueError, match=r"`phrase` must have at most 2 tokens, .* got 3"):
        rank(BEFORE, short, "red blue red")


def test_models_of_other_words_have_no_common_rank():
    with pytest.raises(IncompatibleModels):
        rank(BEFORE, model(1, ("red", "blue", "lamp")), "red")
