"""Bad input of `vestige plant --task nlu`: one clear message, exit code 2, nothing written."""

import json
import shutil

import pytest

from tests.cli.refusals import listing, refused, table
from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances


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


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), table("utterances-planted"))
def test_bad_input_is_refused(shell, folder, words, says):
    given = [word.replace("_", " ").replace("W/", f"{folder}/", 1) for word in words.split(" ")]
    task = [] if "--task" in words or "--verify" in words else ["--task", "nlu"]
    out = [] if "--out" in words or "--verify" in words else ["--out", folder / "new"]
    refused(shell, ["plant", *given, *task, *out], *says, unchanged=lambda: listing(folder))


def test_a_message_never_holds_a_secret(shell, folder):
    manifest = json.loads((folder / "planted" / "manifest.json").read_text())
    secret = " ".join(manifest["canaries"][0]["secret"])
    for name in ("changed", "gone", "label", "moved"):
        assert secret not in shell("plant", folder / name, "--verify").stderr
