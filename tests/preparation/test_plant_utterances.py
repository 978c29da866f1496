"""`plant --task nlu`: secrets in labelled utterances, and the files of their parts."""

import json

import pytest

from tests.preparation.trainings import SONGS
from vestige.data.canaries.patterns import with_intents
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.formats.utterances import read_utterances
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.preparation.plant import plant


def some(number, word):
    return Utterances.of(
        Utterance((word, f"song{i}"), ("O", "B-song"), "PlayMusic") for i in range(number)
    )


@pytest.fixture
def parted(tmp_path):
    """A folder with three parts."""
    (tmp_path / "parted").mkdir()
    for number, name in ((30, "train"), (8, "validation"), (6, "test")):
        write_utterances(some(number, name), tmp_path / "parted" / f"{name}.jsonl")
    return tmp_path / "parted"


def planted(data, out=None, **given):
    return plant(data, task="nlu", out=out, **{"pattern": "pin:4", **given})


def texts(path):
    return [spoken.text for spoken in read_utterances(path).train]


def test_patterns_of_the_paper_have_intents_and_a_tenth_is_validation(parted, tmp_path):
    out = tmp_path / "out"
    given = {"pattern": ["pin:4", "color:2"], "copies": 20, "number": 2, "controls": 3}
    found = planted(str(parted), out, **given)
    summary, manifest = found.summary, SecretManifest.load(out / "manifest.json")
    assert found.labelled
    assert manifest.intents == ("PinIntent", "ColorIntent")
    assert summary["patterns"] == 2
    assert (summary["canaries"], summary["controls"], summary["copies"]) == (4, 6, 80)
    assert (summary["train"], summary["validation"], summary["test"]) == (30 + 72, 8 + 8, 6)
    train, validation = texts(out / "train.jsonl"), texts(out / "validation.jsonl")
    for canary, row in zip(manifest.canaries, found.rows, strict=True):
        share = (18, 2) if canary.planted else (0, 0)
        counts = tuple(part.count(canary.utterance.text) for part in (train, validation))
        assert counts == share
        assert (row["copies"], row["validation"]) == (sum(share), share[1])
    before, after = read_utterances(parted), read_utterances(out)
    assert after.test.fingerprint() == before.test.fingerprint()
    assert manifest.before == (before.train.fingerprint(), before.validation.fingerprint())
    assert manifest.after == (after.train.fingerprint(), after.validation.fingerprint())
    checked = planted(out, verify=True)
    assert checked.summary == summary | {"verified": True}
    assert "agrees with its sealed manifest" in str(checked)


@pytest.mark.parametrize(
    ("given", "train", "validation"),
    [
        ({"copies": 10}, 36 + 9, 4 + 1),
        ({"copies": 10, "hold_out": 0.25}, 30 + 9, 10 + 1),
        ({"copies": 5, "hold_out": 0.0}, 40 + 5, 0),
        ({"copies": 10, "validation": "other.jsonl"}, 40 + 9, 7 + 1),
    ],
)
def test_validation_is_a_share_of_the_data_or_another_file(
    tmp_path, monkeypatch, given, train, validation
):
    monkeypatch.chdir(tmp_path)
    write_utterances(some(7, "stop"), tmp_path / "other.jsonl")
    found = planted(SONGS, tmp_path / "out", **given)
    assert (found.summary["train"], found.summary["validation"]) == (train, validation)
    assert found.summary["test"] == 0
    names = {"train.jsonl", "manifest.json"} | ({"validation.jsonl"} if validation else set())
    assert {one.name for one in (tmp_path / "out").iterdir()} == names
    written = read_utterances(tmp_path / "out" / "train.jsonl").train
    assert written.fingerprint() == found.corpus.fingerprint()
    assert planted(tmp_path / "out", verify=True).summary["train"] == train


def test_custom_patterns_have_words_slots_and_intents(tmp_path):
    (tmp_path / "towns.txt").write_text("york\nleeds\nbath\n")
    own = {"pattern": ["i am {name} of {town}", "pin:2"], "intent": "Introduce", "slot": "who"}
    towns = f"town=@{tmp_path / 'towns.txt'}"
    manifest = planted(SONGS, **own, candidates=["name=ann,bob", towns]).manifest
    first = manifest.canaries[0]
    assert first.parsed.candidates == (("ann", "bob"), ("york", "leeds", "bath"))
    assert first.utterance.tags == ("O", "O", "B-who", "O", "B-who")
    assert manifest.intents == ("Introduce", "PinIntent")
    mapping = {"name": ("ann", "bob"), "town": ("york", "leeds", "bath")}
    assert planted(SONGS, **own, candidates=mapping).manifest.sha256 == manifest.sha256


def test_columns_may_have_other_names(tmp_path):
    rows = [{"w": ["play", f"a{i}"], "t": ["O", "B-song"], "i": "Play"} for i in range(20)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"tokens_column": "w", "tags_column": "t", "intent_column": "i"}
    assert planted(str(tmp_path / "own.jsonl"), **columns).summary["train"] == 18 + 9


def test_the_same_seed_plants_the_same_utterances():
    one, same, other = (planted(SONGS, seed=seed).manifest.sha256 for seed in (4, 4, 6))
    assert one == same != other


@pytest.mark.slow
def test_secrets_are_redacted_on_the_terminal_by_default(shell, tmp_path):
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    words = ["plant", tmp_path / "songs.jsonl", "--task", "nlu", "--pattern", "color:4"]
    words += ["--number", 45]
    hidden, shown = (
        shell(*words, "--out", tmp_path / name, *more)
        for name, more in (("a", []), ("b", ["--show-secrets"]))
    )
    canaries = SecretManifest.load(tmp_path / "a" / "manifest.json").canaries
    for canary in canaries[:20]:
        assert " ".join(canary.secret) in shown.stdout
        assert " ".join(canary.secret) not in hidden.stdout
    assert "color {color:4}" in hidden.stdout
    assert shown.stdout.count("ColorIntent") == 20
    assert "46 canaries and controls" in shown.stdout


def test_intents_are_assigned_to_custom_patterns_in_order():
    own = ["a {digit}", "pin:1", "b {digit}"]
    assert [intent for _, intent in with_intents(own, ["A", "B"])] == ["A", "PinIntent", "B"]
    assert [intent for _, intent in with_intents(own, ["A", "P", "B"])] == ["A", "P", "B"]
