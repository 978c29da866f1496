"""What shown tokens tell of hidden ones, against definitions written naively and a made update."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from vestige.attacks.texts.shown_changes import NOISE, SHIFT, base_of_shown, shown_features
from vestige.attacks.texts.shown_tokens import shown_only
from vestige.attacks.texts.token_statistics import token_statistics
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.output_layer import output_rows
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.presets import new_model

WORDS, SHOWN = 60, 20


@pytest.fixture(scope="module")
def pair():
    """A model, and texts of its tokens."""
    corpus = Corpus.from_texts([" ".join(f"w{n}" for n in range(WORDS))])
    vocabulary = WordVocabulary.build(corpus)
    shape = LSTMConfig(embedding_size=16, hidden_size=16)
    base = new_model(vocabulary, shape, seed=0).eval()
    texts = [np.random.default_rng(n).integers(4, len(vocabulary), 30).tolist() for n in range(6)]
    return base, texts


@pytest.fixture(scope="module")
def moved(pair):
    """Statistics under the base and a target that moved every hidden vector; the output layer."""
    base, texts = pair
    rows = output_rows(base)
    whole = token_statistics(base, texts, likeliest=base.vocab_size)
    logits = np.empty((len(whole.tokens), base.vocab_size))
    np.put_along_axis(logits, whole.likeliest.astype(int), whole.likeliest_log_probs, 1)
    chance = np.random.default_rng(5)
    logits += chance.normal(0, 3.0, (len(logits), rows.shape[1])) @ rows.T
    logits -= np.log(np.exp(logits).sum(1, keepdims=True))
    order = np.argsort(-logits, axis=1, kind="stable").astype(np.int32)
    target = replace(
        whole,
        log_probs=logits[np.arange(len(logits)), whole.tokens].astype(np.float32),
        ranks=(order == whole.tokens[:, None]).argmax(1).astype(np.int32),
        likeliest=order,
        likeliest_log_probs=np.take_along_axis(logits, order, 1).astype(np.float32),
    )
    return whole, target, rows


def test_the_change_of_a_hidden_token_is_predicted_from_those_shown(moved):
    whole, target, rows = moved
    shown = shown_only(target, whole, likeliest=SHOWN)
    predicted = shown_features(shown, whole, rows)[:, 5]
    hidden = target.ranks >= SHOWN
    true = (target.log_probs - whole.log_probs)[hidden]
    rest = (shown.log_probs - whole.log_probs)[hidden]
    told = np.corrcoef(predicted[hidden], true)[0, 1]
    assert told > np.corrcoef(rest, true)[0, 1] + 0.1


def test_prediction_and_variance_are_those_of_a_gaussian_process(moved):
    whole, target, rows = moved
    shown = shown_only(target, whole, likeliest=SHOWN)
    found = shown_features(shown, whole, rows)
    unit = rows.astype(float) - rows.mean(0)
    unit /= np.sqrt((unit**2).sum(1).mean())
    for place in (0, 7, 100):
        ids, own = shown.likeliest[place], shown.tokens[place]
        joint = unit[[*ids, own]] @ unit[[*ids, own]].T + SHIFT
        weights = np.linalg.inv(joint[:-1, :-1] + NOISE * np.eye(SHOWN)) @ joint[:-1, -1]
        changes = shown.likeliest_log_probs[place] - base_of_shown(shown, whole)[place]
        assert found[place, 5] == pytest.approx(weights @ changes, rel=1e-6)
        assert found[place, 6] == pytest.approx(joint[-1, -1] - weights @ joint[:-1, -1], rel=1e-6)


def test_changes_in_other_places_of_the_text_are_counted_as_defined(moved):
    whole, target, rows = moved
    shown = shown_only(target, whole, likeliest=SHOWN)
    found, changes = shown_features(shown, whole, rows), shown.likeliest_log_probs
    changes = changes - base_of_shown(shown, whole)
    for first, last in zip(shown.offsets[:-1], shown.offsets[1:], strict=True):
        for place in range(first, last, 9):
            own = shown.tokens[place]
            there = [
                changes[other, at]
                for other in range(first, last)
                for at in range(SHOWN)
                if shown.likeliest[other, at] == own and shown.tokens[other] != own
            ]
            assert found[place, 8] == len(there)
            assert found[place, 7] == pytest.approx(sum(there) / (len(there) + 1), abs=1e-9)


def test_what_the_base_does_not_tell_is_left_out(moved):
    whole, target, rows = moved
    few = replace(
        whole,
        likeliest=whole.likeliest[:, :3],
        likeliest_log_probs=whole.likeliest_log_probs[:, :3],
    )
    shown = shown_only(target, few, likeliest=SHOWN)
    own = base_of_shown(shown, few)
    assert 0 < np.isnan(own).mean() < 1
    assert np.isfinite(shown_features(shown, few, rows)).all()
    assert np.isnan(shown_features(shown, few)[:, 5:7]).all()


def test_rows_of_the_output_layer_give_the_logits_of_hidden_vectors(pair):
    base, texts = pair
    with torch.no_grad():
        hidden = base.body(torch.tensor(texts[:1]))[0][0, -1]
        wanted = base.predict(hidden) - base.predict(torch.zeros_like(hidden))
    assert output_rows(base) @ hidden.numpy() == pytest.approx(wanted.numpy(), abs=1e-4)
