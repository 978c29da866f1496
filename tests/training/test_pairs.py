"""Pairs of texts in batches, what is learnt of them, and the scores of translations."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
import torch
from torch.nn.functional import cross_entropy

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import TrainingError
from vestige.models.checkpoints import load_seq2seq
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import answer_greedily, as_read, bleu, bleu_interval, score_pairs
from vestige.training.loop import learn
from vestige.training.steps import plain_step
from vestige.training.tasks import PairTask

CONFIG = TrainingConfig(
    seed=1, epochs=2, batch_size=4, sequence_length=9, learning_rate=2e-2, checkpoint_every=3
)
CPU = torch.device("cpu")
SHAPES = [{}, {"attention": False}, {"cell": "gru"}]


def batches_of(pairs, batch_size, length, first=77):
    model = SimpleNamespace(first_token=first, device=CPU)
    config = replace(CONFIG, batch_size=batch_size, sequence_length=length)
    return PairTask(pairs, None).batches(model, config)


def numbered():
    """Pairs that hold nothing but their number: source and target of these lengths."""
    lengths = [(1, 3), (3, 2), (2, 5), (3, 3), (3, 9), (1, 2), (2, 2), (3, 4), (3, 2), (4, 2)]
    sides = []
    for side in zip(*lengths, strict=True):
        ids = np.repeat(np.arange(len(side)), side).astype(np.int32)
        sides.append(EncodedCorpus(ids, np.concatenate([[0], np.cumsum(side)]).astype(np.int64)))
    return EncodedPairs(*sides), np.array(lengths)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_an_epoch_holds_every_pair_once_in_batches_of_one_source_length(batch_size):
    pairs, lengths = numbered()
    batches = batches_of(pairs, batch_size, 100)
    assert not batches.carries
    for epoch in range(3):
        found, seen, tokens = list(batches.epoch(7, epoch)), [], 0
        assert len(found) == len(batches)
        for batch in found:
            rows, length = batch.sources.shape
            assert rows <= batch_size
            numbers = batch.sources[:, 0].tolist()
            assert (lengths[numbers, 0] == length).all()
            assert (batch.sources == batch.sources[:, :1]).all()
            assert batch.inputs[:, 0].tolist() == [77] * rows
            assert batch.targets[:, 0].tolist() == numbers
            assert batch.lengths.tolist() == lengths[numbers, 1].tolist()
            seen, tokens = seen + numbers, tokens + batch.tokens
        assert sorted(seen) == list(range(len(pairs)))
        assert tokens == lengths[:, 1].sum()


def test_long_pairs_are_cut_and_never_in_pieces():
    pairs, lengths = numbered()
    batches = batches_of(pairs, 100, 2)
    read = list(batches.epoch(0, 0))
    assert {batch.sources.shape[1] for batch in read} == {1, 2}
    assert sum(batch.tokens for batch in read) == np.minimum(lengths[:, 1], 2).sum()
    assert sum(len(batch.sources) for batch in read) == len(pairs)


def test_a_pair_without_a_word_to_predict_is_left_out(numbers):
    pairs = numbers.of_texts([("un", "one"), ("deux", ""), ("", "two")])
    read = list(batches_of(pairs, 100, 9, 1).epoch(0, 0))
    assert sorted(batch.sources.tolist() for batch in read) == [[[1]], [[2, 1]]]
    with pytest.raises(TrainingError, match="No document has a word"):
        batches_of(numbers.of_texts([("un", ""), ("deux", "")]), 100, 9, 1)


def test_padding_changes_no_loss_and_no_gradient(numbers):
    """Each target alone, in place of a batch of targets of many lengths."""
    texts = [("un deux", "one"), ("deux un", "two one four two three"), ("un un", "three three")]
    pairs, model = numbers.of_texts(texts), numbers.fresh(dropout_out=0.0).train()
    (batch,) = batches_of(pairs, 9, 9, model.first_token).epoch(0, 0)
    assert batch.padding == 7
    step = plain_step()
    loss, carried = step(model, batch, None)
    assert carried is None
    together = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    losses = []
    for place in range(3):
        source, target = (
            torch.from_numpy(part.document(place).astype(np.int64))
            for part in (pairs.sources, pairs.targets)
        )
        inputs = torch.cat([torch.tensor([model.first_token]), target[:-1]])
        own = cross_entropy(model(source[None], inputs[None])[0], target, reduction="sum")
        losses.append(own.item())
        (own / batch.tokens).backward()
    assert loss.item() == pytest.approx(sum(losses) / batch.tokens, rel=1e-5)
    for parameter, gradient in zip(model.parameters(), together, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_norm_cuts_the_gradient(numbers):
    model = numbers.fresh().train()
    (batch,) = batches_of(numbers.of_texts([("un", "one two")]), 9, 9, 1).epoch(0, 0)
    plain_step(max_grad_norm=1e-3)(model, batch, None)
    total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    assert total.item() == pytest.approx(1e-3, rel=1e-3)


@torch.no_grad()
def naive(model, corpus):
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


@pytest.mark.parametrize("shape", SHAPES)
def test_accuracy_and_perplexity_are_the_papers(numbers, shape):
    corpus, model = numbers.said(16), numbers.fresh(**shape)
    learn(model, PairTask(numbers.encoded(corpus), None), config=CONFIG)
    scores = score_pairs(model.train(), numbers.encoded(corpus))
    assert model.training
    found = scores.evaluation()
    perplexity, accuracy, tokens = naive(model, corpus)
    assert found.perplexity == pytest.approx(perplexity, rel=1e-5)
    assert (found.accuracy, found.tokens) == (pytest.approx(accuracy), tokens)
    alone = score_pairs(model, numbers.encoded(corpus.take([7]))).loss
    assert scores.loss[7] == pytest.approx(alone[0], rel=1e-5)
    assert scores.tokens.tolist() == [len(text.split()) + 1 for text in corpus]


def test_a_pair_without_a_word_to_predict_scores_nothing(numbers):
    scores = score_pairs(numbers.fresh(), numbers.of_texts([("un", "one"), ("deux", "")]))
    assert (scores.loss[1], scores.right[1], scores.tokens[1]) == (0, 0, 0)


@pytest.mark.slow
def test_a_model_learns_to_translate(numbers):
    corpus, held = numbers.said(100), numbers.said(20, seed=1)
    model = numbers.fresh(embedding_size=24, hidden_size=24)
    lesson = PairTask(numbers.encoded(corpus), numbers.encoded(held), tuple(held))
    history = learn(model, lesson, config=replace(CONFIG, epochs=10, batch_size=8))
    kept = history.epochs[history.best_epoch - 1]
    assert kept.validation_accuracy > 0.9
    assert kept.measures["bleu"] > 50
    scores = score_pairs(model, numbers.encoded(held), length=9).evaluation()
    assert kept.validation_perplexity == pytest.approx(scores.perplexity)
    assert kept.validation_accuracy == scores.accuracy


def test_a_dialogue_has_no_bleu(numbers):
    pairs = numbers.encoded(numbers.said(20))
    history = learn(numbers.fresh(), PairTask(pairs, pairs), config=replace(CONFIG, epochs=1))
    assert history.epochs[0].measures == {}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", [{}, {"optimizer": "sgd", "momentum": 0.9}])
@pytest.mark.parametrize("after", [10])
def test_an_interrupted_training_ends_in_the_same_bits(tmp_path, numbers, shape, settings, after):
    config = replace(CONFIG, **settings)
    held = numbers.said(6, seed=1)
    lesson = PairTask(numbers.encoded(numbers.said(20)), numbers.encoded(held), tuple(held))
    whole, broken, again = (numbers.fresh(dropout_in=0.2, **shape) for _ in range(3))
    history = learn(whole, lesson, config=config, directory=tmp_path / "whole")

    def interrupt(step, *_):
        if step >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(broken, lesson, config=config, directory=tmp_path / "run", progress=interrupt)
    resumed = learn(again, lesson, config=config, directory=tmp_path / "run", resume=True)
    assert numbers.weights(again).equal(numbers.weights(whole))
    assert resumed.epochs == history.epochs
    for run in ("whole", "run"):
        saved = load_seq2seq(tmp_path / run, device="cpu")
        assert numbers.weights(saved).equal(numbers.weights(whole))


@pytest.mark.parametrize("changed", ["sources", "targets", "validation", "references"])
def test_a_training_of_other_pairs_is_not_resumed(tmp_path, numbers, changed):
    corpus, config = numbers.said(20), replace(CONFIG, epochs=1)
    pairs = numbers.encoded(corpus)
    first = PairTask(pairs, pairs, tuple(corpus))
    learn(numbers.fresh(), first, config=config, directory=tmp_path)
    other = numbers.encoded(numbers.said(20, seed=2))
    if changed == "references":
        second = replace(first, references=("one",) * 20)
    elif changed == "validation":
        second = replace(first, validation=EncodedPairs(other.sources, pairs.targets))
    else:
        second = replace(first, data=replace(pairs, **{changed: getattr(other, changed)}))
    with pytest.raises(TrainingError):
        learn(numbers.fresh(), second, config=config, directory=tmp_path, resume=True)


@pytest.fixture(scope="module")
def model(numbers):
    """One that has learnt a little, so that it says words and ends."""
    made = numbers.fresh()
    lesson = PairTask(numbers.encoded(numbers.said(60)), None)
    config = TrainingConfig(seed=1, epochs=6, batch_size=8, learning_rate=2e-2)
    learn(made, lesson, config=config)
    return made


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
def test_answers_are_the_likeliest_tokens_one_by_one(model, numbers, length):
    corpus = numbers.said(12, seed=3, longest=4)
    found = answer_greedily(model.train(), numbers.encoded(corpus).sources, length=length)
    assert model.training
    assert max(map(len, found)) <= length
    if length > 4:  # else the end of a source was not read
        assert len({len(answer) for answer in found}) > 1
        assert found == [greedy(model, source, length) for source in corpus.sources]


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
