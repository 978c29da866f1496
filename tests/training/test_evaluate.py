"""Perplexity, accuracy, BLEU and F1 against their definitions, one token or utterance at a time."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import sacrebleu
import torch

from tests.training import worlds
from tests.training.worlds import SIZE, WORDS, encoded, language_model, numbers, stream
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import TrainingError
from vestige.metrics.estimates import ratio_of_sums
from vestige.models.table import TableModel
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import (
    DocumentScores,
    answer_greedily,
    as_read,
    bleu,
    bleu_interval,
    evaluate,
    score_documents,
    score_pairs,
)
from vestige.training.loop import learn
from vestige.training.tasks import PairTask


def table(start, after):
    return TableModel(start, after, WORDS)


# A stream


def naive(model, tokens, starts):
    """exp(-mean log p) and the share of first choices; the context begins anew at `starts`."""
    total, right, state = 0.0, 0, None
    for position, (token, following) in enumerate(pairwise(tokens)):
        if position in starts:
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
def test_a_stream_is_scored_by_the_definition_without_dropout(architecture, rows, length, starts):
    model, text = language_model(architecture).train(), stream(99)
    result = evaluate(model, text, batch_size=rows, sequence_length=length)
    assert model.training
    perplexity, accuracy = naive(model.eval(), text.tokens.tolist(), starts)
    assert result.perplexity == pytest.approx(perplexity, rel=1e-5)
    assert result.accuracy == pytest.approx(accuracy)
    assert result.tokens == 98
    assert evaluate(model, text, batch_size=rows, sequence_length=length) == result
    assert not model.training


@pytest.mark.slow
@pytest.mark.parametrize("tokens", range(2, 60, 5))
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_every_token_but_the_first_is_predicted_exactly_once(tokens, rows):
    uniform = table(torch.full((SIZE,), 1 / SIZE), torch.full((SIZE, SIZE), 1 / SIZE))
    result = evaluate(uniform, stream(tokens), batch_size=rows)
    assert result.tokens == tokens - 1
    assert result.perplexity == pytest.approx(SIZE)


def test_one_token_leaves_nothing_to_predict():
    with pytest.raises(TrainingError, match=r"too short to evaluate on.*more text"):
        evaluate(language_model(), stream(1))


# Documents


def documents(*sizes):
    """Texts of random words, each ended by <eos>."""
    rng = np.random.default_rng(0)
    texts = [np.append(rng.integers(2, SIZE, size - 1), 1) for size in sizes]
    return EncodedCorpus(np.concatenate(texts).astype(np.int32), np.cumsum([0, *sizes]))


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
def test_documents_are_scored_as_if_read_one_by_one(architecture, length):
    model, data = language_model(architecture), documents(5, 9, 1, 2, 12, 9, 3)
    result = score_documents(model.train(), data, sequence_length=length)
    assert model.training
    model.eval()
    for index in range(len(data)):
        text = data.document(index).tolist()
        loss, right = (0.0, 0) if len(text) == 1 else naive_document(model, text, length)
        assert result.loss[index] == pytest.approx(loss, rel=1e-5)
        assert result.right[index] == right
        assert result.tokens[index] == (0 if len(text) == 1 else len(text))
    assert (result.loss.dtype, result.right.dtype, result.tokens.dtype) == (
        np.float64, np.int64, np.int64,
    )  # fmt: skip


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_one_document_is_scored_as_the_stream_that_it_is(architecture):
    model, data = language_model(architecture).eval(), documents(12)
    tokens = np.append(np.int32(model.first_token), data.tokens)
    whole = EncodedCorpus(tokens, np.array([0, 13]))
    as_stream = evaluate(model, whole, batch_size=1, sequence_length=99)
    result = score_documents(model, data, sequence_length=99).evaluation()
    assert result.perplexity == pytest.approx(as_stream.perplexity, rel=1e-6)
    assert (result.accuracy, result.tokens) == (as_stream.accuracy, as_stream.tokens)


def test_documents_have_the_closed_form_of_a_table():
    rng = np.random.default_rng(0)
    start, after = rng.dirichlet(np.ones(SIZE)), rng.dirichlet(np.ones(SIZE), SIZE)
    model, data, expected = table(start, after), documents(5, 7), []
    for index in range(2):
        text = [model.first_token, *data.document(index).tolist()]
        expected.append(-sum(math.log(after[a, b]) for a, b in pairwise(text)))
    assert score_documents(model, data).loss == pytest.approx(expected, rel=1e-5)


def test_a_document_that_cannot_be_is_infinitely_perplexing_and_the_others_are_not():
    after = torch.full((SIZE, SIZE), 1 / 11)
    after[:, 5] = 0
    model = table(after[0], after)
    data = EncodedCorpus(np.array([2, 5, 1, 2, 3, 1], np.int32), np.array([0, 3, 6]))
    scores = score_documents(model, data)
    assert scores.loss[0] == math.inf
    assert scores.loss[1] == pytest.approx(3 * math.log(11), rel=1e-5)
    assert scores.evaluation().perplexity == math.inf
    assert evaluate(model, data).perplexity == math.inf


def test_documents_without_a_word_leave_nothing_to_predict():
    with pytest.raises(TrainingError, match=r"No document has a word.*more text"):
        score_documents(language_model(), documents(1, 1))


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
    one = FOUR.summary(np.zeros(4, np.int32))
    assert one["accuracy_low"] is one["perplexity_low"] is None
    infinite = scores([math.inf, 1], [0, 1], [1, 1]).summary()
    assert (infinite["perplexity"], infinite["perplexity_low"]) == (math.inf, None)


def test_a_text_that_was_not_read_counts_for_nothing():
    more = scores([4, 9, 2, 6, 0], [1, 2, 2, 0, 0], [2, 4, 3, 3, 0])
    assert more.summary() == FOUR.summary()
    with pytest.raises(TrainingError, match="no tokens to evaluate on"):
        scores([0], [0], [0]).summary()


# Pairs

TRAINING = TrainingConfig(seed=1, epochs=2, batch_size=4, sequence_length=9, learning_rate=2e-2)


@torch.no_grad()
def naive_pairs(model, corpus):
    """Section 4.2 of the paper, a token at a time, through the attacker's face."""
    logs, right = [], []
    for source, text in zip(corpus.sources, corpus, strict=True):
        given = model.given(source)
        state = given.start(1)
        for token in [*model.vocabulary.encode(text), model.vocabulary.eos_id]:
            log_probs = given.log_probs(state)[0]
            logs.append(log_probs[token].item() / math.log(2))
            right.append(int(log_probs.argmax()) == token)
            state = given.advance(state, torch.tensor([token]))
    return 2 ** -(sum(logs) / len(logs)), sum(right) / len(right), len(logs)


@pytest.mark.parametrize("shape", [{}, {"attention": False}, {"cell": "gru"}])
def test_accuracy_and_perplexity_of_pairs_are_the_papers(shape):
    corpus, model = numbers(16), worlds.translator(**shape)
    learn(model, PairTask(encoded(corpus), None), config=TRAINING)
    result = score_pairs(model.train(), encoded(corpus))
    assert model.training
    perplexity, accuracy, tokens = naive_pairs(model, corpus)
    assert result.evaluation().perplexity == pytest.approx(perplexity, rel=1e-5)
    assert result.evaluation().accuracy == pytest.approx(accuracy)
    assert result.evaluation().tokens == tokens
    alone = score_pairs(model, encoded(corpus.take([7]))).loss
    assert result.loss[7] == pytest.approx(alone[0], rel=1e-5)
    assert result.tokens.tolist() == [len(text.split()) + 1 for text in corpus]


def test_a_pair_without_a_word_to_predict_scores_nothing():
    result = score_pairs(worlds.translator(), worlds.of_texts([("un", "one"), ("deux", "")]))
    assert (result.loss[1], result.right[1], result.tokens[1]) == (0, 0, 0)


@pytest.fixture(scope="module")
def translator():
    """One that has learnt a little, so that it says words and ends."""
    model = worlds.translator()
    task = PairTask(encoded(numbers(60)), None)
    learn(model, task, config=replace(TRAINING, epochs=6, batch_size=8, sequence_length=35))
    return model


def answers(model, corpus):
    result = answer_greedily(model, encoded(corpus).sources)
    return [model.vocabulary.decode(ids) for ids in result]


@torch.no_grad()
def greedy(model, source, length):
    given, said = model.given(source), []
    state = given.start(1)
    for _ in range(length):
        token = int(given.logits(state).argmax())
        if token == model.vocabulary.eos_id:
            break
        said.append(token)
        state = given.advance(state, torch.tensor([token]))
    return said


@pytest.mark.parametrize("length", [1, 3, 9])
def test_answers_are_the_likeliest_tokens_one_by_one(translator, length):
    corpus = numbers(12, seed=3)
    result = answer_greedily(translator.train(), encoded(corpus).sources, length=length)
    assert translator.training
    assert max(map(len, result)) <= length
    if length > 4:  # else the end of a source was not read
        assert len({len(answer) for answer in result}) > 1
        assert result == [greedy(translator, source, length) for source in corpus.sources]


def test_bleu_is_that_of_sacrebleu_on_decoded_answers(translator):
    corpus = numbers(60, seed=4, longest=6)
    said, sources = answers(translator, corpus), encoded(corpus).sources
    expected = sacrebleu.corpus_bleu(said, [list(corpus)], force=True)
    result = bleu(translator, sources, list(corpus), seed=0)
    assert 0 < expected.score < 100
    assert result.score.value == pytest.approx(expected.score)
    assert result.score.low < result.score.value < result.score.high
    assert "tok:13a" in result.signature
    assert bleu(translator, sources, list(corpus)).score.low is None


def test_the_interval_of_bleu_is_sacrebleus_own_but_for_chance(translator):
    corpus = numbers(60, seed=4, longest=6)
    said = answers(translator, corpus)
    metric = sacrebleu.metrics.BLEU(force=True)
    theirs = metric.corpus_score(said, [list(corpus)], n_bootstrap=1000)
    low, high = bleu_interval(said, list(corpus), seed=1)
    assert (low + high) / 2 == pytest.approx(theirs._mean, abs=2)
    assert (high - low) / 2 == pytest.approx(theirs._ci, rel=0.2)
    assert bleu_interval(said, list(corpus), seed=1) == (low, high)
    assert bleu_interval(said[:1], list(corpus)[:1], seed=1) == (None, None)


def test_references_are_written_as_answers_are():
    words = WordVocabulary(("<unk>", "<eos>", "yes"), lowercase=True, tokenise="words")
    assert as_read("Yes, U.S.  mail!", words) == "yes , u . s . mail !"
    pieces = SubwordVocabulary.train_bpe(Corpus.from_texts(["yes or no"] * 4), size=262)
    assert as_read("Yes, U.S.  mail!", pieces) == "Yes, U.S.  mail!"
