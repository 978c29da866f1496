"""What is read whole from a model of ours is what an outsider would be shown a word at a time."""

import numpy as np
import pytest
import torch

from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.audits.membership.ranked_words import RankedWords, ShadowRanks, WordCounts, ranks_of
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, EncodedPairs, encode, encode_pairs
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.top_k import likeliest_ranks

WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(12))))


def corpus(*, sources: bool = False) -> Corpus:
    generator = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in generator.integers(0, 14, 6)) for _ in range(12)]
    users = [f"user {place % 3}" for place in range(12)]
    return Corpus.from_texts(texts, users=users, sources=texts[::-1] if sources else None)


def model(seed: int = 0) -> LSTMLanguageModel:
    torch.manual_seed(seed)
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6, initial_range=0.7)
    return LSTMLanguageModel(WORDS, config).eval()


def places_of(texts: EncodedCorpus, asked: TokenQueries) -> np.ndarray:
    return texts.offsets[asked.texts] + asked.positions


def shown(model: object, texts: EncodedCorpus | EncodedPairs, asked: TokenQueries, k: int) -> list:
    """Ranks of the words if a model shows k words."""
    ranks, _ = ranks_of(model, texts, asked)
    counts = WordCounts.of([], 14)
    words = RankedWords(queries=asked, ranks=ranks, k=k, vocab_size=14, counts=counts)
    return words.shown.tolist()


@pytest.fixture
def texts() -> EncodedCorpus:
    return encode(corpus(), WORDS)


@pytest.fixture
def asked(texts: EncodedCorpus) -> TokenQueries:
    return token_queries(texts, WORDS)


@pytest.mark.parametrize("k", [1, 4, 14])
def test_a_service_of_the_same_model_gives_the_same_ranks(
    texts: EncodedCorpus, asked: TokenQueries, k: int
) -> None:
    outside = likeliest_ranks(
        narrow(model(), k=k), *contexts_at(texts, places_of(texts, asked), WORDS)
    )
    assert outside.tolist() == shown(model(), texts, asked, k=k)


def test_a_translator_is_asked_with_its_source() -> None:
    pairs = corpus(sources=True)
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=6, initial_range=0.7)
    translator = Seq2SeqModel(WORDS, WORDS, config).eval()
    encoded = encode_pairs(pairs, WORDS, WORDS)
    asked = token_queries(encoded.targets, WORDS)
    places = places_of(encoded.targets, asked)
    questions = contexts_at(encoded.targets, places, WORDS, sources=pairs.sources)
    outside = likeliest_ranks(narrow(translator, k=5), *questions)
    assert isinstance(encoded, EncodedPairs)
    assert outside.tolist() == shown(translator, encoded, asked, k=5)


def test_words_in_any_order_keep_their_ranks(texts: EncodedCorpus, asked: TokenQueries) -> None:
    lots = np.random.default_rng(1).permutation(len(asked))
    there, shuffled = ranks_of(model(), texts, asked), ranks_of(model(), texts, asked.take(lots))
    assert shuffled[0].tolist() == there[0][lots].tolist()
    assert shuffled[1] == pytest.approx(there[1][lots])


def test_shadow_models_know_whom_they_saw(texts: EncodedCorpus, asked: TokenQueries) -> None:
    read = [ranks_of(model(seed), texts, asked) for seed in (1, 2)]
    found = ShadowRanks.of(read, [("user 0",), ("user 1", "user 2")], asked.names)
    assert found.seen.tolist() == [[True, False, False], [False, True, True]]
    assert found.ranks[1].tolist() == read[1][0].tolist()
    assert (found.log_probs < 0).all()
