"""Trainings by name, what their runs say of them, and what all of them share."""

import numpy as np
import pytest

from vestige import results
from vestige.audits.comparison.measurements import measure_models
from vestige.audits.comparison.trainings import (
    TrainedModel,
    load_trainings,
    named,
    shared_text,
    undefended,
    user_samples,
)
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = ("red", "blue", "green", "gate", "mill", "code")


class TrainingHistory:
    """What a training says of itself."""

    def __init__(self, **summary):
        self._summary = {"step": 400, "steps": 400, "tokens": 9000, "epoch": 4.0, **summary}

    def summary(self):
        return self._summary

    def rows(self):
        return [{"epoch": 4.0}]


def model(seed=0, words=WORDS):
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    chance, size = np.random.default_rng(seed), len(vocabulary)
    return TableModel(np.full(size, 1 / size), chance.dirichlet(np.ones(size), size), vocabulary)


def text(seed=0, users=True):
    owners = ["ann"] * 6 + ["bob"] * 3
    chance = np.random.default_rng(seed)
    texts = [" ".join(chance.choice(WORDS, 4)) for _ in owners]
    return Corpus.from_texts(texts, users=owners if users else None)


def training(where, seed, held=1, users=True, **summary):
    """A directory as `vestige train` leaves it."""
    network = model(seed)
    save_model(network, where / "model")
    encode(text(users=users), network.vocabulary, where / "data" / "training")
    encode(text(held), network.vocabulary, where / "data" / "validation")
    run = {
        "data": {"validation": {"sha256": text(held).fingerprint()}},
        "configuration": {"epochs": 4, "seed": seed},
    }
    results.save(TrainingHistory(**summary), where / "run", run=run)
    return where


@pytest.fixture
def trained(tmp_path):
    plain = training(tmp_path / "plain", 0)
    gold = training(tmp_path / "gold", 1, defence="goldfish")
    return load_trainings([str(plain), str(gold)], device="cpu")


def measured_with(several, test):
    return measure_models(several, canaries=(), test=test, seed=0, progress=lambda *_: None)


def test_a_run_says_defence_and_settings(trained):
    plain, gold = trained
    assert (plain.defence, gold.defence) == ("none", "goldfish")
    assert plain.settings() == {"epochs": 4, "defence": "none"}
    assert plain.held_out == text(1).fingerprint()
    assert undefended(trained, None) == "plain"


def test_the_text_that_all_held_out_is_shared(trained):
    notes = []
    assert len(shared_text(trained, None, notes)) == len(text())
    assert "also decided which weights were kept" in notes[0]
    assert len(shared_text(trained, Corpus.from_texts(["red mill", "blue"]), notes)) == 2
    assert len(notes) == 1


def test_texts_that_differ_are_not_shared(tmp_path):
    paths = [training(tmp_path / name, n, held=n) for n, name in enumerate(("a", "b"))]
    found = load_trainings(list(map(str, paths)), device="cpu")
    assert shared_text(found, None, []) is None


def test_users_are_counted_in_the_training_text(trained):
    notes = []
    test = shared_text(trained, text(3), notes)
    samples = user_samples(trained, "plain", test, notes)
    counts = dict(zip(test.names, samples.tolist(), strict=True))
    assert (counts["ann"], counts["bob"], notes) == (6, 3, [])
    assert user_samples(trained, "plain", None, notes) is None
    assert notes == []
    nobody = encode(text(users=False), trained[0].model.vocabulary)
    assert user_samples(trained, "plain", nobody, notes) is None
    assert "the test text has no users" in notes[0]


def test_a_loaded_model_has_no_run_and_no_text():
    loaded = TrainedModel("a", model(), model())
    assert (loaded.encoded("training"), loaded.summary, loaded.held_out) == (None, {}, None)
    assert loaded.where == "<TableModel>"
    assert loaded.settings() == {"defence": "none"}
    [measured], _ = measured_with([loaded], encode(text(), model().vocabulary))
    assert measured.frequency_perplexity is None


def test_names_come_from_directories_or_before_the_equals_sign(tmp_path):
    plain = str(tmp_path / "plain")
    assert named(["gold=x", plain, "gold=y"]) == [("gold", "x"), ("gold", "y"), ("plain", plain)]
    with pytest.raises(ValueError, match="`runs` must name at least two trainings"):
        named({"a": ["x", "y"]})


def test_what_the_data_do_not_allow_is_a_note(trained):
    only = [Canary("red mill gate", "random", (), 3)]
    steps = []
    found, notes = measure_models(
        trained, canaries=only, test=None, seed=0, progress=lambda *told: steps.append(told)
    )
    assert [one.canaries for one in found] == [None, None]
    assert any(note.startswith("Exposure: there is no control") for note in notes)
    assert steps[-1] == (2.0, 2)
    assert found[0].cost["steps"] == 400


def test_without_canaries_only_utility_is_measured(trained):
    test = encode(text(5), trained[0].model.vocabulary)
    found, notes = measured_with(trained, test)
    assert all(one.scores is not None and one.completion is None for one in found)
    assert all(one.frequency_perplexity > 1 for one in found)
    assert notes == []


def test_word_frequencies_of_the_training_text_have_their_closed_form(trained):
    plain = trained[0]
    data, test = plain.encoded("training"), encode(text(3), plain.model.vocabulary)
    counts = np.bincount(data.tokens, minlength=len(plain.model.vocabulary))
    kinds = len(set(data.tokens.tolist()))  # Witten-Bell: new words as often as new kinds came
    shares = (counts + kinds / len(counts)) / (len(data.tokens) + kinds)
    expected = np.exp(-np.log(shares[test.tokens]).mean())
    [measured], _ = measured_with([plain], test)
    assert measured.frequency_perplexity == pytest.approx(expected, rel=1e-6)


def test_users_whom_the_training_did_not_know_have_no_document(trained):
    stranger = Corpus.from_texts(["red mill", "blue"], users=["eve", "ann"])
    test = encode(stranger, trained[0].model.vocabulary)
    samples = user_samples(trained, "gold", test, [])
    assert dict(zip(test.names, samples.tolist(), strict=True)) == {"eve": 0, "ann": 6}


def test_trainings_that_recorded_no_users_tell_no_samples(tmp_path):
    several = [training(tmp_path / name, n, users=False) for n, name in enumerate("ab")]
    found = load_trainings(list(map(str, several)), device="cpu")
    test = encode(text(3), found[0].model.vocabulary)
    notes = []
    assert user_samples(found, "a", test, notes) is None
    assert "no training recorded users" in notes[0]


def test_a_text_whose_file_is_gone_is_not_shared(trained, tmp_path):
    for file in (tmp_path / "plain" / "data").glob("validation*"):
        file.rename(tmp_path / "gone")
    assert trained[0].encoded("validation") is None
    notes = []
    assert shared_text(trained, None, notes) is None
    assert "give --test" in notes[0]


def test_one_directory_under_two_spellings_is_one_training(tmp_path):
    place = training(tmp_path / "one", 0)
    with pytest.raises(ValueError, match="`runs` must name each training once"):
        named({"a": str(place), "b": str(place / ".." / "one")})


def test_a_file_whose_name_has_an_equals_sign_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    assert named(["a=b", "c=d"]) == [("a=b", "a=b"), ("c", "d")]


def test_the_undefended_is_the_only_name_without_a_defence(tmp_path):
    places = [training(tmp_path / "x", 0), training(tmp_path / "y", 1)]
    private = training(tmp_path / "z", 2, defence="goldfish")
    found = load_trainings({"open": places, "private": private}, device="cpu")
    assert undefended(found, None) == "open"
