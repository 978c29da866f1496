"""A language of four words, its translation, and the tiny models that learn it."""

import numpy as np
import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import encode_pairs
from vestige.data.vocabulary import WordVocabulary
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel

FRENCH, ENGLISH = ("un", "deux", "trois", "quatre"), ("one", "two", "three", "four")
SOURCES = WordVocabulary(("<unk>", "<eos>", *FRENCH))
TARGETS = WordVocabulary(("<unk>", "<eos>", *ENGLISH))


def said(number, *, seed=0, longest=4):
    """Lists of numbers in two languages, a user each third of them."""
    chance = np.random.default_rng(seed)
    rows = [chance.integers(4, size=chance.integers(1, longest + 1)) for _ in range(number)]
    french, english = (
        [" ".join(words[i] for i in row) for row in rows] for words in (FRENCH, ENGLISH)
    )
    return Corpus.from_texts(english, sources=french, users=[f"u{i % 3}" for i in range(number)])


def encoded(corpus):
    return encode_pairs(corpus, SOURCES, TARGETS)


def of_texts(pairs):
    sources, texts = zip(*pairs, strict=True)
    return encoded(Corpus.from_texts(texts, sources=sources))


def fresh(*, seed=0, **shape):
    sizes = {"embedding_size": 12, "hidden_size": 12, "dropout_out": 0.2, "initial_range": 0.3}
    torch.manual_seed(seed)
    return Seq2SeqModel(SOURCES, TARGETS, Seq2SeqConfig(**{**sizes, **shape}))


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])
