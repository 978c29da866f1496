"""Labelled utterances for training, validation and test."""

import pytest

from vestige.data.corpus import Corpus
from vestige.data.sources import planted_secrets, utterance_parts
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.preparation.plant import plant

SONGS = Utterances.of(
    Utterance(("play", f"Song{number}"), ("O", "B-song"), "Play") for number in range(40)
)
OTHERS = Utterances.of([Utterance(("stop", "now"), ("O", "O"), "Stop")] * 3)


def parts(data=SONGS, *, seed=0, **options):
    return utterance_parts(data, seed=seed, **options)


def texts(utterances):
    return [utterance.text for utterance in utterances]


@pytest.fixture
def planted(tmp_path):
    out = tmp_path / "planted"
    plant(SONGS, task="nlu", pattern="pin:2", copies=20, controls=2, hold_out=0.25, out=out)
    return out


def test_a_random_tenth_is_the_default_validation_part(tmp_path):
    training, validation, test = parts()
    assert (len(training), len(validation), test) == (36, 4, None)
    assert sorted(texts(training + validation)) == sorted(texts(SONGS))
    assert len(parts(hold_out=0.5)[1]) == 20
    first, same, other = (texts(parts(seed=seed)[1]) for seed in (1, 1, 2))
    assert first == same != other
    training, validation, _ = parts(validation=OTHERS)
    assert (texts(training), texts(validation)) == (texts(SONGS), texts(OTHERS))
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    training, *_ = parts(tmp_path / "songs.jsonl", limit=7, hold_out=0.0)
    assert texts(training) == texts(SONGS)[:7]
    with pytest.raises(ValueError, match="`validation` and `hold_out` must not be given together"):
        parts(validation=OTHERS, hold_out=0.2)


def test_a_planted_folder_has_its_own_validation_part(planted):
    training, validation, _ = parts(planted, planted=planted_secrets(planted))
    assert (len(training), len(validation)) == (30 + 18, 10 + 2)
    for name, value in (("validation", OTHERS), ("hold_out", 0.2)):
        with pytest.raises(ValueError, match=f"`{name}` must be left out: DATA has its own"):
            parts(planted, **{name: value})


def test_canaries_in_the_training_part_are_never_held_out(planted):
    (planted / "validation.jsonl").unlink()
    manifest = planted_secrets(planted)
    training, validation, _ = parts(planted, hold_out=0.6, planted=manifest)
    text = manifest.canaries[0].utterance.text
    assert texts(training).count(text) == 18
    assert len(validation) > 0


def test_a_planted_folder_of_running_text_is_refused(tmp_path):
    plant(Corpus.from_texts(["the gate opens"] * 9), phrase="quiet mice", out=tmp_path / "text")
    with pytest.raises(ValueError, match=r"not labelled utterances.*--task nlu"):
        planted_secrets(tmp_path / "text")
    assert planted_secrets(tmp_path) is planted_secrets(SONGS) is None
