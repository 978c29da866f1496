"""Every word of every text is ranked where a loop over single words ranks it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.models.contexts import contexts_at
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import WordVocabulary
from vestige.models import word_ranks as module
from vestige.models.protocols import LanguageModel
from vestige.models.table import TableModel
from vestige.models.top_k import likeliest_ranks, narrow
from vestige.models.word_ranks import asked_places, counter, word_ranks

Make = Callable[[], LanguageModel]
MODELS = ["lstm", "tied lstm", "transformer", "table", "gpt2", "llama", "llama adapter"]


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


@pytest.mark.parametrize("tokens_at_once", [8192, 7])
@pytest.mark.parametrize("name", MODELS)
def test_batches_give_what_single_words_give(make, name: str, tokens_at_once: int) -> None:
    model = make[name]()
    # Lengths below, at and above what a model reads (12), and texts without a word.
    data = texts(20, [3, 0, 11, 12, 13, 1, 26, 5, 5, 0])
    found = word_ranks(model, data, ends=True, log_probs=True, tokens_at_once=tokens_at_once)
    ranks, log_probs = one_by_one(model, data)
    assert found.ranks.tolist() == ranks.tolist()
    np.testing.assert_allclose(found.log_probs, log_probs, rtol=1e-4, atol=1e-5)
    assert found.tokens.tolist() == data.tokens.tolist()
    assert [*zip(found.texts, found.positions, strict=True)] == [
        (index, place) for index in range(len(data)) for place in range(len(data.document(index)))
    ]


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("name", MODELS)
def test_lists_and_ranks_agree_on_every_word(make, name: str, k: int) -> None:
    model = make[name]()
    data = texts(20, [3, 11, 0, 14, 6], seed=1)
    ranks = word_ranks(model, data)
    contexts, words = contexts_at(data, asked_places(data), model.vocabulary)
    listed = likeliest_ranks(narrow(model, k=k), contexts, words, at_once=9)
    assert listed.tolist() == np.minimum(ranks.ranks, k + 1).tolist()


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_lists_and_ranks_agree_on_exact_ties_and_impossible_words(k: int) -> None:
    rows = [[0.25, 0.125, 0.125, 0.25, 0, 0.125, 0.125, 0], [0.125] * 8]
    model = TableModel(rows[0], [rows[i % 2] for i in range(8)])
    data = texts(8, [9, 4, 15, 30])
    ranks = word_ranks(model, data).ranks
    assert ranks.tolist() == [r for r, end in zip(*all_ranks(model, data), strict=True) if not end]
    contexts, words = contexts_at(data, asked_places(data), model.vocabulary)
    listed = likeliest_ranks(narrow(model, k=k), contexts, words)
    assert listed.tolist() == np.minimum(ranks, k + 1).tolist()


def all_ranks(model: LanguageModel, data: EncodedCorpus) -> tuple[list[int], list[bool]]:
    return one_by_one(model, data)[0].tolist(), (data.tokens == 1).tolist()


def test_ends_of_texts_are_left_out_unless_asked(make) -> None:
    data = texts(20, [4, 0, 2])
    assert word_ranks(make["lstm"](), data).texts.tolist() == [0] * 4 + [2] * 2
    assert len(word_ranks(make["lstm"](), data, ends=True)) == len(data.tokens)


@pytest.mark.parametrize("name", ["lstm", "transformer", "table", "gpt2"])
def test_some_words_have_the_ranks_that_they_have_among_all(make, name: str) -> None:
    data = texts(20, [9, 20, 3, 7])
    whole = word_ranks(make[name](), data, ends=True)
    chosen = [22, 5, 5, 33, 0]
    mask = np.isin(np.arange(len(data.tokens)), chosen)
    for where in (chosen, np.array(chosen, np.int32), mask):
        some = word_ranks(make[name](), data, where=where, ends=True)
        assert some.ranks.tolist() == whole.ranks[mask].tolist()
        assert some.positions.tolist() == whole.positions[mask].tolist()
    assert len(word_ranks(make[name](), data, where=[])) == 0
    assert len(word_ranks(make[name](), data, where=[9])) == 0  # an end


def test_texts_are_read_no_further_than_to_the_last_word_asked(make, monkeypatch) -> None:
    model = make["lstm"]()
    read, body = [], model.body
    monkeypatch.setattr(model, "body", lambda tokens, state: read.append(tokens) or body(tokens))
    word_ranks(model, texts(20, [50, 40, 30]), where=[3, 55])
    assert sum(tokens.numel() for tokens in read) == 2 * 5  # texts 0 and 1, padded to 5


def test_a_long_text_is_read_in_windows_that_hand_on_the_state(make, monkeypatch) -> None:
    model = make["lstm"]()
    data = texts(20, [5, 300, 120])
    expected = word_ranks(model, data).ranks.tolist()
    read, body = [], model.body
    monkeypatch.setattr(
        model, "body", lambda tokens, state: read.append(tokens.numel()) or body(tokens, state)
    )
    assert word_ranks(model, data, tokens_at_once=64).ranks.tolist() == expected
    assert max(read) <= 64


def test_progress_ends_at_the_number_of_words(make) -> None:
    told: list[tuple[int, int]] = []
    word_ranks(
        make["lstm"](), texts(20, [30] * 40), tokens_at_once=500, progress=lambda *x: told.append(x)
    )
    assert told[-1] == (1200, 1200)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_corpus_is_encoded_with_the_models_vocabulary(make) -> None:
    model = make["transformer"]()
    corpus = Corpus.from_texts(["word3 word5", "word1 nothing"])
    encoded = encode(corpus, model.vocabulary)
    assert word_ranks(model, corpus).ranks.tolist() == word_ranks(model, encoded).ranks.tolist()


def test_heads_that_are_more_than_a_product_are_asked_for_logits(make, monkeypatch) -> None:
    data = texts(20, [8, 13])
    for name in ("lstm", "gpt2"):
        model = make[name]()
        assert type(counter(model)).__name__ == "RankCounter"
        expected = word_ranks(model, data).ranks.tolist()
        monkeypatch.setattr(module, "RankCounter", None)  # must not be asked for
        monkeypatch.setattr(model, "separate_head", False)
        if name == "lstm":
            assert word_ranks(model, data).ranks.tolist() == expected
        monkeypatch.undo()


def test_ends_are_the_last_token_of_each_text_only() -> None:
    data = EncodedCorpus(np.array([1, 2, 1, 1], np.int32), np.array([0, 3, 4]))
    assert asked_places(data).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([-1], "places in"),
        ([10], "places in"),
        ([0.5], "mask of shape"),
        ([[1]], "mask of shape"),
        ([True, False], "mask of shape"),
        (["a"], "mask of shape"),
    ],
)
def test_places_that_are_none_are_refused(where, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asked_places(texts(20, [9]), where=where)


def test_models_in_training_and_foreign_ids_are_refused(make) -> None:
    data = texts(20, [4])
    with pytest.raises(ValueError, match="evaluation mode"):
        word_ranks(make["lstm"]().train(), data)
    with pytest.raises(ValueError, match="ids below 20"):
        word_ranks(make["lstm"](), texts(50, [40]))
    with pytest.raises(ValueError, match="tokens_at_once"):
        word_ranks(make["lstm"](), data, tokens_at_once=0)


def test_a_vocabulary_without_common_words_still_gives_ranks() -> None:
    model = TableModel([0.5, 0.5], [[0.5, 0.5]] * 2, WordVocabulary(("<eos>", "<unk>")))
    assert word_ranks(model, Corpus.from_texts(["who is this"])).ranks.tolist() == [2, 2, 2]
