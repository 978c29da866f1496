"""Measures of memorization from token statistics, against their naive definitions."""

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

VOCABULARY = WordVocabulary(("<unk>", "<eos>", *"abcdefghijkl"))
SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.full(SIZE, 0.2), SIZE)
    return TableModel(rng.dirichlet(np.ones(SIZE)), table, VOCABULARY).eval()


@pytest.fixture(scope="module")
def texts(model):
    """40 texts of 30 tokens; the model generates the end of every second one."""
    rng, texts = np.random.default_rng(4), []
    for index in range(40):
        ids = rng.integers(2, SIZE, 30).tolist()
        if index % 2:
            ids = ids[:10] + generated(model, ids[:10], 20)
        texts.append(ids)
    return texts


@pytest.fixture(scope="module")
def statistics(model, texts):
    return token_statistics(model, texts, likeliest=SIZE)


def logits(model, ids):
    """(n, v) logits: row i predicts token i."""
    row = torch.tensor([[model.first_token, *ids]])
    return model.forward(row)[0][0, :-1].double()


def generated(model, prefix, count):
    """Greedy decoding, token by token."""
    ids = list(prefix)
    for _ in range(count):
        ids.append(int(logits(model, [*ids, 0])[-1].argmax()))
    return ids[len(prefix) :]


@pytest.mark.parametrize(("top_k", "temperature"), [(1, 1.0), (4, 1.0), (4, 0.5), (SIZE, 2.0)])
def test_a_sampled_token_has_the_probability_of_top_k_sampling(
    model, texts, statistics, top_k, temperature
):
    result = memorization.sampled_log_probs(statistics, top_k=top_k, temperature=temperature)
    expected = []
    for ids in texts:
        for row, token in zip(logits(model, ids) / temperature, ids, strict=True):
            top = row.topk(top_k).indices.tolist()
            total = sum(math.exp(row[other]) for other in top)
            expected.append(math.log(math.exp(row[token]) / total) if token in top else -math.inf)
    assert result == pytest.approx(np.array(expected), abs=1e-5)


def test_sampling_uses_only_the_tokens_with_known_probabilities(statistics):
    known = statistics.likeliest_log_probs.copy()
    known[:, 3:] = np.nan
    partial = replace(statistics, likeliest_log_probs=known)
    first_three = statistics.ranks <= 3
    result = memorization.sampled_log_probs(partial, top_k=5)[first_three]
    expected = memorization.sampled_log_probs(statistics, top_k=3)[first_three]
    assert result.tolist() == expected.tolist()


def test_passages_with_an_unknown_token_are_not_counted(texts, statistics):
    criterion, units = ExtractionCriterion(prefix=2, suffix=3, top_k=5), range(len(texts))
    passages = memorization_table(statistics, criterion, units).passages
    known = statistics.likeliest_log_probs.copy()
    first = statistics.offsets[:-1]
    known[first + 3] = np.nan  # in the first passage of each text
    known[first] = np.nan  # in no passage
    partial = replace(statistics, likeliest_log_probs=known)
    assert (memorization_table(partial, criterion, units).passages == passages - 1).all()
    assert passages.min() > 0


def test_samples_needed_give_a_passage_with_the_stated_probability():
    n = float(memorization.samples_needed(math.log(0.03), probability=0.9))
    assert 1 - (1 - 0.03) ** n == pytest.approx(0.9)
    counts = memorization.samples_needed([-60.0, -np.inf, 0.0], probability=0.5)
    assert counts.tolist() == pytest.approx([math.log(2) * math.exp(60), math.inf, 1.0])


@pytest.mark.slow
def test_measures_from_ranks_equal_greedy_decoding_from_every_prefix(model, texts, statistics):
    """Strength, verbatim runs and passages."""
    for index, ids in enumerate(texts):
        start, end = statistics.offsets[index : index + 2]
        ranks, n = statistics.ranks[start:end], len(ids)
        decoded = [generated(model, ids[:k], n - k) for k in range(n)]
        needed = next((k for k in range(n) if decoded[k] == ids[k:]), n)
        result = memorization.verbatim_measures(ranks > 1)
        assert result["strength"] == pytest.approx(1 - needed / n)
        equal = [
            next((i for i, (a, b) in enumerate(zip(out, ids[k:], strict=True)) if a != b), n - k)
            for k, out in enumerate(decoded)
        ]
        assert result["longest"] == max(equal)
        assert result["exact"] == sum(length > 0 for length in equal) / n
        errors = memorization.passage_sums(ranks > 1, 6, 8)
        assert (errors == 0).tolist() == [decoded[k][:8] == ids[k : k + 8] for k in (6, 14, 22)]
