from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from vestige.data.corpus import Corpus
from vestige.data.records import ReadRecords
from vestige.defences.accounting import epsilon_spent
from vestige.defences.composition import composed_epsilon
from vestige.defences.privacy_ancestry import ancestry
from vestige.defences.privacy_ledger import LedgerEntry

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
    epsilon=epsilon_spent(
        noise_multiplier=1.1, sample_rate=0.05, steps=200, delta=1e-5, accountant="rdp"
    ),
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


def by_earlier(found):
    names = {one: name for name, one in ID.items()}
    return {tuple(names[one.id] for one in share.earlier): share for share in found.shares}


def test_records_are_grouped_by_who_read_them_as_a_count_says():
    rng = np.random.default_rng(0)
    texts = [f"text {n}" for n in range(200)] + ["text 3"] * 5
    sets = {
        name: {text for text in texts if rng.random() < share}
        for name, share in (("first", 0.5), ("second", 0.3))
    }
    found = ancestry(
        OWN, read(texts), (FIRST, SECOND), {ID[name]: read(sorted(s)) for name, s in sets.items()}
    )
    counted = Counter(
        tuple(name for name in ("first", "second") if text in sets[name]) for text in texts
    )
    shares = by_earlier(found)
    assert {earlier: share.units for earlier, share in shares.items()} == counted
    assert found.units == len(texts)
    assert found.read_before == len(texts) - counted[()]
    entries = {"first": FIRST, "second": SECOND}
    for earlier, share in shares.items():
        spent = epsilon(*(entries[name] for name in earlier), OWN) if earlier else OWN.epsilon
        assert share.epsilon == pytest.approx(spent)
    assert found.epsilon == max(share.epsilon for share in found.shares)


@pytest.mark.parametrize("same", [0, 50, 100])
def test_none_half_and_all_of_the_same_text(same):
    found = ancestry(
        OWN,
        read([f"t{n}" for n in range(100)]),
        (FIRST,),
        {ID["first"]: read([f"t{n}" for n in range(100 - same, 200 - same)])},
    )
    assert found.read_before == same
    assert found.epsilon == pytest.approx(OWN.epsilon if same == 0 else epsilon(FIRST, OWN))
    assert found.without == 0


def test_an_undefended_ancestor_leaves_its_records_without_a_guarantee():
    found = ancestry(OWN, read(["a", "b", "c"]), (PLAIN,), {ID["plain"]: read(["a", "z"])})
    assert found.without == found.read_before == 1
    assert found.epsilon is None
    assert by_earlier(found)[()].epsilon == OWN.epsilon
    assert (
        "training 00000000 (undefended) trained on them without a guarantee"
        in by_earlier(found)[("plain",)].reasons[0]
    )


def test_what_chose_an_epoch_before_has_no_guarantee_from_it():
    before = {ID["first"]: read(["x"], held_out=["a"])}
    found = ancestry(OWN, read(["a", "b"]), (FIRST,), before)
    assert found.without == 1
    assert "chose its epoch" in by_earlier(found)[("first",)].reasons[0]


def test_held_out_records_of_its_own_are_not_counted():
    found = ancestry(OWN, read(["a"], held_out=["b"]), (PLAIN,), {ID["plain"]: read(["b"])})
    assert (found.units, found.read_before) == (1, 0)


def test_what_an_unknown_ancestor_read_is_a_condition():
    own = read(["a", "b"])
    found = ancestry(OWN, own, (FIRST, SECOND), {ID["first"]: read(["a"])})
    assert found.unknown == (SECOND,)
    assert found.if_read == pytest.approx(epsilon(SECOND, OWN))
    assert by_earlier(found)[("first",)].epsilon == pytest.approx(epsilon(FIRST, OWN))
    elsewhere = LedgerEntry(id=ID["hub"], defence="unknown")
    condition = ancestry(OWN, own, (elsewhere,), {})
    assert condition.if_read is None
    assert condition.epsilon == OWN.epsilon
    assert "the training text of the model it started from is unknown" in condition.reasons[0]


@pytest.mark.parametrize(("mine", "theirs"), [*product(["sequence", "user"], repeat=2)])
def test_only_one_and_the_same_unit_composes(mine, theirs):
    own, first = replace(OWN, unit=mine), replace(FIRST, unit=theirs)
    records = read(["a", "b"], ["ann", "bob"])
    found = ancestry(own, records, (first,), {ID["first"]: read(["a"], ["ann"])})
    assert found.units == 2
    assert found.without == (0 if mine == theirs else 1)
    if mine != theirs:
        assert "another unit" in by_earlier(found)[("first",)].reasons[0]


def test_users_are_known_by_their_names_where_both_have_them():
    own, first = replace(OWN, unit="user"), replace(FIRST, unit="user")
    records = read(["a", "b", "c"], ["ann", "ann", "bob"])
    theirs = read(["z", "c"], ["ann", "cy"])  # other text of ann's; bob's text, said by cy
    shares = by_earlier(ancestry(own, records, (first,), {ID["first"]: theirs}))
    assert {earlier: share.units for earlier, share in shares.items()} == {(): 1, ("first",): 1}
    nobodys = ancestry(own, records, (first,), {ID["first"]: read(["c"])})
    assert nobodys.without == 1


def test_other_lengths_compose_for_documents_of_the_smaller_one():
    shorter = replace(FIRST, sequence_length=16)
    found = ancestry(OWN, read(["a", "b"]), (shorter,), {ID["first"]: read(["a"])})
    assert by_earlier(found)[("first",)].longest == 16
    assert by_earlier(found)[()].longest is None


@pytest.mark.parametrize(
    ("vocabulary", "made", "count"),
    [("own", "own", 2), ("public", "other", 0), ("first", "read", 1), ("nobody", "unknown", None)],
)
def test_of_what_text_the_vocabulary_was_made(vocabulary, made, count):
    entry = replace(OWN, vocabulary=ID[vocabulary])
    others = {ID["public"]: read(["p"]), ID["first"]: read(["x"], held_out=["a"])}
    found = ancestry(entry, read(["a", "b"]), (), others)
    assert (found.vocabulary, found.in_vocabulary) == (made, count)


def test_a_training_without_a_unit_or_records_is_refused():
    with pytest.raises(ValueError, match="entry must have a unit"):
        ancestry(PLAIN, read(["a"]), (), {})
    with pytest.raises(ValueError, match="own must hold records"):
        ancestry(OWN, read([]), (), {})
