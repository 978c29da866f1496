"""Greedy answers against a naive loop, BLEU against sacrebleu's own."""

import pytest
import sacrebleu
import torch

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import answer_greedily, as_read, bleu, bleu_interval
from vestige.training.loop import learn
from vestige.training.tasks import PairTask


@pytest.fixture(scope="module")
def model(numbers):
    """One that has learnt a little, so that it says words and ends."""
    made = numbers.fresh()
    lesson = PairTask(numbers.encoded(numbers.said(60)), None)
    config = TrainingConfig(seed=1, epochs=6, batch_size=8, learning_rate=2e-2)
    learn(made, lesson, config=config)
    return made


@torch.no_grad()
def naive(model, source, length):
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
def test_answers_are_the_likeliest_tokens_one_by_one(model, numbers, length):
    corpus = numbers.said(12, seed=3, longest=4)
    found = answer_greedily(model.train(), numbers.encoded(corpus).sources, length=length)
    assert model.training
    assert max(map(len, found)) <= length
    if length > 4:  # else the end of a source was not read
        assert len({len(answer) for answer in found}) > 1
        assert found == [naive(model, source, length) for source in corpus.sources]


def test_bleu_is_that_of_sacrebleu_on_decoded_answers(model, numbers):
    corpus = numbers.said(60, seed=4, longest=6)
    sources = numbers.encoded(corpus).sources
    said = [model.vocabulary.decode(ids) for ids in answer_greedily(model, sources)]
    expected = sacrebleu.corpus_bleu(said, [list(corpus)], force=True)
    found = bleu(model, sources, list(corpus), seed=0)
    assert 0 < expected.score < 100
    assert found.score.value == pytest.approx(expected.score)
    assert found.score.low < found.score.value < found.score.high
    assert "tok:13a" in found.signature
    assert bleu(model, sources, list(corpus)).score.low is None


def test_the_interval_is_sacrebleus_own_but_for_chance(model, numbers):
    corpus = numbers.said(60, seed=4, longest=6)
    said = [
        model.vocabulary.decode(ids)
        for ids in answer_greedily(model, numbers.encoded(corpus).sources)
    ]
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
