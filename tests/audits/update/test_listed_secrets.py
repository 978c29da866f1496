"""Phrases that must not leak: of a file, of a manifest, or as texts."""

import random

import pytest

from tests.cli.conftest import table_model
from tests.cli.shell import invoke
from vestige.audits.update.known_secrets import read_secrets
from vestige.models.checkpoints import save_model
from vestige.monitor import SILENT

WORDS = [f"word{a}{b}" for a in "abcdefghijklmnop" for b in "ghijklmnopqrstuv"]


@pytest.fixture(scope="module")
def model():
    return table_model(WORDS, 0)


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
    lines = (" ".join(chance.choices(WORDS, k=12)) for _ in range(400))
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
