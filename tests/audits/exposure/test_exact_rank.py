"""An exact rank is that of brute force, and its bounds hold for every budget."""

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


def lstm() -> LanguageModel:
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(7))))
    shape = LSTMConfig(layers=1, embedding_size=6, hidden_size=6, initial_range=1.5)
    return LSTMLanguageModel(words, shape).eval()


def table(seed: int = 0) -> LanguageModel:
    rng, alpha = np.random.default_rng(seed), np.full(6, 0.6)
    return TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, 6))


EVEN = TableModel(np.full(4, 0.25), np.full((4, 4), 0.25))


def brute_force(model: LanguageModel, tokens: Tokens, others: Sequence[Tokens]) -> int:
    """1 + the other sequences at least as probable, each of them scored."""
    own, *scores = text_log_probs(model, [tokens, *others])
    pairs = zip(scores, others, strict=True)
    return 1 + sum(bool(score >= own) for score, other in pairs if other != tokens)


@pytest.mark.slow
@pytest.mark.parametrize("make", [table, lstm])
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
        assert found.exposure_low == math.log2(len(every)) - math.log2(found.rank_high)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("tokens", [(2, 4, 5), (5, 2, 3), (2, 2, 4), (0, 8, 3)])
def test_competitors_may_be_words_of_an_alphabet(tokens: Tokens, distinct: bool) -> None:
    model, alphabet = lstm(), (2, 3, 4, 5, 7)
    every = list(
        itertools.permutations(alphabet, 3) if distinct else itertools.product(alphabet, repeat=3)
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
def test_bounds_hold_for_every_budget(
    seed: int, tokens: Tokens, budget: int, batch: int, distinct: bool
) -> None:
    model = table(seed)
    found = exact_rank(model, tokens, budget=budget, batch=batch, distinct=distinct)
    every = [
        other
        for other in itertools.product(range(6), repeat=4)
        if not distinct or len(set(other)) == 4
    ]
    assert found.rank_low <= brute_force(model, tokens, every) <= found.rank_high
    assert found.prefixes <= budget


@pytest.mark.slow
def test_the_search_for_a_probable_sequence_reads_few_prefixes() -> None:
    model = table(3)
    every = list(itertools.product(range(6), repeat=4))
    scores = text_log_probs(model, every)
    found = exact_rank(model, every[int(scores.argmax())])
    assert (found.rank_low, found.rank_high) == (1, 1)
    assert found.prefixes <= 4 / math.exp(scores.max())
    assert found.exposure_low == found.exposure_high == math.log2(6**4)


def test_ties_differ_from_a_search_that_did_not_end() -> None:
    ended, cut = exact_rank(EVEN, (0, 1)), exact_rank(EVEN, (0, 1, 2), budget=1)
    assert (ended.complete, ended.rank_low, ended.rank_high) == (True, 1, 16)
    assert (cut.complete, cut.rank_low, cut.rank_high) == (False, 1, 64)


def test_progress_rises_to_the_budget() -> None:
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
        exact_rank(table(), tokens, **options)  # type: ignore[arg-type]


def test_what_the_model_rules_out_is_refused() -> None:
    with pytest.raises(ValueError, match="possible"):
        exact_rank(TableModel([1.0, 0.0], [[0.5, 0.5], [0.5, 0.5]]), (1, 0))
