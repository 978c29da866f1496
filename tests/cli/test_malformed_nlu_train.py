"""Bad input of `vestige train --task nlu`: one clear message, exit code 2, nothing left behind."""

import json
import shutil

import pytest

from tests.cli.refusals import listing, refused, table
from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.training.new_models import new_intent_slot_model


def song(artist, intent="Play"):
    return Utterance(("play", artist), ("O", "B-artist"), intent)


@pytest.fixture(scope="module")
def place(tmp_path_factory, shell):
    """Utterances, vectors and plantings; names say what is wrong with them."""
    root = tmp_path_factory.mktemp("place")
    songs = Utterances.of([song(name) for name in ("abba", "prince", "blur", "suede")] * 3)
    write_utterances(songs, root / "songs.jsonl")
    (root / "parted").mkdir()
    for name in ("train", "validation", "test"):
        write_utterances(songs, root / "parted" / f"{name}.jsonl")
    (root / "untrained").mkdir()
    for name in ("validation", "test"):
        write_utterances(songs, root / "untrained" / f"{name}.jsonl")
    (root / "empty-folder").mkdir()
    _broken_utterances(root)
    _vectors(root)
    for name, task in [("planted", "nlu"), ("planted-text", "text")]:
        source = root / ("songs.jsonl" if task == "nlu" else "corpus.txt")
        more = ["--pattern", "pin:4"] if task == "nlu" else ["--phrase", "quiet mice sing"]
        done = shell("plant", source, "--task", task, "--out", root / name, *more)
        assert done.exit_code == 0, done.stderr
    greeting = Utterance(("hello", "there"), ("O", "O"), "Greet")
    greetings = Utterances.of([greeting] * 8)
    write_utterances(greetings, root / "greetings.jsonl")
    save_model(new_intent_slot_model(greetings, hidden_size=4, seed=0), root / "greeter")
    network = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
    words = WordVocabulary(("<unk>", "<eos>"))
    save_model(LSTMLanguageModel(words, network), root / "language")
    manifest = (root / "planted" / "manifest.json").read_text()
    for name, text in [
        ("changed", manifest.replace("PinIntent", "PanIntent")),
        ("broken", manifest[:-9]),
    ]:
        shutil.copytree(root / "planted", root / name)
        (root / name / "manifest.json").write_text(text)
    return root


def _broken_utterances(root):
    sound = {"tokens": ["play", "abba"], "tags": ["O", "B-artist"], "intent": "Play"}
    for name, change in [
        ("few", {"tags": ["O"]}),
        ("inside", {"tags": ["O", "I-artist"]}),
        ("odd-tag", {"tags": ["O", "artist"]}),
        ("wordless", {"tokens": [], "tags": []}),
        ("aimless", {"intent": ""}),
    ]:
        rows = [json.dumps(sound), json.dumps(sound | change)]
        (root / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    (root / "untagged.jsonl").write_text('{"tokens": ["hi"], "intent": "Greet"}\n')
    (root / "cut.jsonl").write_text(json.dumps(sound) + "\n" + json.dumps(sound)[:20])
    (root / "empty.jsonl").write_text("")
    (root / "corpus.txt").write_text("the gate opens at nine\na lantern stands\n" * 9)
    (root / "parallel" / "train").mkdir(parents=True)
    for name, text in [("seq.in", "play abba\n"), ("seq.out", "O\n"), ("label", "Play\n")]:
        (root / "parallel" / "train" / name).write_text(text)


def _vectors(root):
    for name, text in [
        ("sound", "play 1 2 3\nabba 4 5 6\n"),
        ("short", "play 1 2 3\nabba 4 5\n"),
        ("ends", "9 3\nplay 1 2 3\n"),
        ("worded", "play 1 much 3\n"),
        ("other", "haus 1 2 3\n"),
    ]:
        (root / f"{name}.vec").write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), table("utterances"))
def test_what_cannot_be_had_is_refused(shell, place, words, says):
    out = [] if "--out" in words else ["--out", place / "new"]
    given = (word.replace("W/", f"{place}/", 1) for word in words.split())
    refused(shell, ["train", *given, *out], *says, unchanged=lambda: listing(place))
