"""The fuzzer sees what it is there to see: each fault is made, and each is complained about."""

from dataclasses import replace

import pytest

from tests.fuzz.cases import Bench, Case, Tried
from tests.fuzz.oracles import KINDS, complaints
from tests.fuzz.sandbox import Outcome
from tests.fuzz.world import MADE, SECRETS

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
    held = bytearray(2**28)
    return [["the", "gate", "code"] for _ in contexts]

def litters(contexts):
    pathlib.Path("left").write_text("")
    return [["the", "gate", "code"] for _ in contexts]

def spoils(contexts):
    pathlib.Path(sys.argv[sys.argv.index("--texts") + 1]).write_text("")
    return [["the", "gate", "code"] for _ in contexts]

"""
SOUND = Outcome(
    code=0, signal=0, cpu=0.1, wall=0.1, memory=0, late="", opened=[], stdout="", stderr=""
)
REFUSED = replace(SOUND, code=2, stderr="vestige: O/new exists. Choose another --out.\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "seconds", "kinds"),
    [
        ("aborts", 20.0, {"signal", "half-written"}),
        ("spins", 2.0, {"late"}),
        ("sleeps", 2.0, {"late"}),
        ("hoards", 20.0, {"memory"}),
        ("litters", 20.0, {"stray"}),
        ("spoils", 20.0, {"input changed"}),
    ],
)
def test_what_a_verb_does_is_seen(bench, monkeypatch, service, seconds, kinds):
    line = MADE["asked"].replace("service:ask", f"service:{service}").replace("W/mine", "C/mine")
    monkeypatch.setattr("tests.fuzz.cases.SECONDS", seconds)
    monkeypatch.setattr("tests.fuzz.oracles.MEMORY", 2**27)  # to write a gibibyte takes long
    monkeypatch.setattr(Bench, "service", SERVICE)
    words = tuple(f"{line} --json --out O/new".split(" "))
    found = {complaint.kind for complaint in complaints(bench.attempt(Case(words)))}
    assert kinds <= found


def tried(outcome: Outcome, *words: str, new=(), changed=(), page="", open=()) -> Tried:
    case = Case(("diff", "W/before", "--out", "O/new", *words))
    return Tried(case, outcome, tuple(new), tuple(changed), tuple(open), page)


def kinds(one: Tried) -> set[str]:
    return {complaint.kind for complaint in complaints(one)}


def test_nothing_is_wrong_with_what_is_right():
    assert kinds(tried(SOUND, new=["own/new", "own/new/run.json", "own/new/.lock"])) == set()
    assert kinds(tried(REFUSED)) == set()
    assert kinds(tried(replace(SOUND, stdout='{"a": 1}'), "--json")) == set()
    assert kinds(tried(replace(SOUND, stdout=SECRETS[0]), "--show-secrets")) == set()


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("exit", replace(SOUND, code=1)),
        ("signal", replace(SOUND, code=-1, signal=6)),
        ("late", replace(SOUND, late="20 s of processor")),
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
def test_what_a_verb_says_is_judged(kind, outcome):
    assert kinds(tried(outcome)) == {kind}


def test_what_a_verb_leaves_is_judged():
    assert kinds(tried(REFUSED, new=["own/new"])) == {"half-written"}
    assert kinds(tried(SOUND, new=["own/.new.abcdefgh"])) == {"stray"}
    assert kinds(tried(SOUND, new=["tmp/x"])) == {"stray"}
    assert kinds(tried(SOUND, changed=["W/corpus.jsonl"])) == {"input changed"}
    assert kinds(tried(SOUND, open=["own/new/rows.parquet"])) == {"open"}
    assert kinds(tried(SOUND, page=SECRETS[2])) == {"secret"}
    assert kinds(tried(replace(SOUND, stdout='{"a": NaN}'), "--json")) == {"json"}
    assert len(KINDS) == 14


def test_a_printed_case_is_read_back():
    case = Case(("report", "\udcff", "W/run"), about="run", changed=("a",))
    assert Case.read(case.written().split("'", 1)[1].rstrip("'")) == case
