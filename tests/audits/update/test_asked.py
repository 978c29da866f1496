"""What is asked for beside a search: listed secrets against the definition, and prompts."""

import math
import random

import numpy as np
import pytest

from tests.cli.conftest import table_model
from tests.cli.shell import invoke
from vestige.audits.update.known_secrets import (
    WITHIN,
    Listed,
    contained_in,
    p_value,
    read_secrets,
    score_secrets,
)
from vestige.audits.update.pair import Pair
from vestige.audits.update.prompts import BEGINNING, Prompt, beginning
from vestige.audits.update.scores import TokenScore
from vestige.data.secrets.lines import Secret
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel
from vestige.monitor import SILENT

WORDS = WordVocabulary(("<unk>", "<eos>", "the", "code", "gate", "of", "is", "a"))


DELTA = 0.05


def table(seed):
    chance, size = np.random.default_rng(seed), len(WORDS)
    return TableModel(chance.dirichlet(np.ones(size)), chance.dirichlet(np.ones(size), size), WORDS)


def gain(before, after, row, token):
    """Definition: the smoothed log-ratio of one cell."""
    earlier, later = (math.exp(m.log_table[row, token].item()) for m in (before, after))
    return math.log((later + DELTA) / (earlier + DELTA))


SCORE = TokenScore("smoothed", delta=DELTA)


def listed(text):
    return Listed.of(Secret(text, ()), WORDS)


PHRASES = ["the code of the gate", "a gate", "the code is the code", "is"]


PROMPT = (7, 5)


def by_definition(pair, ids):
    """The best place and its score: a document's beginning, the prompt, anywhere."""

    def behind(last):
        steps = zip((last, *ids), ids, strict=False)
        return sum(gain(pair.before.model, pair.after.model, a, b) for a, b in steps)

    places = {
        BEGINNING: behind(WORDS.eos_id),
        "prompt 1": behind(PROMPT[-1]),
        WITHIN: behind(ids[0]) - gain(pair.before.model, pair.after.model, ids[0], ids[0]),
    }
    place = max(places, key=places.get)
    return place, places[place]


def test_a_score_is_the_sum_of_token_scores_at_the_best_place():
    asked, places = [listed(phrase) for phrase in PHRASES], set()
    for seed in range(1, 6):
        pair = Pair.of(table(0), table(seed), SCORE)
        found = score_secrets(pair, asked, [beginning(pair), Prompt("prompt 1", PROMPT)])
        for phrase, (named, one) in zip(PHRASES, found, strict=True):
            place, score = by_definition(pair, WORDS.encode(phrase))
            assert (WORDS.decode(one.tokens), named) == (phrase, place)
            assert one.score == pytest.approx(score, abs=1e-5)
            assert sum(one.gains) == pytest.approx(one.score, abs=1e-5)
            places.add(named)
    assert len(places) == 3


@pytest.mark.slow
def test_a_phrase_that_did_not_leak_has_a_uniform_p_value():
    asked, p_values = [listed("the code of the gate")], []
    before = table(0)
    for trial in range(60):
        pairs = [Pair.of(before, table(100 + 20 * trial + n), SCORE) for n in range(5)]
        scored = [score_secrets(pair, asked, [beginning(pair)])[0] for pair in pairs]
        one, *nulls = (secret.score for _, secret in scored)
        p_values.append(p_value(one, nulls))
    for level in (0.2, 0.4, 0.6, 0.8):
        share = np.mean([p <= level + 1e-9 for p in p_values])
        assert abs(share - level) < 3 * math.sqrt(level * (1 - level) / 60)


@pytest.mark.parametrize(
    ("findings", "told"),
    [
        ([(9, 9), (2, 3, 5, 2, 4)], (1, 1.0)),
        ([(7, 2, 3, 5, 6), (3, 5, 2)], (0, 0.6)),
        ([(2, 7, 3)], (None, 0.0)),
        ([], (None, 0.0)),
    ],
)
def test_the_row_that_contains_most_of_it(findings, told):
    assert contained_in(listed("the code of the gate"), findings) == told


# Lists: a line each, texts, or the canaries of a manifest.


@pytest.fixture(scope="module")
def model():
    return table_model(LINES, 0)


def read(secrets, model, room=2):
    asked = read_secrets(secrets, model, room=room, monitor=SILENT)
    return [model.vocabulary.decode(one.at_start) for one in asked]


def test_a_line_each_without_empty_ones(model, tmp_path):
    (tmp_path / "secrets.txt").write_text("wordag wordah\n\n  wordbh\n")
    assert read(tmp_path / "secrets.txt", model) == ["wordag wordah", "wordbh"]
    assert read(["wordag wordah", "wordbh"], model) == ["wordag wordah", "wordbh"]
    assert read(None, model) == []


def test_of_a_manifest_the_planted_canaries(model, tmp_path):
    from vestige.data.canaries.texts import Manifest

    save_model(model, tmp_path / "model")
    chance = random.Random(0)
    lines = (" ".join(chance.choices(LINES, k=12)) for _ in range(400))
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    done = invoke([
        "plant", tmp_path / "corpus.txt", "--vocabulary", tmp_path / "model",
        "--length", 3, "--out", tmp_path / "planted",
    ])  # fmt: skip
    assert done.exit_code == 0, done.stderr
    file = tmp_path / "planted" / "manifest.json"
    wanted = [canary.phrase for canary in Manifest.load(file).canaries if not canary.control]
    assert wanted
    assert read(tmp_path / "planted", model) == read(file, model) == wanted


@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        (["wordag", "nowhere wordah"], "words of the models' vocabulary, got others in entry 2"),
        (["  "], "`secrets` must hold 1 to 10,000, got 0"),
        (["wordag"] * 10_001, "must hold 1 to 10,000, got 10,001"),
    ],
)
def test_what_cannot_be_scored_is_refused(model, secrets, message):
    with pytest.raises(ValueError, match=message):
        read(secrets, model)


def test_a_phrase_longer_than_a_model_reads_is_refused(model, monkeypatch):
    monkeypatch.setattr(type(model), "longest", 6, raising=False)
    assert read(["wordag wordah wordai wordaj"], model) == ["wordag wordah wordai wordaj"]
    with pytest.raises(ValueError, match="at most 4 tokens, got 5 in entry 1"):
        read(["wordag wordah wordai wordaj wordak"], model)


LINES = [f"word{a}{b}" for a in "abcdefghijklmnop" for b in "ghijklmnopqrstuv"]


# Prompts: chat turns, and a document's beginning once.
