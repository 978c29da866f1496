"""The ledger of a chain of trainings, and what each of them promises."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.preparation.jobs import CORPUS, Told
from vestige.data.corpus import Corpus
from vestige.data.division import ReadRecords
from vestige.data.encoded import EncodedCorpus
from vestige.defences.methods.private import DPSGD
from vestige.defences.registry import NoDefence
from vestige.errors import DataError, ModelError
from vestige.preparation.lineage import begun_in, end, history_of, lineage, registered
from vestige.preparation.privacy import (
    announce,
    check_vocabulary,
    conclude,
    entry_of,
    log_all,
    log_joint,
    statement_of,
)
from vestige.preparation.texts import read_texts
from vestige.privacy.accounting import Mechanism, composed_epsilon
from vestige.privacy.ledger import LedgerEntry, from_json, to_json
from vestige.training.config import TrainingConfig
from vestige.training.directory import IDENTITY

CONFIG = TrainingConfig(seed=0, epochs=2, batch_size=4, sequence_length=6, batching="poisson")
PRIVATE = DPSGD(noise_multiplier=2.0, delta=1e-5, accountant="rdp")
DATA = EncodedCorpus(np.zeros(40, np.int32), np.arange(0, 41, 2))


def records(*texts):
    return ReadRecords.of(Corpus.from_texts(texts), Corpus.from_texts([]))


def trained(out, *texts, start=None, vocabulary=None, defence=None):
    """The directory of a training that was begun and ended, as far as its ledger goes."""
    descent = lineage(out, records(*texts), start=start, vocabulary=vocabulary)
    plan = None if defence is None else defence.planned(DATA, CONFIG)
    entry = entry_of(defence or NoDefence(), plan, CONFIG, descent)
    with registered(out, entry, descent):
        (out / IDENTITY).write_text("{}")
    (out / "model").mkdir()
    end(out, steps=5)
    return out


def fresh(out, own, *, start=None, vocabulary=None):
    """The lineage of a training of records that begins, or begins again."""
    return lineage(out, own, start=start, vocabulary=vocabulary)


def ledger(out):
    file = out / "model" / "privacy.json"
    return from_json(file.read_bytes(), where=file)


# a chain of trainings


def test_each_training_of_a_chain_adds_its_entry_at_the_end(tmp_path):
    first = trained(tmp_path / "first", "a")
    second = trained(tmp_path / "second", "b", start=first)
    third = trained(tmp_path / "third", "c", start=second / "model")
    ids = [entry.id for entry in ledger(third)]
    assert ids[:2] == [entry.id for entry in ledger(second)]
    assert ids[:1] == [entry.id for entry in ledger(first)]
    assert len(set(ids)) == 3
    assert [entry.steps for entry in ledger(third)] == [5, 5, 5]


def test_the_directory_keeps_what_every_ancestor_read(tmp_path):
    first = trained(tmp_path / "first", "a", "b")
    second = trained(tmp_path / "second", "c", start=first)
    old, new = (entry.id for entry in ledger(second))
    read = begun_in(second).read
    assert set(read) == {old, new}
    assert np.array_equal(read[old].rows(), records("a", "b").rows())
    assert np.array_equal(read[new].rows(), records("c").rows())


def test_a_vocabulary_is_of_the_training_whose_text_it_was_made_of(tmp_path):
    first = trained(tmp_path / "first", "a")
    continued = trained(tmp_path / "continued", "b", start=first)
    borrowed = trained(tmp_path / "borrowed", "c", vocabulary=continued)
    [maker] = ledger(first)
    assert maker.vocabulary == maker.id
    assert ledger(continued)[-1].vocabulary == maker.id
    assert [entry.vocabulary for entry in ledger(borrowed)] == [maker.id]
    assert set(begun_in(borrowed).read) == {maker.id, ledger(borrowed)[-1].id}


@pytest.mark.parametrize("given", ["a folder", "an object"])
def test_of_a_model_from_elsewhere_nothing_is_known(tmp_path, given):
    found = history_of(tmp_path if given == "a folder" else object())
    assert [(entry.defence, entry.vocabulary) for entry in found.ledger] == [("unknown", "unknown")]
    assert found.read == {}


def test_a_directory_without_identity_has_begun_nothing(tmp_path):
    (tmp_path / "privacy.json").write_text(to_json([LedgerEntry(id="0" * 32, defence="none")]))
    assert begun_in(tmp_path) is None
    (tmp_path / IDENTITY).write_text("{}")
    assert [entry.id for entry in begun_in(tmp_path).ledger] == ["0" * 32]


def test_a_ledger_that_was_ended_is_not_ended_again(tmp_path):
    out = trained(tmp_path / "out", "a")
    end(out, steps=9)
    assert ledger(out)[-1].steps == 5


def test_a_damaged_ledger_is_named(tmp_path):
    out = trained(tmp_path / "out", "a")
    (out / "model" / "privacy.json").write_text('{"format": "other"}')
    with pytest.raises(ModelError, match=r"privacy\.json is not a privacy ledger"):
        history_of(out)


def test_a_ledger_of_a_defence_that_is_not_registered_is_refused(tmp_path):
    out = trained(tmp_path / "out", "a")
    entry = LedgerEntry(id="0" * 32, defence="hope")
    (out / "model" / "privacy.json").write_text(to_json([entry]))
    with pytest.raises(ModelError, match=r"not a privacy ledger: defence must be one of.*dp-sgd"):
        history_of(out)


def test_damaged_records_are_named(tmp_path):
    out = trained(tmp_path / "out", "a")
    [file] = (out / "records").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DataError, match=file.name):
        history_of(out)


def test_a_new_training_makes_its_own_vocabulary(tmp_path):
    found = fresh(tmp_path, records("a", "b"))
    assert found.vocabulary == found.id
    entry = entry_of(NoDefence(), None, CONFIG, found)
    assert entry == LedgerEntry(id=found.id, defence="none", vocabulary=found.id)


def test_a_ledger_is_written_once_and_ended_beside_the_weights(tmp_path):
    out, own = tmp_path / "out", records("a", "b")
    found = fresh(out, own)
    entry = entry_of(NoDefence(), None, CONFIG, found)
    with registered(out, entry, found):
        (out / IDENTITY).write_text("{}")
    begun = begun_in(out)
    assert begun.ledger == (entry,)
    assert set(begun.read) == {entry.id}
    assert np.array_equal(begun.read[entry.id].rows(), own.rows())
    with registered(out, replace(entry, id="0" * 32), found):
        pass
    assert begun_in(out).ledger == (entry,)  # what it was stays
    (out / "model").mkdir()
    end(out, steps=7)
    assert ledger(out)[-1].steps == 7
    assert fresh(out, own).id == entry.id


# a private training


def test_the_entry_of_a_private_training_has_the_plans_numbers(tmp_path):
    lineages = fresh(tmp_path, records("a"))
    plan = PRIVATE.planned(DATA, CONFIG)
    entry = entry_of(PRIVATE, plan, CONFIG, lineages)
    assert (plan.sample_rate, plan.units, plan.steps) == (4 / 20, 20, 2 * 20 // 4)
    mechanism = Mechanism(noise_multiplier=2.0, sample_rate=4 / 20, steps=10)
    assert entry.mechanism == mechanism
    assert entry.epsilon == pytest.approx(mechanism.epsilon(1e-5, "rdp"))
    assert (entry.unit, entry.sequence_length, entry.delta) == ("sequence", 6, 1e-5)
    assert (entry.steps, entry.void) == (None, ())


def test_no_noise_has_no_epsilon(tmp_path):
    defence = replace(PRIVATE, noise_multiplier=0.0)
    plan = defence.planned(DATA, CONFIG)
    assert entry_of(defence, plan, CONFIG, fresh(tmp_path, records("a"))).epsilon is None


def test_what_voided_the_guarantee_before_voids_it_still_and_once(tmp_path):
    seeded = replace(PRIVATE, noise_seed_without_guarantee=3)
    out = trained(tmp_path / "out", "a", defence=seeded)
    again = fresh(out, records("a"))
    assert again.void == seeded.void
    plan = seeded.planned(DATA, CONFIG)
    assert entry_of(seeded, plan, CONFIG, again).void == seeded.void
    unseeded = entry_of(PRIVATE, PRIVATE.planned(DATA, CONFIG), CONFIG, again)
    assert unseeded.void == seeded.void


def test_a_vocabulary_of_the_same_documents_is_refused_with_their_number(tmp_path):
    first = trained(tmp_path / "first", "a", "b", "c")
    own = records("b", "c", "d", "e")
    of_start = fresh(tmp_path / "out", own, start=first)
    with pytest.raises(ValueError, match=r"`from_` has .* a text with 2 of the 4 documents"):
        check_vocabulary(PRIVATE, of_start, continued=True)
    borrowed = fresh(tmp_path / "out", own, vocabulary=first)
    with pytest.raises(ValueError, match=r"`vocabulary` has .* 2 of the 4 documents"):
        check_vocabulary(PRIVATE, borrowed, continued=False)
    other = fresh(tmp_path / "out", records("d", "e"), vocabulary=first)
    check_vocabulary(PRIVATE, other, continued=False)


def test_the_vocabulary_of_the_private_text_is_refused(tmp_path):
    own = fresh(tmp_path / "out", records("a", "b"))
    with pytest.raises(ValueError, match="`defence` dp-sgd needs `vocabulary` or `from_`"):
        check_vocabulary(PRIVATE, own, continued=False)
    check_vocabulary(NoDefence(), own, continued=False)
    check_vocabulary(replace(PRIVATE, accept_private_vocabulary=True), own, continued=False)


def test_a_statement_counts_what_was_held_out_and_what_was_read_before(tmp_path):
    first = trained(tmp_path / "first", "a", "line 1")
    corpus = Corpus.from_texts([f"line {number}" for number in range(20)])
    texts = read_texts(corpus, hold_out=0.3)
    own = ReadRecords.of(texts.training, texts.held)
    lineages = fresh(tmp_path / "out", own, start=first)
    plan = PRIVATE.planned(DATA, CONFIG)
    entry = entry_of(PRIVATE, plan, CONFIG, lineages)
    statement = statement_of(plan, entry, texts, lineages)
    assert statement.held_out == len(texts.held) > 0
    learnt_again = "line 1" in set(texts.division.training)
    assert len(statement.ancestry.shared) == int(learnt_again)
    assert bool(statement.ancestry.reasons) == learnt_again


def test_a_promise_is_told_before_and_after(tmp_path):
    told = Told()
    texts = read_texts(CORPUS)
    lineages = fresh(tmp_path / "out", ReadRecords.of(texts.training, texts.held))
    plan = PRIVATE.planned(DATA, CONFIG)
    statement = statement_of(plan, entry_of(PRIVATE, plan, CONFIG, lineages), texts, lineages)
    announce(statement, CONFIG.batch_size, told)
    assert told.lines[0] == "dp-sgd: 20 sequences, noise multiplier 2, clip 1, 10 steps"
    assert told.lines[1].startswith("Planned: ")
    assert any(line.startswith("The model will learn almost nothing") for line in told.lines)
    before = len(told.lines)
    done = conclude(statement, plan, 4, tmp_path / "out" / "run", told)
    assert done.taken == plan.spent(4)
    assert done.planned == plan.spent(10)
    assert told.lines[before].startswith("Privacy: ")
    assert told.lines[-1] == f"Full statement: vestige report {tmp_path}/out/run"


# several trainings of one text


def test_several_private_trainings_have_a_joint_epsilon(tmp_path):
    outs = [trained(tmp_path / f"seed-{seed}", "a", defence=PRIVATE) for seed in (0, 1)]
    told = Told()
    log_joint(outs, told)
    mechanism = Mechanism(noise_multiplier=2.0, sample_rate=4 / 20, steps=10)
    joint = composed_epsilon([mechanism, mechanism], delta=1e-5, accountant="rdp")
    assert mechanism.epsilon(1e-5, "rdp") < joint < math.inf
    assert f"All 2 together have ε = {joint:.3g} at δ = 1e-5" in told.lines[0]


def test_nothing_joint_is_told_where_one_promises_nothing(tmp_path):
    outs = [trained(tmp_path / "private", "a", defence=PRIVATE), trained(tmp_path / "plain", "a")]
    told = Told()
    log_joint(outs, told)
    log_joint(outs[::-1], told)
    log_joint([], told)
    assert told.lines == []


def test_long_sentences_are_set_in():
    told = Told()
    log_all(told, ["word " * 30, "short"], begin="Privacy: ")
    assert told.lines[0].startswith("Privacy: word")
    assert all(line.startswith("  ") for line in told.lines[1:])
    assert max(map(len, told.lines)) <= 100
