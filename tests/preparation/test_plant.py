"""`plant` takes paths and loaded corpora alike, keeps what it should, and says what it planted."""

from collections import Counter

import pytest

from tests.told import Told
from vestige import results
from vestige.data.canaries.texts import Manifest
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import read_corpus
from vestige.data.formats.utterances import read_utterances, write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, VestigeError
from vestige.models.table import TableModel
from vestige.preparation.canaries import repetitions_of
from vestige.preparation.plant import plant

CORPUS = Corpus.from_texts(
    ["the gate opens at nine", "nobody knows the code", "a lantern stands at the mill"] * 8,
    users=["ann", "bob", "cid"] * 8,
)
SONGS = Utterances.of(
    Utterance(("play", f"song{number}"), ("O", "B-song"), "Play") for number in range(40)
)


def test_a_loaded_corpus_is_planted_in_without_a_file():
    found = plant(CORPUS, phrase="quiet mice sing", copies=7, controls=2)
    assert found.directory is None
    assert list(found.corpus).count("quiet mice sing") == 7
    assert len(found.corpus) == len(CORPUS) + 7
    summary = found.summary
    assert (summary["canaries"], summary["controls"], summary["copies"]) == (1, 2, 7)
    assert "directory" not in summary


def test_a_path_and_its_corpus_give_one_manifest(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    of_path = plant(tmp_path / "corpus.txt", phrase=["quiet mice"], seed=3)
    of_object = plant(read_corpus(tmp_path / "corpus.txt"), phrase=["quiet mice"], seed=3)
    assert of_path.manifest.sha256 == of_object.manifest.sha256


def test_what_is_written_is_what_is_returned(tmp_path):
    found = plant(CORPUS, phrase="quiet mice", out=tmp_path / "planted")
    assert found.directory == tmp_path / "planted"
    written = read_corpus(tmp_path / "planted" / "corpus.jsonl", user_column="user")
    assert written.fingerprint() == found.corpus.fingerprint()
    assert Manifest.load(tmp_path / "planted" / "manifest.json").sha256 == found.manifest.sha256
    checked = plant(tmp_path / "planted", verify=True)
    assert checked.verified
    assert checked.summary == {**found.summary, "verified": True}


def test_a_loaded_models_vocabulary_gives_the_ids():
    vocabulary = WordVocabulary(("<unk>", "<eos>", "quiet", "mice", "gate", "code", "the"))
    size = len(vocabulary)
    model = TableModel([1 / size] * size, [[1 / size] * size] * size, vocabulary)
    corpus = Corpus.from_texts(["the gate", "the code"])
    for given in (model, vocabulary):
        canaries = plant(corpus, phrase="quiet mice", vocabulary=given).manifest.canaries
        assert canaries[0].ids == (2, 3)


def test_secrets_go_into_loaded_utterances():
    found = plant(SONGS, task="nlu", pattern="pin:2", copies=20, controls=3, hold_out=0.25)
    assert isinstance(found.manifest, SecretManifest)
    assert found.labelled
    summary = found.summary
    assert (summary["train"], summary["validation"], summary["test"]) == (30 + 18, 10 + 2, 0)
    planted, *controls = found.rows
    assert (planted["copies"], planted["validation"], planted["intent"]) == (20, 2, "PinIntent")
    assert [row["copies"] for row in controls] == [0, 0, 0]


def test_candidates_may_be_a_mapping(tmp_path):
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    found = plant(
        tmp_path / "songs.jsonl",
        task="nlu",
        pattern="i am {name}",
        intent="Introduce",
        candidates={"name": ("ann", "bob", "cid")},
        out=tmp_path / "planted",
    )
    assert found.manifest.canaries[0].parsed.candidates == (("ann", "bob", "cid"),)
    assert plant(tmp_path / "planted", verify=True).summary["patterns"] == 1


def test_nothing_is_saved_as_a_run_unless_asked(tmp_path):
    found = plant(CORPUS, phrase="quiet mice")
    found.save(tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert run.run["verb"] == "plant"
    assert run.run["arguments"]["phrase"] == "quiet mice"
    assert [row["copies"] for row in run.rows] == [10, 0]


LINES = ["the gate opens at nine", "nobody knows the code", "a lantern stands at the mill"] * 8
PLAIN = Corpus.from_texts(LINES)


def test_documents_keep_their_order_around_the_copies():
    found = plant(PLAIN, phrase="quiet mice", copies=6, seed=5)
    assert [text for text in found.corpus if text != "quiet mice"] == LINES


def test_the_manifest_says_where_each_copy_stands():
    found = plant(PLAIN, phrase=["quiet mice", "loud owls"], copies=4)
    texts = list(found.corpus)
    for phrase in ("quiet mice", "loud owls"):
        naive = [place for place, text in enumerate(texts) if text == phrase]
        assert len(naive) == 4
        assert set(naive) <= set(found.manifest.places)
    assert len(found.manifest.places) == 8


def test_controls_stand_nowhere_in_the_copy():
    found = plant(PLAIN, coin_flip=12, length=2)
    counts = Counter(found.corpus)
    assert all(counts[row["phrase"]] == row["copies"] for row in found.rows)
    assert {row["copies"] for row in found.rows} == {0, 1}


def test_a_monitor_is_told_only_where_something_is_written(tmp_path):
    told = Told()
    plant(PLAIN, phrase="quiet mice", monitor=told)
    assert told.tasks == []
    plant(PLAIN, phrase="quiet mice", out=tmp_path / "planted", monitor=told)
    assert told.tasks == ["writing the planted copy"]


def test_a_directory_that_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(VestigeError, match="exists"):
        plant(PLAIN, phrase="quiet mice", out=tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_a_phrase_of_the_corpus_leaves_no_directory(tmp_path):
    with pytest.raises(DataError):
        plant(PLAIN, phrase="nobody knows", out=tmp_path / "planted")
    assert list(tmp_path.iterdir()) == []


def test_parts_of_utterances_are_written_and_an_empty_one_is_not(tmp_path):
    out = tmp_path / "planted"
    found = plant(SONGS, task="nlu", pattern="pin:2", copies=5, hold_out=0.0, out=out)
    assert {one.name for one in out.iterdir()} == {"train.jsonl", "manifest.json"}
    written = read_utterances(out / "train.jsonl").train
    assert written.fingerprint() == found.corpus.fingerprint()
    assert plant(out, verify=True).summary["train"] == 45


def test_utterances_of_a_file_validate(tmp_path):
    write_utterances(SONGS, tmp_path / "other.jsonl")
    found = plant(
        SONGS, task="nlu", pattern="pin:2", copies=10, validation=tmp_path / "other.jsonl"
    )
    summary = found.summary
    assert (summary["train"], summary["validation"]) == (40 + 9, 40 + 1)


LEAST = {"copies": 1, "controls": 1, "coin_flip": 2, "length": 1}


@pytest.mark.parametrize("name", LEAST)
def test_a_number_below_the_least_is_refused_and_no_default_stands_for_it(name):
    phrase = {"phrase": "quiet mice"} if name in ("copies", "controls") else {}
    with pytest.raises(
        ValueError, match=f"`{name}` must be greater than or equal to {LEAST[name]}"
    ):
        plant(PLAIN, **phrase, **{name: 0})
    if name in ("copies", "controls"):
        with pytest.raises(ValueError, match=f"`{name}` must be greater than or equal to 1"):
            plant(SONGS, task="nlu", pattern="pin:4", **{name: 0})


WORDS = "ash beech cedar date elm fig gum hazel ivy jasmine kale lime maple nettle oak".split()  # noqa: SIM905
TREES = Corpus.from_texts(
    [" ".join(WORDS[(i + j) % 15] for j in range(6)) for i in range(30)],
    users=[["ann", "bob"][i % 2] for i in range(30)],
)


def made(corpus=TREES, **settings):
    return plant(corpus, **settings).manifest.canaries


def kinds(canaries):
    return Counter((canary.pattern, canary.planted) for canary in canaries)


def test_without_settings_every_frequency_pattern_has_a_canary_and_a_control():
    words = [f"{one}ar{other}" for one in "abcdefgh" for other in "klmnopqr"]
    corpus = Corpus.from_texts([" ".join(words[: 64 - i]) for i in range(64)])
    canaries = made(corpus, length=2)
    patterns = ("all-low", "low-to-high", "mixed", "high-to-low")
    assert kinds(canaries) == dict.fromkeys(
        [(pattern, planted) for pattern in patterns for planted in (True, False)], 1
    )
    assert {canary.copies for canary in canaries} == {0, 10}


def test_given_phrases_are_planted_as_they_are():
    canaries = made(phrase=("quiet mice", "loud owls"), copies=3, controls=2)
    assert [canary.phrase for canary in canaries[:2]] == ["quiet mice", "loud owls"]
    assert kinds(canaries) == {("given", True): 2, ("given", False): 4}


def test_random_patterns_are_counted_and_each_has_its_controls():
    canaries = made(pattern=("random", "random"), length=2, controls=2)
    assert kinds(canaries) == {("random", True): 2, ("random", False): 4}


def test_users_and_coins_go_together():
    canaries = made(per_user=True, repetitions=(2,), coin_flip=8, copies=4, length=2, controls=5)
    found = kinds(canaries)
    assert found["random", True] == 2
    assert found["random", False] == 5
    assert found["coin-flip", True] + found["coin-flip", False] == 8
    assert {c.copies for c in canaries if c.pattern == "coin-flip"} == {0, 4}


def test_words_come_from_the_vocabulary_that_was_given():
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS[:8]))
    canaries = made(pattern=("random",), length=2, vocabulary=vocabulary, seed=1)
    assert {word for canary in canaries for word in canary.phrase.split()} <= set(WORDS[:8])


def test_the_seed_decides():
    one, same, other = (made(coin_flip=9, length=2, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


def test_users_are_needed_for_their_canaries():
    with pytest.raises(DataError, match="no users"):
        made(Corpus.from_texts(list(TREES)), per_user=True, length=2)


REFUSED = {
    "a number of secrets": ({"task": "nlu", "pattern": "pin:4", "number": 0}, "`number` must be"),
    "an option of the other task": (
        {"task": "nlu", "phrase": "quiet"},
        "`phrase` needs `task` text",
    ),
    "a slot for text": ({"slot": "pin"}, "`slot` needs `task` nlu"),
    "an unknown pattern": ({"pattern": "odd"}, "`pattern` number 1 is not one of"),
    "repetitions of nought": ({"per_user": True, "repetitions": (0,)}, "whole numbers from 1 on"),
    "no repetitions": ({"per_user": True, "repetitions": ()}, "whole numbers from 1 on"),
    "no secret": ({"task": "nlu"}, "`pattern` must be given"),
    "phrase and pattern": ({"phrase": ("a",), "pattern": ("mixed",)}, "plant them in turn"),
    "phrase and users": ({"phrase": ("a",), "per_user": True}, "`phrase` and `per_user`"),
    "phrase and coins": ({"phrase": ("a",), "coin_flip": 9}, "`phrase` and `coin_flip`"),
    "coins and pattern": ({"coin_flip": 9, "pattern": ("random",)}, "`coin_flip` and `pattern`"),
    "random and mixed": ({"pattern": ("random", "mixed")}, "`pattern` random and another"),
    "users and mixed": ({"per_user": True, "pattern": ("mixed",)}, "other than random"),
    "users and copies": ({"per_user": True, "copies": 2}, "give `repetitions`"),
    "coins and controls": ({"coin_flip": 9, "controls": 2}, "tails are the controls"),
    "repetitions alone": ({"repetitions": (1,)}, "`repetitions` needs `per_user`"),
}


@pytest.mark.parametrize(("settings", "says"), REFUSED.values(), ids=REFUSED)
def test_settings_that_do_not_go_together_are_refused_by_name(settings, says):
    with pytest.raises(ValueError, match=says):
        plant(TREES, **settings)


@pytest.mark.parametrize("given", ["0,2", "1,b", ",", "", "1.5", (0,), ()])
def test_repetitions_are_whole_numbers_from_one_on(given):
    with pytest.raises(ValueError, match="whole numbers from 1 on"):
        repetitions_of(given)


def test_repetitions_may_be_text_or_numbers():
    assert repetitions_of("1, 20") == repetitions_of([1, 20]) == (1, 20)


def test_one_canary_is_counted_in_the_singular():
    planted = plant(TREES, phrase=["quiet mice sing"], copies=1, controls=1)
    assert "1 canary planted (1 copy in all), and 1 control." in str(planted)
