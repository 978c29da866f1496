"""Where memory sits: every number as a loop over single words finds it, and none where none is."""

import math
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import vestige.audits.anatomy.anatomy as module
from vestige.audits.anatomy.anatomy import CELLS, anatomy
from vestige.audits.anatomy.findings import Numbers
from vestige.audits.anatomy.words import (
    Group,
    ScoredWords,
    equal_bins,
    frequent_and_rest,
    group_weights,
    positions_by_frequency,
)
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import ratio_of_sums
from vestige.models.predictions import word_ranks
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

NAMES = tuple(f"w{i}" for i in range(2, 42))
WORDS = WordVocabulary(("<unk>", "<eos>", *NAMES))


def analysed(model, seen, unseen, *, resamples=50, silenced=module.SILENCED, **options):
    """An anatomy with fewer resamples and other shares of silent units than usual."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RESAMPLES", resamples)
        patch.setattr(module, "SILENCED", silenced)
        return anatomy(model, seen, unseen, **options)


def plain(model, seen, unseen, **options):
    """Without an ablation."""
    return analysed(model, seen, unseen, **{"resamples": 200, "orders": 0, **options})


def find(found, *key, start=None):
    """The row of figure, text, words, measure and perhaps start."""
    return SimpleNamespace(**Numbers(found.rows)[*key, *([] if start is None else [start])])


def corpus(seed: int, texts: int = 60, users: int = 12) -> Corpus:
    """Texts of words that fall off as 1 / rank."""
    chance = np.random.default_rng(seed)
    share = 1 / np.arange(1, len(NAMES) + 1)
    lines = [" ".join(chance.choice(NAMES, chance.integers(3, 9), p=share / share.sum()))
             for _ in range(texts)]  # fmt: skip
    return Corpus.from_texts(lines, users=[f"user{seed}-{i % users}" for i in range(texts)])


@pytest.fixture(scope="module")
def model():
    """A table that says any words with any probabilities."""
    chance = np.random.default_rng(9)
    size = len(WORDS)
    return TableModel(chance.dirichlet(np.ones(size)), chance.dirichlet(np.ones(size), size), WORDS)


@pytest.fixture(scope="module")
def lstm():
    torch.manual_seed(3)
    config = LSTMConfig(layers=1, embedding_size=8, hidden_size=10, initial_range=0.8)
    return LSTMLanguageModel(WORDS, config).eval()


def by_word(model, texts):
    """(user, word, rank, log-probability) of every word, from plain loops."""
    found = []
    for text, user in zip(texts, texts.users, strict=True):
        ids, state = WORDS.encode(text), model.start(1)
        for token in ids:
            log_prob = model.log_probs(state)[0]
            order = torch.sort(log_prob, descending=True, stable=True).indices.tolist()
            found.append((user, token, order.index(token) + 1, float(log_prob[token])))
            state = model.advance(state, torch.tensor([token]))
    return found


def places(seen, unseen):
    """The table of frequencies of the seen text, from a Counter."""
    counts = Counter(token for text in seen for token in WORDS.encode(text))
    known = {token for text in [*seen, *unseen] for token in WORDS.encode(text)}
    order = sorted(known, key=lambda token: (-counts[token], token))
    return {token: place for place, token in enumerate(order, start=1)}


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def same(one: SimpleNamespace, value: float | None) -> None:
    assert (one.value is None) == (value is None)
    assert value is None or math.isclose(one.value, value, rel_tol=1e-4, abs_tol=1e-5)


def test_means_by_frequency_are_those_of_a_loop_over_words(model):
    seen, unseen = corpus(1), corpus(2)
    found = plain(model, seen, unseen)
    place = places(seen, unseen)
    last = math.ceil(0.2 * len(place))
    parts = {"all": (1, 99), "frequent": (1, last), "rest": (last + 1, 99)}
    for name, texts in (("seen", seen), ("unseen", unseen)):
        words = by_word(model, texts)
        for part, (first, stop) in parts.items():
            inside = [word for word in words if first <= place[word[1]] <= stop]
            same(find(found, "means", name, part, "log_prob"), mean(w[3] for w in inside))
            same(find(found, "means", name, part, "rank"), mean(w[2] for w in inside))
            logs = mean(math.log(w[2]) for w in inside)
            same(find(found, "means", name, part, "log_rank"), logs)
            same(find(found, "means", name, part, "share"), len(inside) / len(words))
            assert find(found, "means", name, part, "rank").n == len(inside)


def test_bins_hold_mean_ranks_of_their_words(model):
    seen, unseen = corpus(1), corpus(2)
    found = plain(model, seen, unseen, bins=4, resamples=50)
    place, words = places(seen, unseen), by_word(model, unseen)
    rows = [SimpleNamespace(**row) for row in found.rows
            if row["figure"] == "ranks" and row["text"] == "unseen"]  # fmt: skip
    assert sorted({(one.start, one.stop) for one in rows}) == [
        (1 + a * len(place) // 4, (a + 1) * len(place) // 4) for a in range(4)
    ]
    for one in rows:
        ranks = [word[2] for word in words if one.start <= place[word[1]] <= one.stop]
        if one.measure == "rank":
            same(one, mean(ranks))


def test_histograms_count_every_word_once(model):
    seen, unseen = corpus(1), corpus(2)
    found = plain(model, seen, unseen)
    for name, texts in (("seen", seen), ("unseen", unseen)):
        words, place = by_word(model, texts), places(seen, unseen)
        for part in ("frequent", "rest"):
            key = ("log-probabilities", name, part)
            cells = [SimpleNamespace(**row) for row in found.rows
                     if (row["figure"], row["text"], row["words"]) == key]  # fmt: skip
            assert len(cells) == CELLS
            assert math.isclose(sum(one.value for one in cells), 1)
            inside = [w for w in words if (place[w[1]] <= math.ceil(0.2 * len(place)))
                      == (part == "frequent")]  # fmt: skip
            assert sum(one.n for one in cells) == len(inside)
            for one in cells[1:]:  # the first also holds what lies below
                naive = sum(one.start <= w[3] < one.stop for w in inside)
                assert abs(one.n - naive) <= 1  # a word may lie on an edge


def test_gaps_are_differences_and_their_intervals_those_of_clustered_means(model):
    seen, unseen = corpus(1, 200, 60), corpus(2, 200, 60)
    found = plain(model, seen, unseen, resamples=4000)
    assert found.summary["unit"] == "users"
    gap = find(found, "means", "gap", "all", "log_prob")
    sides, spread = [], 0.0
    for name, texts in (("seen", seen), ("unseen", unseen)):
        words, users = by_word(model, texts), sorted(set(texts.users))
        sums = [sum(w[3] for w in words if w[0] == user) for user in users]
        counts = [sum(w[0] == user for w in words) for user in users]
        expected = ratio_of_sums(sums, counts)
        interval = expected.interval
        one = find(found, "means", name, "all", "log_prob")
        same(one, expected.value)
        assert math.isclose(one.high - one.low, interval.high - interval.low, rel_tol=0.12)
        sides.append(expected.value)
        spread += ((interval.high - interval.low) / 2) ** 2
    same(gap, sides[0] - sides[1])
    assert math.isclose((gap.high - gap.low) / 2, math.sqrt(spread), rel_tol=0.12)


def test_the_same_words_count_as_often_in_one_text_as_in_the_other():
    tokens = ([0, 0, 0, 1, 2], [0, 2, 2, 3])
    seen, unseen = (made(ids) for ids in tokens)
    positions = positions_by_frequency([0, 0, 0, 1, 2], np.array([3]), 4)
    groups = [Group("same words", 1, 4, matched=True)]
    weights = [group_weights(groups, *pair, positions)[0]
               for pair in ((seen, unseen), (unseen, seen))]  # fmt: skip
    np.testing.assert_allclose(weights[0], [1 / 3, 1 / 3, 1 / 3, 0, 1])
    np.testing.assert_allclose(weights[1], [1, 1 / 2, 1 / 2, 0])


def made(tokens) -> ScoredWords:
    ids = np.asarray(tokens, dtype=np.int64)
    places = np.arange(len(ids))
    return ScoredWords(
        tokens=ids,
        ranks=ids + 1,
        log_probs=-1.0 * (ids + 1),
        units=places,
        places=places,
        texts=places,
    )


def test_groups_part_the_table_and_leave_nothing_out():
    for size in (1, 2, 9, 10, 4420):
        panels, bins = frequent_and_rest(size, 0.2), equal_bins(size, 10)
        assert (panels[1].start, panels[2].start) == (1, panels[1].stop + 1)
        assert panels[1].stop == math.ceil(size / 5)
        assert [one.start for one in bins[1:]] == [one.stop + 1 for one in bins[:-1]]
        assert (bins[0].start, bins[-1].stop) == (1, size)


def test_a_model_that_learnt_one_text_shows_it_and_its_null_does_not():
    seen, unseen = corpus(1, 300, 60), corpus(2, 300, 60)
    counts = np.full((len(WORDS) + 1, len(WORDS)), 0.3)
    for text in seen:
        ids = WORDS.encode(text)
        for before, token in zip([len(WORDS), *ids], ids, strict=False):
            counts[before, token] += 1
    table = counts / counts.sum(1, keepdims=True)
    learnt = TableModel(table[-1], table[:-1], WORDS)
    told = plain(learnt, seen, unseen).summary
    assert told["log_prob_gap_rest_low"] > 0.2
    assert told["log_prob_gap_rest_same_words_low"] > 0.2
    assert told["rank_ratio_rest_low"] > 1.1
    assert told["log_prob_gap_rest"] > told["log_prob_gap_frequent"]
    assert told["log_prob_gap_rest_null_low"] < 0 < told["log_prob_gap_rest_null_high"]
    assert told["perplexity_ratio_low"] > 1
    ratio = told["perplexity_unseen"] / told["perplexity_seen"]
    assert math.isclose(told["perplexity_ratio"], ratio, rel_tol=1e-9)


@pytest.mark.slow
def test_a_model_that_learnt_neither_shows_nothing_in_most_draws(model):
    held = [
        s["rank_ratio_all_low"] <= 1 <= s["rank_ratio_all_high"]
        for s in (_all(model, seed) for seed in range(12))
    ]
    assert sum(held) >= 9


def _all(model, seed):
    texts = (corpus(100 + seed, 60, 30), corpus(200 + seed, 60, 30))
    found = plain(model, *texts, seed=seed)
    gap = find(found, "means", "gap", "all", "log_rank")
    return {"rank_ratio_all_low": math.exp(-gap.high), "rank_ratio_all_high": math.exp(-gap.low)}


@pytest.mark.slow
def test_the_same_words_differ_by_nothing_where_each_texts_own_words_do():
    """A word that is rare in the counted text is rarer there than elsewhere, by that choice."""
    share = 1 / np.arange(1, len(WORDS) + 1)
    share /= share.sum()
    common = TableModel(share, np.tile(share, (len(WORDS), 1)), WORDS)
    chance = np.random.default_rng(0)
    zipf = share[2:] ** 1.5 / (share[2:] ** 1.5).sum()

    def text():
        lines = [" ".join(chance.choice(NAMES, 4, p=zipf)) for _ in range(40)]
        return Corpus.from_texts(lines)

    own, same_words = [], []
    for _ in range(12):
        found = plain(common, text(), text())
        own.append(find(found, "means", "gap", "rest", "log_prob").value)
        same_words.append(find(found, "means", "gap", "rest, same words", "log_prob").value)
    assert np.mean(own) < -0.03
    np.testing.assert_allclose(same_words, 0, atol=1e-6)  # no context: equal words, equal answers


def test_other_text_may_say_how_frequent_words_are(model):
    seen, unseen = corpus(1), corpus(2)
    counted = Corpus.from_texts([" ".join(NAMES[20:])])
    found = plain(model, seen, unseen, frequencies=counted)
    assert found.summary["counted"] == "given text"
    assert found.summary["table_words"] == len(places(seen, unseen))
    frequent = find(found, "means", "seen", "frequent", "share").value
    assert frequent < 0.3  # the first words of this table are rare in the text
    mixed = Corpus.from_texts([*list(unseen), *list(seen)[:3]])
    assert plain(model, seen, mixed).summary["texts_in_both"] >= 3


def test_ablation_is_what_zeros_before_the_head_do(lstm):
    seen, unseen = corpus(1, 12, 6), corpus(2, 12, 6)
    found = analysed(lstm, seen, unseen, silenced=(0.3, 0.6), orders=2, seed=5)
    generator = np.random.default_rng(5)
    turns = [generator.permutation(10) for _ in range(2)]
    place = places(seen, unseen)
    last = math.ceil(0.1 * len(place))
    for share in (0.0, 0.3, 0.6):
        values = {}
        for words in ("frequent", "rest"):
            right, log_ranks = [], []
            for turn in turns:
                part = [
                    (rank == 1, math.log(rank))
                    for token, rank in ablated(lstm, seen, turn < round(share * 10))
                    if (place[token] <= last) == (words == "frequent")
                ]
                right.append(mean(one for one, _ in part))
                log_ranks.append(mean(one for _, one in part))
            values[words] = mean(right)
            same(find(found, "ablation", "seen", words, "accuracy", start=share), mean(right))
            same(find(found, "ablation", "seen", words, "log_rank", start=share), mean(log_ranks))
        difference = find(found, "ablation", "seen", "frequent - rest", "accuracy", start=share)
        same(difference, values["frequent"] - values["rest"])


def ablated(model, texts, silent):
    """(word, rank) of every word with some units silent, from a loop over texts."""
    for text in texts:
        ids = torch.tensor(WORDS.encode(text))
        with torch.no_grad():
            hidden, _ = model.body(torch.cat([torch.tensor([WORDS.eos_id]), ids[:-1]])[None])
            logits = model.predict(hidden[0] * torch.from_numpy(~silent))
        for row, token in zip(logits, ids.tolist(), strict=True):
            order = torch.sort(row, descending=True, stable=True).indices.tolist()
            yield token, order.index(token) + 1


def test_what_is_kept_and_lost_is_against_the_whole_model(lstm):
    found = analysed(lstm, corpus(1), corpus(2), silenced=(0.5,), orders=3)

    def of(measure, share):
        return find(found, "ablation", "seen", "all", measure, start=share).value

    assert of("kept", 0.0) == 1
    assert math.isclose(of("kept", 0.5), of("accuracy", 0.5) / of("accuracy", 0.0))
    assert math.isclose(of("log_rank_lost", 0.5), of("log_rank", 0.5) - of("log_rank", 0.0))
    # The whole model is asked for all words, the ablation for some: here for all.
    whole = word_ranks(lstm, encode(corpus(1), lstm.vocabulary))
    assert math.isclose(of("accuracy", 0.0), float((whole.ranks == 1).mean()))
    told = found.summary
    assert told["silenced"] == 0.5
    assert math.isclose(
        told["rank_fall_rest_seen"],
        math.exp(find(found, "ablation", "seen", "rest", "log_rank_lost", start=0.5).value),
    )


def test_several_orders_make_intervals_wider_than_one(lstm):
    widths = []
    for orders in (1, 4):
        texts = corpus(1, 200, 100), corpus(2)
        found = analysed(lstm, *texts, silenced=(0.5,), orders=orders, resamples=400)
        one = find(found, "ablation", "seen", "all", "log_rank", start=0.5)
        widths.append(one.high - one.low)
    assert widths[1] > widths[0]


def test_decoders_have_an_anatomy_as_well():
    torch.manual_seed(0)
    model = Seq2SeqModel(WORDS, WORDS, Seq2SeqConfig(hidden_size=6, embedding_size=6)).eval()
    texts = [corpus(seed, 20, 5) for seed in (1, 2)]
    pairs = [Corpus.from_texts(list(t), users=t.users, sources=list(t)[::-1]) for t in texts]
    told = analysed(model, *pairs, silenced=(0.5,), orders=2).summary
    assert told["hidden_units"] == 6
    assert told["rank_fall_rest_seen"] is not None


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(lstm):
    how = {"silenced": (0.5,), "orders": 2, "ablation_words": 60}
    rows = [analysed(lstm, corpus(1), corpus(2), seed=seed, **how).rows for seed in (0, 0, 1)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


def test_rows_have_one_shape_and_no_nan(model):
    one = Corpus.from_texts(["w2 w3"])
    found = plain(model, one, corpus(2))
    rows = list(found.rows)
    assert len({tuple(row) for row in rows}) == 1
    values = [v for row in [*rows, found.summary] for v in row.values() if isinstance(v, float)]
    assert not [v for v in values if math.isnan(v) or math.isinf(v)]
    assert found.summary["unit"] == "texts"  # the seen text has no users
    assert find(found, "means", "seen", "all", "log_prob").low is None  # one unit has no spread
    assert found.summary["silenced"] is None


def test_the_progress_of_each_task_rises_to_its_end(lstm):
    tasks = {}

    class Watching:
        def log(self, text):
            pass

        @contextmanager
        def progress(self, task):
            steps = tasks.setdefault(task, [])
            yield lambda *step: steps.append(step)

    analysed(lstm, corpus(1), corpus(2), silenced=(0.5,), orders=2, monitor=Watching())
    assert list(tasks) == [
        *("reading the seen text", "reading the unseen text"),
        *("silencing units, seen text", "silencing units, unseen text"),
    ]
    for steps in tasks.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]
