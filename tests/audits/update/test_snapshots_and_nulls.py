"""Snapshots are read once and share a vocabulary; null models are trainings of their own."""

import numpy as np
import pytest

from vestige import diff
from vestige.audits.update.null_models import null_hashes, opened
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels, ModelError
from vestige.models.checkpoints import save_model
from vestige.models.folders import sha256_of
from vestige.models.snapshots import Snapshots
from vestige.models.table import TableModel
from vestige.monitor import SILENT

WORDS = ("red", "blue", "green")


def model(seed, words=WORDS):
    size, chance = len(words) + 2, np.random.default_rng(seed)
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    return TableModel(np.full(size, 1 / size), chance.dirichlet(np.ones(size), size), vocabulary)


@pytest.fixture
def saved(tmp_path):
    """Models on disk by name, all different."""
    for seed, name in enumerate(("before", "after", "nulls/2", "nulls/10", "nulls/1")):
        save_model(model(seed), tmp_path / name)
    return tmp_path


def snapshots(before, after):
    return Snapshots.open({"before": before, "after": after}, device="cpu", monitor=SILENT)


def nulls(given, unlike=()):
    return null_hashes(given, unlike=unlike)


def test_a_path_that_has_two_roles_is_read_once(saved):
    given = {"before": saved / "before", "after": str(saved / "before")}
    found = Snapshots.open(given, device="cpu", monitor=SILENT)
    assert found.models["before"] is found.models["after"]
    assert found.recorded["before"] == found.recorded["after"]


def test_objects_stand_for_themselves_and_are_recorded_by_their_weights(saved):
    loaded = model(7)
    given = {"before": loaded, "after": saved / "after"}
    found = Snapshots.open(given, device="cpu", monitor=SILENT)
    assert found.models["before"] is loaded
    assert found.recorded["before"]["sha256"] == sha256_of(loaded)
    assert found.recorded["after"]["path"] == str(saved / "after")


def test_snapshots_of_other_words_are_refused(saved):
    given = {"before": saved / "before", "after": model(1, ("red", "blue", "lamp"))}
    with pytest.raises(IncompatibleModels):
        Snapshots.open(given, device="cpu", monitor=SILENT)


def test_a_missing_snapshot_is_named(tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        Snapshots.open({"before": tmp_path / "nowhere"}, device="cpu", monitor=SILENT)


def test_one_null_model_needs_no_list(saved):
    place = saved / "nulls" / "2"
    assert nulls(str(place)) == nulls([place]) == nulls((str(place),))
    assert list(nulls(place)) == [sha256_of(place)]


def test_a_directory_of_models_stands_for_those_in_it_by_name(saved):
    (saved / "nulls" / "notes").mkdir()
    expected = [str(saved / "nulls" / name) for name in ("1", "10", "2")]
    assert list(nulls(saved / "nulls").values()) == expected


def test_a_directory_without_models_is_no_null_model(tmp_path):
    with pytest.raises(ModelError):
        nulls(tmp_path)


@pytest.mark.parametrize("snapshot", ["before", "after"])
def test_a_snapshot_is_no_null_model_wherever_it_lies(saved, snapshot):
    copy = saved / "copy"
    save_model(model(("before", "after").index(snapshot)), copy)
    unlike = (saved / "before", saved / "after")
    message = rf"`null` must be a training of its own, got .*copy, .* weights of .*{snapshot}\."
    with pytest.raises(ValueError, match=message):
        nulls([saved / "nulls", copy], unlike)


def test_a_loaded_snapshot_is_no_null_model():
    with pytest.raises(
        ValueError, match=r"got <TableModel>, which has the weights of <TableModel>"
    ):
        nulls(model(3), (model(3), model(4)))


def test_one_null_model_given_twice_is_refused(saved):
    with pytest.raises(ValueError, match="`null` must be a training of its own"):
        nulls([saved / "nulls", saved / "nulls" / "2"])
    with pytest.raises(ValueError, match="`null` must be a training of its own"):
        nulls([model(5), model(5)])


def test_null_models_that_differ_from_the_snapshots_are_kept_in_their_order(saved):
    several = [model(8), saved / "nulls" / "2", model(9)]
    found = nulls(several, (saved / "before", saved / "after"))
    assert list(found.values()) == [several[0], str(saved / "nulls" / "2"), several[2]]
    assert list(found) == list(map(sha256_of, several))


@pytest.mark.parametrize("none", [(), []])
def test_without_null_models_nothing_is_hashed_or_recorded(none, monkeypatch):
    def fails(*given, **named):
        raise AssertionError("hashed the snapshots to compare them with no null model")

    monkeypatch.setattr("vestige.audits.update.null_models.null_hashes", fails)
    found = diff(model(0), model(1), null=none, size=0.1, device="cpu")
    assert list(found.record["models"]) == ["before", "after"]


def test_null_models_are_read_when_their_turn_comes(saved):
    first = next(iter(nulls(saved / "nulls").values()))  # nulls/1
    null, _ = opened(first, snapshots(model(0), model(1)), model(0), None)
    assert np.allclose(null.log_table, model(4).log_table)


def test_null_models_answer_over_the_ids_of_the_snapshots(saved):
    like = snapshots(model(0), model(1, (*WORDS, "lamp")))
    null, _ = opened(model(8), like, like.models["before"], None)
    assert null.vocab_size == len(WORDS) + 3
