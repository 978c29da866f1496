import json
from dataclasses import asdict, replace

import pytest

from vestige.errors import ModelError
from vestige.privacy.accounting import Mechanism
from vestige.privacy.ledger import Ancestry, LedgerEntry, from_json, to_json

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
    accountant="pld",
    epsilon=1.5255,
    delta=1e-5,
)


def test_a_ledger_comes_back_from_its_file():
    ledger = (PLAIN, PRIVATE, replace(PRIVATE, void=("its seed is known",)))
    assert from_json(to_json(ledger).encode(), where="privacy.json") == ledger


def test_a_guarantee_is_that_of_the_steps_planned():
    assert PRIVATE.mechanism == Mechanism(noise_multiplier=1.1, sample_rate=0.01, steps=1000)
    assert PRIVATE.no_guarantee_reason is None


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
    assert why in entry.no_guarantee_reason


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
        changed(defence="Hope, and <b>trust</b>"),
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


OLD = json.dumps({"format": "vestige-privacy-1", "trainings": [
    {"id": "3" * 32, "defence": "dp-sgd", "vocabulary": "unknown", "unit": "sequence",
     "sequence_length": 16, "noise_multiplier": 1.2, "sample_rate": 0.4, "steps_planned": 25,
     "steps": 25, "bands": 4, "max_grad_norm": 1.0, "accountant": "prv", "epsilon": 9.5,
     "delta": 1e-4, "void": []},
    {"id": "4" * 32, "defence": "dp-sgd", "vocabulary": "unknown", "unit": "sequence",
     "sequence_length": 16, "noise_multiplier": 2.0, "sample_rate": 0.1, "steps_planned": 80,
     "steps": 80, "bands": 1, "max_grad_norm": 1.0, "accountant": "pld", "epsilon": 3.4,
     "delta": 1e-4, "void": [], "noise_decay": 0.5},
]})  # fmt: skip


@pytest.mark.slow
def test_a_ledger_of_removed_mechanisms_is_read_and_composes_upwards():
    """Turns of correlated noise are a mechanism; noise that fell counts as its least."""
    banded, falling = from_json(OLD.encode(), where="privacy.json")
    assert (banded.accountant, banded.epsilon, falling.epsilon) == ("prv", 9.5, 3.4)
    assert banded.mechanism == Mechanism(noise_multiplier=1.2, sample_rate=0.4, steps=25)
    assert falling.mechanism == Mechanism(noise_multiplier=1.0, sample_rate=0.1, steps=80)
    assert falling.mechanism.epsilon(1e-4) > 3.4
    new = replace(PRIVATE, sequence_length=16, delta=1e-4)
    result = Ancestry.of(new, (banded, falling), ())
    assert result.epsilon > max(9.5, falling.mechanism.epsilon(1e-4))
    assert from_json(to_json((banded, falling)).encode(), where="privacy.json") == (banded, falling)
