"""Accuracy and perplexity of texts, with intervals over users."""

import math

import numpy as np
import pytest

from vestige.errors import TrainingError
from vestige.metrics.estimates import Estimate, ratio_of_sums
from vestige.training.evaluate import DocumentScores
from vestige.training.scored_texts import with_intervals
from vestige.training.translations import Bleu


def scores(loss, right, tokens):
    return DocumentScores(
        loss=np.array(loss, float), right=np.array(right), tokens=np.array(tokens)
    )


FOUR = scores([4, 9, 2, 6], [1, 2, 2, 0], [2, 4, 3, 3])


def test_words_are_summed_over_all_texts():
    found = with_intervals(FOUR, None)
    assert found.accuracy.value == pytest.approx(5 / 12)
    assert found.perplexity.value == pytest.approx(math.exp(21 / 12))
    assert found.tokens == 12


def test_intervals_count_texts_or_users():
    by_text, by_user = with_intervals(FOUR, None), with_intervals(FOUR, np.array([5, 5, 2, 2]))
    hits = ratio_of_sums([1, 2, 2, 0], [2, 4, 3, 3])
    assert by_text.accuracy.interval == pytest.approx((max(hits.low, 0), hits.high))
    nats = ratio_of_sums([13, 8], [6, 6])
    low, high = by_user.perplexity.interval
    assert low == pytest.approx(max(1, math.exp(nats.low)))
    assert high == pytest.approx(math.exp(nats.high))


def test_one_user_says_nothing_about_others():
    found = with_intervals(FOUR, np.zeros(4, np.int32))
    assert found.accuracy.low is None
    assert found.summary()["perplexity_low"] is None


def test_a_text_that_was_not_read_counts_for_nothing():
    more = scores([4, 9, 2, 6, 0], [1, 2, 2, 0, 0], [2, 4, 3, 3, 0])
    assert with_intervals(more, None) == with_intervals(FOUR, None)
    with pytest.raises(TrainingError, match="no tokens to evaluate on"):
        with_intervals(scores([0], [0], [0]), None)


def test_an_infinite_perplexity_has_no_interval():
    found = with_intervals(scores([math.inf, 1], [0, 1], [1, 1]), None)
    assert (found.perplexity.value, found.perplexity.low) == (math.inf, None)


def test_a_summary_names_scores_and_the_ends_of_their_intervals():
    bleu = Bleu(score=Estimate("BLEU", 9.0, 8.0, 10.0), signature="tok:13a")
    row = with_intervals(FOUR, None, bleu=bleu).summary()
    assert (row["bleu"], row["bleu_low"], row["bleu_high"]) == (9.0, 8.0, 10.0)
    assert row["accuracy_low"] < row["accuracy"]
    assert row["accuracy"] == pytest.approx(5 / 12)
