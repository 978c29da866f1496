"""Bad input of `vestige train --task nlu`: one clear message, exit code 2, nothing left behind."""

import json
import shutil

import pytest

from tests.cli.refusals import listing, refused
from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.training.new_models import new_intent_slot_model

QUICK = "--task nlu --epochs 1 --layers 1 --hidden-size 4 --embedding-size 4"
SONGS = f"W/songs.jsonl {QUICK}"
PARTED = f"W/parted {QUICK}"
FRESH = "W/songs.jsonl --task nlu --epochs 1"
FROM = "W/songs.jsonl --task nlu --from W"
TEXT = "W/corpus.txt --layers 1 --hidden-size 4 --epochs 1"

# The words after `vestige train`, W/ standing for the folder, and what the message must say.
CASES = {
    # utterances
    "no such data": (f"W/nowhere.jsonl {QUICK}", "nowhere.jsonl does not exist"),
    "empty data": (f"W/empty.jsonl {QUICK}", "empty.jsonl"),
    "empty folder": (f"W/empty-folder {QUICK}", "has no utterances in a known format"),
    "running text": (f"W/corpus.txt {QUICK}", "ends in no known format"),
    "unknown format": (
        f"{SONGS} --format penn-treebank",
        "format must be one of ('auto', 'nlu-evaluation'",
    ),
    "another format": (f"{SONGS} --format snips-json", "is a file, not a folder"),
    "a tag too few": (f"W/few.jsonl {QUICK}", "few.jsonl, line 2"),
    "an I- without its B-": (f"W/inside.jsonl {QUICK}", "continues a slot that does not begin"),
    "a tag that is none": (f"W/odd-tag.jsonl {QUICK}", "line 2: tag 2 is not O, B-name or I-name"),
    "no words": (f"W/wordless.jsonl {QUICK}", "no words"),
    "no intent": (f"W/aimless.jsonl {QUICK}", "no intent"),
    "no tags": (f"W/untagged.jsonl {QUICK}", "tags"),
    "cut short": (f"W/cut.jsonl {QUICK}", "cut.jsonl, line 2"),
    "no such column": (f"{SONGS} --tags-column slots", "slots"),
    "parallel files that do not fit": (f"W/parallel {QUICK}", "seq.out"),
    "no training part": (f"W/untrained {QUICK}", "has no part named train"),
    "limit of nothing": (f"{SONGS} --limit 0", "--limit"),
    # what validates
    "two that validate": (f"{SONGS} --hold-out 0.1 --validation W/songs.jsonl", "together"),
    "hold-out of parted data": (f"{PARTED} --hold-out 0.2", "--hold-out must be left out"),
    "validation of parted data": (
        f"{PARTED} --validation W/songs.jsonl",
        "--validation must be left out: DATA has its own validation part",
    ),
    "validation nowhere": (f"{SONGS} --validation W/none.jsonl", "none.jsonl does not exist"),
    "validation that is broken": (f"{SONGS} --validation W/inside.jsonl", "inside.jsonl"),
    "hold-out of all": (f"{SONGS} --hold-out 1", "must lie in [0, 1)"),
    "nothing to stop by": (
        f"{SONGS} --hold-out 0 --early-stopping",
        "--early-stopping needs validation utterances",
    ),
    "patience without stopping": (f"{SONGS} --patience 3", "--early-stopping"),
    "no patience": (f"{SONGS} --early-stopping --patience 0", "--patience"),
    # vectors
    "no such vectors": (f"{FRESH} --vectors W/none.vec", "none.vec"),
    "vectors of no format": (
        f"{FRESH} --vectors W/songs.jsonl",
        "ends in no known format of word vectors",
    ),
    "a short line of vectors": (
        f"{FRESH} --vectors W/short.vec",
        "short.vec, line 2: 2 numbers",
    ),
    "vectors that end early": (
        f"{FRESH} --vectors W/ends.vec",
        "has 1 words; line 1 states 9",
    ),
    "vectors with a word in them": (
        f"{FRESH} --vectors W/worded.vec",
        "line 1: field 3 is not a number",
    ),
    "vectors of another language": (f"{FRESH} --vectors W/other.vec", "none of the"),
    "another size": (
        f"{FRESH} --vectors W/sound.vec --embedding-size 7",
        "--embedding-size must be 3, the width of",
    ),
    "frozen, but what": (f"{SONGS} --vectors-frozen", "--vectors-frozen needs --vectors"),
    # options of the other task
    "a defence": (f"{SONGS} --defence goldfish", "--defence needs --task text or next-word"),
    "a budget": (f"{SONGS} --epsilon 8", "--defence needs --task text or next-word"),
    "batching": (f"{SONGS} --batching poisson", "--batching needs --task text or next-word"),
    "a tokenizer": (
        f"{SONGS} --tokenizer bpe",
        "--tokenizer needs --task text or next-word or translation or dialogue",
    ),
    "a preset": (f"{SONGS} --preset demo", "--preset needs --task text"),
    "a text column": (f"{SONGS} --text body", "--text needs --task text"),
    "a default that was given": (f"{SONGS} --lora-alpha 8", "--lora-alpha needs --task text"),
    "a window": (
        f"{SONGS} --sequence-length 5",
        "--sequence-length needs --task text or next-word or translation or dialogue",
    ),
    "vectors for text": (f"{TEXT} --vectors glove-6b-50d", "--vectors needs --task nlu"),
    "early stopping for text": (f"{TEXT} --early-stopping", "--early-stopping needs --task nlu"),
    "tags for text": (f"{TEXT} --tags-column labels", "--tags-column needs --task nlu"),
    "an unknown task": ("W/songs.jsonl --task speech", "--task must be one of"),
    # --from
    "from nowhere": (f"{FROM}/none", "none"),
    "from a language model": (f"{FROM}/language", "is a language model and has no intents"),
    "from a folder of nothing": (f"{FROM}/empty-folder", "empty-folder"),
    "from a model without these labels": (
        f"{FROM}/greeter",
        "11 of 11 utterances have an intent or tag that the model lacks",
    ),
    "layers of a model that has its own": (
        f"{FROM}/greeter --layers 2",
        "--layers does not go with --from",
    ),
    "vectors of a model that has its own": (
        f"{FROM}/greeter --vectors W/sound.vec",
        "--vectors does not go with --from",
    ),
    "dropout of a model that has its own": (
        f"{FROM}/greeter --dropout",
        "--dropout does not go with --from",
    ),
    "an adapter": (f"{FROM}/greeter --lora-rank 2", "--lora-rank needs --task text or next-word"),
    "validation with unknown labels": (
        "W/greetings.jsonl --task nlu --from W/greeter --epochs 1 --validation W/songs.jsonl",
        "The model lacks the labels of all validation utterances",
    ),
    # settings
    "learning rate of zero": (f"{SONGS} --learning-rate 0", "--learning-rate must be above 0"),
    "unknown optimizer": (f"{SONGS} --optimizer adagrad", "optimizer must be one of"),
    "no layers": (f"{SONGS} --layers 0", "--layers"),
    "no such device": (f"{SONGS} --device abacus", "device must be one"),
    "diverging": (
        f"{SONGS} --optimizer sgd --learning-rate 1e300",
        "The training diverged at step 1",
    ),
    # what was planted, and what is there
    "planted with text": (
        f"W/planted-text {QUICK}",
        "is text with canaries, not labelled utterances",
    ),
    "text from planted utterances": ("W/planted", "Pass --task nlu"),
    "a changed manifest": (
        f"W/changed {QUICK}",
        "was changed after it was written",
    ),
    "a broken manifest": (f"W/broken {QUICK}", "is not JSON"),
    "out exists": (f"{SONGS} --out W/parted", "another --out"),
    "nothing to resume": (f"{SONGS} --out W/parted --resume", "no training to resume"),
}


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


@pytest.mark.parametrize(("words", "names"), CASES.values(), ids=CASES)
def test_what_cannot_be_had_is_refused(shell, place, words, names):
    out = [] if "--out" in words else ["--out", place / "new"]
    given = (word.replace("W/", f"{place}/", 1) for word in words.split())
    refused(shell, ["train", *given, *out], names, unchanged=lambda: listing(place))
