"""`plant` in running text: canaries, copies, positions and files."""

from collections import Counter

import pytest

from tests.cli.shell import invoke
from tests.preparation.trainings import CORPUS
from vestige import results
from vestige.data.canaries.texts import Manifest
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import read_corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, VestigeError
from vestige.models.table import TableModel
from vestige.preparation.plant import parse_repetitions, plant

TREES = "ash beech cedar date elm fig gum hazel ivy jasmine kale lime maple nettle oak".split()  # noqa: SIM905
MAIL = Corpus.from_texts(
    [" ".join(TREES[(i + j) % 15] for j in range(6)) for i in range(30)],
    users=[["ann", "bob", ""][i % 3] for i in range(30)],
)


def canaries_of(corpus=MAIL, **options):
    return plant(corpus, **options).manifest.canaries


def kinds(canaries):
    return Counter((canary.pattern, canary.planted) for canary in canaries)


def test_by_default_each_frequency_pattern_has_a_canary_and_a_control():
    words = [f"{first}ar{last}" for first in "abcdefgh" for last in "klmnopqr"]
    corpus = Corpus.from_texts([" ".join(words[: 64 - i]) for i in range(64)])
    canaries = canaries_of(corpus, length=2)
    patterns = ("all-low", "low-to-high", "mixed", "high-to-low")
    assert kinds(canaries) == {(name, planted): 1 for name in patterns for planted in (True, False)}
    assert {canary.copies for canary in canaries} == {0, 10}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"phrase": ("quiet mice", "loud owls"), "copies": 3}, "given"),
        ({"pattern": ("random", "random"), "length": 2}, "random"),
    ],
)
def test_each_phrase_or_random_pattern_has_its_own_controls(options, kind):
    assert kinds(canaries_of(**options, controls=2)) == {(kind, True): 2, (kind, False): 4}


def test_each_user_gets_canaries(tmp_path):
    options = {"per_user": True, "length": 2}
    defaults = canaries_of(**options)
    assert [one.copies for one in defaults if one.user == "ann"] == [1, 2, 5, 6, 20]  # the paper's
    assert sum(canary.control for canary in defaults) == 100
    planting = plant(MAIL, **options, repetitions="1,3", controls=4, out=tmp_path / "out")
    counts = [planting.summary[name] for name in ("canaries", "controls", "users", "copies")]
    assert counts == [4, 4, 2, 2 * (1 + 3)]
    copy = read_corpus(tmp_path / "out" / "corpus.jsonl", user_column="user")
    canaries = Manifest.load(tmp_path / "out" / "manifest.json").canaries
    planted = sorted((canary.user, canary.copies) for canary in canaries if canary.planted)
    assert planted == [("ann", 1), ("ann", 3), ("bob", 1), ("bob", 3)]
    for canary in canaries:
        users = [user for text, user in zip(copy, copy.users, strict=True) if text == canary.phrase]
        assert users == [canary.user] * canary.copies
    assert plant(tmp_path / "out", verify=True).verified
    with pytest.raises(DataError, match="no users"):
        plant(CORPUS, **options)


def test_user_and_coin_flip_canaries_can_be_combined():
    options = {"per_user": True, "repetitions": (2,), "controls": 5, "length": 2}
    canaries = canaries_of(**options, coin_flip=8, copies=4)
    counts = kinds(canaries)
    assert (counts["random", True], counts["random", False]) == (2, 5)
    assert counts["coin-flip", True] + counts["coin-flip", False] == 8
    assert {c.copies for c in canaries if c.pattern == "coin-flip"} == {0, 4}


def test_canaries_use_the_given_vocabulary():
    vocabulary = WordVocabulary(("<unk>", "<eos>", *TREES[:8]))
    canaries = canaries_of(pattern=("random",), length=2, vocabulary=vocabulary, seed=1)
    assert {word for canary in canaries for word in canary.phrase.split()} <= set(TREES[:8])
    size, corpus = len(vocabulary), Corpus.from_texts(["cedar date elm fig"] * 3)
    model = TableModel([1 / size] * size, [[1 / size] * size] * size, vocabulary)
    for source in (model, vocabulary):
        assert canaries_of(corpus, phrase="ash beech", vocabulary=source)[0].ids == (2, 3)


def test_coin_flip_canaries_depend_on_the_seed_and_have_one_copy_by_default():
    first, same, other = (canaries_of(coin_flip=9, length=2, seed=seed) for seed in (1, 1, 2))
    assert first == same != other
    assert {canary.copies for canary in first} == {0, 1}


def test_a_copy_is_written_only_with_out(tmp_path, monitor):
    options = {"phrase": "quiet mice", "copies": 7, "controls": 2, "monitor": monitor}
    planting = plant(MAIL, **options)
    assert (planting.directory, monitor.tasks) == (None, [])
    assert "directory" not in planting.summary
    counts = {name: planting.summary[name] for name in ("canaries", "controls", "copies")}
    assert counts == {"canaries": 1, "controls": 2, "copies": 7}
    planting.save(tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert (run.run["verb"], run.run["arguments"]["phrase"]) == ("plant", "quiet mice")
    assert [row["copies"] for row in run.rows] == [7, 0, 0]

    written = plant(MAIL, **options, out=tmp_path / "planted")
    assert monitor.tasks == ["writing the planted copy"]
    assert written.manifest.sha256 == planting.manifest.sha256
    copy = read_corpus(tmp_path / "planted" / "corpus.jsonl", user_column="user")
    assert copy.fingerprint() == written.corpus.fingerprint()
    assert Manifest.load(tmp_path / "planted" / "manifest.json").sha256 == written.manifest.sha256
    verified = plant(tmp_path / "planted", verify=True)
    assert verified.summary == {**written.summary, "verified": True}


def test_a_path_and_its_corpus_give_the_same_manifest(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(MAIL) + "\n")
    manifests = [
        plant(data, phrase=["quiet mice"], seed=3).manifest for data in (path, read_corpus(path))
    ]
    assert manifests[0].sha256 == manifests[1].sha256


def test_a_refusal_changes_no_files(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(VestigeError, match="exists"):
        plant(MAIL, phrase="quiet mice", out=tmp_path)
    with pytest.raises(DataError):
        plant(MAIL, phrase="elm fig", out=tmp_path / "planted")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_canaries_are_counted_by_kind_or_listed(tmp_path):
    (tmp_path / "mail.txt").write_text("\n".join(MAIL))
    words = ["plant", tmp_path / "mail.txt", "--coin-flip", 60, "--copies", 4]
    shown = invoke([*words, "--show-secrets", "--out", tmp_path / "shown"])
    assert shown.stdout.count("coin-flip") == 20
    assert "60 canaries and controls" in shown.stdout
    redacted = invoke([*words, "--out", tmp_path / "out"])
    manifest = Manifest.load(tmp_path / "out" / "manifest.json")
    heads = sum(canary.planted for canary in manifest.canaries)
    rows = [line.split() for line in redacted.stdout.splitlines() if "coin-flip" in line]
    assert sorted(rows) == sorted(
        [["coin-flip", "4", f"{heads}"], ["coin-flip", "control", f"{60 - heads}"]]
    )
    one = plant(MAIL, phrase=["quiet mice sing"], copies=1, controls=1)
    assert "1 canary planted (1 copy in all), and 1 control." in str(one)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "odd"}, "`pattern` number 1 is not one of"),
        ({"phrase": ("a",), "pattern": ("mixed",)}, "plant them in turn"),
        ({"phrase": ("a",), "per_user": True}, "`phrase` and `per_user`"),
        ({"phrase": ("a",), "coin_flip": 9}, "`phrase` and `coin_flip`"),
        ({"coin_flip": 9, "pattern": ("random",)}, "`coin_flip` and `pattern`"),
        ({"pattern": ("random", "mixed")}, "`pattern` random and another"),
        ({"per_user": True, "pattern": ("mixed",)}, "other than random"),
        ({"per_user": True, "copies": 2}, "give `repetitions`"),
        ({"coin_flip": 9, "controls": 2}, "tails are the controls"),
        ({"repetitions": (1,)}, "`repetitions` needs `per_user`"),
    ],
)
def test_conflicting_options_are_refused(options, message):
    """`tests/cli/refused/plant.txt` has more."""
    with pytest.raises(ValueError, match=message):
        plant(MAIL, **options)


@pytest.mark.parametrize("repetitions", ["0,2", "1,b", ",", "", "1.5", (0,), ()])
def test_repetitions_must_be_positive_whole_numbers(repetitions):
    with pytest.raises(ValueError, match="whole numbers from 1 on"):
        parse_repetitions(repetitions)
    assert parse_repetitions("1, 20") == parse_repetitions([1, 20]) == (1, 20)
