"""Ranks and log-probabilities of tokens equal those of a loop over single tokens."""

import math

import numpy as np
import pytest
import torch

from tests.models.conftest import (
    NETWORKS,
    SOURCES,
    TARGETS,
    TRANSLATORS,
    random_texts,
    translator,
)
from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode_pairs
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied
from vestige.models import predictions as module
from vestige.models.ablation import linear_head, random_maskings, silenced_ranks
from vestige.models.predictions import (
    log_prob,
    log_probs_of,
    measure,
    rank,
    text_log_probs,
    word_ranks,
)
from vestige.models.prefix import PrefixedModel
from vestige.models.ranks import LinearRanks
from vestige.models.reading import word_positions
from vestige.models.seq2seq import Seq2SeqModel
from vestige.models.table import TableModel
from vestige.models.top_k import likeliest_ranks

MODELS = [*NETWORKS, "table", "llama adapter"]
UNEVEN = [[0.25, 0.125, 0.125, 0.25, 0, 0.125, 0.125, 0], [0.125] * 8]
TIES = TableModel(UNEVEN[0], [UNEVEN[i % 2] for i in range(8)])


def naive_rank(token, log_probs):
    """The rank of one token by a stable sort."""
    return torch.sort(log_probs, descending=True, stable=True).indices.tolist().index(token) + 1


def naive(model, data):
    """Ranks and log-probabilities of all tokens, ends too, by a loop over single tokens."""
    ranks, log_probs = [], []
    for index in range(len(data)):
        document = data.document(index).astype(np.int64)
        longest = getattr(model, "longest", None) or len(document)
        state = model.start(1)
        for position, token in enumerate(document):
            if position and position % longest == 0:
                state = model.start(1, anywhere=True)
            if position:
                state = model.advance(state, torch.tensor([document[position - 1]]))
            answer = model.log_probs(state)[0]
            ranks.append(naive_rank(token, answer))
            log_probs.append(float(answer[token]))
    return ranks, np.array(log_probs)


@pytest.fixture(params=MODELS)
def model(request, shared):
    return shared[request.param]


@pytest.mark.slow
def test_batches_equal_single_tokens(model):
    # Lengths below, at and above what a model reads (12), and texts without a word.
    data = random_texts([3, 0, 11, 12, 13, 1, 26, 5, 0])
    ranks, log_probs = naive(model, data)
    for batch_tokens in (8192, 7):
        words = word_ranks(model, data, np.arange(len(data.tokens)), batch_tokens=batch_tokens)
        assert words.ranks.tolist() == ranks
        np.testing.assert_allclose(words.log_probs, log_probs, rtol=1e-4, atol=1e-5)
        columns = measure(model, data, [rank, log_prob], batch_tokens=batch_tokens)
        assert columns["ranks"].tolist() == ranks
        np.testing.assert_allclose(columns["log_probs"], log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [[4, 2, 9], [4]])
def test_texts_after_a_prefix_equal_single_tokens(model, prefix):
    data = random_texts([3, 0, 7, 25])  # the last is longer than a model reads at once
    for anywhere in (False, True):
        prefixed = PrefixedModel(model, prefix, anywhere=anywhere)
        ranks, log_probs = naive(prefixed, data)
        words = word_ranks(prefixed, data, np.arange(len(data.tokens)))
        assert words.ranks.tolist() == ranks
        np.testing.assert_allclose(words.log_probs, log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_log_probabilities_of_texts_are_sums_over_their_tokens(model, monkeypatch):
    data = random_texts([4, 0, 9, 9, 2, 11])
    order = (0, 1, 2, 3, 4, 5, 2)
    ids = [data.document(index).tolist() for index in order]
    log_probs = naive(model, data)[1]
    sums, done = np.add.reduceat(log_probs, data.offsets[:-1])[list(order)], []
    np.testing.assert_allclose(text_log_probs(model, ids, done.append), sums, rtol=1e-5)
    assert done == [7]
    each = log_probs_of(model, ids)
    assert [len(text) for text in each] == [5, 1, 10, 10, 3, 12, 10]
    np.testing.assert_allclose(np.concatenate(each[:6]), log_probs, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(module, "PRODUCT_CELLS", 3 * model.vocab_size)
    monkeypatch.setattr(module, "CACHE_CELLS", 2 * model.vocab_size)
    monkeypatch.setattr(module, "REPORT_EVERY", 2)
    np.testing.assert_allclose(text_log_probs(model, ids), sums, rtol=1e-5)


def test_ranks_equal_positions_in_lists_of_words(model):
    data = random_texts([3, 11, 0, 14, 6], seed=1)
    ranks = word_ranks(model, data)
    contexts, words = contexts_at(data, word_positions(data), model.vocabulary)
    for k in (1, 3, 20):
        listed = likeliest_ranks(narrow(model, k=k), contexts, words, at_once=9)
        assert listed.tolist() == np.minimum(ranks.ranks, k + 1).tolist()


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_ranks_equal_positions_in_lists_with_ties_and_impossible_words(k):
    data = random_texts([9, 4, 15, 30], size=8)
    ranks = word_ranks(TIES, data).ranks
    assert ranks.tolist() == np.array(naive(TIES, data)[0])[data.tokens != 1].tolist()
    contexts, words = contexts_at(data, word_positions(data), TIES.vocabulary)
    listed = likeliest_ranks(narrow(TIES, k=k), contexts, words)
    assert listed.tolist() == np.minimum(ranks, k + 1).tolist()


@pytest.mark.parametrize("name", ["lstm", "transformer", "table", "gpt2"])
def test_ranks_of_some_positions_equal_those_among_all(shared, name):
    model, data = shared[name], random_texts([9, 20, 3, 7])
    all_ranks = measure(model, data, [rank])["ranks"]
    assert len(all_ranks) == len(data.tokens) == len(word_ranks(model, data).ranks) + 4  # ends
    some = [22, 5, 5, 33, 0]
    for positions, batch_tokens in ((some, 8192), (np.array(some, np.int32), 6)):
        words = word_ranks(model, data, positions, batch_tokens=batch_tokens)
        assert words.ranks.tolist() == all_ranks[some].tolist()
    mask = np.isin(np.arange(len(data.tokens)), some)
    assert word_ranks(model, data, mask).ranks.tolist() == all_ranks[mask].tolist()
    assert len(word_ranks(model, data, []).ranks) == 0
    assert measure(model, data, [rank], [])["ranks"].dtype == np.int32


def test_progress_ends_at_the_number_of_words(shared):
    reports = []
    data = random_texts([30] * 400)
    word_ranks(shared["lstm"], data, batch_tokens=500, progress=lambda *x: reports.append(x))
    assert reports[-1] == (12000, 12000)
    assert len(reports) > 5
    assert reports == sorted(reports)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_ranks_by_logits_equal_ranks_by_the_head(make, name):
    model, data = make[name](), random_texts([8, 13])
    assert LinearRanks.of(model) is not None
    expected = word_ranks(model, data).ranks.tolist()
    model.separate_head = False
    assert LinearRanks.of(model) is None
    assert word_ranks(model, data).ranks.tolist() == expected


def pair_corpus(count=30):
    generator = np.random.default_rng(0)

    def text(letter, top):
        return " ".join(f"{letter}{i}" for i in generator.integers(0, top, generator.integers(5)))

    targets = [text("t", 14) for _ in range(count)]
    return Corpus.from_texts(targets, sources=[text("s", 9) for _ in range(count)])


PAIRS = encode_pairs(pair_corpus(), SOURCES, TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSLATORS)
def test_ranks_of_targets_equal_single_tokens(kind):
    model = translator(kind)
    ranks, log_probs = [], []
    for text, source in enumerate(pair_corpus().sources):
        decoder = model.given(source)
        state = decoder.start(1)
        for token in PAIRS.targets.document(text)[:-1].tolist():
            distribution = decoder.log_probs(state)[0]
            ranks.append(naive_rank(token, distribution))
            log_probs.append(float(distribution[token]))
            state = decoder.advance(state, torch.tensor([token]))
    for batch_tokens in (8192, 2):
        words = word_ranks(model, PAIRS, batch_tokens=batch_tokens)
        assert words.ranks.tolist() == ranks
        np.testing.assert_allclose(words.log_probs, log_probs, rtol=1e-4, atol=1e-5)
    some = word_positions(PAIRS.targets)[5:20:3]
    assert word_ranks(model, PAIRS, some).ranks.tolist() == ranks[5:20:3]


def test_training_mode_and_unknown_ids_are_refused(make):
    data = random_texts([4])
    with pytest.raises(ValueError, match="evaluation mode"):
        word_ranks(make["lstm"]().train(), data)
    with pytest.raises(ValueError, match="ids below 20"):
        word_ranks(make["lstm"](), random_texts([40], size=50))
    model = translator()
    with pytest.raises(ValueError, match="evaluation mode"):
        word_ranks(model.train(), PAIRS)
    model.eval().vocab_size = 11
    with pytest.raises(ValueError, match=r"targets must hold ids below 11"):
        word_ranks(model, PAIRS)
    model = Seq2SeqModel(TARGETS, TARGETS).eval()
    model.source_vocabulary = WordVocabulary(("<unk>", "<eos>"))
    with pytest.raises(ValueError, match=r"sources must hold ids below 2"):
        word_ranks(model, PAIRS)


def test_texts_are_scored_without_dropout(make):
    model = make["lstm"]()
    training = text_log_probs(model.train(), [[2, 3, 2]])
    assert model.training
    assert training == text_log_probs(model.eval(), [[2, 3, 2]])
    assert not model.training


def test_impossible_tokens_have_log_probability_minus_infinity():
    model = TableModel([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]])
    [log_probs] = log_probs_of(model, [[0, 1]])
    assert log_probs.tolist() == [pytest.approx(math.log(0.5)), -math.inf]
    assert text_log_probs(model, [[0, 1]]).tolist() == [-math.inf]
    assert text_log_probs(model, []).shape == (0,)
    assert log_probs_of(model, []) == []


@pytest.mark.parametrize(
    ("name", "ids", "message"),
    [
        ("table", [], "an empty one"),
        ("table", [0, 20], "0 to 20"),
        ("table", [0, -1], "-1 to 0"),
        ("table", [20], "20"),
        ("transformer", [2] * 13, "at most 12 tokens"),
    ],
)
def test_invalid_texts_are_refused(shared, name, ids, message):
    with pytest.raises(ValueError, match=message):
        text_log_probs(shared[name], [ids])


def test_a_prefix_reduces_the_longest_text(shared):
    assert np.isfinite(text_log_probs(shared["transformer"], [[2] * 12])).all()
    with pytest.raises(ValueError, match="at most 10 tokens"):
        log_probs_of(PrefixedModel(shared["transformer"], [3, 4]), [[2] * 11])


@pytest.mark.parametrize("name", NETWORKS)
def test_silenced_units_are_zeros_before_the_head(shared, name):
    model, data = shared[name], random_texts([5, 3, 7])
    width, positions = linear_head(model).in_features, word_positions(data)
    before = word_ranks(model, data)
    random = random_maskings(width, [0.25, 0.75], orders=1, seed=3)[0]
    masks = np.concatenate([random, np.zeros((1, width), bool), np.ones((1, width), bool)])
    reports, progress = [], lambda *report: reports.append(report)
    ranks = silenced_ranks(model, data, positions, masks, progress=progress)
    assert reports == [(done, 4) for done in (1, 2, 3, 4)]
    for row, mask in enumerate(masks):
        expected = []
        for index in range(len(data)):
            ids = torch.from_numpy(data.document(index).astype(np.int64))[:-1]
            inputs = torch.cat([torch.tensor([model.first_token]), ids[:-1]])
            with torch.no_grad():
                hidden = model.body(inputs[None])[0][0] * torch.from_numpy(~mask)
                logits = model.predict(hidden).float()
            expected += [naive_rank(*pair) for pair in zip(ids.tolist(), logits, strict=True)]
        assert ranks[row].tolist() == expected
    assert ranks[2].tolist() == before.ranks.tolist()
    assert word_ranks(model, data).log_probs.tolist() == before.log_probs.tolist()


@pytest.mark.parametrize("kind", ["lstm+attention", "lstm"])
def test_silenced_units_of_a_translator_are_zeros_before_its_head(kind):
    model, mask = translator(kind), np.arange(7) % 2 == 0
    ranks = silenced_ranks(model, PAIRS, word_positions(PAIRS.targets), mask[None])
    expected = []
    for index, source in enumerate(pair_corpus().sources):
        ids = PAIRS.targets.document(index)[:-1].tolist()
        with torch.no_grad():
            hidden, _ = model.given(source).body(torch.tensor([[TARGETS.eos_id, *ids]]))
            logits = model.predict(hidden[0] * torch.from_numpy(~mask))
        expected += [naive_rank(*pair) for pair in zip(ids, logits, strict=False)]
    assert ranks[0].tolist() == expected


def test_random_masks_grow_within_an_order_and_differ_between_orders():
    masks = random_maskings(20, [0.1, 0.5, 0.9], orders=4, seed=0)
    assert masks.sum(-1).tolist() == [[2, 10, 18]] * 4
    assert (masks[:, 1:] >= masks[:, :-1]).all()
    assert len({mask.tobytes() for mask in masks[:, 1]}) == 4
    assert (masks == random_maskings(20, [0.1, 0.5, 0.9], orders=4, seed=0)).all()


def test_invalid_masks_and_models_without_a_hidden_layer_are_refused(shared):
    data = random_texts([3])
    with pytest.raises(AccessDenied, match=r"TableModel has no hidden layer.*--orders 0"):
        silenced_ranks(shared["table"], data, [0], np.ones((1, 4), bool))
    with pytest.raises(ValueError, match="12"):
        silenced_ranks(shared["lstm"], data, [0], np.ones((1, 5)))
    for width, fractions, orders, message in (
        (8, [1.0], 1, r"fractions\[0\] must lie in"),
        (8, [0.5], 0, "orders must be positive"),
        (0, [0.5], 1, "width must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            random_maskings(width, fractions, orders=orders, seed=0)
