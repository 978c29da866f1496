"""Users whose words have made-up ranks: the truth about them is known."""

import numpy as np

from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.reference_models import References
from vestige.data.token_queries import TokenQueries

VOCABULARY = 1000


def asked_of(users: int, *, texts: int = 8, words: int = 20, seed: int = 0) -> TokenQueries:
    """Words by Zipf's law, as many for each user."""
    generator = np.random.default_rng(seed)
    total = users * texts * words
    tokens = np.minimum(generator.zipf(1.3, total), VOCABULARY - 1).astype(np.int32)
    positions = np.tile(np.arange(words, dtype=np.int32), users * texts)
    return TokenQueries(
        users=np.repeat(np.arange(users, dtype=np.int32), texts * words),
        texts=np.repeat(np.arange(users * texts, dtype=np.int32), words),
        positions=positions,
        tokens=tokens,
        previous=np.where(positions == 0, 0, np.roll(tokens, 1)).astype(np.int32),
        names=tuple(f"user {user:04}" for user in range(users)),
    )


def ranks_of(asked: TokenQueries, seen: np.ndarray, *, gain: float, seed: int) -> np.ndarray:
    """Ranks about the words' own, better by `gain` nats for users who were seen."""
    generator = np.random.default_rng(seed)
    hard = np.random.default_rng(99).normal(0, 0.7, (VOCABULARY, 31))[
        asked.tokens, np.minimum(asked.positions, 30)
    ]
    logs = np.log1p(asked.tokens) + hard + generator.normal(0, 0.5, len(asked))
    logs -= gain * seen[asked.users]
    return np.clip(np.exp(logs), 1, VOCABULARY).astype(np.int64)


def references_of(
    asked: TokenQueries, count: int, *, half_of: np.ndarray, gain: float = 0.3, seed: int = 50
) -> References:
    """Pairs of models, each of one half of some users."""
    generator = np.random.default_rng(seed)
    seen = np.zeros((count, len(asked.names)), dtype=bool)
    for pair in range(0, count, 2):
        lots = generator.permutation(half_of)
        seen[pair, lots[: len(lots) // 2]] = True
        if pair + 1 < count:
            seen[pair + 1, lots[len(lots) // 2 :]] = True
    ranks = [ranks_of(asked, row, gain=gain, seed=seed + place) for place, row in enumerate(seen)]
    stacked = np.stack(ranks)
    return References(ranks=stacked, log_probs=-np.log(stacked + 1.0).astype(np.float32), seen=seen)


def counts_of() -> WordCounts:
    """Counts of another text by the same law."""
    tokens = np.minimum(np.random.default_rng(7).zipf(1.3, 50_000), VOCABULARY - 1)
    return WordCounts.of(tokens, VOCABULARY)


def answers_of(
    asked: TokenQueries,
    members: np.ndarray,
    *,
    gain: float = 0.3,
    k: int = VOCABULARY,
    seed: int = 3,
) -> Answers:
    """What a target that saw the members and shows k words answers."""
    seen = np.isin(np.arange(len(asked.names)), members)
    ranks = np.minimum(ranks_of(asked, seen, gain=gain, seed=seed), k + 1)
    return Answers(asked=asked, ranks=ranks, k=k, vocab_size=VOCABULARY)
