"""The guarantee of `train` before and after a training of a model with earlier trainings."""

import json
import shutil
import stat
from dataclasses import replace

import pytest

from tests.monitors import RecordingMonitor
from tests.preparation.trainings import PAIRS, SONGS
from tests.preparation.trainings import trained as trained_on
from vestige import results
from vestige.data.corpus import Corpus
from vestige.data.division import hash_texts
from vestige.defences.methods.private import DPSGD
from vestige.errors import ModelError
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.privacy.accounting import Mechanism, composed_epsilon

WORDS = ["the gate opens", "a lantern stands", "the miller knows", "nobody sleeps", "a code rings"]
TEXTS = [f"{a} and {b} {n}" for n in range(4) for a in WORDS for b in WORDS]
OWN, HALF, OTHER = (
    Corpus.from_texts(texts)
    for texts in (
        TEXTS,
        [*TEXTS[:50], *(f"{text} once more" for text in TEXTS[50:])],
        [f"{text} elsewhere" for text in TEXTS],
    )
)
PRIVATE = DPSGD(noise_multiplier=2.0, accountant="pld")
ACCEPTED = replace(PRIVATE, accept_private_vocabulary=True)
ANY = ModelOptions()
SMALL = ModelOptions(layers=1, hidden_size=8)


def train(out, data=OWN, **given):
    """A training of one epoch; it, and what was logged at its start and at its end."""
    told = RecordingMonitor()
    training = TrainingOptions(epochs=1, batch_size=8, sequence_length=16)
    usual = {"model": ANY, "training": training, "hold_out": 0.0, "monitor": told}
    found = trained_on(out, data, **{**usual, **given})
    start, _, end = " ".join(" ".join(told.lines).split()).partition("Privacy: ")
    return found, start, end


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Models of the text to protect, of text of which half is that, and of other text."""
    root = tmp_path_factory.mktemp("place")
    train(root / "public", OTHER, model=SMALL)
    train(root / "plain", OWN, model=SMALL)
    train(root / "first", OWN, from_=root / "public", defence=PRIVATE)
    train(root / "of-half", HALF, from_=root / "public", defence=PRIVATE)
    train(root / "of-other", OTHER, model=SMALL, defence=ACCEPTED)
    return root


def ledger(folder):
    return json.loads((folder / "privacy.json").read_text())["trainings"]


def by_hand(*entries):
    mechanisms = [
        Mechanism(
            noise_multiplier=entry["noise_multiplier"],
            sample_rate=entry["sample_rate"],
            steps=entry["steps_planned"],
        )
        for entry in entries
    ]
    return composed_epsilon(mechanisms, delta=entries[-1]["delta"])


def test_without_shared_text_epsilon_is_that_of_one_training(place, tmp_path):
    found, start, end = train(tmp_path / "new", from_=place / "public", defence=PRIVATE)
    summary = found.summary
    for said in (start, end):
        assert f"ε = {summary['epsilon']:.3g} at δ = 1e-3 for a document of at most 16" in said
        assert "No guarantee" not in said
    assert summary["epsilon_with_ancestors"] == summary["epsilon"]
    assert (summary["ancestors_on_same_text"], summary["vocabulary_made_of"]) == (0, "other")


@pytest.mark.slow
@pytest.mark.parametrize(("before", "read"), [("first", 100), ("of-half", 50), ("of-other", 0)])
def test_private_trainings_compose_for_shared_records(place, tmp_path, before, read):
    found, start, end = train(tmp_path / "new", from_=place / before, defence=PRIVATE)
    entries = ledger(found.model)
    assert found.summary["ancestors_on_same_text"] == bool(read)
    composed = by_hand(*(entry for entry in entries if entry["defence"] == "dp-sgd"))
    wanted = composed if read else found.summary["epsilon"]
    assert found.summary["epsilon_with_ancestors"] == pytest.approx(wanted)
    for said in (start, end):
        assert f"ε = {wanted:.3g} at δ = 1e-3" in said
        assert ("Some of the documents were also used by training" in said) == (read > 0)


def test_an_undefended_ancestor_on_the_same_text_leaves_no_guarantee(place, tmp_path):
    found, start, end = train(tmp_path / "new", from_=place / "plain", defence=ACCEPTED)
    for said in (start, end):
        assert "No guarantee: training" in said
        assert "(undefended) trained on them without a guarantee" in said
    assert found.summary["epsilon_with_ancestors"] is None
    assert found.summary["ancestors_on_same_text"] == 1
    assert found.record["privacy"]["guarantee"].startswith("No guarantee: training")


def test_with_an_unknown_ancestor_the_guarantee_has_a_condition(place, tmp_path):
    """Its ledger names trainings, but what they read is not there."""
    shutil.copytree(place / "first" / "model", tmp_path / "bare")
    found, start, _ = train(tmp_path / "new", from_=tmp_path / "bare", defence=PRIVATE)
    assert found.summary["unknown_ancestors"] == 2
    assert "trained on is unknown. For a document that it used, there is no guarantee" in start
    assert "The text of the vocabulary is unknown" in start
    assert found.summary["vocabulary_made_of"] == "unknown"


def test_an_unknown_ancestor_is_stated_and_a_damaged_ledger_named(place, tmp_path):
    folder = shutil.copytree(place / "public" / "model", tmp_path / "elsewhere")
    (folder / "privacy.json").unlink()
    found, start, end = train(tmp_path / "new", from_=folder, defence=PRIVATE)
    for said in (start, end):
        assert "What the model it started from trained on is unknown" in said
    assert [one["defence"] for one in ledger(found.model)] == ["unknown", "dp-sgd"]
    (folder / "privacy.json").write_text('{"format": "vestige-privacy-1"}')
    with pytest.raises(ModelError, match=r"privacy\.json is not a privacy ledger"):
        train(tmp_path / "damaged", from_=folder)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": SMALL}, "`defence` dp-sgd needs `vocabulary` or `from_`"),
        (
            {"model": replace(SMALL, tokenizer="bpe", vocab_size=300)},
            "needs `vocabulary` or `from_`",
        ),
        ({"model": replace(SMALL, vocabulary="plain")}, "`vocabulary` has a vocabulary of a text"),
        ({"from_": "plain"}, "`from_` has a vocabulary of a text"),
    ],
)
def test_a_private_vocabulary_is_refused_with_the_remedy(
    place, tmp_path, monkeypatch, given, message
):
    monkeypatch.chdir(place)
    with pytest.raises(ValueError, match=f"{message}.*`accept_private_vocabulary`"):
        train(tmp_path / "new", defence=PRIVATE, **given)
    assert not (tmp_path / "new").exists()


def test_an_accepted_private_vocabulary_is_stated(tmp_path):
    found, start, end = train(tmp_path / "new", model=SMALL, defence=ACCEPTED)
    for said in (start, end):
        assert "ε does not cover the vocabulary, which was made from this text" in said
        assert "a rare word can be in it" in said
    assert found.summary["vocabulary_made_of"] == "own"


def test_released_files_have_no_hashes_and_records_are_private(place):
    plain = place / "plain"
    [entry] = ledger(plain / "model")
    assert entry["vocabulary"] == entry["id"]
    record = plain / "records" / f"{entry['id']}.npy"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    hashes = [hash_text.tobytes() for hash_text in hash_texts(TEXTS)]
    assert hashes[0] in record.read_bytes()
    data = results.load(plain / "run").run["data"]
    released = b"".join(file.read_bytes() for file in (plain / "model").iterdir())
    for name in (*hashes, data["training"]["sha256"].encode()):
        assert name not in released
        assert name.hex().encode() not in released


@pytest.mark.slow
def test_a_training_keeps_the_records_of_its_ancestors_and_its_ledger(place, tmp_path):
    """A resumed one too, whatever `from_` names now."""
    found, _, _ = train(tmp_path / "new", from_=place / "first", defence=PRIVATE)
    entries = ledger(tmp_path / "new")
    assert [entry["defence"] for entry in entries] == ["none", "dp-sgd", "dp-sgd"]
    kept = {file.stem for file in (tmp_path / "new" / "records").iterdir()}
    assert kept == {entry["id"] for entry in entries}
    assert [entry["steps"] for entry in entries] == [8, 13, None]
    assert ledger(found.model)[-1]["steps"] == 13
    bare = shutil.copytree(place / "first" / "model", tmp_path / "bare")
    (bare / "privacy.json").unlink()
    again, _, _ = train(tmp_path / "new", from_=bare, defence=PRIVATE, resume=True)
    assert ledger(tmp_path / "new") == entries
    assert again.summary["ancestors_on_same_text"] == 1


@pytest.mark.slow
def test_several_private_trainings_have_a_joint_statement(place, tmp_path):
    told = RecordingMonitor()
    train(tmp_path / "new", from_=place / "public", defence=PRIVATE, seeds=2, monitor=told)
    entries = [ledger(tmp_path / "new" / f"seed-{seed}")[-1] for seed in (0, 1)]
    said = " ".join(" ".join(told.lines).split())
    assert f"All 2 together have ε = {by_hand(*entries):.3g} at δ = 1e-3" in said


@pytest.mark.parametrize(("task", "data"), [("nlu", SONGS), ("dialogue", PAIRS)])
def test_all_tasks_have_a_ledger(tmp_path, task, data):
    found = trained_on(tmp_path / "out", data, task=task)
    [entry] = ledger(found.model)
    assert entry["defence"] == "none"
    assert (tmp_path / "out" / "records" / f"{entry['id']}.npy").is_file()
