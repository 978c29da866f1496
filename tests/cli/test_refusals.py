"""Bad input is refused with exit code 2 and one message with a remedy, and leaves no files.

`refused/NAME.txt` has command lines with fragments of their messages; see `TABLES`.
"""

import json

import pytest
from safetensors.torch import load

from tests.cli import conftest
from tests.cli.refusals import listing, refused, table
from tests.files import damaged_copy, write_rows
from vestige.data.corpus import Corpus
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.folders import fingerprint
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.training.directory import CHECKPOINT, MODEL
from vestige.training.new_models import new_intent_slot_model, new_model

LINES = conftest.LINES[:20]
TREES = "ash beech cedar date elm fig gum hazel ivy jasmine kale lime maple nettle oak".split()  # noqa: SIM905
QUICK = "--layers 1 --hidden-size 8 --epochs 1 --batch-size 4"
LETTERS = f"train W/letters.jsonl --user who {QUICK}"
NOISY = "--defence dp-sgd --noise-multiplier 1 --accountant rdp --accept-private-vocabulary"
DIVERGING = "--optimizer sgd --hold-out 0 --learning-rate"
NETWORK = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
DIVERGES = {
    "dp-sgd": NOISY,
    "dp-sgd for users": f"{NOISY} --unit user --batch-size 3",
    "dp-fedavg": f"{NOISY} --batch-size 3".replace("sgd", "fedavg"),
    "adversarial": "--defence adversarial",
    "triplet": "--defence triplet",
    "goldfish": "--defence goldfish",
}


def run(shell, root, line):
    """Run a command; W/ is the folder `root`."""
    return shell(*(word.replace("W/", f"{root}/") for word in line.split()))


def make(shell, root, line):
    """Run a command that must complete."""
    done = run(shell, root, line)
    assert done.exit_code == 0, (line, done.stderr, done.exception)


@pytest.fixture(scope="module")
def texts(tmp_path_factory, shell):
    """Texts of three users, of one and of none, pairs, and trainings on some of them."""
    root = tmp_path_factory.mktemp("texts")
    for name, users in [("letters", ["ann", "bob", "cy"]), ("anns", ["ann"])]:
        texts = [{"text": line, "who": users[n % len(users)]} for n, line in enumerate(LINES)]
        write_rows(root / f"{name}.jsonl", texts)
    write_rows(root / "nobodys.jsonl", ({"text": line} for line in LINES))
    mail = [" ".join((TREES * 2)[n : n + 6]) for n in range(12)]
    senders = ["ann", "bob", ""] * 4
    messages = [{"text": t, "from": s} for t, s in zip(mail, senders, strict=True)]
    write_rows(root / "mail.jsonl", messages)
    pairs = [("un deux", "one two"), ("trois", "three"), ("deux quatre", "two four")] * 12
    pairs = [{"french": f, "english": e, "who": f"u{n % 4}"} for n, (f, e) in enumerate(pairs)]
    write_rows(root / "pairs.jsonl", pairs)
    write_rows(root / "plain.jsonl", [{"english": "one", "who": "u1"}])
    vocabulary = WordVocabulary.build(Corpus.from_texts(["one"]))
    save_model(new_model(vocabulary, NETWORK, seed=0), root / "lstm")
    for name, options in [("plain", ""), ("dp", NOISY), ("adversarial", "--defence adversarial")]:
        make(shell, root, f"{LETTERS} --out W/{name} {options}")
    task = "--task translation --source french --text english --user who --hidden-size 6"
    make(shell, root, f"train W/pairs.jsonl {task} --epochs 1 --out W/translator")
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
    make(shell, root, "plant W/parted --task nlu --pattern pin:4 --out W/planted")
    make(shell, root, "plant W/corpus.txt --pattern random --length 2 --out W/planted-text")
    _broken_plantings(root)
    greetings = Utterances.of([Utterance(("hello", "there"), ("O", "O"), "Greet")] * 8)
    write_utterances(greetings, root / "greetings.jsonl")
    save_model(new_intent_slot_model(greetings, hidden_size=4, seed=0), root / "greeter")
    language_model = LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>")), NETWORK)
    save_model(language_model, root / "language")
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
        write_rows(root / f"{name}.jsonl", [sound, sound | change])
    write_rows(root / "untagged.jsonl", [{"tokens": ["hi"], "intent": "Greet"}])
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

    def with_copy(*replacement):
        return "\n".join([*lines[:copy], *replacement, *lines[copy + 1 :]])

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
        damaged_copy(planted, root / name, file, content)


NEW = "--out W/new"
TABLES = {
    "inputs": ("workspace", "", ()),
    "plant": ("texts", "plant W/mail.jsonl", (NEW,)),
    "training": ("texts", "train", ()),
    "tasks": ("texts", "train", (NEW,)),
    "utterances": ("utterances", "train", (NEW,)),
    "utterances-planted": ("utterances", "plant", (NEW, "--task nlu")),
}
"""By table: its fixture, what precedes its lines, and options that are added if a line has none."""


def completed(name, line):
    """The complete command line."""
    _, prefix, options = TABLES[name]
    added = [o for o in options if o.split()[0] not in line and "--verify" not in line]
    return " ".join(filter(None, [prefix, line, *added]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line", "fragments"),
    [
        pytest.param(name, *row.values, id=f"{name}: {row.id}")
        for name in TABLES
        for row in table(name)
    ],
)
def test_bad_input_is_refused(shell, request, name, line, fragments):
    root = request.getfixturevalue(TABLES[name][0])
    words = [word.replace("W/", f"{root}/", 1) for word in completed(name, line).split(" ")]
    if name == "utterances-planted":  # _ stands for a space in a pattern
        words = [word if word.startswith(f"{root}/") else word.replace("_", " ") for word in words]
    locks = name == "training"  # of a folder that is resumed
    refused(shell, words, *fragments, unchanged=lambda: listing(root, locks=locks))


@pytest.mark.slow
def test_a_refused_null_model_does_not_lose_the_search(shell, workspace, tmp_path):
    words = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "new"]
    done = shell(*words, "--null", workspace / "other-words")
    assert done.exit_code == 2
    assert "vocabularies" in done.stderr
    assert not (tmp_path / "new").exists()
    assert shell(*words).finished
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


# Trainings


@pytest.mark.slow
@pytest.mark.parametrize("options", DIVERGES.values(), ids=DIVERGES)
def test_a_training_that_diverges_immediately_leaves_no_files(shell, texts, options):
    before = listing(texts, locks=True)
    done = run(shell, texts, f"{LETTERS} {NEW} {DIVERGING} 1e300 {options}")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert "The training diverged at step" in done.stderr.splitlines()[-1]
    assert "below 1e+300" in done.stderr.splitlines()[-1]
    assert "checkpoint" not in done.stderr
    assert listing(texts, locks=True) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "dp-fedavg" else pytest.mark.long) for n in DIVERGES]
)
def test_a_diverging_training_keeps_its_last_good_checkpoint(shell, texts, tmp_path, name):
    line = f"{LETTERS} --out {tmp_path}/new {DIVERGING} 1e37 {DIVERGES[name]} --epochs 9"
    done = run(shell, texts, f"{line} --checkpoint-every 1")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert f"last good checkpoint is in {tmp_path}/new" in done.stderr.splitlines()[-1]
    checkpoint = (tmp_path / "new" / CHECKPOINT).read_bytes()
    tensors = [tensor for tensor in load(checkpoint).values() if tensor.is_floating_point()]
    assert all(tensor.isfinite().all() for tensor in tensors)
    assert not (tmp_path / "new" / MODEL).exists()

    assert run(shell, texts, f"{line} --checkpoint-every 1 --resume").exit_code == 2
    assert (tmp_path / "new" / CHECKPOINT).read_bytes() == checkpoint


@pytest.mark.slow
def test_a_failed_resume_changes_no_training(shell, texts):
    before = fingerprint(texts / "dp")
    line = f"{LETTERS} --out W/dp --resume --defence dp-sgd --epsilon -1"
    assert run(shell, texts, line).exit_code == 2
    assert fingerprint(texts / "dp") == before


def test_failed_repeated_trainings_leave_no_files(shell, workspace, tmp_path):
    words = ("train", workspace / "empty.txt", "--seeds", 2, "--out")
    assert shell(*words, tmp_path / "new").exit_code == 2
    (tmp_path / "mine").mkdir()
    assert shell(*words, tmp_path / "mine").exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
