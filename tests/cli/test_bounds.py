"""Every number that any verb takes has a bound; whoever adds an option finds it here."""

import pytest
import typer

from vestige.cli.bounds import LARGEST, MANY
from vestige.cli.main import VERBS, app

GROUP = typer.main.get_command(app)


def numbers():
    """(verb, option, its largest whole number or None for a number with a point)."""
    for verb in VERBS:
        for option in GROUP.get_command(None, verb).params:
            kind = str(option.type_descriptor.annotation)
            name = option.opts[0]
            if "int" in kind and name.startswith("--"):
                yield verb, name, LARGEST.get(name, MANY)
            elif "float" in kind and name.startswith("--"):
                yield verb, name, None


def required(verb):
    """What a verb must be given before it looks at anything else."""
    words = []
    for option in GROUP.get_command(None, verb).params:
        if option.required:
            words += [option.opts[0], "x"] if option.opts[0].startswith("--") else ["x", "x"]
    return words


NUMBERS = list(numbers())


def test_there_are_numbers_to_bound():
    assert len(NUMBERS) > 90
    assert {name for _, name, _ in NUMBERS} >= LARGEST.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_no_number_is_beyond_its_bound(verb, shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for own, name, most in NUMBERS:
        if own != verb:
            continue
        values = ["inf", "nan", "1e999"] if most is None else [most + 1, 10**4000]
        for value in values if verb == "rank" else values[:1]:
            done = shell(verb, *required(verb), f"{name}={value}")
            assert done.exit_code == 2, (name, value, done.exception)
            assert name in done.stderr, (name, value, done.stderr)
            assert len(done.stderr) < 3000
    assert list(tmp_path.iterdir()) == []
