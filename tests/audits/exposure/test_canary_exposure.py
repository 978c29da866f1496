"""Exposure of canaries, of their words in other orders, and of controls, by brute force."""

from dataclasses import replace
from itertools import permutations
from math import log2

import numpy as np
import pytest
import torch

from tests.audits.passed import PASSED
from vestige import results
from vestige.audits.exposure.canaries import canary_exposure, orders_compared
from vestige.audits.exposure.references import word_references
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, IncompatibleModels
from vestige.metrics.exposure import sampled_exposure
from vestige.models import predictions
from vestige.models.predictions import text_log_probs
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig

WORDS = WordVocabulary(("<unk>", "<eos>", *("".join(p) for p in permutations("abcde", 3))))
SMALL = WordVocabulary(("<unk>", "<eos>", "ash", "birch", "cedar", "elm", "fir"))


def model_that_knows(sequences, *, order=1.0, words=1.0, seed=0, vocabulary=WORDS):
    """Random probabilities, times `order` along the sequences and times `words` at their words."""
    rng = np.random.default_rng(seed)
    size = len(vocabulary)
    table = rng.dirichlet(np.full(size, 2.0), size + 1)
    for sequence in sequences:
        ids = vocabulary.encode(sequence)
        table[:, ids] *= words
        for before, after in zip([size, *ids[:-1]], ids, strict=True):
            table[before, after] *= order
    table /= table.sum(1, keepdims=True)
    return TableModel(table[size], table[:size], vocabulary)


def draw(number, copies, seed):
    rng = np.random.default_rng(seed)
    words = WORDS.words[2:]
    rows = [rng.choice(len(words), 4, replace=False) for _ in range(number)]
    return [Canary(" ".join(words[i] for i in row), "random", (), copies) for row in rows]


PLANTED = [*draw(6, 5, 1), *draw(4, 20, 2)]
CANARIES = [*PLANTED, *draw(12, 0, 3)]
PAIRS = [Canary(" ".join(c.phrase.split()[:2]), "random", (), c.copies) for c in CANARIES]
FLAT = model_that_knows([])


def given(phrase, copies, **fields):
    return Canary(phrase, "given", (), copies, **fields)


def expose(model, canaries=CANARIES, **options):
    return canary_exposure(model, canaries, **{"seed": 0, **options})


def phrases_of(canaries):
    return [canary.phrase for canary in canaries]


# Ranks, by brute force.


def test_the_rank_in_the_whole_space_is_that_of_brute_force():
    model = model_that_knows([], vocabulary=SMALL)
    phrases = [" ".join(p) for p in permutations(SMALL.words[2:], 3)]
    scores = text_log_probs(model, [SMALL.encode(phrase) for phrase in phrases])
    result = expose(model, [Canary(p, "random", (), i % 2) for i, p in enumerate(phrases[::7])])
    assert result.space == "whole"
    for row in result.canaries:
        score = scores[phrases.index(row["phrase"])]
        assert row["rank"] == int((scores >= score).sum())
        assert row["exposure"] == row["low"] == row["high"] == log2(60) - log2(row["rank"])
        assert row["log_perplexity"] == pytest.approx(-float(score) / np.log(2))
        assert row["per_token"] == pytest.approx(row["log_perplexity"] / 3)


def test_the_rank_among_word_orders_is_that_of_brute_force():
    model = model_that_knows([CANARIES[0].phrase], order=2)
    for row in expose(model, references=1000).canaries:
        orders = [" ".join(p) for p in permutations(row["phrase"].split())]
        scores = text_log_probs(model, [WORDS.encode(phrase) for phrase in orders])
        rank = int((scores >= scores[0]).sum())
        assert (row["orders"], row["order_rank"]) == ((24, rank) if row["copies"] else (1, 1))


def test_a_canary_is_ranked_among_references_of_its_length():
    model = model_that_knows([], seed=4)
    canaries = [*CANARIES, given("abc cde", 3), given("bcd abc", 0)]
    result = expose(model, canaries, seed=6, references=300)
    generator = np.random.default_rng(6)
    planted = frozenset(canary.phrase for canary in canaries if canary.planted)

    def log_perplexities(phrases):
        return text_log_probs(model, [WORDS.encode(phrase) for phrase in phrases]) / -np.log(2)

    for length in (2, 4):
        references = word_references(
            WORDS.words[2:], length=length, number=300, exclude=planted, generator=generator
        )
        rows = [row for row in result.canaries if row["length"] == length]
        expected = sampled_exposure(
            log_perplexities([row["phrase"] for row in rows]),
            log_perplexities(references.phrases),
            space_bits=references.bits,
        )
        for name in ("rank", "low", "high"):
            assert [row[name] for row in rows] == getattr(expected, name).tolist()
        assert {row["references"] for row in rows} == {len(references.phrases)}


def test_exact_ranks_are_those_of_the_whole_space():
    model = model_that_knows([c.phrase for c in PAIRS if c.planted], order=30)
    result = expose(model, PAIRS, references=500, exact_budget=5000)
    for exact, whole in zip(result.canaries, expose(model, PAIRS).canaries, strict=True):
        if exact["copies"]:
            assert exact["exact_low"] == pytest.approx(whole["exposure"])
            assert exact["exact_high"] == pytest.approx(whole["exposure"])
        else:
            assert exact["exact_low"] is None
    assert result.figures()["exact_decided"] == len(result.planted)


def test_candidates_replace_random_words():
    candidates = [f"abc {word}" for word in WORDS.words[3:40]]
    canaries = [given(candidates[4], 9), given(candidates[9], 0)]
    result = expose(model_that_knows([candidates[4]], order=1000), canaries, candidates=candidates)
    assert result.space == "candidates"
    assert result.canaries[0]["rank"] == 1
    assert result.canaries[0]["exposure"] == log2(37)


# What models know.


def test_memorized_sequences_are_exposed_and_their_other_orders_are_not():
    result = expose(model_that_knows(phrases_of(PLANTED), order=40), references=4000)
    figures = result.figures()
    assert figures["exposure_planted"] > 10
    assert figures["exposure_controls"] < 4
    assert figures["shuffled_exposure_planted"] < figures["exposure_planted"] - 2
    assert result.order.p < 1e-9
    assert result.test.p == pytest.approx(result.test.least)
    assert result.test.p < 1e-5


def test_memorized_words_expose_every_order_alike():
    model = model_that_knows(phrases_of(PLANTED[:6]), words=6)
    result = expose(model, CANARIES[:6] + CANARIES[10:], references=4000)
    assert result.figures()["exposure_planted"] > 4
    assert result.figures()["shuffled_exposure_planted"] > 4
    assert result.order.p > 0.05


def test_references_of_a_subword_model_have_the_words_of_its_canaries():
    texts = ["quiet mice sing at dawn", "loud owls hum by night", "tall reeds bend in wind"]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts * 3), size=300)
    torch.manual_seed(0)
    config = TransformerConfig(layers=1, heads=2, hidden_size=8, feed_forward=16, max_length=64)
    model = CausalTransformer(vocabulary, config).eval()
    canaries = [given(text, i % 2) for i, text in enumerate(texts)]
    result = expose(model, canaries, references=200)
    assert result.words == 15
    assert [row["length"] for row in result.canaries] == [len(vocabulary.encode(t)) for t in texts]
    with pytest.raises(ValueError, match="word vocabulary"):
        expose(model, canaries, exact_budget=10)


# Special cases.


def test_one_canary_and_one_control_have_no_test_of_order_and_no_nan():
    canaries = [given("abc cde bcd abd", 3), given("bcd abc ace bde", 0)]
    result = expose(FLAT, canaries, references=500)
    assert result.order is None
    assert "nan" not in results.to_json(replace(result, checks=PASSED).summary())


def test_an_impossible_phrase_without_another_order_has_missing_numbers():
    table = np.full((8, 7), 1 / 6)
    table[:, 0] = 0
    table[2] = [0, 0.5, 0, 0.5, 0, 0, 0]
    model = TableModel(table[7], table[:7], SMALL)
    result = expose(model, [given("ash ash", 2), given("elm fir", 0)], exact_budget=5)
    row = result.canaries[0]
    assert row["shuffled_exposure"] is row["exact_low"] is None
    assert result.figures()["shuffled_exposure_planted"] is None
    assert row["log_perplexity"] == np.inf
    assert row["rank"] == row["references"] + 1
    results.to_json(list(result.rows()))


def test_progress_reaches_its_end():
    steps = []
    expose(FLAT, references=300, exact_budget=10, progress=lambda *step: steps.append(step))
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize(
    ("canaries", "options", "error", "message"),
    [
        (CANARIES, {"exact_budget": 0}, ValueError, "exact_budget"),
        (CANARIES, {"exact_budget": 5, "candidates": ["abc bcd", "bcd abc"]}, ValueError,
         "candidates"),
        (CANARIES[:4], {}, DataError, "there is no control among 4 canaries"),
        (CANARIES[-4:], {}, DataError, "no planted"),
        ([*CANARIES, given("abc zebra", 1)], {}, DataError, "canary 23"),
        ([*CANARIES, given("abc bcd", 1, ids=(5, 6))], {}, IncompatibleModels, "canary 23"),
    ],
)  # fmt: skip
def test_canaries_that_cannot_be_measured_are_refused(canaries, options, error, message):
    with pytest.raises(error, match=message):
        expose(FLAT, canaries, **options)


def test_the_number_of_orders_changes_nothing_else():
    model = model_that_knows(phrases_of(PLANTED[:6]), order=40)
    with_orders = expose(model, references=300)
    without = expose(model, references=300, orders=0)
    assert {row["orders"] for row in without.canaries} == {1}
    assert orders_compared(CANARIES, 300) >= sum(c["orders"] - 1 for c in with_orders.canaries) > 0
    for row, expected in zip(with_orders.canaries, without.canaries, strict=True):
        assert {**row, "orders": 1, "order_rank": 1} == expected
    few = expose(model, references=300, orders=5)
    assert {row["orders"] for row in few.planted} == {6}


def test_each_phrase_is_scored_once(monkeypatch):
    scored, sums = [], predictions._sums

    def recording(model, texts, *options):
        scored.extend(tuple(texts.document(index)) for index in range(len(texts)))
        return sums(model, texts, *options)

    monkeypatch.setattr(predictions, "_sums", recording)
    expose(FLAT, [*CANARIES, *CANARIES], references=300)
    assert len(scored) == len(set(scored))
