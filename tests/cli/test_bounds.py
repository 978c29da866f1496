"""Every number that any verb takes has a bound; whoever adds an option finds it here."""

import pytest

from vestige.cli import app as cli
from vestige.cli.options import bounds, number_type


def numbers():
    """(verb, option, whether it is a whole number, the argument)."""
    for name in cli.names():
        app = cli.verb_app(name, cli.function_of(name))
        for argument in app.assemble_argument_collection(parse_docstring=False):
            kind = number_type(argument)
            if kind in (int, float) and argument.names and argument.name != "*":
                yield name, argument.name, kind is int, argument


def required(name):
    """What a verb must be given before it looks at anything else."""
    words = []
    app = cli.verb_app(name, cli.function_of(name))
    for argument in app.assemble_argument_collection(parse_docstring=False):
        if argument.required:
            place = argument.field_info.is_positional
            words += ["x"] if place else [argument.name, (argument.get_choices() or ["x"])[0]]
    return words


NUMBERS = list(numbers())


def test_a_number_is_read_as_it_is_written():
    """Cyclopts alone would round 2.7 and read "none" as None; the types of `arguments` do not."""
    for verb, name, _, argument in NUMBERS:
        assert argument.parameter.converter is not None, (verb, name)


def test_a_whole_number_has_a_largest():
    for verb, name, whole, argument in NUMBERS:
        assert not whole or "at most" in bounds(argument) or "below" in bounds(argument), (
            verb,
            name,
        )


@pytest.mark.parametrize("verb", cli.names())
def test_no_number_is_beyond_its_bound(verb, shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for own, name, whole, _ in NUMBERS:
        if own != verb:
            continue
        values = [2**63, 10**4000] if whole else ["inf", "nan", "1e999"]
        for value in values:
            done = shell(verb, *required(verb), f"{name}={value}")
            assert done.exit_code == 2, (name, value, done.exception)
            assert name in done.stderr, (name, value, done.stderr)
            assert len(done.stderr) < 3000
    assert list(tmp_path.iterdir()) == []
