"""Commands are made from signatures: parsing, help, errors and exit codes."""

import json
from dataclasses import replace

import pytest

from tests.cli import example
from tests.reports.made_claims import made_claim
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.cli import app as cli


def test_the_command_line_is_parsed(refit, tmp_path):
    words = ["d", "--from", "x", "--null", "a", "--null=-b", "--epochs=3", "--out", f"{tmp_path}/r"]
    code, record, _, _ = refit(words)
    assert code == 0
    assert record["arguments"] == {
        "data": "d", "from": "x", "null": ["a", "-b"], "other_shapes": False, "epochs": 3,
        "batch_size": 4, "optimizer": "adam", "text": "text",
    }  # fmt: skip
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    assert run["command"][:3] == ["vestige", "refit", "d"]
    assert run["arguments"] == record["arguments"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("d --epochs 2.5", "--epochs must be a whole number."),
        ("d --epochs 0", "--epochs must be at least 1"),
        ("d --seed -1", "--seed must be at least 0"),
        ("d --epochs 1000000001", "--epochs must be at least 1 and at most 1,000,000,000."),
        ("d --clip inf", "--clip must be a finite number."),
        ("d --clip 1e400", "--clip must be a finite number."),
        ("d --clip 0", "--clip must be above 0."),
        ("d --optimizer SECRET", "--optimizer must be one of adam, sgd."),
        ("d --optimizer none", "--optimizer must be one of adam, sgd."),
        ("d --other-shapes=SECRET", "--other-shapes takes only true or false."),
        ("d --no-other-shapes", "Unknown option --no-other-shapes. Did you mean"),
        ("d --nope=SECRET", "Unknown option --nope."),
        ("d --epoch 3", "Unknown option --epoch. Did you mean --epochs?"),
        ("d SECRET SECRET", "2 unexpected arguments. Quote texts of several words."),
        ("d --out", "--out needs a value."),
        ("", "Missing DATA, --out."),
        *(
            (f"d --epochs {word}", "--epochs must be a whole number.")
            for word in ("SECRET", "1e3", "", "True", "0x10", "9" * 5000, "3 --epochs SECRET")
        ),
        ("d --epochs=", "--epochs must be a whole number."),
        ("d --epochs=--seed", "--epochs must be a whole number."),
        ("d --epochs --seed 3", "--epochs needs a value, got the option --seed."),
        ("d --from --seed=SECRET", "--from needs a value, got the option --seed."),
        ("d --null", "--null needs a value."),
        ("d --null SECRET SECRET", "1 unexpected argument."),
        ("d --other-shapes SECRET", "1 unexpected argument."),
        ("d -- --epochs", "1 unexpected argument."),
        ("d --null.0 SECRET", "Unknown option --null.0."),
        ("d --training.epochs 3", "Unknown option --training.epochs."),
        ("d --EPOCHS 3", "Unknown option --EPOCHS."),
        ("d ---epochs 3", "Unknown option ---epochs. Did you mean --epochs?"),
        ("d -e", "Unknown option -e."),
        ("d -", "Unknown option -."),
        ("d --my|SECRET", "A word that begins with a dash is not an option of this command."),
        ("d --te\x1b[31mxt a", "A word that begins with a dash is not an option of this command."),
    ],
)
def test_a_usage_error_names_the_option_and_no_value(refit, words, message):
    """In `words`, | stands for a space."""
    arguments = [word.replace("|", " ") for word in words.split(" ")] if words else []
    if arguments and "--out" not in arguments:
        arguments = ["--out", "nowhere", *arguments]
    code, record, out, err = refit(arguments)
    assert (code, record, out) == (2, None, "")
    assert err.startswith(f"vestige: {message}")
    assert "SECRET" not in err
    assert err.removesuffix("\n").isprintable()


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["d", "--from=--epochs"], "from", "--epochs"),
        (["d", "--from", "-b"], "from", "-b"),
        (["d", "--from", ""], "from", ""),
        (["d", "--from", "none"], "from", "none"),
        (["d", "--text", "None"], "text", "None"),
        (["d", "--text", "a b\tc"], "text", "a b\tc"),
        (["d", "--null", "", "--null", "a,b"], "null", ["", "a,b"]),
        (["d", "--null", "[/]", "--null", '["x"]', "--null", "{"], "null", ["[/]", '["x"]', "{"]),
        (["d", "--other-shapes=false"], "other_shapes", False),
        (["d", "--epochs", "3", "--epochs", "4"], "epochs", 4),
        (["--", "-d"], "data", "-d"),
        ([""], "data", ""),
    ],
)
def test_values_are_passed_unchanged(refit, tmp_path, words, name, value):
    code, record, _, err = refit(["--out", f"{tmp_path}/run", *words])
    assert code == 0, err
    assert record["arguments"][name] == value


def test_help_shows_the_docstring(refit, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, _, text, _ = refit(["--help"])
    assert code == 0
    assert text.startswith("Usage: vestige refit ")
    assert "Train a model on DATA, or continue one." in text
    assert "  --epochs INT          Passes over the data. [2]" in text
    assert "  --optimizer CHOICE    The optimizer. One of adam, sgd. [adam]" in text
    assert "  vestige refit corpus.txt --out model" in text
    panels = ["Parameters", "Training", "Columns", "Run", "Examples:"]
    positions = [text.index(f"\n{title}\n") for title in panels]
    assert positions == sorted(positions)


def test_parameters_in_a_message_become_options():
    flags = cli.flags_of(example.refit)
    message = cli.with_flags("`from_` needs `data` and `epochs`, not `cpu`", flags)
    assert message == "--from needs DATA and --epochs, not `cpu`"


@pytest.mark.parametrize(("verdict", "code"), [(NO_LEAK, 0), (LEAK, 1), (UNDECIDED, 3)])
def test_a_verdict_has_its_exit_code(refit, tmp_path, monkeypatch, verdict, code):
    claim = made_claim("diff", verdict)
    claimed = example.with_result(lambda result: replace(result, claim=claim))
    monkeypatch.setattr(example, "refit", claimed)
    exit_code, _, out, _ = refit(["d", "--out", f"{tmp_path}/run"])
    assert exit_code == code
    assert out.lstrip().startswith(f"{verdict.upper()}  ")
    exit_code, _, out, _ = refit(["d", "--json", "--out", f"{tmp_path}/json"])
    assert exit_code == code
    assert json.loads(out)["verdict"] == verdict
