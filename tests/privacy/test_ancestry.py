from dataclasses import replace
from itertools import product

import pytest

from vestige.data.corpus import Corpus
from vestige.data.division import ReadRecords
from vestige.privacy.accounting import Mechanism, composed_epsilon
from vestige.privacy.ledger import LedgerEntry, ancestry

NAMES = ("own", "first", "second", "plain", "hub", "public", "nobody")
ID = {name: f"{number:032x}" for number, name in enumerate(NAMES)}
OWN = LedgerEntry(
    id=ID["own"],
    defence="dp-sgd",
    vocabulary=ID["public"],
    unit="sequence",
    sequence_length=32,
    noise_multiplier=1.1,
    sample_rate=0.05,
    steps_planned=200,
    max_grad_norm=1.0,
    accountant="rdp",
    epsilon=Mechanism(noise_multiplier=1.1, sample_rate=0.05, steps=200).epsilon(1e-5, "rdp"),
    delta=1e-5,
)
FIRST = replace(OWN, id=ID["first"], noise_multiplier=2.0)
SECOND = replace(OWN, id=ID["second"], noise_multiplier=3.0, steps_planned=50)
PLAIN = LedgerEntry(id=ID["plain"], defence="none")


def corpus(texts, users=None):
    return Corpus.from_texts(texts, users=users)


def read(texts, users=None, held_out=()):
    return ReadRecords.of(corpus(texts, users), corpus(held_out, ["judge"] * len(held_out)))


def epsilon(*entries):
    return composed_epsilon([one.mechanism for one in entries], delta=1e-5, accountant="rdp")


@pytest.mark.parametrize("same", [0, 50, 100])
def test_one_record_in_common_counts_as_all_and_none_as_nothing(same):
    result = ancestry(
        OWN,
        read([f"t{n}" for n in range(100)]),
        (FIRST, SECOND),
        {
            ID["first"]: read([f"t{n}" for n in range(100 - same, 200 - same)]),
            ID["second"]: read(["other text"]),
        },
    )
    assert result.shared == ((FIRST,) if same else ())
    assert result.epsilon == pytest.approx(epsilon(FIRST, OWN) if same else OWN.epsilon)
    assert (result.reasons, result.unknown, result.if_read) == ((), (), None)


def test_all_that_share_records_compose():
    both = {ID["first"]: read(["a"]), ID["second"]: read(["b"])}
    result = ancestry(OWN, read(["a", "b"]), (FIRST, SECOND), both)
    assert result.epsilon == pytest.approx(epsilon(FIRST, SECOND, OWN))


def test_an_undefended_ancestor_on_the_same_text_leaves_no_guarantee():
    result = ancestry(OWN, read(["a", "b", "c"]), (PLAIN,), {ID["plain"]: read(["a", "z"])})
    assert result.epsilon is None
    assert "training 00000000 (undefended) trained on them without a guarantee" in result.reasons[0]


def test_what_chose_an_epoch_before_has_no_guarantee_from_it():
    before = {ID["first"]: read(["x"], held_out=["a"])}
    result = ancestry(OWN, read(["a", "b"]), (FIRST,), before)
    assert result.epsilon is None
    assert "chose its epoch" in result.reasons[0]


def test_held_out_records_of_its_own_are_not_counted():
    result = ancestry(OWN, read(["a"], held_out=["b"]), (PLAIN,), {ID["plain"]: read(["b"])})
    assert (result.shared, result.epsilon) == ((), OWN.epsilon)


def test_what_an_unknown_ancestor_read_is_a_condition():
    own = read(["a", "b"])
    result = ancestry(OWN, own, (FIRST, SECOND), {ID["first"]: read(["a"])})
    assert (result.shared, result.unknown) == ((FIRST,), (SECOND,))
    assert result.epsilon == pytest.approx(epsilon(FIRST, OWN))
    assert result.if_read == pytest.approx(epsilon(FIRST, SECOND, OWN))
    elsewhere = LedgerEntry(id=ID["hub"], defence="unknown")
    condition = ancestry(OWN, own, (elsewhere,), {})
    assert condition.if_read is None
    assert condition.epsilon == OWN.epsilon
    reason = "the training text of the model it started from is unknown"
    assert condition.unknown_reasons == (reason,)


@pytest.mark.parametrize(("mine", "theirs"), [*product(["sequence", "user"], repeat=2)])
def test_only_one_and_the_same_unit_composes(mine, theirs):
    own, first = replace(OWN, unit=mine), replace(FIRST, unit=theirs)
    records = read(["a", "b"], ["ann", "bob"])
    result = ancestry(own, records, (first,), {ID["first"]: read(["a"], ["ann"])})
    if mine == theirs:
        assert result.epsilon == pytest.approx(epsilon(first, own))
    else:
        assert result.epsilon is None
        assert "another unit" in result.reasons[0]


@pytest.mark.parametrize(
    ("texts", "users", "shared"),
    [(["z"], ["ann"], True), (["a"], ["cy"], True), (["z"], ["cy"], False), (["a"], None, True)],
)
def test_a_user_is_known_by_name_and_by_text(texts, users, shared):
    own, first = replace(OWN, unit="user"), replace(FIRST, unit="user")
    records = read(["a", "b"], ["ann", "bob"])
    result = ancestry(own, records, (first,), {ID["first"]: read(texts, users)})
    assert result.shared == ((first,) if shared else ())


def test_other_lengths_compose_for_documents_of_the_smaller_one():
    shorter = replace(FIRST, sequence_length=16)
    result = ancestry(OWN, read(["a", "b"]), (shorter,), {ID["first"]: read(["a"])})
    assert result.longest == 16
    assert ancestry(OWN, read(["b"]), (shorter,), {ID["first"]: read(["a"])}).longest is None


@pytest.mark.parametrize(
    ("vocabulary", "made", "count"),
    [("own", "own", 2), ("public", "other", 0), ("first", "read", 1), ("nobody", "unknown", None)],
)
def test_of_what_text_the_vocabulary_was_made(vocabulary, made, count):
    entry = replace(OWN, vocabulary=ID[vocabulary])
    others = {ID["public"]: read(["p"]), ID["first"]: read(["x"], held_out=["a"])}
    result = ancestry(entry, read(["a", "b"]), (), others)
    assert (result.vocabulary, result.in_vocabulary) == (made, count)
