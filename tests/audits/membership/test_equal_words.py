"""P-values of those who were never in are as small as often as they say, whatever was written."""

from collections.abc import Callable

import numpy as np
import pytest

from vestige.audits.membership.user_audit import judge_users
from vestige.data.token_queries import TokenQueries

COMPARED, AUDITED, WORLDS = 59, 20, 60
Layout = Callable[[np.random.Generator, bool], list[int]]
"""Lengths of a user's texts, by whether they are audited."""


def against(words: int, texts: int, length: int) -> Layout:
    return lambda chance, audited: [words] if audited else [length] * texts


def long_and_few(chance: np.random.Generator, audited: bool) -> list[int]:
    return list(chance.integers(30, 101, chance.integers(1, 5)).tolist())


def short_and_many(chance: np.random.Generator, audited: bool) -> list[int]:
    return list(chance.integers(2, 9, chance.integers(5, 40)).tolist())


def heavy_tailed(chance: np.random.Generator, audited: bool) -> list[int]:
    count = 1 + int(np.exp(chance.normal(1, 1)))
    return [max(1, int(n)) for n in np.exp(chance.normal(2, 0.8, min(count, 60)))]


LAYOUTS: dict[str, Layout] = {
    "few long": long_and_few,
    "many short": short_and_many,
    "100 against 300": against(100, 2, 300),
    "30 against 300": against(30, 2, 300),
    "100 against four of 1,000": against(100, 4, 1000),
    "heavy tails": heavy_tailed,
}


def world(layout: Layout, chance: np.random.Generator) -> tuple[TokenQueries, np.ndarray]:
    """Words of the compared, then of the audited, and evidence that knows nothing of it."""
    lengths = [layout(chance, user >= COMPARED) for user in range(COMPARED + AUDITED)]
    texts = np.array([length for own in lengths for length in own])
    users = np.repeat(np.arange(len(lengths)), [sum(own) for own in lengths])
    nothing = np.zeros(len(users), dtype=np.int32)
    asked = TokenQueries(
        users=users.astype(np.int32),
        texts=np.repeat(np.arange(len(texts)), texts).astype(np.int32),
        positions=np.concatenate([np.arange(length) for length in texts]).astype(np.int32),
        tokens=nothing,
        previous=nothing,
        names=tuple(f"user {user}" for user in range(len(lengths))),
    )
    return asked, chance.normal(size=len(users)) + chance.normal(0, 0.05, len(lengths))[users]


@pytest.mark.parametrize("name", LAYOUTS)
def test_p_values_hold_in_every_quarter_of_word_counts(name: str) -> None:
    low, high = np.zeros(4), np.zeros(4)
    for seed in range(WORLDS):
        chance = np.random.default_rng(seed)
        asked, word_scores = world(LAYOUTS[name], chance)
        audited = range(COMPARED, COMPARED + AUDITED)
        judged = judge_users(asked, word_scores, audited, range(COMPARED), seed=seed)
        order = np.argsort(judged.column("words"), kind="stable")
        p_values = np.array(judged.column("p_value"))[order].reshape(4, -1)
        low += (p_values <= 0.1).sum(axis=1)
        high += (p_values <= 0.5).sum(axis=1)
    users = WORLDS * AUDITED / 4
    # Three standard errors of 300 users against sets that some of them share.
    assert (np.abs(low / users - 0.1) < 0.06).all()
    assert (np.abs(high / users - 0.5) < 0.1).all()


def test_who_writes_much_is_found_no_less_often_for_it() -> None:
    """Evidence of everybody audited is raised; before, the heaviest were hardly ever found."""
    found = np.zeros(4)
    for seed in range(WORLDS):
        chance = np.random.default_rng(seed)
        asked, word_scores = world(heavy_tailed, chance)
        raised = word_scores + 0.35 * (asked.users >= COMPARED)
        audited = range(COMPARED, COMPARED + AUDITED)
        judged = judge_users(asked, raised, audited, range(COMPARED), seed=seed)
        order = np.argsort(judged.column("words"), kind="stable")
        small = (np.array(judged.column("p_value")) <= 0.05)[order]
        found += small.reshape(4, -1).mean(axis=1) / WORLDS
    assert found[3] > 0.9 * found[2]
    assert found[3] > 2 * found[0]
