"""Every number that any verb takes has a bound; whoever adds an option finds it here."""

import pytest

from vestige.cli.main import VERBS, verb
from vestige.cli.parsing import LARGEST, MANY
from vestige.workflows.parameters import REQUIRED


def numbers():
    """(verb, option, its largest whole number or None for a number with a point)."""
    for name in VERBS:
        for option in verb(name).options:
            if option.flags and option.type in (int, float):
                flag = option.flags[0]
                yield name, flag, LARGEST.get(flag, MANY) if option.type is int else None


def required(name):
    """What a verb must be given before it looks at anything else."""
    words = []
    for option in verb(name).options:
        if option.default is REQUIRED:
            word = option.choices[0] if option.choices else "x"
            words += [option.flags[0], word] if option.flags else [word] * (1 + option.many)
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
