"""Completion of canaries agrees with greedy decoding and enumeration written naively."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.audits.passed import PASSED
from vestige import results
from vestige.audits.extraction.canaries import Completion, complete
from vestige.audits.extraction.continuations import best_continuations, read_through
from vestige.data.canaries.texts import Canary
from vestige.errors import DataError, ModelError
from vestige.metrics.estimates import clopper_pearson
from vestige.models.protocols import NextToken
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel


def canary(*ids: int, copies: int = 5, user: str = "") -> Canary:
    words = " ".join(f"w{i}" if i else "<eos>" for i in ids)
    return Canary(words, "random", (), copies, ids, user)


def greedy(model: NextToken, prefix: tuple[int, ...], length: int) -> tuple[int, ...]:
    """One text at a time, as anybody would write it."""
    state = model.start(1)
    for token in prefix:
        state = model.advance(state, torch.tensor([token]))
    said: list[int] = []
    while len(said) < length:
        said.append(int(model.log_probs(state)[0].argmax()))
        state = model.advance(state, torch.tensor(said[-1:]))
    return tuple(said)


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
    """Each shape of text; some are what the model says by itself."""
    rng = np.random.default_rng(0)
    drawn = [tuple(rng.integers(2, 6, size=n).tolist()) for n in (2, 3, 4, 4, 5, 5)]
    said = [prefix + greedy(model, prefix, 3) for prefix in ((2,), (3, 4), (5, 5, 2))]
    return [canary(*ids) for ids in [*said, *drawn]]


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [1, 2])
def test_greedy_and_the_prefix_needed_are_those_of_decoding_one_at_a_time(model, canaries, prefix):
    long = [one for one in canaries if len(one.ids) > prefix]
    result = complete(model, long, prefix=prefix, beam=3)

    for one in result.attempts:
        ids, n = tuple(one["tokens"]), len(one["tokens"])
        works = [m for m in range(n) if greedy(model, ids[:m], n - m) == ids[m:]]
        assert one["prefix_needed"] == (min(works) if works else None)
        assert one["greedy"] == (prefix in works)
        assert works == list(range(min(works), n)) if works else True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_beams_place_is_the_place_among_all_continuations(random_table, seed):
    model = random_table(seed, 5)
    texts = [canary(*ids) for ids in itertools.product(range(1, 5), repeat=3)]
    texts = [text for text in texts if 1 not in text.ids]

    result = complete(model, texts, beam=1000)

    for one in result.attempts:
        rests = itertools.product(range(1, 5), repeat=2)
        scores = sorted(-_log_prob(model, (one["tokens"][0], *rest)) for rest in rests)
        own = -_log_prob(model, one["tokens"])
        assert one["beam_place"] == 1 + int(np.searchsorted(scores, own - 1e-6))
        assert one["beam_best"] == (one["beam_place"] == 1)
        assert one["log_prob"] == pytest.approx(-own, rel=1e-5)


def _log_prob(model: TableModel, ids: tuple[int, ...]) -> float:
    pairs = itertools.pairwise(ids)
    return sum(float(model.log_table[before, after]) for before, after in pairs)


def test_a_beam_finds_what_greedy_decoding_misses():
    # After w2 greedy takes w3, which leads nowhere in particular; w4 is always followed by w4.
    after = [[0, 0, 1, 0, 0]] * 2 + [[0, 0, 0, 0.6, 0.4], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1]]
    model = TableModel([0, 0, 1, 0, 0], after)

    [found] = by_kind(complete(model, [canary(2, 4, 4)], beam=2))

    assert (found["greedy"], found["beam_best"], found["beam_kept"]) == (False, True, True)
    assert found["prefix_needed"] == 2
    assert found["log_prob"] == pytest.approx(math.log(0.4))


NEVER = TableModel([0, 0, 0.5, 0.5], [[0, 0, 0, 1]] * 4)
"""Says w3 after everything."""


def test_what_the_model_never_says_is_not_kept_however_wide_the_beam():
    [found] = by_kind(complete(NEVER, [canary(3, 2)], beam=100))
    assert (found["beam_kept"], found["beam_place"], found["prefix_needed"]) == (False, None, None)
    assert found["log_prob"] == -math.inf
    [read] = by_kind(complete(NEVER, [Canary("w2 w3 w3", "given", (), 1)]))
    assert (read["tokens"], read["greedy"]) == ([2, 3, 3], True)


def test_canaries_with_the_same_beginning_are_judged_each_by_itself():
    after = [[0, 0, 1, 0, 0]] * 2 + [[0, 0, 0, 0.6, 0.4], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    model = TableModel([0, 0, 1, 0, 0], after)
    found = by_kind(complete(model, [canary(2, 3, 3), canary(2, 4, 4), canary(2, 3, 4)], beam=2))
    assert [one["greedy"] for one in found] == [True, False, False]
    assert [one["beam_place"] for one in found] == [1, 2, None]


def test_how_canaries_are_batched_changes_nothing(model, canaries, monkeypatch):
    together = complete(model, canaries, beam=4).attempts
    monkeypatch.setattr("vestige.audits.extraction.canaries._ROWS", 1)
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


def test_the_result_can_be_saved(model, canaries, tmp_path):
    result = complete(model, [*canaries, canary(3, 2, 5, copies=0, user="ann")])
    result = replace(result, checks=PASSED)
    run = results.load(results.save(result, tmp_path / "run", run={}))
    assert run.result == "Completion"
    assert len(run.rows) == len(result.attempts)
    assert "NaN" not in json.dumps(run.summary)
    assert run.rows[len(canaries)]["user"] == "ann"


def test_progress_ends_with_all_texts(model, canaries):
    seen: list[tuple[int, int]] = []
    result = complete(model, canaries, progress=lambda *done: seen.append(done))
    assert seen[-1] == (len(result.attempts), len(result.attempts))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_canaries_that_are_too_short_or_unknown_are_refused_by_their_numbers():
    with pytest.raises(ValueError, match="got 2: canary 2 has 2 tokens"):
        complete(NEVER, [canary(2, 3, 3), canary(2, 3)], prefix=2)
    with pytest.raises(DataError, match="canary 2 has words that") as refused:
        complete(NEVER, [canary(2, 3), Canary("w2 zeppelin", "given", (), 1)])
    assert "zeppelin" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_beam_of_one_is_read_off_the_text_as_the_search_would_find_it(seed):
    """Of every text of a few tokens, in a model that likes to end."""
    table = np.random.default_rng(seed).dirichlet(np.ones(5), 6) * [4, 0.1, 1, 1, 1]
    table /= table.sum(1, keepdims=True)
    model = TableModel(table[0], table[1:])
    words = (0, 2, 3, 4)  # the end of a text among them
    texts = [canary(*ids) for n in (4, 3) for ids in itertools.product(words, repeat=n)]
    told = by_kind(complete(model, texts, beam=1))
    for text, one in zip(texts, told, strict=True):
        rest = len(text.ids) - 1
        found = best_continuations(model, torch.tensor([text.ids[:1]]), rest, width=1)
        kept = tuple(found.tokens[0, 0].tolist()) == text.ids[1:]
        assert one["beam_best"] == one["beam_kept"] == kept
    assert any(one["beam_best"] and not one["greedy"] for one in told)


# Continuations: reading through and the beam, against every continuation written out.


def log_prob(model: TableModel, prefix: tuple[int, ...], rest: tuple[int, ...]) -> float:
    """One look-up in the table at a time."""
    last, total = prefix[-1], 0.0
    for token in rest:
        total += float(model.log_table[last, token])
        last = token
    return total


@pytest.mark.parametrize("seed", range(3))
def test_reading_through_tells_the_likeliest_tokens_one_at_a_time(random_table, seed):
    model = random_table(seed)
    texts = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(seed))

    read = read_through(model, texts.tolist())

    for text, (right, _, scores) in zip(texts.tolist(), read, strict=True):
        for place, token in enumerate(text):
            row = model.log_table[text[place - 1] if place else model.vocab_size]
            assert bool(right[place]) == (int(row.argmax()) == token)
            assert float(scores[place]) == pytest.approx(float(row[token]))


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_all_continuations_puts_them_in_order(random_table, seed):
    model = random_table(seed)
    words = range(1, 5)  # token 0 ends a text

    found = best_continuations(model, torch.tensor([[3], [1]]), 3, width=200)

    for start, tokens, scores in zip((3, 1), found.tokens, found.log_prob, strict=True):
        every = sorted(
            -log_prob(model, (start,), rest) for rest in itertools.product(words, repeat=3)
        )
        finite = scores.isfinite()
        assert (-scores[finite]).tolist() == pytest.approx(every, rel=1e-5)
        for rest, score in zip(tokens[finite].tolist(), scores[finite].tolist(), strict=True):
            assert score == pytest.approx(log_prob(model, (start,), tuple(rest)), rel=1e-5)


def test_batches_and_slices_change_nothing(random_table, monkeypatch):
    model, prefixes = random_table(4), torch.tensor([[1, 2], [3, 4], [2, 2], [4, 1]])
    together = best_continuations(model, prefixes, 3, width=4)
    for row, prefix in enumerate(prefixes):
        alone = best_continuations(model, prefix[None], 3, width=4)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        assert torch.equal(together.log_prob[row], alone.log_prob[0])
    monkeypatch.setattr("vestige.audits.extraction.continuations.CELLS_PER_SLICE", 10)
    assert torch.equal(best_continuations(model, prefixes, 3, width=4).tokens, together.tokens)


def test_the_end_of_a_text_is_never_taken():
    # After w2 the text most likely ends.
    model = TableModel([0, 0, 1, 0], [[0, 0, 1, 0], [0, 0, 1, 0], [0.9, 0, 0, 0.1], [0, 0, 0, 1]])
    found = best_continuations(model, torch.tensor([[2]]), 2, width=1)
    assert found.tokens.tolist() == [[[3, 3]]]
    assert found.log_prob.item() == pytest.approx(math.log(0.1))


def test_a_model_of_no_numbers_is_refused():
    model = TableModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
    model.log_table.fill_(math.nan)
    with pytest.raises(ModelError, match="diverged"):
        read_through(model, [[1, 1]])


def test_equally_likely_words_stand_in_the_order_of_ids_on_every_processor(other_bits):
    even = TableModel(torch.full((20,), 1 / 20), torch.full((20, 20), 1 / 20))
    for seed in range(6):
        model = other_bits(even, seed)
        found = best_continuations(model, torch.tensor([[3], [9]]), 2, width=4)
        assert found.tokens.tolist() == [[[1, 1], [1, 2], [1, 3], [1, 4]]] * 2
        read = read_through(model, [[0, 0, 0], [1, 0, 2]])
        assert [one.likeliest.tolist() for one in read] == [
            [True, True, True],
            [False, True, False],
        ]
