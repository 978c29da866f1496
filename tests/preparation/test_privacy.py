"""The ledger of a chain of trainings, and the guarantee of each."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.monitors import RecordingMonitor
from tests.preparation.trainings import CORPUS
from vestige.data.corpus import Corpus
from vestige.data.division import ReadRecords
from vestige.data.encoded import EncodedCorpus
from vestige.defences.methods.private import DPSGD
from vestige.defences.registry import NoDefence
from vestige.errors import DataError, ModelError
from vestige.preparation.lineage import begin_ledger, end_ledger, history_in, history_of, lineage_of
from vestige.preparation.privacy import (
    announce,
    check_vocabulary,
    clip_advice,
    conclude,
    entry_of,
    log_all,
    log_joint_guarantee,
    planned_statement,
)
from vestige.preparation.texts import read_texts
from vestige.privacy.accounting import Mechanism, composed_epsilon
from vestige.privacy.ledger import LedgerEntry, from_json, to_json
from vestige.training.config import TrainingConfig
from vestige.training.directory import IDENTITY

CONFIG = TrainingConfig(seed=0, epochs=2, batch_size=4, sequence_length=6, batching="poisson")
PRIVATE = DPSGD(noise_multiplier=2.0, delta=1e-5, accountant="rdp")
DATA = EncodedCorpus(np.zeros(40, np.int32), np.arange(0, 41, 2))
MECHANISM = Mechanism(noise_multiplier=2.0, sample_rate=4 / 20, steps=10)


@pytest.fixture(scope="module")
def plan():
    return PRIVATE.planned(DATA, CONFIG)


def records(*texts):
    return ReadRecords.of(Corpus.from_texts(texts), Corpus.from_texts([]))


def lineage(out, own_records, *, start=None, vocabulary=None):
    return lineage_of(out, own_records, start=start, vocabulary=vocabulary)


def trained(out, *texts, defence=None, **models):
    """A directory with only the ledger and records of a finished training."""
    parents = lineage(out, records(*texts), **models)
    plan = None if defence is None else defence.planned(DATA, CONFIG)
    entry = entry_of(defence or NoDefence(), plan, CONFIG, parents)
    begin_ledger(out, entry, parents)
    (out / IDENTITY).write_text("{}")
    (out / "model").mkdir()
    end_ledger(out, steps=5)
    return out


def ledger(out):
    file = out / "model" / "privacy.json"
    return from_json(file.read_bytes(), where=file)


def test_each_training_adds_its_entry_and_stores_records_of_ancestors(tmp_path):
    first = trained(tmp_path / "first", "a", "b")
    second = trained(tmp_path / "second", "c", start=first)
    third = trained(tmp_path / "third", "d", start=second / "model")
    ids = [entry.id for entry in ledger(third)]
    assert ids[:2] == [entry.id for entry in ledger(second)]
    assert ids[:1] == [entry.id for entry in ledger(first)]
    assert len(set(ids)) == 3
    assert [entry.steps for entry in ledger(third)] == [5, 5, 5]
    stored = history_in(third).records
    assert set(stored) == set(ids)
    for id_, expected in zip(ids, (records("a", "b"), records("c"), records("d")), strict=True):
        assert np.array_equal(stored[id_].rows(), expected.rows())


def test_a_ledger_names_the_training_of_the_vocabulary(tmp_path):
    first = trained(tmp_path / "first", "a")
    continued = trained(tmp_path / "continued", "b", start=first)
    borrowed = trained(tmp_path / "borrowed", "c", vocabulary=continued)
    [entry] = ledger(first)
    assert entry.vocabulary == entry.id
    assert ledger(continued)[-1].vocabulary == entry.id
    assert [other.vocabulary for other in ledger(borrowed)] == [entry.id]
    assert set(history_in(borrowed).records) == {entry.id, ledger(borrowed)[-1].id}


@pytest.mark.parametrize("kind", ["folder", "object"])
def test_a_model_without_a_ledger_has_an_unknown_history(tmp_path, kind):
    history = history_of(tmp_path if kind == "folder" else object())
    entries = [(entry.defence, entry.vocabulary) for entry in history.ledger]
    assert entries == [("unknown", "unknown")]
    assert history.records == {}


def test_a_ledger_is_begun_once_and_ended_once(tmp_path):
    out, own_records = tmp_path / "out", records("a", "b")
    parents = lineage(out, own_records)
    entry = entry_of(NoDefence(), None, CONFIG, parents)
    assert entry == LedgerEntry(id=parents.id, defence="none", vocabulary=parents.id)
    begin_ledger(out, entry, parents)
    assert history_in(out) is None  # without its identity nothing has begun
    (out / IDENTITY).write_text("{}")
    assert history_in(out).ledger == (entry,)
    begin_ledger(out, replace(entry, id="0" * 32), parents)
    assert history_in(out).ledger == (entry,)
    (out / "model").mkdir()
    for steps in (7, 9):
        end_ledger(out, steps=steps)
    assert ledger(out)[-1].steps == 7
    assert lineage(out, own_records).id == entry.id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "other"}', r"privacy\.json is not a privacy ledger"),
        (
            to_json([LedgerEntry(id="0" * 32, defence="hope")]),
            r"not a privacy ledger: defence must be one of.*dp-sgd",
        ),
    ],
)
def test_the_error_names_a_damaged_ledger(tmp_path, text, message):
    out = trained(tmp_path / "out", "a")
    (out / "model" / "privacy.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        history_of(out)


def test_the_error_names_damaged_records(tmp_path):
    out = trained(tmp_path / "out", "a")
    [file] = (out / "records").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DataError, match=file.name):
        history_of(out)


def test_the_entry_of_a_private_training_has_the_numbers_of_the_plan(tmp_path, plan):
    parents = lineage(tmp_path, records("a"))
    entry = entry_of(PRIVATE, plan, CONFIG, parents)
    assert (plan.sample_rate, plan.units, plan.steps) == (4 / 20, 20, 2 * 20 // 4)
    assert entry.mechanism == MECHANISM
    assert entry.epsilon == pytest.approx(MECHANISM.epsilon(1e-5, "rdp"))
    assert (entry.unit, entry.sequence_length, entry.delta) == ("sequence", 6, 1e-5)
    assert (entry.steps, entry.void) == (None, ())
    without_noise = replace(PRIVATE, noise_multiplier=0.0)
    entry = entry_of(without_noise, without_noise.planned(DATA, CONFIG), CONFIG, parents)
    assert entry.epsilon is None


def test_a_void_guarantee_remains_void_with_each_reason_once(tmp_path):
    seeded = replace(PRIVATE, noise_seed_without_guarantee=3)
    out = trained(tmp_path / "out", "a", defence=seeded)
    resumed = lineage(out, records("a"))
    assert resumed.void == seeded.void
    for defence in (seeded, PRIVATE):
        plan = defence.planned(DATA, CONFIG)
        assert entry_of(defence, plan, CONFIG, resumed).void == seeded.void


def test_a_vocabulary_of_the_private_text_must_be_accepted(tmp_path):
    out = tmp_path / "out"
    own = lineage(out, records("a", "b"))
    with pytest.raises(ValueError, match="`defence` dp-sgd needs `vocabulary` or `from_`"):
        check_vocabulary(PRIVATE, own, continued=False)
    check_vocabulary(NoDefence(), own, continued=False)
    check_vocabulary(replace(PRIVATE, accept_private_vocabulary=True), own, continued=False)

    first = trained(tmp_path / "first", "a", "b", "c")
    shared = records("b", "c", "d", "e")
    for name, models in (("from_", {"start": first}), ("vocabulary", {"vocabulary": first})):
        overlapping = lineage(out, shared, **models)
        with pytest.raises(ValueError, match=rf"`{name}` has .* a text with 2 of the 4 documents"):
            check_vocabulary(PRIVATE, overlapping, continued=name == "from_")
    disjoint = lineage(out, records("d", "e"), vocabulary=first)
    check_vocabulary(PRIVATE, disjoint, continued=False)


def test_a_statement_counts_validation_and_earlier_records(tmp_path, plan):
    first = trained(tmp_path / "first", "a", "line 1")
    corpus = Corpus.from_texts([f"line {number}" for number in range(20)])
    texts = read_texts(corpus, hold_out=0.3)
    parents = lineage(tmp_path / "out", texts.records, start=first)
    statement = planned_statement(plan, entry_of(PRIVATE, plan, CONFIG, parents), texts, parents)
    assert statement.held_out == len(texts.validation) > 0
    shared = "line 1" in set(texts.division.training)
    assert len(statement.ancestry.shared) == int(shared)
    assert bool(statement.ancestry.reasons) == shared


def test_a_guarantee_is_logged_before_and_after_the_training(tmp_path, monitor, plan):
    texts = read_texts(CORPUS)
    parents = lineage(tmp_path / "out", texts.records)
    statement = planned_statement(plan, entry_of(PRIVATE, plan, CONFIG, parents), texts, parents)
    announce(statement, CONFIG.batch_size, monitor)
    assert monitor.lines[0] == "dp-sgd: 20 sequences, noise multiplier 2, clip 1, 10 steps"
    assert monitor.lines[1].startswith("Planned: ")
    assert any(line.startswith("The model will learn almost nothing") for line in monitor.lines)
    before = len(monitor.lines)
    finished = conclude(statement, plan, 4, tmp_path / "out" / "run", monitor)
    assert (finished.taken, finished.planned) == (plan.spent(4), plan.spent(10))
    assert monitor.lines[before].startswith("Privacy: ")
    assert monitor.lines[-1] == f"Full statement: vestige report {tmp_path}/out/run"


def test_several_private_trainings_of_one_text_have_a_joint_epsilon(tmp_path, monitor):
    outs = [trained(tmp_path / f"seed-{seed}", "a", defence=PRIVATE) for seed in (0, 1)]
    log_joint_guarantee(outs, monitor)
    joint = composed_epsilon([MECHANISM, MECHANISM], delta=1e-5, accountant="rdp")
    assert MECHANISM.epsilon(1e-5, "rdp") < joint < math.inf
    assert f"All 2 together have ε = {joint:.3g} at δ = 1e-5" in monitor.lines[0]
    silent, plain = RecordingMonitor(), trained(tmp_path / "plain", "a")
    for trainings in ([outs[0], plain], [plain, outs[0]], []):
        log_joint_guarantee(trainings, silent)
    assert silent.lines == []


def test_long_sentences_are_wrapped_with_indent(monitor):
    log_all(monitor, ["word " * 30, "short"], prefix="Privacy: ")
    assert monitor.lines[0].startswith("Privacy: word")
    assert all(line.startswith("  ") for line in monitor.lines[1:])
    assert max(map(len, monitor.lines)) <= 100


@pytest.mark.parametrize(
    ("lines", "advice"),
    [
        ('{"step": 0, "clipped": 0.0, "median_norm": 0.3}\n' * 2, "--clip 0.3, near the median"),
        ('{"step": 0, "clipped": 0.25, "median_norm": 0.3}\n', None),
        ('{"step": 1}\n', None),
    ],
)
def test_an_unused_clipping_norm_gets_advice(tmp_path, lines, advice):
    (tmp_path / "log.jsonl").write_text(lines)
    result = clip_advice(tmp_path / "log.jsonl")
    assert result is None if advice is None else advice in result
