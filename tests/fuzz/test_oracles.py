"""The fuzzer complains about each kind of fault, and about nothing sound."""

from dataclasses import replace

import pytest

from tests.fuzz.cases import Attempt, Bench, Case
from tests.fuzz.oracles import KINDS, complaints
from tests.fuzz.sandbox import Outcome
from tests.fuzz.world import COMMANDS, SECRETS

SERVICE = """
import os, pathlib, sys, time

def aborts(contexts):
    os.abort()

def spins(contexts):
    while True:
        pass

def sleeps(contexts):
    time.sleep(999)

def hoards(contexts):
    memory = bytearray(2**28)
    return [["the", "gate", "code"] for _ in contexts]

def litters(contexts):
    pathlib.Path("left").write_text("")
    return [["the", "gate", "code"] for _ in contexts]

def spoils(contexts):
    pathlib.Path(sys.argv[sys.argv.index("--texts") + 1]).write_text("")
    return [["the", "gate", "code"] for _ in contexts]

"""
SOUND = Outcome(
    code=0, signal=0, cpu=0.1, wall=0.1, memory=0, timeout="", opened=[], stdout="", stderr=""
)
REFUSED = replace(SOUND, code=2, stderr="vestige: O/new exists. Choose another --out.\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "seconds", "kinds"),
    [
        ("aborts", 20.0, {"signal", "half-written"}),
        ("spins", 2.0, {"timeout"}),
        ("sleeps", 2.0, {"timeout"}),
        ("hoards", 20.0, {"memory"}),
        ("litters", 20.0, {"stray"}),
        ("spoils", 20.0, {"input changed"}),
    ],
)
def test_faults_of_a_running_verb_are_noticed(bench, monkeypatch, service, seconds, kinds):
    line = (
        COMMANDS["queried"].replace("service:ask", f"service:{service}").replace("W/mine", "C/mine")
    )
    monkeypatch.setattr("tests.fuzz.cases.SECONDS", seconds)
    monkeypatch.setattr("tests.fuzz.oracles.MEMORY", 2**27)  # allocating 1 GiB takes long
    monkeypatch.setattr(Bench, "service", SERVICE)
    words = tuple(f"{line} --json --out O/new".split(" "))
    assert kinds <= kinds_of(bench.attempt(Case(words)))


def attempt(outcome: Outcome, *words: str, new=(), changed=(), page="", exposed=()) -> Attempt:
    case = Case(("diff", "W/before", "--out", "O/new", *words))
    return Attempt(case, outcome, tuple(new), tuple(changed), tuple(exposed), page)


def kinds_of(attempt: Attempt) -> set[str]:
    return {complaint.kind for complaint in complaints(attempt)}


def test_a_sound_outcome_has_no_complaints():
    assert (
        kinds_of(attempt(SOUND, new=["scratch/new", "scratch/new/run.json", "scratch/new/.lock"]))
        == set()
    )
    assert kinds_of(attempt(REFUSED)) == set()
    assert kinds_of(attempt(replace(SOUND, stdout='{"a": 1}'), "--json")) == set()
    assert kinds_of(attempt(replace(SOUND, stdout=SECRETS[0]), "--show-secrets")) == set()


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("exit", replace(SOUND, code=1)),
        ("signal", replace(SOUND, code=-1, signal=6)),
        ("timeout", replace(SOUND, timeout="20 s of processor")),
        ("memory", replace(SOUND, memory=2**33)),
        ("traceback", replace(SOUND, code=1, stderr="Traceback (most recent call last):\nOops")),
        ("noise", replace(SOUND, stderr="x.py:3: UserWarning: careful")),
        ("secret", replace(SOUND, stderr=SECRETS[1].upper())),
        ("control", replace(SOUND, stderr="\u202e")),
        ("unclear", replace(SOUND, code=2)),
        ("unclear", replace(REFUSED, stderr="vestige: O/new is wrong.\n")),
        ("unclear", replace(REFUSED, stderr="vestige: something failed. Mend that.\n")),
        ("unclear", replace(REFUSED, stderr=REFUSED.stderr * 2)),
        ("unclear", replace(REFUSED, stderr=f"vestige: O/new is {'x' * 2000}. Mend it.\n")),
    ],
)
def test_a_fault_of_the_output_is_noticed(kind, outcome):
    assert kinds_of(attempt(outcome)) == {kind}


def test_a_fault_of_the_files_is_noticed():
    assert kinds_of(attempt(REFUSED, new=["scratch/new"])) == {"half-written"}
    assert kinds_of(attempt(SOUND, new=["scratch/.new.abcdefgh"])) == {"stray"}
    assert kinds_of(attempt(SOUND, new=["tmp/x"])) == {"stray"}
    assert kinds_of(attempt(SOUND, changed=["W/corpus.jsonl"])) == {"input changed"}
    assert kinds_of(attempt(SOUND, exposed=["scratch/new/rows.parquet"])) == {"exposed"}
    assert kinds_of(attempt(SOUND, page=SECRETS[2])) == {"secret"}
    assert kinds_of(attempt(replace(SOUND, stdout='{"a": NaN}'), "--json")) == {"json"}
    assert len(KINDS) == 14


def test_a_printed_case_is_read_back():
    case = Case(("report", "\udcff", "W/run"), about="run", changed=("a",))
    assert Case.read(case.written().split("'", 1)[1].rstrip("'")) == case
