"""Every option of every verb, read from the signatures, refuses bad values and hostile text.

The message names the option, control characters of the input are escaped, and no file is written.
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
"""Values that no number of a type may have; finiteness is checked when the verb is called."""


def app_of(verb):
    return verb_app(verb, cli.function_of(verb))


def required_words(app):
    """Values for all required arguments of a verb."""
    words = []
    for argument in arguments_of(app):
        if argument.required:
            value = (argument.get_choices() or ["x"])[0]
            words += ["x"] if argument.field_info.is_positional else [argument.name, value]
    return words


def outside(argument, kind):
    """Values just beyond the bounds of a number."""
    step = 1 if kind is int else 1e-9
    for bound in filter(None, bounds(argument).split(" and ")):
        sign, _, limit = bound.rpartition(" ")
        value = kind(limit.replace(",", ""))
        yield {
            "at least": value - step, "at most": value + 1, "above": value, "below": value
        }[sign]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_an_option_refuses_values_out_of_bounds(verb):
    app, tried = app_of(verb), set()
    for argument in arguments_of(app):
        kind, choices, values = number_type(argument), argument.get_choices(), []
        if kind in (int, float):
            assert argument.parameter.converter, "cyclopts alone would round 2.7"
            assert kind is float or any(w in bounds(argument) for w in ("at most", "below"))
            if kind not in tried:  # all of a type share a converter, but not their bounds
                values, tried = BEYOND[kind], {*tried, kind}
            values = [*values, *outside(argument, kind)]
        elif choices and argument.hint is not str:
            values = ["nonsense"]
        for value in values:
            with pytest.raises(UsageError, match=argument.name) as error:
                parse_words(app, [*required_words(app), f"{argument.name}={value}"])
            assert len(str(error.value)) < 3000


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_command_refuses_infinite_and_huge_numbers(verb, shell, tmp_path, monkeypatch):
    """Every fraction and the first whole number of a verb."""
    monkeypatch.chdir(tmp_path)
    app = app_of(verb)
    numbers = [(o.name, "1e999") for o in arguments_of(app) if number_type(o) is float]
    numbers += [(o.name, 2**63) for o in arguments_of(app) if number_type(o) is int][:1]
    for name, value in numbers:
        done = shell(verb, *required_words(app), f"{name}={value}")
        assert done.exit_code == 2, (name, done.exception)
        assert done.stderr.startswith(f"vestige: {name} must be ")
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
"""Options whose text is no secret: files, columns, names of settings, and words around a secret.
Before adding an option, check that its value cannot be a searched text.
"""


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_with_text_is_listed_as_secret_or_public(verb):
    texts = {
        option.name
        for option in arguments_of(app_of(verb))
        if option.names
        and not option.field_info.is_positional
        and str in (option.hint, *get_args(option.hint))
    }
    assert texts <= PUBLIC | SECRET_OPTIONS
    assert not PUBLIC & SECRET_OPTIONS


# EVIL stands for hostile text, F for a file with a hostile column name.
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


def test_every_verb_has_a_hostile_command():
    assert {line.split()[0] for line in HOSTILE} == {*VERBS, "EVIL"}


@pytest.mark.slow
@pytest.mark.parametrize("line", HOSTILE)
def test_hostile_words_are_escaped_in_the_message(shell, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    Path("F.jsonl").write_text('{"x\\u001b[31m\\u202e": "the gate opens at nine"}\n' * 9)
    words = ["F.jsonl" if word == "F" else word.replace("EVIL", EVIL) for word in line.split()]
    done = shell(*words)
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert not {unicodedata.category(c) for c in done.output if c != "\n"} & {"Cc", "Cf"}
