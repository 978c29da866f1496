"""No file name, option value or name of a column moves a reader's cursor or turns their text."""

import unicodedata

import pytest

from tests.cli.shell import invoke
from vestige.cli import app

EVIL = "\x1b[31m\u202e\x07\u2066evil\x9b31m"

# What follows a verb; EVIL stands wherever text can.
CASES = {
    "demo": ["--out EVIL/x --EVIL"],
    "plant": ["EVIL --out x", "F --phrase EVIL --pattern EVIL --out x", "EVIL --verify", "F EVIL"],
    "train": ["EVIL --out x", "F --preset EVIL --out x", "F --EVIL 1", "F --text EVIL --out x"],
    "diff": [
        "EVIL EVIL --out x",
        "F F --score EVIL --out x",
        "EVIL EVIL --clean EVIL --out x",
        "EVIL EVIL --phrase EVIL --out x",
    ],
    "exposure": [
        "EVIL EVIL.json --out x",
        "EVIL EVIL --question EVIL --out x",
        "EVIL EVIL --before EVIL --out x",
    ],
    "extract": [
        "EVIL EVIL.json --out x",
        "EVIL EVIL.txt --question EVIL --out x",
        "EVIL EVIL --reference EVIL --out x",
        "EVIL --pattern EVIL --intent EVIL --out x",
        "EVIL --pattern {EVIL:2} --intent EVIL --out x",
    ],
    "membership": [
        "EVIL --texts EVIL --reference EVIL --base EVIL --author EVIL --out x",
        "EVIL:f --unit user --texts EVIL --reference EVIL --out x",
    ],
    "unlearning": ["EVIL EVIL --deleted EVIL --reference EVIL --retrained EVIL --out x"],
    "compare": ["EVIL=EVIL EVIL=EVIL --manifest EVIL --test EVIL --out x"],
    "check": [
        "EVIL --out x",
        "EVIL --base EVIL --trained-on EVIL --never EVIL --secrets EVIL --text EVIL --out x",
        "EVIL --fail-on EVIL --out x",
        "openai:http://EVIL#EVIL --out x",
        "EVIL --minutes EVIL --out EVIL",
    ],
    "report": [
        "EVIL",
        "EVIL --out x",
        "EVIL EVIL --out EVIL",
        "EVIL --fail-above EVIL --baseline EVIL",
    ],
}


def test_every_verb_has_its_cases():
    assert set(CASES) == set(app.names())


@pytest.mark.parametrize(
    ("verb", "line"), [(verb, line) for verb, lines in CASES.items() for line in lines]
)
def test_what_is_given_is_shown_and_not_sent(tmp_path, monkeypatch, verb, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "F.jsonl").write_text('{"x\\u001b[31m\\u202e": "the gate opens at nine"}\n' * 9)
    words = [word.replace("EVIL", EVIL) for word in line.split()]
    words = ["F.jsonl" if word == "F" else word for word in words]

    done = invoke([verb, *words])

    assert done.exit_code == 2, (done.stderr, done.exception)
    shown = (done.stdout + done.stderr).replace("\n", "")
    assert not [character for character in shown if unicodedata.category(character) in ("Cc", "Cf")]


def test_an_unknown_verb_is_shown_and_not_sent():
    done = invoke([EVIL])
    assert done.exit_code == 2
    assert not set(done.stderr) & set("\x1b\u202e\x07\u2066\x9b")
