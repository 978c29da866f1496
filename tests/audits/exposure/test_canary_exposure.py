"""Exposure of canaries, of their words in other orders, and of controls, by brute force."""

from dataclasses import replace
from itertools import permutations
from math import log2, perm

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


def model_that_knows(
    sequences: list[str], *, order: float = 1.0, words: float = 1.0, seed: int = 0,
    vocabulary: WordVocabulary = WORDS,
) -> TableModel:  # fmt: skip
    """Random chances, multiplied by `order` along the sequences and by `words` at their words."""
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


def log_perplexities(model, phrases):
    return text_log_probs(model, [WORDS.encode(phrase) for phrase in phrases]) / -np.log(2)


def draw(number: int, copies: int, seed: int, length: int = 4) -> list[Canary]:
    rng = np.random.default_rng(seed)
    words = WORDS.words[2:]
    rows = [rng.choice(len(words), length, replace=False) for _ in range(number)]
    return [Canary(" ".join(words[i] for i in row), "random", (), copies) for row in rows]


@pytest.fixture(scope="module")
def canaries() -> list[Canary]:
    return [*draw(6, 5, 1), *draw(4, 20, 2), *draw(12, 0, 3)]


def test_the_whole_space_gives_the_rank_of_brute_force():
    model = model_that_knows([], vocabulary=SMALL)
    phrases = [" ".join(p) for p in permutations(SMALL.words[2:], 3)]
    scores = text_log_probs(model, [SMALL.encode(phrase) for phrase in phrases])
    canaries = [Canary(p, "random", (), i % 2) for i, p in enumerate(phrases[::7])]
    found = canary_exposure(model, canaries, seed=0)
    assert found.space == "whole"
    for canary in found.canaries:
        own = scores[phrases.index(canary["phrase"])]
        assert canary["rank"] == int((scores >= own).sum())
        assert (
            canary["exposure"] == canary["low"] == canary["high"] == log2(60) - log2(canary["rank"])
        )
        assert canary["log_perplexity"] == pytest.approx(-float(own) / np.log(2))
        assert canary["per_token"] == pytest.approx(canary["log_perplexity"] / 3)


def test_a_sample_estimates_the_rank_in_the_whole_space(canaries):
    pairs = [Canary(" ".join(c.phrase.split()[:2]), "random", (), c.copies) for c in canaries]
    model = model_that_knows([], seed=5)
    whole = canary_exposure(model, pairs, seed=0)
    sample = canary_exposure(model, pairs, seed=0, references=2000)
    assert sample.space == "sampled"
    inside = [
        a["low"] <= b["exposure"] <= a["high"]
        for a, b in zip(sample.canaries, whole.canaries, strict=True)
    ]
    assert np.mean(inside) > 0.85


def test_an_untrained_model_exposes_by_chance_only(canaries):
    found = canary_exposure(model_that_knows([]), canaries, seed=0, references=4000)
    assert found.figures()["exposure_planted"] == pytest.approx(1.0, abs=1.2)
    assert found.test.p > 0.05
    assert "not more exposed than controls" in replace(found, checks=PASSED).sentence


def test_a_model_that_knows_the_sequences_exposes_them_and_not_their_other_orders(canaries):
    planted = [canary.phrase for canary in canaries if canary.planted]
    found = canary_exposure(model_that_knows(planted, order=40), canaries, seed=0, references=4000)
    assert found.figures()["exposure_planted"] > 10
    assert found.figures()["exposure_controls"] < 4
    assert found.figures()["shuffled_exposure_planted"] < found.figures()["exposure_planted"] - 2
    assert found.order.p < 1e-9
    assert found.test.p == pytest.approx(found.test.least)
    assert found.test.p < 1e-5
    assert "and the order of their words" in replace(found, checks=PASSED).sentence


def test_the_place_among_its_orders_is_that_of_brute_force(canaries):
    model = model_that_knows([canaries[0].phrase], order=2)
    found = canary_exposure(model, canaries, seed=0, references=1000)
    for canary in found.canaries:
        every = [" ".join(p) for p in permutations(canary["phrase"].split())]
        scores = text_log_probs(model, [WORDS.encode(phrase) for phrase in every])
        place = int((scores >= scores[0]).sum())
        assert (canary["orders"], canary["order_rank"]) == (
            (24, place) if canary["copies"] else (1, 1)
        )


def test_a_model_that_knows_the_words_exposes_every_order_alike(canaries):
    planted = [canary.phrase for canary in canaries[:6]]
    some = [*canaries[:6], *canaries[10:]]
    found = canary_exposure(model_that_knows(planted, words=6), some, seed=0, references=4000)
    assert found.figures()["exposure_planted"] > 4
    assert found.figures()["shuffled_exposure_planted"] > 4
    assert "It is not shown to know their order" in replace(found, checks=PASSED).sentence


def test_at_the_ceiling_the_rank_is_a_bound(canaries):
    planted = [canary.phrase for canary in canaries if canary.planted]
    found = canary_exposure(
        model_that_knows(planted, order=2000), canaries, seed=0, references=4000
    )
    known = [canary for canary in found.canaries if canary["at_ceiling"]]
    assert len(known) == found.figures()["at_ceiling_planted"] > 5
    for canary in known:
        assert canary["exposure"] == log2(canary["references"])
        assert canary["high"] == canary["space_bits"] == pytest.approx(log2(perm(60, 4)))
    assert "more probable than all 4,000 references" in found.resolution
    assert found.figures()["exposure_planted_is_bound"]


def test_a_canary_is_ranked_among_references_of_its_length(canaries):
    model = model_that_knows([], seed=4)
    mixed = [*canaries, Canary("abc cde", "given", (), 3), Canary("bcd abc", "given", (), 0)]
    found = canary_exposure(model, mixed, seed=6, references=300)
    generator = np.random.default_rng(6)
    planted = frozenset(c.phrase for c in mixed if c.planted)
    for length in (2, 4):
        drawn = word_references(
            WORDS.words[2:], length=length, number=300, exclude=planted,
            generator=generator,
        )  # fmt: skip
        bits = log_perplexities(model, drawn.phrases)
        own = [c for c in found.canaries if c["length"] == length]
        scores = log_perplexities(model, [c["phrase"] for c in own])
        expected = sampled_exposure(scores, bits, space_bits=drawn.bits)
        assert [c["rank"] for c in own] == expected.rank.tolist()
        assert [c["low"] for c in own] == expected.low.tolist()
        assert [c["high"] for c in own] == expected.high.tolist()
        assert {c["references"] for c in own} == {len(drawn.phrases)}


def test_exact_ranks_are_those_of_the_whole_space(canaries):
    pairs = [Canary(" ".join(c.phrase.split()[:2]), "random", (), c.copies) for c in canaries]
    model = model_that_knows([c.phrase for c in pairs if c.planted], order=30)
    found = canary_exposure(model, pairs, seed=0, references=500, exact_budget=5000)
    whole = canary_exposure(model, pairs, seed=0)
    for exact, listed in zip(found.canaries, whole.canaries, strict=True):
        if exact["copies"]:
            assert exact["exact_low"] == pytest.approx(listed["exposure"])
            assert exact["exact_high"] == pytest.approx(listed["exposure"])
        else:
            assert exact["exact_low"] is None
    assert found.figures()["exact_decided"] == len(found.planted)


def test_candidates_take_the_place_of_random_words():
    said = [f"abc {word}" for word in WORDS.words[3:40]]
    canaries = [Canary(said[4], "given", (), 9), Canary(said[9], "given", (), 0)]
    model = model_that_knows([said[4]], order=1000)
    found = canary_exposure(model, canaries, seed=0, candidates=said)
    assert found.space == "candidates"
    assert found.canaries[0]["rank"] == 1
    assert found.canaries[0]["exposure"] == log2(37)


def test_a_subword_model_is_measured_with_the_words_of_its_canaries():
    texts = ["quiet mice sing at dawn", "loud owls hum by night", "tall reeds bend in wind"]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts * 3), size=300)
    torch.manual_seed(0)
    shape = TransformerConfig(layers=1, heads=2, hidden_size=8, feed_forward=16, max_length=64)
    model = CausalTransformer(vocabulary, shape).eval()
    canaries = [Canary(text, "given", (), i % 2) for i, text in enumerate(texts)]
    found = canary_exposure(model, canaries, seed=0, references=200)
    assert found.words == 15
    assert [c["length"] for c in found.canaries] == [len(vocabulary.encode(t)) for t in texts]
    with pytest.raises(ValueError, match="word vocabulary"):
        canary_exposure(model, canaries, seed=0, exact_budget=10)


def test_one_canary_of_one_control_has_no_test_of_order_and_a_summary_without_nan():
    pair = [Canary("abc cde bcd abd", "given", (), 3), Canary("bcd abc ace bde", "given", (), 0)]
    found = canary_exposure(model_that_knows([]), pair, seed=0, references=500)
    assert found.order is None
    assert "nan" not in results.to_json(replace(found, checks=PASSED).summary())


def test_a_seed_gives_the_same_again(canaries):
    model = model_that_knows([])
    first, again, other = (
        canary_exposure(model, canaries, seed=seed, references=300) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.canaries != other.canaries


def test_a_phrase_without_another_order_and_one_that_is_impossible_have_gaps():
    canaries = [Canary("ash ash", "given", (), 2), Canary("elm fir", "given", (), 0)]
    table = np.full((8, 7), 1 / 6)
    table[:, 0] = 0
    table[2] = [0, 0.5, 0, 0.5, 0, 0, 0]
    model = TableModel(table[7], table[:7], SMALL)
    found = canary_exposure(model, canaries, seed=0, exact_budget=5)
    assert found.canaries[0]["shuffled_exposure"] is None
    assert found.canaries[0]["log_perplexity"] == np.inf
    assert found.canaries[0]["rank"] == found.canaries[0]["references"] + 1
    assert found.canaries[0]["exact_low"] is None
    results.to_json(list(found.rows()))


def test_progress_comes_to_its_end(canaries):
    seen: list[tuple[int, int]] = []
    canary_exposure(
        model_that_knows([]), canaries, seed=0, references=300, exact_budget=10,
        progress=lambda *at: seen.append(at),
    )  # fmt: skip
    assert seen[-1][0] == seen[-1][1]


def refused(error, problem, canaries, **options):
    with pytest.raises(error, match=problem):
        canary_exposure(model_that_knows([]), canaries, **{"seed": 0, **options})


def test_what_cannot_be_measured_is_refused(canaries):
    refused(ValueError, "references must be at least 100", canaries, references=99)
    refused(ValueError, "exact_budget", canaries, exact_budget=0)
    refused(ValueError, "candidates", canaries, exact_budget=5, candidates=["abc bcd", "bcd abc"])
    refused(DataError, "there is no control among 4 canaries", canaries[:4])
    refused(DataError, "no planted", canaries[-4:])
    refused(DataError, "no planted", [])
    unknown = Canary("abc zebra", "given", (), 1)
    refused(DataError, "canary 23", [*canaries, unknown])
    refused(DataError, "candidate 2", canaries, candidates=["abc bcd", "abc zebra"])
    foreign = Canary("abc bcd", "given", (), 1, ids=(5, 6))
    refused(IncompatibleModels, "canary 23", [*canaries, foreign])


def test_without_other_orders_everything_else_is_the_same(canaries):
    model = model_that_knows([c.phrase for c in canaries[:6]], order=40)
    asked = canary_exposure(model, canaries, seed=0, references=300)
    without = canary_exposure(model, canaries, seed=0, references=300, orders=0)
    assert {one["orders"] for one in without.canaries} == {1}
    assert orders_compared(canaries, 300) >= sum(c["orders"] - 1 for c in asked.canaries) > 0
    for one, other in zip(asked.canaries, without.canaries, strict=True):
        assert {**one, "orders": 1, "order_rank": 1} == other
    few = canary_exposure(model, canaries, seed=0, references=300, orders=5)
    assert {one["orders"] for one in few.planted} == {6}


def test_each_phrase_is_scored_once(canaries, monkeypatch):
    read: list[tuple[int, ...]] = []
    whole = predictions._sums

    def noted(model, texts, *rest):
        read.extend(tuple(texts.document(index)) for index in range(len(texts)))
        return whole(model, texts, *rest)

    monkeypatch.setattr(predictions, "_sums", noted)
    canary_exposure(model_that_knows([]), [*canaries, *canaries], seed=0, references=300)
    assert len(read) == len(set(read))
