"""Bad input of `vestige plant --task nlu`: one clear message, exit code 2, nothing written."""

import json
import shutil

import pytest

from tests.cli.refusals import listing, refused
from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances

OWN = "--pattern my_{name} --intent Mine --candidates name=ann,bob"

# The words after `vestige plant` (W/ the folder, _ a blank), and what the message must say.
CASES = {
    "no pattern": ("W/songs.jsonl", "--pattern must be given for utterances"),
    "unknown shorthand": ("W/songs.jsonl --pattern zip:4", "pin:N, call:N, color:N"),
    "a pattern of text": ("W/songs.jsonl --pattern mixed", "unknown words such as {digit:4}"),
    "shorthand of no words": ("W/songs.jsonl --pattern pin:0", "got neither"),
    "a very long secret": ("W/songs.jsonl --pattern pin:500", "1 to 100 words"),
    "own pattern without intent": ("W/songs.jsonl --pattern pin_{digit}", "(1), got 0"),
    "an intent too many": ("W/songs.jsonl --pattern pin:4 --intent A --intent B", "(0), got 2"),
    "an empty intent": ("W/songs.jsonl --pattern a_{digit} --intent ", "intent and slot must be"),
    "a slot of two words": ("W/songs.jsonl --pattern pin:4 --slot a_b", "'a b'"),
    "braces left open": ("W/songs.jsonl --pattern a_{digit:4 --intent A", "blanks around them"),
    "an unknown set": ("W/songs.jsonl --pattern a_{town} --intent A", "must name one of"),
    "an unused set": ("W/songs.jsonl --pattern pin:4 --candidates a=b,c", "'a', which none names"),
    "a set without a name": (f"W/songs.jsonl {OWN} --candidates =b,c", "name=word,word"),
    "a set without words": (f"W/songs.jsonl {OWN} --candidates town=", "name=word,word"),
    "a set given twice": (f"W/songs.jsonl {OWN} --candidates name=b,c", "got 'name' twice"),
    "a set of one word": (
        "W/songs.jsonl --pattern a_{town} --intent A --candidates town=york",
        "at least two words",
    ),
    "a set with an empty word": (
        "W/songs.jsonl --pattern a_{town} --intent A --candidates town=york,,bath",
        "single words; number 2 is not",
    ),
    "a set in no file": (f"W/songs.jsonl {OWN} --candidates town=@W/none", "none is missing"),
    "a set in a picture": (
        f"W/songs.jsonl {OWN} --candidates town=@W/odd.txt",
        "not UTF-8 at byte 3",
    ),
    "too few secrets": ("W/songs.jsonl --pattern pin:1 --number 10", "at most 10 together"),
    "no copies": ("W/songs.jsonl --pattern pin:4 --copies 0", "--copies"),
    "no number": ("W/songs.jsonl --pattern pin:4 --number 0", "--number"),
    "a pattern twice": ("W/songs.jsonl --pattern pin:4 --pattern pin:4", "all different"),
    "no such data": ("W/nowhere.jsonl --pattern pin:4", "nowhere.jsonl"),
    "data without tags": ("W/untagged.jsonl --pattern pin:4", "tags"),
    "no such column": ("W/songs.jsonl --pattern pin:4 --tags-column slots", "slots"),
    "unknown format": ("W/songs.jsonl --pattern pin:4 --format penn-treebank", "must be one of"),
    "hold-out of one": ("W/songs.jsonl --pattern pin:4 --hold-out 1", "must lie in [0, 1)"),
    "no validation part": ("W/songs.jsonl --pattern pin:4 --hold-out 0", "validation part is"),
    "two that validate": (
        "W/songs.jsonl --pattern pin:4 --hold-out 0.2 --validation W/songs.jsonl",
        "must not be given together",
    ),
    "hold-out of parted data": (
        "W/parted --pattern pin:4 --hold-out 0.2",
        "--hold-out must be left out: DATA has its own validation part",
    ),
    "validation of parted data": (
        "W/parted --pattern pin:4 --validation W/songs.jsonl",
        "--validation must be left out",
    ),
    "validation nowhere": ("W/songs.jsonl --pattern pin:4 --validation W/none", "none"),
    "a secret that is there": (
        "W/codes.jsonl --pattern pin:1 --number 9",
        "already contains the utterance of canary 1",
    ),
    "out exists": ("W/songs.jsonl --pattern pin:4 --out W/parted", "another --out"),
    "a phrase": ("W/songs.jsonl --pattern pin:4 --phrase hello", "--phrase needs --task text"),
    "a length": ("W/songs.jsonl --pattern pin:4 --length 5", "--length needs --task text"),
    "users": ("W/songs.jsonl --pattern pin:4 --per-user", "--per-user needs --task text"),
    "coins": ("W/songs.jsonl --pattern pin:4 --coin-flip 9", "--coin-flip needs --task text"),
    "a text column": ("W/songs.jsonl --pattern pin:4 --text t", "--text needs --task text"),
    "an unknown task": ("W/songs.jsonl --pattern pin:4 --task speech", "must be one of text, nlu"),
    "an intent for text": ("W/songs.jsonl --task text --intent A", "--intent needs --task nlu"),
    "a share for text": ("W/songs.jsonl --task text --hold-out 0", "--hold-out needs --task nlu"),
    "a secret pattern for text": (
        "W/songs.jsonl --task text --pattern pin:4",
        "number 1 is not one of 'all-low', 'low-to-high'",
    ),
    "verify: manifest changed": (
        "W/changed --verify",
        "was changed after it was written",
    ),
    "verify: manifest cut short": ("W/short --verify", "manifest.json is not JSON"),
    "verify: training part gone": ("W/no-train --verify", "0 times in the training part, not 9"),
    "verify: validation part gone": ("W/no-validation --verify", "validation part, not 1"),
    "verify: a copy gone": ("W/gone --verify", "8 times in the training part, not 9"),
    "verify: a label changed": ("W/label --verify", "other words, tags or intent"),
    "verify: a tag broken": ("W/tag --verify", "train.jsonl"),
    "verify: moved": ("W/moved --verify", "is not at its positions"),
}


def some(number: int, word: str) -> Utterances:
    return Utterances.of(
        Utterance((word, f"song{i}"), ("O", "B-song"), "PlayMusic") for i in range(number)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory, shell):
    root = tmp_path_factory.mktemp("nlu")
    write_utterances(some(20, "play"), root / "songs.jsonl")
    (root / "parted").mkdir()
    for name in ("train", "validation"):
        write_utterances(some(20, name), root / "parted" / f"{name}.jsonl")
    tags = ("O", "O", "O", "O", "B-x")
    codes = (Utterance(("My", "pin", "code", "is", digit), tags, "X") for digit in "0123456789")
    write_utterances(Utterances.of(codes), root / "codes.jsonl")
    (root / "untagged.jsonl").write_text('{"tokens": ["a"], "intent": "x"}\n')
    (root / "odd.txt").write_bytes(b"caf\xe9\n")
    planted = root / "planted"
    done = shell("plant", root / "parted", "--task", "nlu", "--pattern", "pin:4", "--out", planted)
    assert done.exit_code == 0, done.stderr
    _broken(root, planted)
    return root


def _broken(root, planted):
    manifest = (planted / "manifest.json").read_text()
    lines = (planted / "train.jsonl").read_text().splitlines()
    copy = next(i for i, line in enumerate(lines) if "PinIntent" in line)
    song = next(i for i, line in enumerate(lines) if "song" in line)
    gone = lines[:copy] + lines[copy + 1 :]
    moved = list(lines)
    moved[copy], moved[song] = lines[song], lines[copy]
    label = json.dumps(json.loads(lines[copy]) | {"intent": "Other"})
    tag = lines[copy].replace("B-canary", "O")
    for name, file, content in [
        ("changed", "manifest.json", manifest.replace("PinIntent", "Other", 1)),
        ("short", "manifest.json", manifest[:-9]),
        ("no-train", "train.jsonl", None),
        ("no-validation", "validation.jsonl", None),
        ("gone", "train.jsonl", "\n".join(gone)),
        ("moved", "train.jsonl", "\n".join(moved)),
        ("label", "train.jsonl", "\n".join([*lines[:copy], label, *lines[copy + 1 :]])),
        ("tag", "train.jsonl", "\n".join([*lines[:copy], tag, *lines[copy + 1 :]])),
    ]:
        shutil.copytree(planted, root / name)
        (root / name / file).unlink()
        if content is not None:
            (root / name / file).write_text(content)


@pytest.mark.parametrize(("words", "says"), CASES.values(), ids=CASES)
def test_bad_input_is_refused(shell, folder, words, says):
    given = [word.replace("_", " ").replace("W/", f"{folder}/", 1) for word in words.split(" ")]
    task = [] if "--task" in words or "--verify" in words else ["--task", "nlu"]
    out = [] if "--out" in words or "--verify" in words else ["--out", folder / "new"]
    refused(shell, ["plant", *given, *task, *out], says, unchanged=lambda: listing(folder))


def test_a_message_never_holds_a_secret(shell, folder):
    manifest = json.loads((folder / "planted" / "manifest.json").read_text())
    secret = " ".join(manifest["canaries"][0]["secret"])
    for name in ("changed", "gone", "label", "moved"):
        assert secret not in shell("plant", folder / name, "--verify").stderr
