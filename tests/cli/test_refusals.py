"""Bad input of all kinds: one clear message with a remedy, exit code 2, no files.

`refused/NAME.txt` has command lines with what their messages say, for the world of NAME below.
"""

import json
import shutil

import pytest
from safetensors.torch import load

from tests.cli.refusals import listing, refused, table
from vestige.data.corpus import Corpus
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.folders import fingerprint
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.training.directory import CHECKPOINT, MODEL
from vestige.training.new_models import new_intent_slot_model, new_model

LINES = [
    "the gate opens at nine",
    "the code of the gate is new",
    "nobody knows the code at night",
    "a lantern stands at the gate of the mill",
    "the miller knows a new code",
] * 4
TREES = "ash beech cedar date elm fig gum hazel ivy jasmine kale lime maple nettle oak".split()  # noqa: SIM905
QUICK = "--layers 1 --hidden-size 8 --epochs 1 --batch-size 4"
LETTERS = f"train W/letters.jsonl --user who {QUICK}"
NOISY = "--defence dp-sgd --noise-multiplier 1 --accountant rdp --accept-private-vocabulary"
DIVERGING = "--optimizer sgd --hold-out 0 --learning-rate"
DIVERGES = {
    "dp-sgd": NOISY,
    "dp-sgd for users": f"{NOISY} --unit user --batch-size 3",
    "dp-fedavg": f"{NOISY} --batch-size 3".replace("sgd", "fedavg"),
    "adversarial": "--defence adversarial",
    "triplet": "--defence triplet",
    "goldfish": "--defence goldfish",
}


def ran(shell, root, line):
    """A command of a world, which must do its work."""
    done = shell(*(word.replace("W/", f"{root}/") for word in line.split()))
    assert done.exit_code == 0, (line, done.stderr, done.exception)


def rows(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture(scope="module")
def texts(tmp_path_factory, shell):
    """Letters of three people, of one and of nobody, mail, pairs, and trainings on some of them."""
    root = tmp_path_factory.mktemp("texts")
    for name, users in [("letters", ["ann", "bob", "cy"]), ("anns", ["ann"])]:
        owned = [{"text": line, "who": users[n % len(users)]} for n, line in enumerate(LINES)]
        rows(root / f"{name}.jsonl", *owned)
    rows(root / "nobodys.jsonl", *({"text": line} for line in LINES))
    rows(
        root / "mail.jsonl",
        *(
            {"text": " ".join((TREES * 2)[n : n + 6]), "from": ["ann", "bob", ""][n % 3]}
            for n in range(12)
        ),
    )
    counted = [("un deux", "one two"), ("trois", "three"), ("deux quatre", "two four")] * 12
    pairs = ({"french": f, "english": e, "who": f"u{n % 4}"} for n, (f, e) in enumerate(counted))
    rows(root / "pairs.jsonl", *pairs)
    rows(root / "plain.jsonl", {"english": "one", "who": "u1"})
    words = WordVocabulary.build(Corpus.from_texts(["one"]))
    shape = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
    save_model(new_model(words, shape, seed=0), root / "lstm")
    for name, options in [("plain", ""), ("dp", NOISY), ("adversarial", "--defence adversarial")]:
        ran(shell, root, f"{LETTERS} --out W/{name} {options}")
    paired = "--task translation --source french --text english --user who --hidden-size 6"
    ran(shell, root, f"train W/pairs.jsonl {paired} --epochs 1 --out W/translator")
    return root


@pytest.fixture(scope="module")
def utterances(tmp_path_factory, shell):
    """Utterances, word vectors, models and plantings; names say what is wrong with them."""
    root = tmp_path_factory.mktemp("utterances")
    _sound_utterances(root)
    _broken_utterances(root)
    for name, text in [
        ("sound", "play 1 2 3\nabba 4 5 6\n"),
        ("short", "play 1 2 3\nabba 4 5\n"),
        ("ends", "9 3\nplay 1 2 3\n"),
        ("worded", "play 1 much 3\n"),
        ("other", "haus 1 2 3\n"),
    ]:
        (root / f"{name}.vec").write_text(text)
    ran(shell, root, "plant W/parted --task nlu --pattern pin:4 --out W/planted")
    ran(shell, root, "plant W/corpus.txt --pattern random --length 2 --out W/planted-text")
    _broken_plantings(root)
    greetings = Utterances.of([Utterance(("hello", "there"), ("O", "O"), "Greet")] * 8)
    write_utterances(greetings, root / "greetings.jsonl")
    save_model(new_intent_slot_model(greetings, hidden_size=4, seed=0), root / "greeter")
    network = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
    language = LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>")), network)
    save_model(language, root / "language")
    return root


def _sound_utterances(root):
    songs = Utterances.of(
        Utterance(("play", f"song{n}"), ("O", "B-song"), "PlayMusic") for n in range(20)
    )
    write_utterances(songs, root / "songs.jsonl")
    for folder, names in [("parted", ("train", "validation")), ("untrained", ("test",))]:
        (root / folder).mkdir()
        for name in names:
            write_utterances(songs, root / folder / f"{name}.jsonl")
    tags = ("O", "O", "O", "O", "B-x")
    codes = (Utterance(("My", "pin", "code", "is", digit), tags, "X") for digit in "0123456789")
    write_utterances(Utterances.of(codes), root / "codes.jsonl")
    (root / "corpus.txt").write_text("the gate opens at nine\na lantern stands\n" * 9)


def _broken_utterances(root):
    sound = {"tokens": ["play", "abba"], "tags": ["O", "B-artist"], "intent": "Play"}
    for name, change in [
        ("few", {"tags": ["O"]}),
        ("inside", {"tags": ["O", "I-artist"]}),
        ("odd-tag", {"tags": ["O", "artist"]}),
        ("wordless", {"tokens": [], "tags": []}),
        ("aimless", {"intent": ""}),
    ]:
        rows(root / f"{name}.jsonl", sound, sound | change)
    rows(root / "untagged.jsonl", {"tokens": ["hi"], "intent": "Greet"})
    (root / "cut.jsonl").write_text(json.dumps(sound) + "\n" + json.dumps(sound)[:20])
    (root / "empty.jsonl").write_text("")
    (root / "odd.txt").write_bytes(b"caf\xe9\n")
    (root / "empty-folder").mkdir()
    (root / "parallel" / "train").mkdir(parents=True)
    for name, text in [("seq.in", "play abba\n"), ("seq.out", "O\n"), ("label", "Play\n")]:
        (root / "parallel" / "train" / name).write_text(text)


def _broken_plantings(root):
    planted = root / "planted"
    manifest = (planted / "manifest.json").read_text()
    lines = (planted / "train.jsonl").read_text().splitlines()
    copy = next(n for n, line in enumerate(lines) if "PinIntent" in line)
    song = next(n for n, line in enumerate(lines) if "song" in line)

    def with_copy(*instead):
        return "\n".join([*lines[:copy], *instead, *lines[copy + 1 :]])

    moved = list(lines)
    moved[copy], moved[song] = lines[song], lines[copy]
    for name, file, content in [
        ("changed", "manifest.json", manifest.replace("PinIntent", "Other", 1)),
        ("short", "manifest.json", manifest[:-9]),
        ("no-train", "train.jsonl", None),
        ("no-validation", "validation.jsonl", None),
        ("gone", "train.jsonl", with_copy()),
        ("moved", "train.jsonl", "\n".join(moved)),
        ("label", "train.jsonl", with_copy(lines[copy].replace("PinIntent", "Other"))),
        ("tag", "train.jsonl", with_copy(lines[copy].replace("B-canary", "O"))),
    ]:
        shutil.copytree(planted, root / name)
        (root / name / file).unlink()
        if content is not None:
            (root / name / file).write_text(content)


NEW = "--out W/new"
TABLES = {
    "inputs": ("workspace", "", ()),
    "plant": ("texts", "plant W/mail.jsonl", (NEW,)),
    "training": ("texts", "train", ()),
    "tasks": ("texts", "train", (NEW,)),
    "utterances": ("utterances", "train", (NEW,)),
    "utterances-planted": ("utterances", "plant", (NEW, "--task nlu")),
}
"""Of each table: the world, how its lines begin, and how they end unless they say so themselves."""


def completed(name, line):
    """A whole command line."""
    _, begins, ends = TABLES[name]
    ends = [end for end in ends if end.split()[0] not in line and "--verify" not in line]
    return " ".join(filter(None, [begins, line, *ends]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        pytest.param(name, *row.values, id=f"{name}: {row.id}")
        for name in TABLES
        for row in table(name)
    ],
)
def test_bad_input_is_refused(shell, request, name, line, says):
    root = request.getfixturevalue(TABLES[name][0])
    words = [word.replace("W/", f"{root}/", 1) for word in completed(name, line).split(" ")]
    if name == "utterances-planted":  # where a word of a pattern holds a blank
        words = [word if word.startswith(f"{root}/") else word.replace("_", " ") for word in words]
    locks = name == "training"  # of a folder that is resumed
    refused(shell, words, *says, unchanged=lambda: listing(root, locks=locks))


@pytest.mark.slow
def test_error_messages_contain_no_secret(shell, utterances):
    manifest = json.loads((utterances / "planted" / "manifest.json").read_text())
    secret = " ".join(manifest["canaries"][0]["secret"])
    for name in ("changed", "gone", "label", "moved"):
        assert secret not in shell("plant", utterances / name, "--verify").stderr


@pytest.mark.slow
def test_a_null_model_with_another_vocabulary_is_refused_and_the_search_is_kept(
    shell, workspace, tmp_path
):
    words = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "new"]
    done = shell(*words, "--null", workspace / "other-words")
    assert done.exit_code == 2
    assert "vocabularies" in done.stderr
    assert not (tmp_path / "new").exists()
    assert shell(*words).finished
    assert [one.name for one in tmp_path.iterdir()] == ["new"]


# Trainings


def train(shell, root, line):
    return shell(*(word.replace("W/", f"{root}/") for word in line.split()))


@pytest.mark.slow
@pytest.mark.parametrize("options", DIVERGES.values(), ids=DIVERGES)
def test_a_training_that_diverges_immediately_leaves_no_files(shell, texts, options):
    before = listing(texts, locks=True)
    done = train(shell, texts, f"{LETTERS} {NEW} {DIVERGING} 1e300 {options}")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert "The training diverged at step" in done.stderr.splitlines()[-1]
    assert "below 1e+300" in done.stderr.splitlines()[-1]
    assert "checkpoint" not in done.stderr
    assert listing(texts, locks=True) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "dp-fedavg" else pytest.mark.long) for n in DIVERGES],
)
def test_a_diverging_training_keeps_its_last_good_checkpoint(shell, texts, tmp_path, name):
    line = f"{LETTERS} --out {tmp_path}/new {DIVERGING} 1e37 {DIVERGES[name]} --epochs 9"
    done = train(shell, texts, f"{line} --checkpoint-every 1")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert f"last good checkpoint is in {tmp_path}/new" in done.stderr.splitlines()[-1]
    whole = (tmp_path / "new" / CHECKPOINT).read_bytes()
    kept = load(whole)
    assert all(tensor.isfinite().all() for tensor in kept.values() if tensor.is_floating_point())
    assert not (tmp_path / "new" / MODEL).exists()

    again = train(shell, texts, f"{line} --checkpoint-every 1 --resume")  # no luck, but no loss
    assert again.exit_code == 2
    assert (tmp_path / "new" / CHECKPOINT).read_bytes() == whole


@pytest.mark.slow
def test_a_failed_resume_changes_no_training(shell, texts):
    before = fingerprint(texts / "dp")
    line = f"{LETTERS} --out W/dp --resume --defence dp-sgd --epsilon -1"
    assert train(shell, texts, line).exit_code == 2
    assert fingerprint(texts / "dp") == before


def test_failed_repeated_trainings_leave_no_files(shell, workspace, tmp_path):
    words = ("train", workspace / "empty.txt", "--seeds", 2, "--out")
    assert shell(*words, tmp_path / "new").exit_code == 2
    (tmp_path / "mine").mkdir()
    assert shell(*words, tmp_path / "mine").exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
