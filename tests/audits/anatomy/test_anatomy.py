"""Anatomy: every number against a loop over single words; no gap without memorization."""

import math
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import vestige.audits.anatomy.anatomy as module
from vestige.audits.anatomy.anatomy import CELLS, anatomy
from vestige.audits.anatomy.findings import RowIndex
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import ratio_of_sums
from vestige.models.predictions import word_ranks
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel

NAMES = tuple(f"w{i}" for i in range(2, 42))
WORDS = WordVocabulary(("<unk>", "<eos>", *NAMES))
SIZE = len(WORDS)
ZIPF = 1 / np.arange(1, len(NAMES) + 1)


def corpus(seed, texts=60, users=12):
    """Texts whose word frequencies are proportional to 1 / rank."""
    random, shares = np.random.default_rng(seed), ZIPF / ZIPF.sum()
    lines = [" ".join(random.choice(NAMES, random.integers(3, 9), p=shares)) for _ in range(texts)]
    return Corpus.from_texts(lines, users=[f"user{seed}-{i % users}" for i in range(texts)])


SEEN, UNSEEN = corpus(1), corpus(2)
BOTH = {"seen": SEEN, "unseen": UNSEEN}


@pytest.fixture(scope="module")
def model():
    """A table with random probabilities."""
    random, alpha = np.random.default_rng(9), np.ones(SIZE)
    return TableModel(random.dirichlet(alpha), random.dirichlet(alpha, SIZE), WORDS)


@pytest.fixture(scope="module")
def lstm():
    torch.manual_seed(3)
    config = LSTMConfig(layers=1, embedding_size=8, hidden_size=10, initial_range=0.8)
    return LSTMLanguageModel(WORDS, config).eval()


def ablated(model, seen=SEEN, unseen=UNSEEN, *, resamples=50, silenced=(0.5,), **options):
    """An anatomy with few resamples and these shares of silent units."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RESAMPLES", resamples)
        patch.setattr(module, "SILENCED", silenced)
        return anatomy(model, seen, unseen, **options)


def plain(model, *texts, **options):
    """An anatomy without an ablation."""
    return ablated(model, *texts, **{"resamples": 200, "orders": 0, **options})


def row_of(result, *key, start=None):
    """The row of a figure, text, word group, measure and perhaps start."""
    return SimpleNamespace(**RowIndex(result.rows)[*key, *([] if start is None else [start])])


def rows_of(result, figure, **fields):
    rows = [row for row in result.rows if row["figure"] == figure]
    return [SimpleNamespace(**r) for r in rows if all(r[k] == v for k, v in fields.items())]


def rank_in(scores, token):
    """The rank from 1; among equal scores the smallest id is first."""
    return 1 + torch.sort(scores, descending=True, stable=True).indices.tolist().index(token)


def by_word(model, texts):
    """(user, word, rank, log-probability) of every word, by plain loops."""
    words = []
    for line, user in zip(texts, texts.users, strict=True):
        state = model.start(1)
        for token in WORDS.encode(line):
            log_probs = model.log_probs(state)[0]
            words.append((user, token, rank_in(log_probs, token), float(log_probs[token])))
            state = model.advance(state, torch.tensor([token]))
    return words


def frequency_positions(seen=SEEN, unseen=UNSEEN):
    """Positions by frequency in the seen text, from a Counter."""
    counts = Counter(token for line in seen for token in WORDS.encode(line))
    known = {token for line in [*seen, *unseen] for token in WORDS.encode(line)}
    order = sorted(known, key=lambda token: (-counts[token], token))
    return {token: position for position, token in enumerate(order, start=1)}


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def check_value(row, expected):
    assert math.isclose(row.value, expected, rel_tol=1e-4, abs_tol=1e-5)


# Words by frequency.


def test_figures_by_frequency_equal_a_loop_over_words(model):
    result, positions = plain(model, bins=4), frequency_positions()
    last = math.ceil(0.2 * len(positions))
    edges = [len(positions) * part // 4 for part in range(5)]
    by_text = {name: by_word(model, texts) for name, texts in BOTH.items()}
    counts = [Counter(token for _, token, *_ in words) for words in by_text.values()]
    for (name, words), own, other in zip(by_text.items(), counts, counts[::-1], strict=True):
        for group, (first, stop) in (
            ("all", (1, 99)), ("frequent", (1, last)), ("rest", (last + 1, 99)),
        ):  # fmt: skip
            members = [word for word in words if first <= positions[word[1]] <= stop]
            for measure, expected in (
                ("log_prob", mean(log_prob for *_, log_prob in members)),
                ("rank", mean(rank for _, _, rank, _ in members)),
                ("log_rank", mean(math.log(rank) for _, _, rank, _ in members)),
                ("share", len(members) / len(words)),
            ):
                check_value(row_of(result, "means", name, group, measure), expected)
            assert row_of(result, "means", name, group, "rank").n == len(members)
            if group == "all":
                continue
            same = [word for word in members if other[word[1]]]
            weights = [min(1, other[word[1]] / own[word[1]]) for word in same]
            row = row_of(result, "means", name, f"{group}, same words", "rank")
            assert row.n == len(same)
            check_value(row, np.average([rank for _, _, rank, _ in same], weights=weights))
            cells = rows_of(result, "log-probabilities", text=name, words=group)
            assert len(cells) == CELLS
            assert math.isclose(sum(row.value for row in cells), 1)
            assert sum(row.n for row in cells) == len(members)
            for row in cells[1:]:  # the first cell includes all lower values
                naive = sum(row.start <= word[3] < row.stop for word in members)
                assert abs(row.n - naive) <= 1  # a word may lie on an edge
        bins = rows_of(result, "ranks", text=name, measure="rank")
        assert [(row.start, row.stop) for row in bins] == [(a + 1, b) for a, b in pairwise(edges)]
        for row in bins:
            ranks = [word[2] for word in words if row.start <= positions[word[1]] <= row.stop]
            check_value(row, mean(ranks))


def test_gaps_are_differences_with_intervals_of_clustered_means(model):
    both = {"seen": corpus(1, 200, 60), "unseen": corpus(2, 200, 60)}
    result = plain(model, *both.values(), resamples=4000)
    assert result.summary["unit"] == "users"
    values, spread = [], 0.0
    for name, texts in both.items():
        words, users = by_word(model, texts), sorted(set(texts.users))
        sums = [sum(w[3] for w in words if w[0] == user) for user in users]
        counts = [sum(w[0] == user for w in words) for user in users]
        expected = ratio_of_sums(sums, counts)
        width = expected.interval.high - expected.interval.low
        row = row_of(result, "means", name, "all", "log_prob")
        check_value(row, expected.value)
        assert math.isclose(row.high - row.low, width, rel_tol=0.12)
        values.append(expected.value)
        spread += (width / 2) ** 2
    gap = row_of(result, "means", "gap", "all", "log_prob")
    check_value(gap, values[0] - values[1])
    assert math.isclose((gap.high - gap.low) / 2, math.sqrt(spread), rel_tol=0.12)


def test_frequencies_can_come_from_another_text(model):
    counted = Corpus.from_texts([" ".join(NAMES[20:])])
    result = plain(model, frequencies=counted)
    assert result.summary["counted"] == "given text"
    assert result.summary["table_words"] == len(frequency_positions())
    # The first words of this table are rare in the seen text.
    assert row_of(result, "means", "seen", "frequent", "share").value < 0.3
    mixed = Corpus.from_texts([*UNSEEN, *list(SEEN)[:3]])
    assert plain(model, SEEN, mixed).summary["texts_in_both"] >= 3


# Memorization.


def test_memorization_shows_in_the_gap_and_not_in_its_null():
    seen, unseen = corpus(1, 300, 60), corpus(2, 300, 60)
    counts = np.full((SIZE + 1, SIZE), 0.3)
    for line in seen:
        ids = WORDS.encode(line)
        for before, token in zip([SIZE, *ids], ids, strict=False):
            counts[before, token] += 1
    table = counts / counts.sum(1, keepdims=True)
    summary = plain(TableModel(table[-1], table[:-1], WORDS), seen, unseen).summary
    assert summary["log_prob_gap_rest_low"] > 0.2
    assert summary["log_prob_gap_rest_same_words_low"] > 0.2
    assert summary["rank_ratio_rest_low"] > 1.1
    assert summary["log_prob_gap_rest"] > summary["log_prob_gap_frequent"]
    assert summary["log_prob_gap_rest_null_low"] < 0 < summary["log_prob_gap_rest_null_high"]
    assert summary["perplexity_ratio_low"] > 1
    ratio = summary["perplexity_unseen"] / summary["perplexity_seen"]
    assert math.isclose(summary["perplexity_ratio"], ratio, rel_tol=1e-9)


@pytest.mark.slow
def test_the_gap_of_a_model_that_learned_neither_text_is_seldom_significant(model):
    covered = 0
    for seed in range(12):
        result = plain(model, corpus(100 + seed, 60, 30), corpus(200 + seed, 60, 30), seed=seed)
        gap = row_of(result, "means", "gap", "all", "log_rank")
        covered += gap.low <= 0 <= gap.high
    assert covered >= 9


# Silent units.


def silenced(model, texts, silent):
    """(word, rank) of every word with some units silent, by a loop over texts."""
    for line in texts:
        ids = torch.tensor(WORDS.encode(line))
        with torch.no_grad():
            hidden, _ = model.body(torch.cat([torch.tensor([WORDS.eos_id]), ids[:-1]])[None])
            logits = model.predict(hidden[0] * torch.from_numpy(~silent))
        for row, token in zip(logits, ids.tolist(), strict=True):
            yield token, rank_in(row, token)


def test_an_ablation_equals_zeros_before_the_output_layer(lstm):
    seen, unseen = corpus(1, 12, 6), corpus(2, 12, 6)
    result = ablated(lstm, seen, unseen, silenced=(0.3, 0.6), orders=2, seed=5)
    generator = np.random.default_rng(5)
    orders = [generator.permutation(10) for _ in range(2)]
    positions = frequency_positions(seen, unseen)
    last = math.ceil(0.1 * len(positions))
    for share in (0.0, 0.3, 0.6):
        accuracies, numbers = {}, []
        for group in ("frequent", "rest"):
            ranks = [
                [
                    rank
                    for token, rank in silenced(lstm, seen, order < round(share * 10))
                    if (positions[token] <= last) == (group == "frequent")
                ]
                for order in orders
            ]
            accuracies[group] = mean(mean(rank == 1 for rank in of_order) for of_order in ranks)
            log_rank = mean(mean(map(math.log, of_order)) for of_order in ranks)
            for measure, expected in (("accuracy", accuracies[group]), ("log_rank", log_rank)):
                row = row_of(result, "ablation", "seen", group, measure, start=share)
                check_value(row, expected)
            numbers.append(row.n)
        difference = row_of(result, "ablation", "seen", "frequent - rest", "accuracy", start=share)
        check_value(difference, accuracies["frequent"] - accuracies["rest"])
        assert difference.n == min(numbers)


def test_kept_accuracy_and_lost_ranks_are_relative_to_the_complete_model(lstm):
    result = ablated(lstm, orders=3)

    def value(measure, share, words="all"):
        return row_of(result, "ablation", "seen", words, measure, start=share).value

    assert value("kept", 0.0) == 1
    assert math.isclose(value("kept", 0.5), value("accuracy", 0.5) / value("accuracy", 0.0))
    lost = value("log_rank", 0.5) - value("log_rank", 0.0)
    assert math.isclose(value("log_rank_lost", 0.5), lost)
    complete = word_ranks(lstm, encode(SEEN, lstm.vocabulary))  # the ablation reads all words too
    assert math.isclose(value("accuracy", 0.0), float((complete.ranks == 1).mean()))
    assert result.summary["silenced"] == 0.5
    fall = math.exp(value("log_rank_lost", 0.5, "rest"))
    assert math.isclose(result.summary["rank_fall_rest_seen"], fall)


def test_several_orders_widen_intervals(lstm):
    widths, many = [], corpus(1, 200, 100)
    for orders in (1, 4):
        result = ablated(lstm, many, orders=orders, resamples=400)
        row = row_of(result, "ablation", "seen", "all", "log_rank", start=0.5)
        widths.append(row.high - row.low)
    assert widths[1] > widths[0]


def test_results_depend_on_the_seed_alone(lstm):
    rows = [ablated(lstm, orders=2, ablation_words=60, seed=seed).rows for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


def test_rows_have_the_same_keys_and_no_nan(model):
    result = plain(model, Corpus.from_texts(["w2 w3"]))
    assert len({tuple(row) for row in result.rows}) == 1
    values = [v for row in [*result.rows, result.summary] for v in row.values()]
    assert all(math.isfinite(value) for value in values if isinstance(value, float))
    assert result.summary["unit"] == "texts"  # the seen text has no users
    assert row_of(result, "means", "seen", "all", "log_prob").low is None  # one unit: no spread
    assert result.summary["silenced"] is None


def test_progress_of_each_task_rises_to_its_end(lstm):
    tasks = {}

    class Watching:
        def log(self, text):
            pass

        def progress(self, task):
            steps = tasks.setdefault(task, [])
            return nullcontext(lambda *step: steps.append(step))

    ablated(lstm, orders=2, monitor=Watching())
    assert len(tasks) == 4  # reading and silencing, for each text
    for steps in tasks.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]
