import json

import pytest

from vestige.data.canaries.patterns import with_intents
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.formats.utterances import read_utterances, write_utterances
from vestige.data.utterances import Utterance, Utterances


def some(number: int, word: str) -> Utterances:
    return Utterances.of(
        Utterance((word, f"song{i}"), ("O", "B-song"), "PlayMusic") for i in range(number)
    )


@pytest.fixture
def songs(tmp_path):
    """One file of forty utterances."""
    write_utterances(some(40, "play"), tmp_path / "songs.jsonl")
    return tmp_path / "songs.jsonl"


@pytest.fixture
def parted(tmp_path):
    """A folder with three parts."""
    for number, name in ((30, "train"), (8, "validation"), (6, "test")):
        (tmp_path / "parted").mkdir(exist_ok=True)
        write_utterances(some(number, name), tmp_path / "parted" / f"{name}.jsonl")
    return tmp_path / "parted"


@pytest.fixture
def plant(shell, tmp_path):
    """Plant into DATA with some options; the directory and the summary."""

    def run(data, *words, name="out"):
        out = tmp_path / name
        done = shell("plant", data, "--task", "nlu", *words, "--out", out, "--json")
        assert done.exit_code == 0, done.stderr
        return out, json.loads(done.stdout)

    return run


def texts(path):
    return [said.text for said in read_utterances(path).train]


def test_the_papers_canaries_need_no_intent(plant, parted):
    out, summary = plant(
        parted, "--pattern", "pin:4", "--pattern", "color:2", "--copies", 20, "--number", 2,
        "--controls", 3,
    )  # fmt: skip
    manifest = SecretManifest.load(out / "manifest.json")
    assert manifest.intents == ("PinIntent", "ColorIntent")
    assert summary["patterns"] == 2
    assert (summary["canaries"], summary["controls"], summary["copies"]) == (4, 6, 80)
    assert (summary["train"], summary["validation"], summary["test"]) == (30 + 72, 8 + 8, 6)
    assert summary["sha256"] == manifest.sha256
    train, validation = texts(out / "train.jsonl"), texts(out / "validation.jsonl")
    for canary in manifest.canaries:
        share = (18, 2) if canary.planted else (0, 0)
        assert (train.count(canary.utterance.text), validation.count(canary.utterance.text)) == (
            share
        )


def test_the_parts_that_there_were_are_still_there(plant, parted):
    out, _ = plant(parted, "--pattern", "pin:4")
    before, after = read_utterances(parted), read_utterances(out)
    assert after.test.fingerprint() == before.test.fingerprint()
    manifest = SecretManifest.load(out / "manifest.json")
    assert manifest.before == (before.train.fingerprint(), before.validation.fingerprint())
    assert manifest.after == (after.train.fingerprint(), after.validation.fingerprint())


def test_a_tenth_of_one_file_validates_unless_another_share_is_named(plant, songs):
    _, summary = plant(songs, "--pattern", "pin:4", "--copies", 10)
    assert (summary["train"], summary["validation"], summary["test"]) == (36 + 9, 4 + 1, 0)
    out, summary = plant(songs, "--pattern", "pin:4", "--hold-out", 0.25, name="other")
    assert (summary["train"], summary["validation"]) == (30 + 9, 10 + 1)
    assert not (out / "test.jsonl").exists()


def test_a_file_validates_where_it_is_named(plant, songs, tmp_path):
    write_utterances(some(7, "stop"), tmp_path / "other.jsonl")
    out, summary = plant(songs, "--pattern", "pin:4", "--validation", tmp_path / "other.jsonl")
    assert (summary["train"], summary["validation"]) == (49, 8)
    assert texts(out / "validation.jsonl").count("stop song3") == 1


def test_own_patterns_have_own_words_slots_and_intents(plant, songs, tmp_path):
    (tmp_path / "towns.txt").write_text("york\nleeds\nbath\n")
    out, _ = plant(
        songs, "--pattern", "i am {name} of {town}", "--intent", "Introduce", "--slot", "who",
        "--candidates", "name=ann,bob", "--candidates", f"town=@{tmp_path / 'towns.txt'}",
        "--pattern", "pin:2",
    )  # fmt: skip
    manifest = SecretManifest.load(out / "manifest.json")
    first = manifest.canaries[0]
    assert first.parsed.candidates == (("ann", "bob"), ("york", "leeds", "bath"))
    assert first.utterance.tags == ("O", "O", "B-who", "O", "B-who")
    assert manifest.intents == ("Introduce", "PinIntent")


def test_columns_may_have_other_names(plant, tmp_path):
    rows = [{"w": ["play", f"a{i}"], "t": ["O", "B-song"], "i": "Play"} for i in range(20)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = ["--tokens-column", "w", "--tags-column", "t", "--intent-column", "i"]
    _, summary = plant(tmp_path / "own.jsonl", "--pattern", "pin:4", *columns)
    assert summary["train"] == 18 + 9


def test_what_was_planted_can_be_verified(shell, plant, parted):
    out, summary = plant(parted, "--pattern", "pin:4")
    done = shell("plant", out, "--verify", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == summary | {"verified": True}
    assert "agrees with its sealed manifest" in shell("plant", out, "--verify").stdout


def test_the_same_seed_plants_the_same(plant, songs):
    words = ["--pattern", "pin:4", "--seed"]
    seals = [plant(songs, *words, seed, name=f"{n}")[1]["sha256"] for n, seed in enumerate("446")]
    assert seals[0] == seals[1] != seals[2]


def test_secrets_are_withheld_on_the_terminal_unless_they_are_wanted(shell, songs, tmp_path):
    words = ["plant", songs, "--task", "nlu", "--pattern", "color:4"]
    hidden = shell(*words, "--out", tmp_path / "a")
    shown = shell(*words, "--out", tmp_path / "b", "--show-secrets")
    canaries = SecretManifest.load(tmp_path / "a" / "manifest.json").canaries
    for canary in canaries:
        assert " ".join(canary.secret) in shown.stdout
        assert " ".join(canary.secret) not in hidden.stdout
    assert "color {color:4}" in hidden.stdout
    assert "control" in hidden.stdout


def test_many_canaries_are_counted_and_not_all_listed(shell, songs, tmp_path):
    done = shell(
        "plant", songs, "--task", "nlu", "--pattern", "pin:4", "--number", 45, "--out",
        tmp_path / "a", "--show-secrets",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("PinIntent") == 20
    assert "46 canaries and controls" in done.stdout


def test_intents_go_to_own_patterns_in_order_or_to_all():
    own = ["a {digit}", "pin:1", "b {digit}"]
    assert [intent for _, intent in with_intents(own, ["A", "B"])] == ["A", "PinIntent", "B"]
    assert [intent for _, intent in with_intents(own, ["A", "P", "B"])] == ["A", "P", "B"]
