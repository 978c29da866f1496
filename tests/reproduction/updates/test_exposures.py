"""How exposed canaries are, against every phrase scored by the definition."""

import itertools

import numpy as np
import pytest

from reproduction.updates.exposures import exposures, gains
from reproduction.updates.searches import beam_search
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.data.canaries.texts import Canary
from vestige.models.table import TableModel


@pytest.fixture
def pair() -> tuple[TableModel, TableModel]:
    rng = np.random.default_rng(5)
    alpha = np.full(6, 0.5)
    before, after = (TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, 6)) for _ in range(2))
    return before, after


def canary(*ids: int, copies: int = 3) -> Canary:
    phrase = " ".join(f"w{i}" for i in ids)
    return Canary(phrase, "mixed", (1,) * len(ids), copies, ids)


def test_ranks_are_those_of_counting_everything(pair) -> None:
    model_pair = Pair.of(*pair, TokenScore("differential"))
    every = {p: sum(gains(model_pair, p)) for p in itertools.product(range(6), repeat=3)}
    planted = [canary(2, 3, 4), canary(5, 1, 0)]
    never = canary(4, 4, 2, copies=0)
    rows = list(exposures(*pair, [*planted, never], budget=10_000))
    assert [row["phrase"] for row in rows] == [each.phrase for each in planted]
    for row, each in zip(rows, planted, strict=True):
        above = sum(score > every[each.ids] for score in every.values())
        assert row["score"] == pytest.approx(every[each.ids], abs=1e-6)
        assert row["exact"]
        assert row["rank_lower"] == above
        assert row["beam_rank_with_others"] <= above
        assert row["control_score"] == pytest.approx(every[never.ids], abs=1e-6)


def test_phrases_of_the_other_canary_do_not_count_against_a_rank(pair) -> None:
    model_pair = Pair.of(*pair, TokenScore("differential"))
    best = tuple(beam_search(model_pair, [6, 36, 216]).tokens[0].tolist())
    worst = canary(
        *min(itertools.product(range(6), repeat=3), key=lambda p: sum(gains(model_pair, p)))
    )
    rows = list(exposures(*pair, [canary(*best), worst], budget=None))
    assert rows[0]["beam_rank"] == 0
    assert rows[1]["canaries_above"] == 1
    assert rows[1]["beam_rank"] < rows[1]["beam_rank_with_others"]
