"""The rank is that of brute force, and bounds hold it whatever the budget."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.audits.exposure.exact_rank import exact_rank
from vestige.data.vocabulary import WordVocabulary
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel

Tokens = tuple[int, ...]


def lstm(vocab_size: int = 9) -> LanguageModel:
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(vocab_size - 2))))
    shape = LSTMConfig(layers=1, embedding_size=6, hidden_size=6, initial_range=1.5)
    return LSTMLanguageModel(words, shape).eval()


def table(seed: int, vocab_size: int = 6) -> LanguageModel:
    rng = np.random.default_rng(seed)
    alpha = np.full(vocab_size, 0.6)
    return TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, vocab_size))


def brute_force(model: LanguageModel, tokens: Tokens, others: Sequence[Tokens]) -> int:
    """1 + the other sequences at least as likely, each of them asked."""
    scores = torch.from_numpy(text_log_probs(model, [tokens, *others]))
    return 1 + sum(
        bool(score >= scores[0]) for score, other in zip(scores[1:], others, strict=True)
        if other != tokens
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: table(0), lstm], ids=["table", "lstm"])
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("batch", [7, 256])
def test_the_rank_is_that_of_brute_force(
    make: Callable[[], LanguageModel], length: int, batch: int
) -> None:
    model = make()
    every = list(itertools.product(range(model.vocab_size), repeat=length))
    for tokens in every[:: max(1, len(every) // 12)]:
        found = exact_rank(model, tokens, batch=batch)
        assert found.complete
        assert found.rank_low == found.rank_high == brute_force(model, tokens, every), tokens
        assert found.space == len(every)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("tokens", [(2, 4, 5), (5, 2, 3), (2, 2, 4), (0, 8, 3)])
def test_competitors_may_be_words_of_an_alphabet(tokens: Tokens, distinct: bool) -> None:
    model, alphabet = lstm(), (2, 3, 4, 5, 7)
    every = (
        list(itertools.permutations(alphabet, 3))
        if distinct
        else list(itertools.product(alphabet, repeat=3))
    )
    found = exact_rank(model, tokens, alphabet=alphabet, distinct=distinct)
    assert found.rank_low == found.rank_high
    assert found.rank_low == brute_force(model, tokens, every)
    assert found.space == len(every)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 20),
    tokens=st.tuples(*[st.integers(0, 5)] * 4),
    budget=st.integers(1, 200),
    batch=st.integers(1, 9),
    distinct=st.booleans(),
)
def test_bounds_hold_the_rank_whatever_the_budget(
    seed: int, tokens: Tokens, budget: int, batch: int, distinct: bool
) -> None:
    model = table(seed)
    options = {"budget": budget, "batch": batch, "distinct": distinct}
    found = exact_rank(model, tokens, **options)
    every = [
        other
        for other in itertools.product(range(6), repeat=4)
        if not distinct or len(set(other)) == 4
    ]
    assert found.rank_low <= brute_force(model, tokens, every) <= found.rank_high
    assert found.prefixes <= max(budget, 1)
    assert not found.complete or found.prefixes <= budget


@pytest.mark.slow
def test_a_likely_sequence_is_decided_within_its_own_probability() -> None:
    model = table(3)

    def log_prob(tokens: Tokens) -> float:
        return float(text_log_probs(model, [tokens])[0])

    likeliest = tuple(
        max(
            itertools.product(range(6), repeat=4),
            key=log_prob,
        )
    )
    found = exact_rank(model, likeliest)
    assert (found.rank_low, found.rank_high) == (1, 1)
    assert found.prefixes <= 4 / math.exp(log_prob(likeliest))
    assert found.exposure_low == found.exposure_high == math.log2(6**4)


def test_an_unfollowed_prefix_hides_no_more_than_its_probability_allows() -> None:
    even = TableModel(np.full(4, 0.25), np.full((4, 4), 0.25))
    found = exact_rank(even, (0, 1, 2), budget=1)
    assert (found.rank_low, found.rank_high) == (1, 64)
    assert not found.complete


def test_ties_are_told_from_a_search_that_did_not_end() -> None:
    even = TableModel(np.full(4, 0.25), np.full((4, 4), 0.25))
    found = exact_rank(even, (0, 1))
    assert found.complete
    assert (found.rank_low, found.rank_high) == (1, 16)


def test_the_rank_of_a_random_sequence_has_the_exposure_of_its_definition() -> None:
    found = exact_rank(table(1), (3, 2))
    assert found.exposure_low == math.log2(36) - math.log2(found.rank_high)
    assert found.rank_low == found.rank_high


def test_progress_is_told() -> None:
    seen: list[tuple[float, float]] = []
    exact_rank(table(1), (3, 2, 1), batch=2, progress=lambda *at: seen.append(at))
    assert seen[-1][1] == 20_000
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize(
    ("tokens", "options", "problem"),
    [
        ((), {}, "at least one id"),
        ((6,), {}, "below 6"),
        ((1, 2), {"budget": 0}, "budget"),
        ((1, 2), {"alphabet": ()}, "alphabet"),
        ((1, 2), {"alphabet": (1, 9)}, "below 6"),
        ((1, 2, 3), {"alphabet": (1, 2), "distinct": True}, "3 different"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    tokens: Tokens, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        exact_rank(table(0), tokens, **options)  # type: ignore[arg-type]


def test_what_the_model_rules_out_is_refused() -> None:
    with pytest.raises(ValueError, match="possible"):
        exact_rank(TableModel([1.0, 0.0], [[0.5, 0.5], [0.5, 0.5]]), (1, 0))
