"""Completion of canaries agrees with greedy decoding and enumeration written naively."""

import itertools
import math

import numpy as np
import pytest
import torch

from vestige.audits.extraction.canaries import Completion, complete
from vestige.data.canaries.texts import Canary
from vestige.errors import DataError
from vestige.metrics.estimates import clopper_pearson
from vestige.models.protocols import NextToken
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel


def canary(*ids: int, copies: int = 5) -> Canary:
    words = " ".join(f"w{i}" if i else "<eos>" for i in ids)
    return Canary(words, "random", (), copies, ids)


def greedy(model: NextToken, prefix: tuple[int, ...], length: int) -> tuple[int, ...]:
    """One text at a time, as anybody would write it."""
    state = model.start(1)
    for token in prefix:
        state = model.advance(state, torch.tensor([token]))
    found: list[int] = []
    while len(found) < length:
        found.append(int(model.log_probs(state)[0].argmax()))
        state = model.advance(state, torch.tensor(found[-1:]))
    return tuple(found)


def by_kind(result: Completion, kind: str = "canary") -> list:
    return [row for row in result.attempts if row["kind"] == kind]


@pytest.fixture(params=["table", "lstm"])
def model(request, random_table) -> NextToken:
    if request.param == "table":
        table: NextToken = random_table(11, 6)
        return table
    torch.manual_seed(2)
    vocabulary = random_table(0, 6).vocabulary
    # A wide range, so that answers differ by what came before.
    shape = LSTMConfig(layers=2, embedding_size=5, hidden_size=7, initial_range=1.5)
    return LSTMLanguageModel(vocabulary, shape)


@pytest.fixture
def canaries(model) -> list[Canary]:
    """Each shape of text; some are what the model generates by itself."""
    rng = np.random.default_rng(0)
    drawn = [tuple(rng.integers(2, 6, size=n).tolist()) for n in (2, 3, 4, 4, 5, 5)]
    own = [prefix + greedy(model, prefix, 3) for prefix in ((2,), (3, 4), (5, 5, 2))]
    return [canary(*ids) for ids in [*own, *drawn]]


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [1, 2])
def test_greedy_and_the_prefix_needed_are_those_of_decoding_one_at_a_time(model, canaries, prefix):
    long = [one for one in canaries if len(one.ids) > prefix]
    for one in complete(model, long, prefix=prefix, beam=3).attempts:
        ids, n = tuple(one["tokens"]), len(one["tokens"])
        works = [m for m in range(n) if greedy(model, ids[:m], n - m) == ids[m:]]
        assert one["prefix_needed"] == (min(works) if works else None)
        assert one["greedy"] == (prefix in works)
        assert works == list(range(min(works), n)) if works else True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_beams_place_is_the_place_among_all_continuations(random_table, seed):
    model = random_table(seed, 5)

    def log_prob(ids):
        return sum(float(model.log_table[pair]) for pair in itertools.pairwise(ids))

    texts = [canary(*ids) for ids in itertools.product(range(2, 5), repeat=3)]
    for one in complete(model, texts, beam=1000).attempts:
        rests = itertools.product(range(1, 5), repeat=2)
        scores = sorted(-log_prob((one["tokens"][0], *rest)) for rest in rests)
        own = -log_prob(one["tokens"])
        assert one["beam_place"] == 1 + int(np.searchsorted(scores, own - 1e-6))
        assert one["beam_best"] == (one["beam_place"] == 1)
        assert one["log_prob"] == pytest.approx(-own, rel=1e-5)


TWO_WAYS = TableModel(
    [0, 0, 1, 0, 0],
    [[0, 0, 1, 0, 0]] * 2 + [[0, 0, 0, 0.6, 0.4], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1]],
)
"""After w2 greedy takes w3, which leads nowhere in particular; w4 is always followed by w4."""
NEVER = TableModel([0, 0, 0.5, 0.5], [[0, 0, 0, 1]] * 4)
"""Generates w3 after everything."""


def test_a_beam_finds_what_greedy_decoding_misses():
    [found] = by_kind(complete(TWO_WAYS, [canary(2, 4, 4)], beam=2))
    assert (found["greedy"], found["beam_best"], found["beam_kept"]) == (False, True, True)
    assert found["prefix_needed"] == 2
    assert found["log_prob"] == pytest.approx(math.log(0.4))


def test_what_the_model_never_generates_is_not_kept_however_wide_the_beam():
    [found] = by_kind(complete(NEVER, [canary(3, 2)], beam=100))
    assert (found["beam_kept"], found["beam_place"], found["prefix_needed"]) == (False, None, None)
    assert found["log_prob"] == -math.inf
    [read] = by_kind(complete(NEVER, [Canary("w2 w3 w3", "given", (), 1)]))
    assert (read["tokens"], read["greedy"]) == ([2, 3, 3], True)


def test_batches_change_nothing_and_progress_ends_with_all_texts(model, canaries, monkeypatch):
    steps: list[tuple[int, int]] = []
    together = complete(model, canaries, beam=4, progress=lambda *done: steps.append(done)).attempts
    assert steps == sorted(steps)
    assert steps[-1] == (len(together), len(together))
    monkeypatch.setattr("vestige.audits.extraction.canaries._MAX_CONTINUATIONS", 1)
    alone = complete(model, canaries, beam=4).attempts
    for one, other in zip(together, alone, strict=True):
        assert one["log_prob"] == pytest.approx(other["log_prob"], rel=1e-5)
        assert (one["greedy"], one["beam_place"]) == (other["greedy"], other["beam_place"])


def test_each_planted_canary_has_a_control_of_its_own_words(model, canaries):
    result = complete(model, [*canaries, canary(2, 3, 4, copies=0)])
    shuffled = {one["canary"]: one for one in by_kind(result, "shuffled")}
    for one in by_kind(result):
        if len(set(one["tokens"])) > 1:
            assert sorted(shuffled[one["canary"]]["tokens"]) == sorted(one["tokens"])
            assert shuffled[one["canary"]]["tokens"] != one["tokens"]
            assert shuffled[one["canary"]]["copies"] == one["copies"]
    assert [one["canary"] for one in by_kind(result, "control")] == [len(canaries) + 1]
    assert len(canaries) + 1 not in shuffled


def test_rates_and_their_intervals_are_the_counts_and_unknown_without_controls():
    planted = [canary(2, 3, copies=1), canary(3, 2, copies=1), canary(2, 3, 3, copies=4)]
    result = complete(NEVER, [*planted, canary(3, 3, 2, copies=0)], beam=1)
    counts = {k: (r.count, r.n) for k, r in result.by_copies().items()}
    assert counts == {1: (1, 2), 4: (1, 1)}
    summary = result.figures()
    assert (summary["greedy_completed"], summary["greedy_trials"]) == (2, 3)
    assert (summary["greedy_low"], summary["greedy_high"]) == clopper_pearson(2, 3)
    assert (summary["control_completed"], summary["control_trials"]) == (0, 1)
    assert (summary["whole_needed"], summary["median_prefix_needed"]) == (1, 0)
    alone = complete(NEVER, [canary(3, 3)]).figures()
    names = ("control_rate", "shuffled_rate", "control_trials")
    assert [alone[name] for name in names] == [None, None, 0]


def test_the_p_value_is_the_smaller_one_of_controls_and_of_orders_doubled():
    planted, control = canary(2, 3, 4), canary(2, 4, 3, copies=0)
    both, alone = (complete(TWO_WAYS, some, beam=1) for some in ([planted, control], [planted]))
    assert (both.test.p, both.test.least) == (1, 1)  # 1 / 2 by either, doubled
    assert (alone.test.p, alone.test.least) == (1, 1 / 2)  # two orders of the words after the first
    given = complete(TWO_WAYS, [Canary("w2 w3 w4", "given", (), 5)], beam=1)
    assert given.test is None


def test_canaries_that_are_too_short_or_unknown_are_refused_by_their_numbers():
    with pytest.raises(ValueError, match="got 2: canary 2 has 2 tokens"):
        complete(NEVER, [canary(2, 3, 3), canary(2, 3)], prefix=2)
    with pytest.raises(DataError, match="canary 2 has words that") as refused:
        complete(NEVER, [canary(2, 3), Canary("w2 zeppelin", "given", (), 1)])
    assert "zeppelin" not in str(refused.value)
