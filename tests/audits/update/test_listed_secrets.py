"""Listed secrets: reading, scores in the best context, and matching rows."""

import math

import numpy as np
import pytest

import vestige
from tests.audits.update.worlds import smoothed_gain, word_table
from vestige.audits.update.listed_secrets import (
    WITHIN,
    ListedSecret,
    contained_in,
    p_value,
    read_secrets,
    score_secrets,
)
from vestige.audits.update.pair import Pair
from vestige.audits.update.prompts import BEGINNING, Prompt, beginning
from vestige.audits.update.scores import TokenScore
from vestige.data.canaries.texts import Manifest
from vestige.data.secrets.lines import Secret
from vestige.models.checkpoints import save_model
from vestige.monitor import SILENT

WORDS = ("the", "code", "gate", "of", "is", "a")
PHRASES = ["the code of the gate", "a gate", "the code is the code", "is"]
PROMPT = (7, 5)


@pytest.fixture(scope="module")
def model():
    return word_table(0, WORDS)


def pair_of(before, seed):
    return Pair.of(before, word_table(seed, WORDS), TokenScore("smoothed", delta=0.05))


def listed(model, *texts):
    return [ListedSecret.of(Secret(text, ()), model.vocabulary) for text in texts]


def best_context(pair, ids):
    """The best context and its score, by definition."""

    def score(last, tokens):
        steps = zip((last, *tokens), tokens, strict=False)
        return sum(smoothed_gain(pair, a, b) for a, b in steps)

    contexts = {
        BEGINNING: score(pair.vocabulary.eos_id, ids),
        "prompt 1": score(PROMPT[-1], ids),
        WITHIN: score(ids[0], ids[1:]),
    }
    context = max(contexts, key=contexts.get)
    return context, contexts[context]


def test_a_score_is_the_sum_of_token_gains_in_the_best_context(model):
    secrets, contexts = listed(model, *PHRASES), set()
    for seed in range(1, 6):
        pair = pair_of(model, seed)
        scored = score_secrets(pair, secrets, [beginning(pair), Prompt("prompt 1", PROMPT)])
        for phrase, (name, text) in zip(PHRASES, scored, strict=True):
            context, score = best_context(pair, model.vocabulary.encode(phrase))
            assert (model.vocabulary.decode(text.tokens), name) == (phrase, context)
            assert text.score == pytest.approx(score, abs=1e-5)
            assert sum(text.gains) == pytest.approx(text.score, abs=1e-5)
            contexts.add(name)
    assert len(contexts) == 3


@pytest.mark.slow
def test_p_values_of_secrets_that_did_not_leak_are_uniform(model):
    secrets, p_values = listed(model, PHRASES[0]), []
    for trial in range(60):
        pairs = [pair_of(model, 100 + 20 * trial + n) for n in range(5)]
        scored = [score_secrets(pair, secrets, [beginning(pair)])[0] for pair in pairs]
        text, *nulls = (secret.score for _, secret in scored)
        p_values.append(p_value(text, nulls))
    for level in (0.2, 0.4, 0.6, 0.8):
        share = np.mean([p <= level + 1e-9 for p in p_values])
        assert abs(share - level) < 3 * math.sqrt(level * (1 - level) / 60)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(9, 9), (2, 3, 5, 2, 4)], (1, 1.0)),
        ([(7, 2, 3, 5, 6), (3, 5, 2)], (0, 0.6)),
        ([(2, 7, 3)], (None, 0.0)),
        ([], (None, 0.0)),
    ],
)
def test_the_row_with_the_largest_part_of_a_secret(model, rows, expected):
    assert contained_in(*listed(model, PHRASES[0]), rows) == expected


# Lists: a line each, texts, or the canaries of a manifest.


def read(secrets, model):
    listed = read_secrets(secrets, model, room=2, monitor=SILENT)
    return [model.vocabulary.decode(secret.at_start) for secret in listed]


def test_secrets_are_lines_texts_or_planted_canaries(tmp_path):
    words = [f"word{a}{b}" for a in "abcdefghijklmnop" for b in "ghijklmnopqrstuv"]
    model, lines = word_table(0, words), tmp_path / "secrets.txt"
    lines.write_text("wordag wordah\n\n  wordbh\n")
    assert read(lines, model) == read(["wordag wordah", "wordbh"], model)
    assert read(lines, model) == ["wordag wordah", "wordbh"]
    assert read(None, model) == []
    save_model(model, tmp_path / "model")
    rng = np.random.default_rng(0)
    corpus, planted = tmp_path / "corpus.txt", tmp_path / "planted"
    corpus.write_text("\n".join(" ".join(rng.choice(words, 12)) for _ in range(400)))
    vestige.plant(corpus, vocabulary=tmp_path / "model", length=3, out=planted)
    file = planted / "manifest.json"
    expected = [canary.phrase for canary in Manifest.load(file).canaries if not canary.control]
    assert expected
    assert read(planted, model) == read(file, model) == expected


@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        (["gate", "nowhere code"], "words of the models' vocabulary, got others in entry 2"),
        (["  "], "`secrets` must hold 1 to 10,000, got 0"),
        (["gate"] * 10_001, "must hold 1 to 10,000, got 10,001"),
        (["the code of the gate"], "at most 4 tokens, got 5 in entry 1"),
    ],
)
def test_secrets_that_cannot_be_scored_are_refused(secrets, message):
    model = word_table(0, WORDS)
    model.longest = 6
    assert read(["the code of the"], model) == ["the code of the"]
    with pytest.raises(ValueError, match=message):
        read(secrets, model)
