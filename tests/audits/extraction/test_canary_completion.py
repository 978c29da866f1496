"""Completion of canaries against naive greedy decoding and enumeration."""

import itertools
import math

import numpy as np
import pytest
import torch

from vestige.audits.extraction.canaries import complete
from vestige.data.canaries.texts import Canary
from vestige.errors import DataError
from vestige.metrics.estimates import clopper_pearson
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel


def canary(*ids, copies=5):
    words = " ".join(f"w{i}" if i else "<eos>" for i in ids)
    return Canary(words, "random", (), copies, ids)


def greedy(model, prefix, length):
    """Greedy decoding, one token at a time."""
    state = model.start(1)
    for token in prefix:
        state = model.advance(state, torch.tensor([token]))
    ids = []
    while len(ids) < length:
        ids.append(int(model.log_probs(state)[0].argmax()))
        state = model.advance(state, torch.tensor(ids[-1:]))
    return tuple(ids)


def rows_of(result, kind="canary"):
    return [row for row in result.attempts if row["kind"] == kind]


@pytest.fixture(params=["table", "lstm"])
def model(request, random_table):
    if request.param == "table":
        return random_table(11, 6)
    torch.manual_seed(2)
    # A wide range of initial weights, so that predictions depend on the context.
    config = LSTMConfig(layers=2, embedding_size=5, hidden_size=7, initial_range=1.5)
    return LSTMLanguageModel(random_table(0, 6).vocabulary, config)


@pytest.fixture
def canaries(model):
    """Canaries of several lengths; the model generates some of them."""
    rng = np.random.default_rng(0)
    random = [tuple(rng.integers(2, 6, size=n).tolist()) for n in (2, 3, 4, 4, 5, 5)]
    generated = [prefix + greedy(model, prefix, 3) for prefix in ((2,), (3, 4), (5, 5, 2))]
    return [canary(*ids) for ids in [*generated, *random]]


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [1, 2])
def test_greedy_completion_and_the_prefix_needed_equal_naive_decoding(model, canaries, prefix):
    long = [canary for canary in canaries if len(canary.ids) > prefix]
    for row in complete(model, long, prefix=prefix, beam=3).attempts:
        ids, n = tuple(row["tokens"]), len(row["tokens"])
        enough = [m for m in range(n) if greedy(model, ids[:m], n - m) == ids[m:]]
        assert row["prefix_needed"] == (min(enough) if enough else None)
        assert row["greedy"] == (prefix in enough)
        assert enough == list(range(min(enough), n)) if enough else True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_beam_place_is_the_rank_among_all_continuations(random_table, seed):
    model = random_table(seed, 5)

    def log_prob(ids):
        return sum(float(model.log_table[pair]) for pair in itertools.pairwise(ids))

    texts = [canary(*ids) for ids in itertools.product(range(2, 5), repeat=3)]
    for row in complete(model, texts, beam=1000).attempts:
        suffixes = itertools.product(range(1, 5), repeat=2)
        losses = sorted(-log_prob((row["tokens"][0], *suffix)) for suffix in suffixes)
        loss = -log_prob(row["tokens"])
        assert row["beam_place"] == 1 + int(np.searchsorted(losses, loss - 1e-6))
        assert row["beam_best"] == (row["beam_place"] == 1)
        assert row["log_prob"] == pytest.approx(-loss, rel=1e-5)


MISLEADING = TableModel(
    [0, 0, 1, 0, 0],
    [[0, 0, 1, 0, 0]] * 2 + [[0, 0, 0, 0.6, 0.4], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1]],
)
"""After w2, w3 is most probable, and yet "w4 w4" is the most probable continuation."""
CONSTANT = TableModel([0, 0, 0.5, 0.5], [[0, 0, 0, 1]] * 4)
"""Generates w3 after everything."""


def test_a_beam_finds_what_greedy_decoding_misses():
    [row] = rows_of(complete(MISLEADING, [canary(2, 4, 4)], beam=2))
    assert (row["greedy"], row["beam_best"], row["beam_kept"]) == (False, True, True)
    assert row["prefix_needed"] == 2
    assert row["log_prob"] == pytest.approx(math.log(0.4))


def test_an_impossible_text_is_in_no_beam():
    [row] = rows_of(complete(CONSTANT, [canary(3, 2)], beam=100))
    assert (row["beam_kept"], row["beam_place"], row["prefix_needed"]) == (False, None, None)
    assert row["log_prob"] == -math.inf
    [row] = rows_of(complete(CONSTANT, [Canary("w2 w3 w3", "given", (), 1)]))
    assert (row["tokens"], row["greedy"]) == ([2, 3, 3], True)


def test_batches_change_no_result_and_progress_ends_with_all_texts(model, canaries, monkeypatch):
    steps = []
    together = complete(model, canaries, beam=4, progress=lambda *step: steps.append(step)).attempts
    assert steps == sorted(steps)
    assert steps[-1] == (len(together), len(together))
    monkeypatch.setattr("vestige.audits.extraction.canaries._MAX_CONTINUATIONS", 1)
    alone = complete(model, canaries, beam=4).attempts
    for row, other in zip(together, alone, strict=True):
        assert row["log_prob"] == pytest.approx(other["log_prob"], rel=1e-5)
        assert (row["greedy"], row["beam_place"]) == (other["greedy"], other["beam_place"])


def test_each_planted_canary_has_a_control_with_its_words_shuffled(model, canaries):
    result = complete(model, [*canaries, canary(2, 3, 4, copies=0)])
    shuffled = {row["canary"]: row for row in rows_of(result, "shuffled")}
    for row in rows_of(result):
        if len(set(row["tokens"])) > 1:
            control = shuffled[row["canary"]]
            assert sorted(control["tokens"]) == sorted(row["tokens"])
            assert control["tokens"] != row["tokens"]
            assert control["copies"] == row["copies"]
    assert [row["canary"] for row in rows_of(result, "control")] == [len(canaries) + 1]
    assert len(canaries) + 1 not in shuffled


def test_rates_and_intervals_follow_from_counts():
    planted = [canary(2, 3, copies=1), canary(3, 2, copies=1), canary(2, 3, 3, copies=4)]
    result = complete(CONSTANT, [*planted, canary(3, 3, 2, copies=0)], beam=1)
    counts = {copies: (rate.count, rate.n) for copies, rate in result.by_copies().items()}
    assert counts == {1: (1, 2), 4: (1, 1)}
    figures = result.figures()
    assert (figures["greedy_completed"], figures["greedy_trials"]) == (2, 3)
    assert (figures["greedy_low"], figures["greedy_high"]) == clopper_pearson(2, 3)
    assert (figures["control_completed"], figures["control_trials"]) == (0, 1)
    assert (figures["whole_needed"], figures["median_prefix_needed"]) == (1, 0)
    without_controls = complete(CONSTANT, [canary(3, 3)]).figures()
    names = ("control_rate", "shuffled_rate", "control_trials")
    assert [without_controls[name] for name in names] == [None, None, 0]


def test_the_p_value_is_the_smaller_of_two_tests_doubled():
    planted, control = canary(2, 3, 4), canary(2, 4, 3, copies=0)
    both, alone = (complete(MISLEADING, some, beam=1) for some in ([planted, control], [planted]))
    assert (both.test.p, both.test.least) == (1, 1)  # 1/2 from controls or orders, doubled
    assert (alone.test.p, alone.test.least) == (1, 1 / 2)  # two orders of the words after the first
    without = complete(MISLEADING, [Canary("w2 w3 w4", "given", (), 5)], beam=1)
    assert without.test is None


def test_short_and_unknown_canaries_are_refused_by_number():
    with pytest.raises(ValueError, match="got 2: canary 2 has 2 tokens"):
        complete(CONSTANT, [canary(2, 3, 3), canary(2, 3)], prefix=2)
    with pytest.raises(DataError, match="canary 2 has words that") as error:
        complete(CONSTANT, [canary(2, 3), Canary("w2 zeppelin", "given", (), 1)])
    assert "zeppelin" not in str(error.value)
