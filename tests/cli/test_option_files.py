"""Options from files: `--config`, a run folder, and vestige.toml or pyproject.toml of a project."""

import os
from pathlib import Path

import pytest

import vestige
from vestige.cli.options import verb_app
from vestige.cli.parsing import UsageError, parse_words
from vestige.errors import DataError

BOMB = "a: &a [SECRET, x]\n" + "".join(
    f"{chr(97 + n)}: &{chr(97 + n)} [{', '.join([f'*{chr(96 + n)}'] * 9)}]\n" for n in range(1, 20)
)
OPTIONS = [
    ("data", '"--out"'), ("batch_size", 8), ("null", '["-x", ""]'), ("other_shapes", "true"),
    ("text", '"none"'),
]  # fmt: skip


# --config


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "data: --out\nbatch-size: 8\nnull: [-x, '']\nother_shapes: true\ntext: none\n"),
        ("a.toml", "\n".join(f"{k} = {v}" for k, v in OPTIONS)),
        ("a.json", "{" + ", ".join(f'"{k}": {v}' for k, v in OPTIONS) + "}"),
    ],
)
def test_an_option_file_sets_options_and_the_command_line_overrides_it(refit, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    words = ["--config", f"{tmp_path / name}"]
    _, record, _, err = refit([*words, "--out", f"{tmp_path}/run"])
    arguments = record["arguments"]
    expected = {
        "data": "--out", "batch_size": 8, "null": ["-x", ""], "other_shapes": True, "text": "none",
    }  # fmt: skip
    assert {name: arguments[name] for name in expected} == expected, err
    _, record, _, _ = refit([*words, "--null", "c", "--out", f"{tmp_path}/second"])
    assert record["arguments"]["null"] == ["c"]


def test_a_run_folder_repeats_the_run(refit, tmp_path):
    first, again = f"{tmp_path}/first", f"{tmp_path}/again"
    words = ["d", "--from", "-m", "--clip", "0.5", "--seed", "3", "--other-shapes"]
    _, record, _, _ = refit([*words, "--out", first])
    _, repeated, _, err = refit(["--config", first, "--out", again])
    assert repeated is not None, err
    for each in (record, repeated):
        del each["command"], each["configuration"]["seconds"]
    assert record == repeated
    assert record["seed"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "fragment"),
    [
        ("a.yaml", "epoch: 3", "a.yaml: 'epoch' is not an option of vestige refit"),
        ("a.yaml", "epochs: many", "--epochs must be a whole number"),
        ("a.yaml", "epochs: 0", "--epochs must be at least 1"),
        ("a.yaml", "epochs: [1, 2]", "--epochs takes one value"),
        ("a.yaml", "other_shapes: 1", "--other-shapes must be true or false"),
        ("a.yaml", "[1, 2]", "has no options by name"),
        ("a.yaml", "{", "is not YAML at line 1"),
        ("a.yaml", "verb: rank\narguments: {}", "is a run of another command"),
        ("bomb.yaml", BOMB, "bomb.yaml: 'a' is not an option"),
        ("bomb.yaml", "x: &x [SECRET]\nnull: [*x, *x]", "bomb.yaml: 'x' is not an option"),
        ("lists.yaml", "null: [[SECRET]]", "--null must be text"),
        ("tag.yaml", "epochs: !!python/object/apply:os.system ['SECRET']", "not YAML at line 1"),
        ("two.yaml", "epochs: 1\n---\nepochs: 2", "is not YAML at line"),
        ("deep.yaml", "[" * 3000, "cannot be read: it is nested too deeply"),
        ("deep.json", "[" * 100_000, "cannot be read: it is nested too deeply"),
        ("large.yaml", "data: " + "x" * 2**20, "has 1,048,582 bytes; at most 1,048,576 are"),
        ("twice.yaml", "batch-size: 1\nbatch_size: 2", "twice.yaml sets 'batch-size' twice"),
        ("twice.yaml", "epochs: 1\nepochs: 2", "twice.yaml"),
        ("twice.json", '{"epochs": 1, "epochs": 2}', "twice.json"),
        ("twice.toml", "epochs = 1\nepochs = 2", "cannot be read: TOMLDecodeError"),
        ("table.toml", "[training]\nepochs = 3", "'training' is not an option"),
        ("date.toml", "text = 2020-01-01", "--text must be text, in quotation marks"),
        ("bytes.yaml", "text: !!binary aGVsbG8=", "--text must be text"),
        ("octal.yaml", "text: 0123", "--text must be text"),
        ("yes.yaml", "text: yes", "--text must be text"),
        ("yes.yaml", "epochs: yes", "--epochs must be a whole number"),
        ("text.yaml", "epochs: 'SECRET'", "--epochs must be a whole number"),
        ("point.json", '{"epochs": 2.5}', "--epochs must be a whole number"),
        ("nan.json", '{"clip": NaN}', "--clip must be above 0"),
        ("long.json", f'{{"epochs": {"9" * 4000}}}', "--epochs must be at least 1 and at most"),
        ("longer.json", '{"epochs": ' + "9" * 5000 + "}", "cannot be read: ValueError"),
        ("choice.yaml", "optimizer: SECRET", "--optimizer must be one of adam, sgd"),
        ("choice.yaml", "optimizer: off", "--optimizer must be one of adam, sgd"),
        ("again.yaml", "config: other.yaml", "again.yaml: 'config' is not an option"),
        ("escape.json", '{"\\u001b[31m": 1}', "is not an option"),
        ("half.json", '{"epochs": 1', "cannot be read"),
        ("empty.yaml", "", "has no options by name"),
        ("fifo.yaml", os.mkfifo, "is a named pipe, not a file"),
        ("missing.yaml", None, "missing.yaml is missing"),
        ("folder", os.mkdir, "run.json is missing"),
    ],
)
def test_errors_of_hostile_option_files_name_file_and_key(refit, tmp_path, name, text, fragment):
    if callable(text):
        text(tmp_path / name)
    elif text is not None:
        (tmp_path / name).write_text(text)
    words = ["d", "--config", f"{tmp_path / name}", "--out", f"{tmp_path}/run"]
    code, record, _, message = refit(words)
    assert (code, record) == (2, None), message
    assert fragment in message
    assert "SECRET" not in message
    assert message.count("\n") == 1
    assert not (tmp_path / "run").exists()


# Options of a project

NESTED = "tool.vestige."


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Writes option files into a folder and returns the options of a command run there."""
    (tmp_path / "project" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "deep")

    def read(files, *words, verb="check"):
        for name, text in files.items():
            (tmp_path / "project" / name).write_text(text)
        return parse_words(verb_app(verb, getattr(vestige, verb)), words or ("model",))

    return read


@pytest.mark.parametrize(("name", "table"), [("vestige.toml", ""), ("pyproject.toml", NESTED)])
def test_project_options_are_read_and_explicit_options_override_them(options, capsys, name, table):
    text = f'[{table}check]\nminutes = 3\nfail-on = "membership"\ntrained_on = "a.jsonl"\n'
    read = options({f"deep/{name}": text}, "model", "--minutes", "5")
    assert (read["minutes"], read["fail_on"], read["trained_on"]) == (5, "membership", "a.jsonl")
    notice = capsys.readouterr().err
    assert notice.startswith("Options from ")
    assert notice.endswith(f"{name}\n")


def test_parent_folders_are_searched_up_to_the_repository_root(options, tmp_path):
    files = {"vestige.toml": "[check]\nminutes = 3\n"}
    assert "minutes" not in options(files)
    (tmp_path / "project" / ".git").mkdir()
    assert options(files)["minutes"] == 3
    (tmp_path / "project" / "deep" / ".git").mkdir()
    assert "minutes" not in options(files)


def test_the_nearest_file_is_used_and_vestige_toml_first(options, tmp_path):
    (tmp_path / "project" / ".git").mkdir()
    files = {
        "vestige.toml": "[check]\nminutes = 1\n",
        "deep/pyproject.toml": f"[{NESTED}check]\nminutes = 2\n",
    }
    assert options(files)["minutes"] == 2
    assert options({"deep/vestige.toml": "[check]\nminutes = 3\n"})["minutes"] == 3
    assert options({"deep/vestige.toml": "[report]\n", "deep/pyproject.toml": ""})["minutes"] == 1


def test_project_options_are_ignored_with_config_and_by_other_commands(options, tmp_path, capsys):
    assert "minutes" not in options({"deep/pyproject.toml": "[tool.ruff]\nline-length = 9\n"})
    assert capsys.readouterr().err == ""
    (tmp_path / "other.toml").write_text("minutes = 7\n")
    files = {"deep/vestige.toml": '[check]\nfail-on = "membership"\n'}
    read = options(files, "model", "--config", f"{tmp_path / 'other.toml'}")
    assert read["minutes"] == 7
    assert "fail_on" not in read
    (tmp_path / "project" / "deep" / "vestige.toml").write_text("[diff]\nminutes = 'SECRET'\n")
    assert "minutes" not in options({}, "a", "b", "--out", "run", verb="diff")


def test_a_project_sets_the_folder_of_check_and_the_limits_of_report(options):
    assert options({})["out"] == Path("check")
    assert options({"deep/vestige.toml": '[check]\nout = "audit"\n'})["out"] == Path("audit")
    files = {"deep/vestige.toml": '[report]\nfail-above = ["exposure=6"]\n'}
    assert list(options(files, "run", verb="report")["fail_above"]) == ["exposure=6"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[check]\nminuts = 3", "vestige.toml: 'minuts' is not an option of vestige check"),
        ("[check]\nminutes = 'SECRET'", "vestige.toml: --minutes must be a number"),
        ("[check]\nminutes = 0", "--minutes must be above 0"),
        ("[check]\nconfig = 'other'", "vestige.toml: 'config' is not an option of vestige check"),
        ("[check]\nfail-on = 'SECRET'", "--fail-on must be one of leak, membership"),
        ("[chek]\nminutes = 3", "'chek' is not a table of options. Write options of vestige check"),
        ("minutes = 3", r"'minutes' is not a table of options. .* below \[check\]"),
        ("check = 3", "'check' is not a table of options"),
        ("[tool.vestige.check]\nminutes = 3", r"'tool' is not a table of options. .* \[check\]"),
        ("[check", "vestige.toml cannot be read: TOMLDecodeError"),
        ("[tool]\nvestige = 3\n", r"pyproject\.toml: 'vestige' is not a table of options"),
    ],
)
def test_errors_of_project_options_name_file_and_key(options, text, message):
    name = "pyproject" if text.startswith("[tool]") else "vestige"
    with pytest.raises((DataError, UsageError), match=message) as error:
        options({f"deep/{name}.toml": text})
    assert "SECRET" not in str(error.value)
