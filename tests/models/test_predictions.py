"""Every token of every text is predicted as a loop over single tokens predicts it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, EncodedPairs, encode, encode_pairs
from vestige.data.vocabulary import WordVocabulary
from vestige.models import predictions as module
from vestige.models.behind import Behind
from vestige.models.predictions import (
    log_prob,
    log_probs_of,
    measure,
    rank,
    text_log_probs,
    word_ranks,
)
from vestige.models.protocols import LanguageModel
from vestige.models.ranks import LinearRanks
from vestige.models.reading import word_places
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel
from vestige.models.top_k import likeliest_ranks
from vestige.models.transformer import CausalTransformer, TransformerConfig

Make = Callable[[], LanguageModel]
MODELS = ["lstm", "tied lstm", "gru", "transformer", "table", "gpt2", "llama", "llama adapter"]


def texts(size: int, lengths: list[int], *, seed: int = 0) -> EncodedCorpus:
    """Random ids; an end of text (id 1) after each document."""
    generator = np.random.default_rng(seed)
    rows = [np.append(generator.integers(2, size, n), 1) for n in lengths]
    offsets = np.cumsum([0, *map(len, rows)])
    return EncodedCorpus(np.concatenate(rows).astype(np.int32), offsets.astype(np.int64))


def one_by_one(model: LanguageModel, data: EncodedCorpus) -> tuple[NDArray, NDArray]:
    """Ranks and log-probabilities of all tokens, ends too, by a loop and a stable sort."""
    ranks, log_probs = [], []
    for index in range(len(data)):
        document = data.document(index).astype(np.int64)
        longest = getattr(model, "longest", None) or len(document)
        state = model.start(1)
        for place, token in enumerate(document):
            if place and place % longest == 0:
                state = model.start(1, anywhere=True)
            if place:
                state = model.advance(state, torch.tensor([document[place - 1]]))
            log_prob = model.log_probs(state)[0]
            order = torch.sort(log_prob, descending=True, stable=True).indices
            ranks.append(order.tolist().index(token) + 1)
            log_probs.append(float(log_prob[token]))
    return np.array(ranks), np.array(log_probs)


@pytest.mark.parametrize("batch_tokens", [8192, 7])
@pytest.mark.parametrize("name", MODELS)
def test_batches_give_what_single_words_give(make, name: str, batch_tokens: int) -> None:
    model = make[name]()
    # Lengths below, at and above what a model reads (12), and texts without a word.
    data = texts(20, [3, 0, 11, 12, 13, 1, 26, 5, 5, 0])
    every = np.arange(len(data.tokens))
    found = word_ranks(model, data, every, batch_tokens=batch_tokens)
    ranks, log_probs = one_by_one(model, data)
    assert found.ranks.tolist() == ranks.tolist()
    np.testing.assert_allclose(found.log_probs, log_probs, rtol=1e-4, atol=1e-5)
    whole = measure(model, data, [rank, log_prob], batch_tokens=batch_tokens)
    assert whole["ranks"].tolist() == ranks.tolist()
    np.testing.assert_allclose(whole["log_probs"], log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prefix", [[4, 2, 9], [4]])
@pytest.mark.parametrize("name", MODELS)
def test_texts_after_a_prefix_are_too(make, name: str, prefix: list[int]) -> None:
    model = make[name]()
    for anywhere in (False, True):
        behind = Behind(model, prefix, anywhere=anywhere)
        data = texts(20, [3, 0, 7, 7, 25])  # the last is longer than what is read at once
        ranks, log_probs = one_by_one(behind, data)
        found = word_ranks(behind, data, np.arange(len(data.tokens)))
        assert found.ranks.tolist() == ranks.tolist()
        np.testing.assert_allclose(found.log_probs, log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("name", MODELS)
def test_lists_and_ranks_agree_on_every_word(make, name: str, k: int) -> None:
    model = make[name]()
    data = texts(20, [3, 11, 0, 14, 6], seed=1)
    ranks = word_ranks(model, data)
    contexts, words = contexts_at(data, word_places(data), model.vocabulary)
    listed = likeliest_ranks(narrow(model, k=k), contexts, words, at_once=9)
    assert listed.tolist() == np.minimum(ranks.ranks, k + 1).tolist()


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_lists_and_ranks_agree_on_exact_ties_and_impossible_words(k: int) -> None:
    rows = [[0.25, 0.125, 0.125, 0.25, 0, 0.125, 0.125, 0], [0.125] * 8]
    model = TableModel(rows[0], [rows[i % 2] for i in range(8)])
    data = texts(8, [9, 4, 15, 30])
    ranks = word_ranks(model, data).ranks
    assert ranks.tolist() == one_by_one(model, data)[0][data.tokens != 1].tolist()
    contexts, words = contexts_at(data, word_places(data), model.vocabulary)
    listed = likeliest_ranks(narrow(model, k=k), contexts, words)
    assert listed.tolist() == np.minimum(ranks, k + 1).tolist()


def test_ends_of_texts_are_left_out_unless_asked(make) -> None:
    data = texts(20, [4, 0, 2])
    assert len(word_ranks(make["lstm"](), data).ranks) == 6
    assert len(measure(make["lstm"](), data, [rank])["ranks"]) == len(data.tokens)


@pytest.mark.parametrize("name", ["lstm", "transformer", "table", "gpt2"])
def test_some_words_have_the_ranks_that_they_have_among_all(make, name: str) -> None:
    data = texts(20, [9, 20, 3, 7])
    whole = measure(make[name](), data, [rank])["ranks"]
    chosen = [22, 5, 5, 33, 0]
    for positions in (chosen, np.array(chosen, np.int32)):
        some = word_ranks(make[name](), data, positions)
        assert some.ranks.tolist() == whole[chosen].tolist()
    mask = np.isin(np.arange(len(data.tokens)), chosen)
    assert word_ranks(make[name](), data, mask).ranks.tolist() == whole[mask].tolist()
    assert len(word_ranks(make[name](), data, []).ranks) == 0
    assert measure(make[name](), data, [rank], [])["ranks"].dtype == np.int32


def test_progress_ends_at_the_number_of_words(make) -> None:
    reported: list[tuple[int, int]] = []
    word_ranks(
        make["lstm"](),
        texts(20, [30] * 400),
        batch_tokens=500,
        progress=lambda *x: reported.append(x),
    )
    assert reported[-1] == (12000, 12000)
    assert len(reported) > 5
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)


def test_heads_that_are_more_than_a_product_are_asked_for_logits(make, monkeypatch) -> None:
    data = texts(20, [8, 13])
    for name in ("lstm", "gpt2"):
        model = make[name]()
        assert LinearRanks.of(model) is not None
        expected = word_ranks(model, data).ranks.tolist()
        monkeypatch.setattr(model, "separate_head", False)
        assert LinearRanks.of(model) is None
        assert word_ranks(model, data).ranks.tolist() == expected
        monkeypatch.undo()


def test_models_in_training_and_foreign_ids_are_refused(make) -> None:
    data = texts(20, [4])
    with pytest.raises(ValueError, match="evaluation mode"):
        word_ranks(make["lstm"]().train(), data)
    with pytest.raises(ValueError, match="ids below 20"):
        word_ranks(make["lstm"](), texts(50, [40]))


def test_a_vocabulary_without_common_words_still_gives_ranks() -> None:
    model = TableModel([0.5, 0.5], [[0.5, 0.5]] * 2, WordVocabulary(("<eos>", "<unk>")))
    data = encode(Corpus.from_texts(["who is this"]), model.vocabulary)
    assert word_ranks(model, data).ranks.tolist() == [2, 2, 2]


SOURCES = WordVocabulary(("<unk>", "<eos>", *(f"s{i}" for i in range(9))))
TARGETS = WordVocabulary(("<unk>", "<eos>", *(f"t{i}" for i in range(14))))


def translator(cell: Any, attention: bool) -> Seq2SeqModel:
    torch.manual_seed(1)
    config = Seq2SeqConfig(
        cell=cell, attention=attention, embedding_size=5, hidden_size=7, initial_range=0.6
    )
    return Seq2SeqModel(SOURCES, TARGETS, config).eval()


def pair_corpus(count: int = 30, *, seed: int = 0) -> Corpus:
    generator = np.random.default_rng(seed)

    def text(letter: str, top: int) -> str:
        return " ".join(f"{letter}{i}" for i in generator.integers(0, top, generator.integers(5)))

    targets = [text("t", 14) for _ in range(count)]
    return Corpus.from_texts(targets, sources=[text("s", 9) for _ in range(count)])


@pytest.fixture
def pairs() -> EncodedPairs:
    return encode_pairs(pair_corpus(), SOURCES, TARGETS)


@pytest.mark.parametrize(("cell", "attention"), [("lstm", True), ("gru", False)])
@pytest.mark.parametrize("batch_tokens", [8192, 2])
def test_targets_are_ranked_as_a_decoder_ranks_them_a_word_at_a_time(
    pairs: EncodedPairs, cell: str, attention: bool, batch_tokens: int
) -> None:
    model = translator(cell, attention)
    found = word_ranks(model, pairs, batch_tokens=batch_tokens)
    ranks, log_probs = [], []
    for text, source in enumerate(pair_corpus().sources or ()):
        given = model.given(source)
        state = given.start(1)
        for token in pairs.targets.document(text)[:-1].tolist():
            known = given.log_probs(state)[0]
            order = torch.sort(known, descending=True, stable=True).indices
            ranks.append(order.tolist().index(token) + 1)
            log_probs.append(float(known[token]))
            state = given.advance(state, torch.tensor([token]))
    assert found.ranks.tolist() == ranks
    np.testing.assert_allclose(found.log_probs, log_probs, rtol=1e-4, atol=1e-5)
    some = word_places(pairs.targets)[5:20:3]
    assert word_ranks(model, pairs, some).ranks.tolist() == ranks[5:20:3]


def test_encoder_decoders_in_training_and_foreign_ids_are_refused(pairs: EncodedPairs) -> None:
    model = translator("lstm", True)
    with pytest.raises(ValueError, match="evaluation mode"):
        word_ranks(model.train(), pairs)
    model.eval().vocab_size = 11
    with pytest.raises(ValueError, match=r"targets must hold ids below 11"):
        word_ranks(model, pairs)
    model = Seq2SeqModel(TARGETS, TARGETS).eval()
    model.source_vocabulary = WordVocabulary(("<unk>", "<eos>"))
    with pytest.raises(ValueError, match=r"sources must hold ids below 2"):
        word_ranks(model, pairs)


def test_texts_have_the_sum_of_the_log_probabilities_of_their_tokens(make) -> None:
    for name in MODELS:
        model = make[name]()
        data = texts(20, [4, 0, 9, 9, 2, 11])
        ids = [data.document(index).tolist() for index in (0, 1, 2, 3, 4, 5, 2)]
        log_probs = one_by_one(model, data)[1]
        sums = np.add.reduceat(log_probs, data.offsets[:-1])[[0, 1, 2, 3, 4, 5, 2]]
        done: list[int] = []
        np.testing.assert_allclose(text_log_probs(model, ids, done.append), sums, rtol=1e-5)
        assert done == [7]
        each = log_probs_of(model, ids)
        assert [len(one) for one in each] == [5, 1, 10, 10, 3, 12, 10]
        np.testing.assert_allclose(np.concatenate(each[:6]), log_probs, rtol=1e-4, atol=1e-5)


def test_slices_change_nothing(make, monkeypatch) -> None:
    ids = [[2, 7, 3], [5], [9, 9], [2, 7, 4, 4, 4]]
    for name in MODELS:
        model = make[name]()
        whole = text_log_probs(model, ids)
        with monkeypatch.context() as patched:
            patched.setattr(module, "PRODUCT_CELLS", 3 * model.vocab_size)
            patched.setattr(module, "CACHE_CELLS", 2 * model.vocab_size)
            patched.setattr(module, "TEXTS", 2)
            np.testing.assert_allclose(text_log_probs(model, ids), whole, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_probabilities_of_all_sequences_sum_to_one(make, name: str) -> None:
    model = make[name]()
    v = model.vocab_size if model.vocab_size < 50 else 0
    if v:
        every = [[a, b] for a in range(v) for b in range(v)]
        assert np.exp(text_log_probs(model, every)).sum() == pytest.approx(1.0, abs=1e-5)


def test_dropout_is_off_while_texts_are_scored() -> None:
    words = WordVocabulary(("<unk>", "<eos>", "a", "b"))
    torch.manual_seed(0)
    shape = LSTMConfig(embedding_size=8, hidden_size=8, initial_range=0.5, dropout_out=0.5)
    model = LSTMLanguageModel(words, shape)
    training = text_log_probs(model.train(), [[2, 3, 2]])
    assert model.training
    assert training == text_log_probs(model.eval(), [[2, 3, 2]])
    assert not model.training


def test_what_a_model_rules_out_has_the_logarithm_of_nothing() -> None:
    model = TableModel([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]])
    [found] = log_probs_of(model, [[0, 1]])
    assert found.tolist() == [pytest.approx(math.log(0.5)), -math.inf]
    assert text_log_probs(model, [[0, 1]]).tolist() == [-math.inf]


def test_no_texts_have_no_scores() -> None:
    model = TableModel([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]])
    assert text_log_probs(model, []).shape == (0,)
    assert log_probs_of(model, []) == []


@pytest.mark.parametrize(
    ("ids", "problem"),
    [([[]], "an empty one"), ([[0, 20]], "0 to 20"), ([[0, -1]], "-1 to 0"), ([[20]], "20")],
)
def test_what_are_no_ids_is_refused(make, ids: list[list[int]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        text_log_probs(make["table"](), ids)


def test_a_text_that_is_too_long_is_refused() -> None:
    shape = TransformerConfig(layers=1, heads=2, hidden_size=8, feed_forward=16, max_length=12)
    model = CausalTransformer(TARGETS, shape).eval()
    with pytest.raises(ValueError, match="at most 12 tokens"):
        text_log_probs(model, [[2] * 13])
    assert np.isfinite(text_log_probs(model, [[2] * 12])).all()
    with pytest.raises(ValueError, match="at most 10 tokens"):
        log_probs_of(Behind(model, [3, 4]), [[2] * 11])
