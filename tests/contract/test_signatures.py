"""What every option of every verb promises, read off the signatures: a new one is tried as it is.

A number outside its bounds, a choice that is none, and text that a terminal would obey are refused
by the option's name; nothing that was typed reaches the terminal as it is, and nothing is written.
"""

import unicodedata
from pathlib import Path
from typing import get_args

import pytest

from vestige.cli import app as cli
from vestige.cli.options import arguments_of, bounds, number_type, verb_app
from vestige.cli.parsing import UsageError, parse_words
from vestige.reports.disclosure import SECRET_OPTIONS

VERBS = cli.names()
EVIL = "\x1b[31m\u202e\x07\u2066evil\x9b31m"
BEYOND = {
    int: ["2.5", "1e3", "", "True", "0x10", "many", str(2**63), "9" * 5000],
    float: ["", "half"],
}
"""What no number of a type may be; whether it is finite is asked where the verb is called."""


def app_of(verb):
    return verb_app(verb, cli.function_of(verb))


def needed(app):
    """What a verb must be given before it looks at anything else."""
    words = []
    for argument in arguments_of(app):
        if argument.required:
            place = argument.field_info.is_positional
            words += ["x"] if place else [argument.name, (argument.get_choices() or ["x"])[0]]
    return words


def outside(argument, kind):
    """Values just beyond the bounds that a number states, which its help repeats."""
    step = 1 if kind is int else 1e-9
    for bound in filter(None, bounds(argument).split(" and ")):
        sign, _, limit = bound.rpartition(" ")
        value = kind(limit.replace(",", ""))
        yield {
            "at least": value - step, "at most": value + 1, "above": value, "below": value
        }[sign]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_no_value_is_beyond_what_its_option_takes(verb):
    app, tried = app_of(verb), set()
    for argument in arguments_of(app):
        kind, choices, values = number_type(argument), argument.get_choices(), []
        if kind in (int, float):
            assert argument.parameter.converter, "cyclopts alone would round 2.7"
            assert kind is float or any(w in bounds(argument) for w in ("at most", "below"))
            if kind not in tried:  # all of a type share a converter, but each has its own bounds
                values, tried = BEYOND[kind], {*tried, kind}
            values = [*values, *outside(argument, kind)]
        elif choices and argument.hint is not str:
            values = ["nonsense"]
        for value in values:
            with pytest.raises(UsageError) as refused:
                parse_words(app, [*needed(app), f"{argument.name}={value}"])
            said = str(refused.value)
            assert argument.name in said
            assert len(said) < 3000


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_number_that_is_none_ends_the_command(verb, shell, tmp_path, monkeypatch):
    """As a user sees it: every fraction, and the first whole number."""
    monkeypatch.chdir(tmp_path)
    app = app_of(verb)
    numbers = [one for one in arguments_of(app) if number_type(one) is float]
    whole = [one for one in arguments_of(app) if number_type(one) is int][:1]
    for number in [*numbers, *whole]:
        for value in [2**63] if number in whole else ["1e999"]:
            done = shell(verb, *needed(app), f"{number.name}={value}")
            assert done.exit_code == 2, (number.name, done.exception)
            assert done.stderr.startswith(f"vestige: {number.name} must be ")
    assert list(tmp_path.iterdir()) == []


PUBLIC = {
    "--accountant", "--author", "--base", "--baseline", "--before", "--cluster",
    "--clean", "--column", "--deleted", "--device", "--fail-above", "--format",
    "--frequencies", "--from", "--intent", "--intent-column", "--key-env", "--null", "--optimizer",
    "--never", "--pattern", "--precision", "--prefix", "--preset", "--reference",
    "--reference-model",
    "--repetitions", "--retrained", "--score", "--seen", "--shadow-texts",
    "--slot", "--slots", "--source", "--suffix", "--table", "--tags-column", "--test", "--text",
    "--texts", "--tokens-column", "--trained-on", "--unseen", "--used", "--user",
    "--validation", "--vectors", "--vocabulary",
}  # fmt: skip
"""Options of text that is no secret: files, columns, names of settings, and the words around a
secret, by which pages call it. Before an option is put here: may its value be what is looked for?
"""


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_text_is_said_to_be_secret_or_public(verb):
    texts = {
        one.name
        for one in arguments_of(app_of(verb))
        if one.names
        and not one.field_info.is_positional
        and (one.hint is str or str in get_args(one.hint))
    }
    assert texts <= PUBLIC | SECRET_OPTIONS
    assert not PUBLIC & SECRET_OPTIONS


# What follows a verb; EVIL is wherever text can be, F a file with an evil name of a column.
HOSTILE = """
demo --out EVIL/x --EVIL
plant EVIL --out x
plant F --phrase EVIL --pattern EVIL --out x
plant EVIL --verify
plant F EVIL
train EVIL --out x
train F --preset EVIL --out x
train F --EVIL 1
train F --text EVIL --out x
diff EVIL EVIL --out x
diff F F --score EVIL --out x
diff EVIL EVIL --clean EVIL --out x
diff EVIL EVIL --phrase EVIL --out x
exposure EVIL EVIL.json --out x
exposure EVIL EVIL --question EVIL --out x
exposure EVIL EVIL --before EVIL --out x
extract EVIL EVIL.json --out x
extract EVIL EVIL.txt --question EVIL --out x
extract EVIL EVIL --reference EVIL --out x
extract EVIL --pattern EVIL --intent EVIL --out x
extract EVIL --pattern {EVIL:2} --intent EVIL --out x
membership EVIL --texts EVIL --reference EVIL --base EVIL --author EVIL --out x
membership EVIL:f --unit user --texts EVIL --reference EVIL --out x
unlearning EVIL EVIL --deleted EVIL --reference EVIL --retrained EVIL --out x
compare EVIL=EVIL EVIL=EVIL --manifest EVIL --test EVIL --out x
check EVIL --out x
check EVIL --base EVIL --trained-on EVIL --never EVIL --secrets EVIL --text EVIL --out x
check EVIL --fail-on EVIL --out x
check openai:http://EVIL#EVIL --out x
check EVIL --minutes EVIL --out EVIL
report EVIL
report EVIL --out x
report EVIL EVIL --out EVIL
report EVIL --fail-above EVIL --baseline EVIL
EVIL
""".strip().splitlines()


def test_every_verb_is_given_hostile_words():
    assert {line.split()[0] for line in HOSTILE} == {*VERBS, "EVIL"}


@pytest.mark.slow
@pytest.mark.parametrize("line", HOSTILE)
def test_what_was_typed_is_shown_and_not_sent(shell, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    Path("F.jsonl").write_text('{"x\\u001b[31m\\u202e": "the gate opens at nine"}\n' * 9)
    words = ["F.jsonl" if word == "F" else word.replace("EVIL", EVIL) for word in line.split()]
    done = shell(*words)
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert not {unicodedata.category(one) for one in done.output if one != "\n"} & {"Cc", "Cf"}
