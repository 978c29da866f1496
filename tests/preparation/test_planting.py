"""What `plant` writes, tells, keeps and refuses."""

from collections import Counter

import pytest

from tests.told import Told
from vestige.data.corpus import Corpus
from vestige.data.formats.utterances import read_utterances, write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError, VestigeError
from vestige.preparation.plant import plant

LINES = ["the gate opens at nine", "nobody knows the code", "a lantern stands at the mill"] * 8
CORPUS = Corpus.from_texts(LINES)
SONGS = Utterances.of(
    Utterance(("play", f"song{number}"), ("O", "B-song"), "Play") for number in range(40)
)


def test_documents_keep_their_order_around_the_copies():
    found = plant(CORPUS, phrase="quiet mice", copies=6, seed=5)
    assert [text for text in found.corpus if text != "quiet mice"] == LINES


def test_the_manifest_says_where_each_copy_stands():
    found = plant(CORPUS, phrase=["quiet mice", "loud owls"], copies=4)
    texts = list(found.corpus)
    for phrase in ("quiet mice", "loud owls"):
        naive = [place for place, text in enumerate(texts) if text == phrase]
        assert len(naive) == 4
        assert set(naive) <= set(found.manifest.places)
    assert len(found.manifest.places) == 8


def test_controls_stand_nowhere_in_the_copy():
    found = plant(CORPUS, coin_flip=12, length=2)
    counts = Counter(found.corpus)
    assert all(counts[row["phrase"]] == row["copies"] for row in found.rows)
    assert {row["copies"] for row in found.rows} == {0, 1}


def test_a_monitor_is_told_only_where_something_is_written(tmp_path):
    told = Told()
    plant(CORPUS, phrase="quiet mice", monitor=told)
    assert told.tasks == []
    plant(CORPUS, phrase="quiet mice", out=tmp_path / "planted", monitor=told)
    assert told.tasks == ["writing the planted copy"]


def test_a_directory_that_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(VestigeError, match="exists"):
        plant(CORPUS, phrase="quiet mice", out=tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_a_phrase_of_the_corpus_leaves_no_directory(tmp_path):
    with pytest.raises(DataError):
        plant(CORPUS, phrase="nobody knows", out=tmp_path / "planted")
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


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"phrase": "quiet mice", "copies": 0}, "`copies` must be greater than or equal to 1"),
        ({"phrase": "quiet mice", "controls": 0}, "`controls` must be greater than or equal to 1"),
        ({"coin_flip": 0}, "`coin_flip` must be greater than or equal to 2"),
        ({"length": 0}, "`length` must be greater than or equal to 1"),
    ],
)
def test_a_number_below_the_least_is_refused_and_no_default_stands_for_it(given, says):
    with pytest.raises(ValueError, match=says):
        plant(CORPUS, **given)


@pytest.mark.parametrize("name", ["copies", "controls", "number"])
def test_a_number_of_secrets_below_one_is_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be greater than or equal to 1"):
        plant(SONGS, task="nlu", pattern="pin:4", **{name: 0})
