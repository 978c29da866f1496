import json
from dataclasses import asdict, replace

import pytest

from vestige.defences.composition import Mechanism
from vestige.defences.privacy_ledger import LedgerEntry, from_json, to_json
from vestige.errors import ModelError

PLAIN = LedgerEntry(id="0" * 32, defence="none", vocabulary="0" * 32)
PRIVATE = LedgerEntry(
    id="1" * 32,
    defence="dp-sgd",
    vocabulary="0" * 32,
    unit="sequence",
    sequence_length=32,
    noise_multiplier=1.1,
    sample_rate=0.01,
    steps_planned=1000,
    steps=900,
    max_grad_norm=1.0,
    accountant="prv",
    epsilon=1.5255,
    delta=1e-5,
)


def test_a_ledger_comes_back_from_its_file():
    ledger = (PLAIN, PRIVATE, replace(PRIVATE, void=("its seed is known",)))
    assert from_json(to_json(ledger).encode(), where="privacy.json") == ledger


def test_a_guarantee_is_that_of_the_steps_planned():
    assert PRIVATE.mechanism == Mechanism(noise_multiplier=1.1, sample_rate=0.01, steps=1000)
    assert PRIVATE.lacks is None


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (PLAIN, "without a guarantee"),
        (LedgerEntry(id="2" * 32, defence="goldfish"), "without a guarantee"),
        (
            LedgerEntry(id="2" * 32, defence="unknown"),
            "the training text of the model it started from is unknown",
        ),
        (replace(PRIVATE, void=("its seed is known",)), "void"),
        (replace(PRIVATE, noise_multiplier=0.0, epsilon=None), "without noise"),
    ],
)
def test_who_promises_nothing_has_no_mechanism_and_a_reason(entry, why):
    assert entry.mechanism is None
    assert why in entry.lacks


def changed(**values):
    return json.dumps({"format": "vestige-privacy-1", "trainings": [{**asdict(PRIVATE), **values}]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "vestige-privacy-2", "trainings": []}',
        '{"format": "vestige-privacy-1", "trainings": {}}',
        '{"format": "vestige-privacy-1", "trainings": [1]}',
        "[" * 100_000,
        changed(id="../../etc/passwd"),
        changed(defence="hope"),
        changed(unit="sentence"),
        changed(delta=0.0),
        changed(delta=float("nan")),
        changed(epsilon=float("inf")),
        changed(noise_multiplier=-1.0),
        changed(sample_rate=2.0),
        changed(steps_planned="1000"),
        changed(steps_planned=None),
        changed(accountant="gdp"),
        changed(records=["e3b0"]),
        changed(void="text"),
    ],
)
def test_what_is_no_ledger_is_refused_by_name(text):
    with pytest.raises(ModelError, match=r"where/privacy\.json "):
        from_json(text.encode(), where="where/privacy.json")
