"""What is read whole from a model of ours is what an outsider would be shown a word at a time."""

import numpy as np
import pytest
import torch

from vestige.attacks.membership.query_answers import (
    answers_of,
    answers_of_service,
    ranks_of,
    references_of,
)
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.encoded_pairs import EncodedPairs, encode_pairs
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.lstm import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.service import RetryPolicy, ServiceModel
from vestige.models.top_k import narrow

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
    service = narrow(model(), k=k)
    outside, answered = answers_of_service(service, texts, asked, WORDS, vocab_size=14)
    inside = answers_of(model(), texts, asked, k=k)
    assert answered.all()
    assert outside.ranks.tolist() == inside.ranks.tolist()
    assert (outside.k, outside.vocab_size) == (inside.k, inside.vocab_size)


def test_a_translator_is_asked_with_its_source() -> None:
    pairs = corpus(sources=True)
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=6, initial_range=0.7)
    translator = Seq2SeqModel(WORDS, WORDS, config).eval()
    encoded = encode_pairs(pairs, WORDS, WORDS)
    asked = token_queries(encoded.targets, WORDS)
    inside = answers_of(translator, encoded, asked, k=5)
    outside, _ = answers_of_service(
        narrow(translator, k=5),
        encoded.targets,
        asked,
        WORDS,
        vocab_size=14,
        sources=pairs.sources,
    )
    assert isinstance(encoded, EncodedPairs)
    assert outside.ranks.tolist() == inside.ranks.tolist()


def test_words_in_any_order_keep_their_ranks(texts: EncodedCorpus, asked: TokenQueries) -> None:
    lots = np.random.default_rng(1).permutation(len(asked))
    there, shuffled = ranks_of(model(), texts, asked), ranks_of(model(), texts, asked.take(lots))
    assert shuffled.ranks.tolist() == there.ranks[lots].tolist()
    assert shuffled.tokens.tolist() == asked.tokens[lots].tolist()


def test_what_a_service_does_not_answer_is_left_out(
    texts: EncodedCorpus, asked: TokenQueries
) -> None:
    whole = narrow(model(), k=14)

    def ask(contexts):
        given = whole.likeliest(contexts)
        return [
            None if len(context.words) == 2 else answer
            for context, answer in zip(contexts, given, strict=True)
        ]

    service = ServiceModel(ask, k=14, retry=RetryPolicy(pause=0))
    found, answered = answers_of_service(service, texts, asked, WORDS, vocab_size=14)
    assert answered.tolist() == (asked.positions != 2).tolist()
    assert len(found.asked) == answered.sum()
    assert found.ranks.tolist() == ranks_of(model(), texts, asked).ranks[answered].tolist()


def test_a_service_that_answers_nothing_is_an_error(
    texts: EncodedCorpus, asked: TokenQueries
) -> None:
    service = ServiceModel(lambda contexts: [None] * len(contexts), k=3)
    with pytest.raises(DataError, match="none of"):
        answers_of_service(service, texts, asked, WORDS, vocab_size=14)


def test_references_know_whom_they_saw(texts: EncodedCorpus, asked: TokenQueries) -> None:
    models = [(model(1), ("user 0",)), (model(2), ("user 1", "user 2"))]
    found = references_of(iter(models), texts, asked)
    assert found.seen.tolist() == [[True, False, False], [False, True, True]]
    assert found.ranks[1].tolist() == ranks_of(model(2), texts, asked).ranks.tolist()
    assert (found.log_probs < 0).all()


def test_references_need_a_model(texts: EncodedCorpus, asked: TokenQueries) -> None:
    with pytest.raises(ValueError, match="at least one"):
        references_of([], texts, asked)
