"""Synthetic users: their texts, the ranks of their words, and the verb that audits them."""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from vestige.audits.membership.membership import QueryOptions, ShadowOptions, membership
from vestige.audits.membership.ranked_words import RankedWords, ShadowRanks, WordCounts
from vestige.data.corpus import Corpus
from vestige.data.token_queries import TokenQueries
from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.remote.options import RemoteOptions
from vestige.results import Result

VOCABULARY = 1000
OPTIONS = {"queries": QueryOptions, "shadows": ShadowOptions, "remote": RemoteOptions}
CONTROL = re.compile(r"The \w+ \w+ on \w+ and \w+ by \w+ that the \w+ \w+ be")
"""A sentence with which Vestige probes a server."""


def users(model: object, texts: object, **options: Any) -> Result:
    """`membership` of users; options of a group are passed by their own names."""
    for group, kind in OPTIONS.items():
        if isinstance(options.get(group), kind):
            continue
        names = {field.name for field in fields(kind)} & options.keys()
        if members := {name: options.pop(name) for name in names}:
            options[group] = kind(**members)
    return membership(model, texts=texts, unit="user", **options)


def texts_of(
    names: Sequence[str], vocabulary: Sequence[str], *, seed: int, texts: int = 4, words: int = 8
) -> Corpus:
    """Texts of random words, the same number for each user."""
    rng = np.random.default_rng(seed)
    authors = [name for name in names for _ in range(texts)]
    lines = [" ".join(rng.choice(vocabulary, words)) for _ in authors]
    return Corpus.from_texts(lines, users=authors)


def untrained_lstm(words: Sequence[str]) -> LSTMLanguageModel:
    """A small model of these words."""
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *words)), config).eval()


def queries_of(users: int, *, texts: int = 8, words: int = 20, seed: int = 0) -> TokenQueries:
    """Words with Zipf frequencies, the same number for each user."""
    rng = np.random.default_rng(seed)
    total = users * texts * words
    tokens = np.minimum(rng.zipf(1.3, total), VOCABULARY - 1).astype(np.int32)
    positions = np.tile(np.arange(words, dtype=np.int32), users * texts)
    return TokenQueries(
        users=np.repeat(np.arange(users, dtype=np.int32), texts * words),
        texts=np.repeat(np.arange(users * texts, dtype=np.int32), words),
        positions=positions,
        tokens=tokens,
        previous=np.where(positions == 0, 0, np.roll(tokens, 1)).astype(np.int32),
        names=tuple(f"user {user:04}" for user in range(users)),
    )


def ranks_of(queries: TokenQueries, members: np.ndarray, *, gain: float, seed: int) -> np.ndarray:
    """Ranks near the ids of the words; those of members are lower by `gain` nats."""
    rng = np.random.default_rng(seed)
    difficulty = np.random.default_rng(99).normal(0, 0.7, (VOCABULARY, 31))[
        queries.tokens, np.minimum(queries.positions, 30)
    ]
    logs = np.log1p(queries.tokens) + difficulty + rng.normal(0, 0.5, len(queries))
    logs -= gain * members[queries.users]
    return np.clip(np.exp(logs), 1, VOCABULARY).astype(np.int64)


def shadows_of(
    queries: TokenQueries, count: int, *, half_of: np.ndarray, gain: float = 0.3, seed: int = 50
) -> ShadowRanks:
    """Pairs of shadow models, trained on the two halves of some users."""
    rng = np.random.default_rng(seed)
    members = np.zeros((count, len(queries.names)), dtype=bool)
    for pair in range(0, count, 2):
        order = rng.permutation(half_of)
        members[pair, order[: len(order) // 2]] = True
        if pair + 1 < count:
            members[pair + 1, order[len(order) // 2 :]] = True
    ranks = [
        ranks_of(queries, row, gain=gain, seed=seed + model) for model, row in enumerate(members)
    ]
    stacked = np.stack(ranks)
    return ShadowRanks(
        ranks=stacked, log_probs=-np.log(stacked + 1.0).astype(np.float32), members=members
    )


def counts_of() -> WordCounts:
    """Word counts of another text with the same distribution."""
    tokens = np.minimum(np.random.default_rng(7).zipf(1.3, 50_000), VOCABULARY - 1)
    return WordCounts.of(tokens, VOCABULARY)


def words_of(
    queries: TokenQueries,
    members: np.ndarray,
    *,
    gain: float = 0.3,
    k: int = VOCABULARY,
    seed: int = 3,
    shadows: ShadowRanks | None = None,
) -> RankedWords:
    """Words ranked by a target that was trained on the members and lists k words."""
    is_member = np.isin(np.arange(len(queries.names)), members)
    return RankedWords(
        queries=queries,
        ranks=ranks_of(queries, is_member, gain=gain, seed=seed),
        k=k,
        vocab_size=VOCABULARY,
        counts=counts_of(),
        shadows=shadows,
    )
