"""Exposures of canaries, compared with scores of all phrases by the definition."""

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


def test_ranks_equal_counts_over_all_phrases(pair) -> None:
    model_pair = Pair.of(*pair, TokenScore("differential"))
    scores = {p: sum(gains(model_pair, p)) for p in itertools.product(range(6), repeat=3)}
    planted = [canary(2, 3, 4), canary(5, 1, 0)]
    control = canary(4, 4, 2, copies=0)
    rows = list(exposures(*pair, [*planted, control], budget=10_000))
    assert [row["phrase"] for row in rows] == [each.phrase for each in planted]
    for row, each in zip(rows, planted, strict=True):
        above = sum(score > scores[each.ids] for score in scores.values())
        assert row["score"] == pytest.approx(scores[each.ids], abs=1e-6)
        assert row["exact"]
        assert row["rank_lower"] == above
        assert row["beam_rank_with_others"] <= above
        assert row["control_score"] == pytest.approx(scores[control.ids], abs=1e-6)


def test_other_canaries_do_not_lower_a_rank(pair) -> None:
    model_pair = Pair.of(*pair, TokenScore("differential"))
    best = tuple(beam_search(model_pair, [6, 36, 216]).tokens[0].tolist())
    phrases = itertools.product(range(6), repeat=3)
    worst = min(phrases, key=lambda phrase: sum(gains(model_pair, phrase)))
    rows = list(exposures(*pair, [canary(*best), canary(*worst)], budget=None))
    assert rows[0]["beam_rank"] == 0
    assert rows[1]["canaries_above"] == 1
    assert rows[1]["beam_rank"] < rows[1]["beam_rank_with_others"]
