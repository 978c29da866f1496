"""Memorization from token statistics, against the definitions written naively."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from vestige.audits.extraction import memorization
from vestige.audits.extraction.memorization import ExtractionCriterion, memorization_table
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel
from vestige.models.token_statistics import token_statistics

WORDS = tuple("abcdefghijkl")
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def model():
    chance = np.random.default_rng(3)
    table = chance.dirichlet(np.full(SIZE, 0.2), SIZE)
    return TableModel(chance.dirichlet(np.ones(SIZE)), table, VOCABULARY).eval()


@pytest.fixture(scope="module")
def texts(model):
    """Half of them generated greedily by the model itself, half random."""
    chance, result = np.random.default_rng(4), []
    for index in range(40):
        ids = chance.integers(2, SIZE, 30).tolist()
        if index % 2:
            ids = ids[:10] + generated(model, ids[:10], 20)
        result.append(ids)
    return result


def logits(model, ids):
    """(n, v) of the next token before each of the text's."""
    row = torch.tensor([[model.first_token, *ids]])
    return model.forward(row)[0][0, :-1].double()


def generated(model, prefix, count):
    """Greedy decoding, token by token."""
    ids = list(prefix)
    for _ in range(count):
        ids.append(int(logits(model, [*ids, 0])[-1].argmax()))
    return ids[len(prefix) :]


@pytest.mark.parametrize(("top_k", "temperature"), [(1, 1.0), (4, 1.0), (4, 0.5), (SIZE, 2.0)])
def test_a_drawn_passage_has_the_probability_of_its_sampling_scheme(
    model, texts, top_k, temperature
):
    statistics = token_statistics(model, texts, likeliest=SIZE)
    result = memorization.sampled_log_probs(statistics, top_k=top_k, temperature=temperature)
    expected = []
    for ids in texts:
        scaled = logits(model, ids) / temperature
        for row, token in zip(scaled, ids, strict=True):
            kept = row.topk(top_k).indices.tolist()
            whole = sum(math.exp(row[one]) for one in kept)
            expected.append(math.log(math.exp(row[token]) / whole) if token in kept else -math.inf)
    assert result == pytest.approx(np.array(expected), abs=1e-5)


def test_sampling_is_from_the_tokens_that_are_known(model, texts):
    statistics = token_statistics(model, texts, likeliest=20)
    known = statistics.likeliest_log_probs.copy()
    known[:, 3:] = np.nan
    fewer = replace(statistics, likeliest_log_probs=known)
    where = statistics.ranks <= 3
    result = memorization.sampled_log_probs(fewer, top_k=5)[where]
    assert result.tolist() == memorization.sampled_log_probs(statistics, top_k=3)[where].tolist()


def test_passages_with_an_unknown_token_are_left_out(model, texts):
    statistics, how = (
        token_statistics(model, texts, likeliest=20),
        ExtractionCriterion(prefix=2, suffix=3, top_k=5),
    )
    units = range(len(texts))
    whole = memorization_table(statistics, how, units).passages
    known = statistics.likeliest_log_probs.copy()
    first = statistics.offsets[:-1]
    known[first + 3] = np.nan  # in the first passage of each
    known[first] = np.nan  # in none
    fewer = replace(statistics, likeliest_log_probs=known)
    asked = whole > 0
    assert (memorization_table(fewer, how, units).passages[asked] == whole[asked] - 1).all()
    assert asked.any()


def test_so_many_tries_give_a_passage_with_the_stated_probability():
    probability, chance = 0.03, 0.9
    n = float(memorization.samples_needed(math.log(probability), probability=chance))
    assert 1 - (1 - probability) ** n == pytest.approx(chance)
    tiny = memorization.samples_needed([-60.0, -np.inf, 0.0], probability=0.5)
    assert tiny.tolist() == pytest.approx([math.log(2) * math.exp(60), math.inf, 1.0])


def test_samples_are_the_passage_as_often_as_computed(model, texts):
    """Passages of two tokens that are really drawn, 20,000 times each."""
    statistics = token_statistics(model, texts, likeliest=SIZE)
    drawn = memorization.sampled_log_probs(statistics, top_k=3, temperature=0.8)[8:10].sum()
    rows = (logits(model, texts[0])[8:10] / 0.8).topk(3)
    chance, hits = np.random.default_rng(5), np.ones(20000, dtype=bool)
    for values, ids, token in zip(rows.values, rows.indices, texts[0][8:10], strict=True):
        weights = torch.softmax(values, 0).numpy()
        hits &= chance.choice(ids.numpy(), 20000, p=weights / weights.sum()) == token
    assert hits.mean() == pytest.approx(math.exp(drawn), abs=0.02)


@pytest.mark.slow
def test_ranks_agree_with_greedy_decoding_from_every_prefix(model, texts):
    """Strength, verbatim runs and passages, all by decoding from every prefix."""
    statistics = token_statistics(model, texts, likeliest=20)
    for index, ids in enumerate(texts):
        start, end = statistics.offsets[index : index + 2]
        ranks, n = statistics.ranks[start:end], len(ids)
        from_each = [generated(model, ids[:k], n - k) for k in range(n)]
        whole = next((k for k in range(n) if from_each[k] == ids[k:]), n)
        result = memorization.verbatim_measures(ranks > 1)
        assert result["strength"] == pytest.approx(1 - whole / n)
        alike = [
            next((i for i, (a, b) in enumerate(zip(out, ids[k:], strict=True)) if a != b), n - k)
            for k, out in enumerate(from_each)
        ]
        assert result["longest"] == max(alike)
        assert result["exact"] == sum(a > 0 for a in alike) / n
        wrong = memorization.passage_sums(ranks > 1, 6, 8)
        assert (wrong == 0).tolist() == [from_each[k][:8] == ids[k : k + 8] for k in (6, 14, 22)]
