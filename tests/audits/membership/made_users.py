"""Users whose words have made-up ranks: the truth about them is known; and the verb for users."""

from dataclasses import fields
from typing import Any

import numpy as np

from vestige.audits.membership.membership import QueryOptions, ShadowOptions, membership
from vestige.audits.membership.ranked_words import RankedWords, ShadowRanks, WordCounts
from vestige.data.token_queries import TokenQueries
from vestige.models.remote.options import RemoteOptions
from vestige.results import Result

VOCABULARY = 1000
OPTIONS = {"queries": QueryOptions, "shadows": ShadowOptions, "remote": RemoteOptions}


def users(model: object, texts: object, **named: Any) -> Result:
    """`membership` of users; an option of a group is given by its name."""
    for group, kind in OPTIONS.items():
        if isinstance(named.get(group), kind):
            continue
        names = {one.name for one in fields(kind)} & named.keys()
        if own := {name: named.pop(name) for name in names}:
            named[group] = kind(**own)
    return membership(model, texts=texts, unit="user", **named)


def queries_of(users: int, *, texts: int = 8, words: int = 20, seed: int = 0) -> TokenQueries:
    """Words by Zipf's law, as many for each user."""
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


def ranks_of(queries: TokenQueries, seen: np.ndarray, *, gain: float, seed: int) -> np.ndarray:
    """Ranks about the words' own, better by `gain` nats for users who were seen."""
    rng = np.random.default_rng(seed)
    hard = np.random.default_rng(99).normal(0, 0.7, (VOCABULARY, 31))[
        queries.tokens, np.minimum(queries.positions, 30)
    ]
    logs = np.log1p(queries.tokens) + hard + rng.normal(0, 0.5, len(queries))
    logs -= gain * seen[queries.users]
    return np.clip(np.exp(logs), 1, VOCABULARY).astype(np.int64)


def shadows_of(
    queries: TokenQueries, count: int, *, half_of: np.ndarray, gain: float = 0.3, seed: int = 50
) -> ShadowRanks:
    """Pairs of models, each of one half of some users."""
    rng = np.random.default_rng(seed)
    seen = np.zeros((count, len(queries.names)), dtype=bool)
    for pair in range(0, count, 2):
        lots = rng.permutation(half_of)
        seen[pair, lots[: len(lots) // 2]] = True
        if pair + 1 < count:
            seen[pair + 1, lots[len(lots) // 2 :]] = True
    ranks = [ranks_of(queries, row, gain=gain, seed=seed + place) for place, row in enumerate(seen)]
    stacked = np.stack(ranks)
    return ShadowRanks(
        ranks=stacked, log_probs=-np.log(stacked + 1.0).astype(np.float32), members=seen
    )


def counts_of() -> WordCounts:
    """Counts of another text by the same law."""
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
    """The words under a target that was trained on the members and shows k words."""
    seen = np.isin(np.arange(len(queries.names)), members)
    return RankedWords(
        queries=queries,
        ranks=ranks_of(queries, seen, gain=gain, seed=seed),
        k=k,
        vocab_size=VOCABULARY,
        counts=counts_of(),
        shadows=shadows,
    )
