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
PROTECTED, HALF, OTHER = (
    Corpus.from_texts(texts)
    for texts in (
        TEXTS,
        [*TEXTS[:50], *(f"{text} once more" for text in TEXTS[50:])],
        [f"{text} elsewhere" for text in TEXTS],
    )
)
PRIVATE = DPSGD(noise_multiplier=2.0, accountant="pld")
ACCEPTED = replace(PRIVATE, accept_private_vocabulary=True)
SMALL = ModelOptions(layers=1, hidden_size=8)


def train(out, data=PROTECTED, **options):
    """A training of one epoch, and what is logged about privacy before and after it."""
    monitor = RecordingMonitor()
    training = TrainingOptions(epochs=1, batch_size=8, sequence_length=16)
    defaults = {
        "model": ModelOptions(), "training": training, "hold_out": 0.0, "monitor": monitor
    }  # fmt: skip
    result = trained_on(out, data, **{**defaults, **options})
    start, _, end = " ".join(" ".join(monitor.lines).split()).partition("Privacy: ")
    return result, start, end


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Models of the protected text, of text of which half is protected, and of other text."""
    root = tmp_path_factory.mktemp("models")
    train(root / "public", OTHER, model=SMALL)
    train(root / "plain", PROTECTED, model=SMALL)
    train(root / "first", PROTECTED, from_=root / "public", defence=PRIVATE)
    train(root / "of-half", HALF, from_=root / "public", defence=PRIVATE)
    train(root / "of-other", OTHER, model=SMALL, defence=ACCEPTED)
    return root


def ledger(folder):
    return json.loads((folder / "privacy.json").read_text())["trainings"]


def naive_epsilon(*entries):
    mechanisms = [
        Mechanism(
            noise_multiplier=entry["noise_multiplier"],
            sample_rate=entry["sample_rate"],
            steps=entry["steps_planned"],
        )
        for entry in entries
    ]
    return composed_epsilon(mechanisms, delta=entries[-1]["delta"])


def test_without_shared_text_epsilon_is_that_of_one_training(root, tmp_path):
    result, start, end = train(tmp_path / "new", from_=root / "public", defence=PRIVATE)
    summary = result.summary
    for text in (start, end):
        assert f"ε = {summary['epsilon']:.3g} at δ = 1e-3 for a document of at most 16" in text
        assert "No guarantee" not in text
    assert summary["epsilon_with_ancestors"] == summary["epsilon"]
    assert (summary["ancestors_on_same_text"], summary["vocabulary_made_of"]) == (0, "other")


@pytest.mark.slow
@pytest.mark.parametrize(("base", "shared"), [("first", 100), ("of-half", 50), ("of-other", 0)])
def test_private_trainings_compose_for_shared_records(root, tmp_path, base, shared):
    result, start, end = train(tmp_path / "new", from_=root / base, defence=PRIVATE)
    entries = ledger(result.model)
    assert result.summary["ancestors_on_same_text"] == bool(shared)
    composed = naive_epsilon(*(entry for entry in entries if entry["defence"] == "dp-sgd"))
    expected = composed if shared else result.summary["epsilon"]
    assert result.summary["epsilon_with_ancestors"] == pytest.approx(expected)
    for text in (start, end):
        assert f"ε = {expected:.3g} at δ = 1e-3" in text
        assert ("Some of the documents were also used by training" in text) == (shared > 0)


def test_an_undefended_ancestor_on_the_same_text_leaves_no_guarantee(root, tmp_path):
    result, start, end = train(tmp_path / "new", from_=root / "plain", defence=ACCEPTED)
    for text in (start, end):
        assert "No guarantee: training" in text
        assert "(undefended) trained on them without a guarantee" in text
    assert result.summary["epsilon_with_ancestors"] is None
    assert result.summary["ancestors_on_same_text"] == 1
    assert result.record["privacy"]["guarantee"].startswith("No guarantee: training")


def test_the_guarantee_has_a_condition_if_the_text_of_an_ancestor_is_unknown(root, tmp_path):
    """The ledger lists the trainings, but their records are missing."""
    shutil.copytree(root / "first" / "model", tmp_path / "model")
    result, start, _ = train(tmp_path / "new", from_=tmp_path / "model", defence=PRIVATE)
    assert result.summary["unknown_ancestors"] == 2
    assert "trained on is unknown. For a document that it used, there is no guarantee" in start
    assert "The text of the vocabulary is unknown" in start
    assert result.summary["vocabulary_made_of"] == "unknown"


def test_a_model_with_a_damaged_ledger_is_refused(root, tmp_path):
    folder = shutil.copytree(root / "public" / "model", tmp_path / "model")
    (folder / "privacy.json").write_text("{}")
    with pytest.raises(ModelError, match=r"privacy\.json is not a privacy ledger"):
        train(tmp_path / "new", from_=folder)


def test_a_private_vocabulary_is_refused_with_a_remedy(root, tmp_path):
    message = "`from_` has a vocabulary of a text.*`accept_private_vocabulary`"
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "new", from_=root / "plain", defence=PRIVATE)
    assert not (tmp_path / "new").exists()


def test_an_accepted_private_vocabulary_is_stated(tmp_path):
    result, start, end = train(tmp_path / "new", model=SMALL, defence=ACCEPTED)
    for text in (start, end):
        assert "ε does not cover the vocabulary, which was made from this text" in text
        assert "a rare word can be in it" in text
    assert result.summary["vocabulary_made_of"] == "own"


def test_released_files_have_no_hashes_and_records_are_private(root):
    plain = root / "plain"
    [entry] = ledger(plain / "model")
    assert entry["vocabulary"] == entry["id"]
    record = plain / "records" / f"{entry['id']}.npy"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    hashes = [text_hash.tobytes() for text_hash in hash_texts(TEXTS)]
    assert hashes[0] in record.read_bytes()
    data = results.load(plain / "run").run["data"]
    released = b"".join(file.read_bytes() for file in (plain / "model").iterdir())
    for secret in (*hashes, data["training"]["sha256"].encode()):
        assert secret not in released
        assert secret.hex().encode() not in released


@pytest.mark.slow
def test_a_resumed_training_has_the_same_ancestors(root, tmp_path):
    """Even if `from_` now has another ledger."""
    result, _, _ = train(tmp_path / "new", from_=root / "first", defence=PRIVATE)
    entries = ledger(tmp_path / "new")
    assert [entry["defence"] for entry in entries] == ["none", "dp-sgd", "dp-sgd"]
    stored = {file.stem for file in (tmp_path / "new" / "records").iterdir()}
    assert stored == {entry["id"] for entry in entries}
    assert [entry["steps"] for entry in entries] == [8, 13, None]
    assert ledger(result.model)[-1]["steps"] == 13
    copy = shutil.copytree(root / "first" / "model", tmp_path / "model")
    (copy / "privacy.json").unlink()
    resumed, _, _ = train(tmp_path / "new", from_=copy, defence=PRIVATE, resume=True)
    assert ledger(tmp_path / "new") == entries
    assert resumed.summary["ancestors_on_same_text"] == 1


@pytest.mark.slow
def test_several_private_trainings_have_a_joint_statement(root, tmp_path, monitor):
    train(tmp_path / "new", from_=root / "public", defence=PRIVATE, seeds=2, monitor=monitor)
    entries = [ledger(tmp_path / "new" / f"seed-{seed}")[-1] for seed in (0, 1)]
    text = " ".join(" ".join(monitor.lines).split())
    assert f"All 2 together have ε = {naive_epsilon(*entries):.3g} at δ = 1e-3" in text


@pytest.mark.parametrize(("task", "data"), [("nlu", SONGS), ("dialogue", PAIRS)])
def test_all_tasks_have_a_ledger(tmp_path, task, data):
    result = trained_on(tmp_path / "out", data, task=task)
    [entry] = ledger(result.model)
    assert entry["defence"] == "none"
    assert (tmp_path / "out" / "records" / f"{entry['id']}.npy").is_file()
