"""Perplexity and accuracy against the definition, one token at a time."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.metrics.estimates import ratio_of_sums
from vestige.models.table import TableModel
from vestige.training.evaluate import DocumentScores, evaluate, score_documents


def naive(model, tokens, starts):
    """exp(-mean log p) and the share of first choices; the context begins anew at `starts`."""
    total, right, state = 0.0, 0, None
    for place, (token, following) in enumerate(pairwise(tokens)):
        if place in starts:
            state = model.start(1, anywhere=True)
        state = model.advance(state, torch.tensor([token]))
        log_probs = model.log_probs(state)[0]
        total -= float(log_probs[following])
        right += int(log_probs.argmax()) == following
    return math.exp(total / (len(tokens) - 1)), right / (len(tokens) - 1)


@pytest.mark.parametrize(
    ("architecture", "rows", "length", "starts"),
    [
        ("lstm", 1, 7, {0}),
        ("lstm", 1, 1000, {0}),
        ("lstm", 4, 7, {0, 25, 50, 75}),
        ("transformer", 1, 10, set(range(0, 98, 10))),
        ("transformer", 4, 8, {r + o for r in (0, 25, 50, 75) for o in (0, 8, 16, 24)}),
    ],
)
def test_it_is_the_definition(make_model, make_text, architecture, rows, length, starts):
    model, text = make_model(architecture).eval(), make_text(99)
    found = evaluate(model, text, batch_size=rows, sequence_length=length)
    perplexity, accuracy = naive(model, text.tokens.tolist(), starts)
    assert found.perplexity == pytest.approx(perplexity, rel=1e-5)
    assert found.accuracy == pytest.approx(accuracy)
    assert found.tokens == 98


def test_a_model_that_is_sure_and_wrong_is_infinitely_perplexed(make_model, make_text):
    after = torch.zeros(12, 12)
    after[:, 0] = 1
    sure = TableModel(after[0], after, make_model().vocabulary)
    assert evaluate(sure, make_text(50)).perplexity == math.inf


def test_it_leaves_the_mode_of_the_model_and_drops_nothing_out(make_model, make_text):
    model, text = make_model(), make_text(50)
    training = evaluate(model.train(), text)
    assert model.training
    assert evaluate(model.eval(), text) == training
    assert not model.training


def test_one_token_leaves_nothing_to_predict(make_model, make_text):
    text = make_text(1)
    with pytest.raises(TrainingError, match=r"too short to evaluate on.*more text"):
        evaluate(make_model(), EncodedCorpus(text.tokens[:1], text.offsets))


@pytest.mark.slow
@pytest.mark.parametrize("tokens", range(2, 60, 5))
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_every_token_but_the_first_is_predicted_exactly_once(make_model, make_text, tokens, rows):
    v = 12
    uniform = TableModel(
        torch.full((v,), 1 / v), torch.full((v, v), 1 / v), make_model().vocabulary
    )
    found = evaluate(uniform, make_text(tokens), batch_size=rows)
    assert found.tokens == tokens - 1
    assert found.perplexity == pytest.approx(v)


def documents(*sizes):
    """Texts of random words, each ended by <eos>."""
    rng = np.random.default_rng(0)
    texts = [np.append(rng.integers(2, 12, size - 1), 1) for size in sizes]
    tokens = np.concatenate(texts).astype(np.int32)
    return EncodedCorpus(tokens, np.cumsum([0, *sizes]))


def naive_document(model, tokens, length):
    """-log p of a document's tokens and how many were the first choice, a piece at a time."""
    total, right = 0.0, 0
    for begin in range(0, len(tokens), length):
        before = model.first_token if begin == 0 else tokens[begin - 1]
        state = model.advance(model.start(1, anywhere=True), torch.tensor([before]))
        for token in tokens[begin : begin + length]:
            log_probs = model.log_probs(state)[0]
            total -= float(log_probs[token])
            right += int(log_probs.argmax()) == token
            state = model.advance(state, torch.tensor([token]))
    return total, right


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "transformer"])
@pytest.mark.parametrize("length", [16, 4, 1])
def test_documents_are_scored_as_if_read_one_by_one(make_model, architecture, length):
    model, data = make_model(architecture), documents(5, 9, 1, 2, 12, 9, 3)
    found = score_documents(model.train(), data, sequence_length=length)
    assert model.training
    model.eval()
    for index in range(len(data)):
        text = data.document(index).tolist()
        expected = (0.0, 0) if len(text) == 1 else naive_document(model, text, length)
        assert found.loss[index] == pytest.approx(expected[0], rel=1e-5)
        assert found.right[index] == expected[1]
        assert found.tokens[index] == (0 if len(text) == 1 else len(text))
    assert (found.loss.dtype, found.right.dtype, found.tokens.dtype) == (
        np.float64,
        np.int64,
        np.int64,
    )


def test_all_documents_together_weigh_by_the_token(make_model):
    model, data = make_model().eval(), documents(5, 9, 2)
    scores = score_documents(model, data)
    found = score_documents(model, data).evaluation()
    assert found.perplexity == pytest.approx(math.exp(scores.loss.sum() / 16))
    assert found.accuracy == scores.right.sum() / 16
    assert found.tokens == 16


def test_one_document_read_alone_is_a_stream_that_begins_with_its_first_token(make_model):
    model, data = make_model().eval(), documents(12)
    stream = np.append(np.int32(model.first_token), data.tokens)
    as_stream = evaluate(
        model, EncodedCorpus(stream, np.array([0, 13])), batch_size=1, sequence_length=99
    )
    found = score_documents(model, data, sequence_length=99).evaluation()
    assert found.perplexity == pytest.approx(as_stream.perplexity, rel=1e-6)
    assert (found.accuracy, found.tokens) == (as_stream.accuracy, as_stream.tokens)


def test_documents_have_the_closed_form_of_a_table(make_model):
    rng = np.random.default_rng(0)
    start, after = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12), 12)
    model = TableModel(start, after, make_model().vocabulary)
    data = documents(5, 7)
    first = model.first_token
    expected = []
    for index in range(2):
        text = [first, *data.document(index).tolist()]
        expected.append(-sum(math.log(after[a, b]) for a, b in pairwise(text)))
    assert score_documents(model, data).loss == pytest.approx(expected, rel=1e-5)


def test_a_document_that_cannot_be_is_infinitely_perplexing_and_the_others_are_not(make_model):
    after = torch.full((12, 12), 1 / 11)
    after[:, 5] = 0
    model = TableModel(after[0], after, make_model().vocabulary)
    data = EncodedCorpus(np.array([2, 5, 1, 2, 3, 1], np.int32), np.array([0, 3, 6]))
    scores = score_documents(model, data)
    assert scores.loss[0] == math.inf
    assert scores.loss[1] == pytest.approx(3 * math.log(11), rel=1e-5)
    assert score_documents(model, data).evaluation().perplexity == math.inf


def test_documents_without_a_word_leave_nothing_to_predict(make_model):
    with pytest.raises(TrainingError, match=r"No document has a word.*more text"):
        score_documents(make_model(), documents(1, 1))


def scores(loss, right, tokens):
    loss, right, tokens = np.array(loss, float), np.array(right), np.array(tokens)
    return DocumentScores(loss=loss, right=right, tokens=tokens)


FOUR = scores([4, 9, 2, 6], [1, 2, 2, 0], [2, 4, 3, 3])


def test_intervals_count_texts_or_users():
    by_text, by_user = FOUR.summary(), FOUR.summary(np.array([5, 5, 2, 2]))
    assert by_text["accuracy"] == pytest.approx(5 / 12)
    assert by_text["perplexity"] == pytest.approx(math.exp(21 / 12))
    assert by_text["tokens"] == 12
    hits, nats = ratio_of_sums([1, 2, 2, 0], [2, 4, 3, 3]), ratio_of_sums([13, 8], [6, 6])
    ends = by_text["accuracy_low"], by_text["accuracy_high"]
    assert ends == pytest.approx((max(hits.low, 0), hits.high))
    assert by_user["perplexity_low"] == pytest.approx(max(1, math.exp(nats.low)))
    assert by_user["perplexity_high"] == pytest.approx(math.exp(nats.high))


def test_one_user_or_an_infinite_perplexity_has_no_interval():
    one = FOUR.summary(np.zeros(4, np.int32))
    assert one["accuracy_low"] is one["perplexity_low"] is None
    infinite = scores([math.inf, 1], [0, 1], [1, 1]).summary()
    assert (infinite["perplexity"], infinite["perplexity_low"]) == (math.inf, None)


def test_a_text_that_was_not_read_counts_for_nothing():
    more = scores([4, 9, 2, 6, 0], [1, 2, 2, 0, 0], [2, 4, 3, 3, 0])
    assert more.summary() == FOUR.summary()
    with pytest.raises(TrainingError, match="no tokens to evaluate on"):
        scores([0], [0], [0]).summary()
