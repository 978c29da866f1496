"""`plant --task nlu`: secrets in labelled utterances, and the files of their parts."""

import json

import pytest

from tests.preparation.trainings import SONGS
from vestige.data.canaries.patterns import with_intents
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.formats.utterances import read_utterances
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.preparation.plant import plant


def utterances(number, word):
    return Utterances.of(
        Utterance((word, f"song{i}"), ("O", "B-song"), "PlayMusic") for i in range(number)
    )


def planted(data, out=None, **options):
    return plant(data, task="nlu", out=out, **{"pattern": "pin:4", **options})


def test_copies_are_divided_among_training_and_validation_part(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for number, name in ((30, "train"), (8, "validation"), (6, "test")):
        write_utterances(utterances(number, name), data / f"{name}.jsonl")
    options = {"pattern": ["pin:4", "color:2"], "copies": 20, "number": 2, "controls": 3}
    planting = planted(str(data), out, **options)
    summary, manifest = planting.summary, SecretManifest.load(out / "manifest.json")
    assert planting.labelled
    assert manifest.intents == ("PinIntent", "ColorIntent")
    assert summary["patterns"] == 2
    assert (summary["canaries"], summary["controls"], summary["copies"]) == (4, 6, 80)
    assert (summary["train"], summary["validation"], summary["test"]) == (30 + 72, 8 + 8, 6)
    before, after = read_utterances(data), read_utterances(out)
    texts = [[utterance.text for utterance in part] for part in (after.train, after.validation)]
    for canary, row in zip(manifest.canaries, planting.rows, strict=True):
        copies = (18, 2) if canary.planted else (0, 0)
        assert tuple(part.count(canary.utterance.text) for part in texts) == copies
        assert (row["copies"], row["validation"]) == (sum(copies), copies[1])
    assert after.test.fingerprint() == before.test.fingerprint()
    assert manifest.before == (before.train.fingerprint(), before.validation.fingerprint())
    assert manifest.after == (after.train.fingerprint(), after.validation.fingerprint())
    verified = planted(out, verify=True)
    assert verified.summary == summary | {"verified": True}
    assert "agrees with its sealed manifest" in str(verified)


@pytest.mark.parametrize(
    ("options", "train", "validation"),
    [
        ({"copies": 10}, 36 + 9, 4 + 1),
        ({"copies": 10, "hold_out": 0.25}, 30 + 9, 10 + 1),
        ({"copies": 5, "hold_out": 0.0}, 40 + 5, 0),
        ({"copies": 10, "validation": "other.jsonl"}, 40 + 9, 7 + 1),
    ],
)
def test_validation_is_a_share_of_the_data_or_another_file(
    tmp_path, monkeypatch, options, train, validation
):
    monkeypatch.chdir(tmp_path)
    write_utterances(utterances(7, "stop"), tmp_path / "other.jsonl")
    out = tmp_path / "out"
    planting = planted(SONGS, out, **options)
    assert (planting.summary["train"], planting.summary["validation"]) == (train, validation)
    assert planting.summary["test"] == 0
    names = {"train.jsonl", "manifest.json"} | ({"validation.jsonl"} if validation else set())
    assert {path.name for path in out.iterdir()} == names
    written = read_utterances(out / "train.jsonl").train
    assert written.fingerprint() == planting.corpus.fingerprint()
    assert planted(out, verify=True).summary["train"] == train


def test_custom_patterns_have_words_slots_and_intents(tmp_path):
    (tmp_path / "towns.txt").write_text("york\nleeds\nbath\n")
    options = {"pattern": ["i am {name} of {town}", "pin:2"], "intent": "Introduce", "slot": "who"}
    towns = f"town=@{tmp_path / 'towns.txt'}"
    manifest = planted(SONGS, **options, candidates=["name=ann,bob", towns]).manifest
    canary = manifest.canaries[0]
    assert canary.parsed.candidates == (("ann", "bob"), ("york", "leeds", "bath"))
    assert canary.utterance.tags == ("O", "O", "B-who", "O", "B-who")
    assert manifest.intents == ("Introduce", "PinIntent")


def test_columns_may_have_other_names(tmp_path):
    rows = [{"w": ["play", f"a{i}"], "t": ["O", "B-song"], "i": "Play"} for i in range(20)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"tokens_column": "w", "tags_column": "t", "intent_column": "i"}
    assert planted(str(tmp_path / "data.jsonl"), **columns).summary["train"] == 18 + 9


def test_the_seed_determines_the_planted_utterances():
    first, same, other = (planted(SONGS, seed=seed).manifest.sha256 for seed in (4, 4, 6))
    assert first == same != other


@pytest.mark.slow
def test_secrets_are_redacted_on_the_terminal_by_default(shell, tmp_path):
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    words = ["plant", tmp_path / "songs.jsonl", "--task", "nlu", "--pattern", "color:4"]
    words += ["--number", 45]
    hidden, shown = (
        shell(*words, "--out", tmp_path / name, *options)
        for name, options in (("a", []), ("b", ["--show-secrets"]))
    )
    canaries = SecretManifest.load(tmp_path / "a" / "manifest.json").canaries
    for canary in canaries[:20]:
        assert " ".join(canary.secret) in shown.stdout
        assert " ".join(canary.secret) not in hidden.stdout
    assert "color {color:4}" in hidden.stdout
    assert shown.stdout.count("ColorIntent") == 20
    assert "46 canaries and controls" in shown.stdout


def test_intents_are_assigned_to_custom_patterns_in_order():
    patterns = ["a {digit}", "pin:1", "b {digit}"]
    assert [intent for _, intent in with_intents(patterns, ["A", "B"])] == ["A", "PinIntent", "B"]
    assert [intent for _, intent in with_intents(patterns, list("APB"))] == list("APB")
