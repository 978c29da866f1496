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


def canaries_of(corpus=MAIL, **settings):
    return plant(corpus, **settings).manifest.canaries


def kinds(canaries):
    return Counter((canary.pattern, canary.planted) for canary in canaries)


# What is made


def test_by_default_each_frequency_pattern_has_a_canary_and_a_control():
    words = [f"{one}ar{other}" for one in "abcdefgh" for other in "klmnopqr"]
    corpus = Corpus.from_texts([" ".join(words[: 64 - i]) for i in range(64)])
    canaries = canaries_of(corpus, length=2)
    patterns = ("all-low", "low-to-high", "mixed", "high-to-low")
    assert kinds(canaries) == {(name, planted): 1 for name in patterns for planted in (True, False)}
    assert {canary.copies for canary in canaries} == {0, 10}


def test_given_phrases_are_planted_unchanged():
    canaries = canaries_of(phrase=("quiet mice", "loud owls"), copies=3, controls=2)
    assert [canary.phrase for canary in canaries[:2]] == ["quiet mice", "loud owls"]
    assert kinds(canaries) == {("given", True): 2, ("given", False): 4}


def test_random_patterns_are_counted_and_each_has_its_controls():
    canaries = canaries_of(pattern=("random", "random"), length=2, controls=2)
    assert kinds(canaries) == {("random", True): 2, ("random", False): 4}


def test_each_user_gets_canaries(tmp_path):
    given = {"per_user": True, "length": 2}
    usual = canaries_of(**given)
    assert [one.copies for one in usual if one.user == "ann"] == [1, 2, 5, 6, 20]  # the paper's
    assert sum(one.control for one in usual) == 100
    found = plant(MAIL, **given, repetitions="1,3", controls=4, out=tmp_path / "out")
    assert (found.summary["canaries"], found.summary["controls"]) == (4, 4)
    assert (found.summary["users"], found.summary["copies"]) == (2, 2 * (1 + 3))
    copy = read_corpus(tmp_path / "out" / "corpus.jsonl", user_column="user")
    canaries = Manifest.load(tmp_path / "out" / "manifest.json").canaries
    owned = sorted((canary.user, canary.copies) for canary in canaries if canary.planted)
    assert owned == [("ann", 1), ("ann", 3), ("bob", 1), ("bob", 3)]
    for canary in canaries:
        theirs = [who for text, who in zip(copy, copy.users, strict=True) if text == canary.phrase]
        assert theirs == [canary.user] * canary.copies
    assert plant(tmp_path / "out", verify=True).verified
    with pytest.raises(DataError, match="no users"):
        plant(CORPUS, **given)


def test_a_fair_coin_decides_which_canaries_are_planted():
    found = plant(MAIL, coin_flip=60, length=3)
    assert 15 < found.summary["canaries"] < 45
    assert found.summary["canaries"] + found.summary["controls"] == 60
    assert {canary.pattern for canary in found.manifest.canaries} == {"coin-flip"}
    counts = Counter(found.corpus)
    assert all(counts[row["phrase"]] == row["copies"] for row in found.rows)
    assert {row["copies"] for row in found.rows} == {0, 1}


def test_user_and_coin_flip_canaries_can_be_combined():
    settings = {"per_user": True, "repetitions": (2,), "controls": 5, "length": 2}
    canaries = canaries_of(**settings, coin_flip=8, copies=4)
    found = kinds(canaries)
    assert (found["random", True], found["random", False]) == (2, 5)
    assert found["coin-flip", True] + found["coin-flip", False] == 8
    assert {c.copies for c in canaries if c.pattern == "coin-flip"} == {0, 4}


def test_canaries_use_the_given_vocabulary():
    vocabulary = WordVocabulary(("<unk>", "<eos>", *TREES[:8]))
    canaries = canaries_of(pattern=("random",), length=2, vocabulary=vocabulary, seed=1)
    assert {word for canary in canaries for word in canary.phrase.split()} <= set(TREES[:8])
    size, corpus = len(vocabulary), Corpus.from_texts(["cedar date elm fig"] * 3)
    model = TableModel([1 / size] * size, [[1 / size] * size] * size, vocabulary)
    for given in (model, vocabulary):
        assert canaries_of(corpus, phrase="ash beech", vocabulary=given)[0].ids == (2, 3)


def test_the_seed_determines_the_canaries():
    one, same, other = (canaries_of(coin_flip=9, length=2, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


# What is written


def test_documents_keep_their_order_and_the_manifest_has_all_positions():
    found = plant(MAIL, phrase=["quiet mice", "loud owls"], copies=4, seed=5)
    texts = list(found.corpus)
    assert [text for text in texts if text not in ("quiet mice", "loud owls")] == list(MAIL)
    naive = {place for place, text in enumerate(texts) if text in ("quiet mice", "loud owls")}
    assert len(naive) == 8
    assert set(found.manifest.copy_positions) == naive


def test_a_copy_is_written_only_with_out(tmp_path, told):
    given = {"phrase": "quiet mice", "copies": 7, "controls": 2, "monitor": told}
    found = plant(MAIL, **given)
    assert (found.directory, told.tasks) == (None, [])
    assert "directory" not in found.summary
    counts = {name: found.summary[name] for name in ("canaries", "controls", "copies")}
    assert counts == {"canaries": 1, "controls": 2, "copies": 7}
    found.save(tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert (run.run["verb"], run.run["arguments"]["phrase"]) == ("plant", "quiet mice")
    assert [row["copies"] for row in run.rows] == [7, 0, 0]

    written = plant(MAIL, **given, out=tmp_path / "planted")
    assert told.tasks == ["writing the planted copy"]
    assert written.manifest.sha256 == found.manifest.sha256
    copy = read_corpus(tmp_path / "planted" / "corpus.jsonl", user_column="user")
    assert copy.fingerprint() == written.corpus.fingerprint()
    assert Manifest.load(tmp_path / "planted" / "manifest.json").sha256 == written.manifest.sha256
    checked = plant(tmp_path / "planted", verify=True)
    assert checked.summary == {**written.summary, "verified": True}


def test_a_path_and_its_corpus_give_the_same_manifest(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(MAIL) + "\n")
    of_path, of_object = (
        plant(given, phrase=["quiet mice"], seed=3)
        for given in (tmp_path / "corpus.txt", read_corpus(tmp_path / "corpus.txt"))
    )
    assert of_path.manifest.sha256 == of_object.manifest.sha256


def test_a_refusal_changes_no_files(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(VestigeError, match="exists"):
        plant(MAIL, phrase="quiet mice", out=tmp_path)
    with pytest.raises(DataError):
        plant(MAIL, phrase="elm fig", out=tmp_path / "planted")
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


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


# What is refused; `tests/cli/refused/plant.txt` has more


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pattern": "odd"}, "`pattern` number 1 is not one of"),
        ({"per_user": True, "repetitions": (0,)}, "whole numbers from 1 on"),
        ({"per_user": True, "repetitions": ()}, "whole numbers from 1 on"),
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
def test_conflicting_options_of_plant_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        plant(MAIL, **settings)


@pytest.mark.parametrize("given", ["0,2", "1,b", ",", "", "1.5", (0,), ()])
def test_repetitions_are_whole_numbers_from_one_on(given):
    with pytest.raises(ValueError, match="whole numbers from 1 on"):
        parse_repetitions(given)
    assert parse_repetitions("1, 20") == parse_repetitions([1, 20]) == (1, 20)
