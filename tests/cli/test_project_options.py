"""Options of `vestige check` and `vestige report` from vestige.toml or pyproject.toml."""

from pathlib import Path

import pytest

import vestige
from vestige.cli.options import UsageError, parsed, verb_app
from vestige.errors import DataError

NESTED = "tool.vestige."


@pytest.fixture
def options(tmp_path, monkeypatch):
    """The options of a command line in a folder with some files."""
    (tmp_path / "project" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "deep")

    def read(files, *words, verb="check"):
        for name, text in files.items():
            (tmp_path / "project" / name).write_text(text)
        return parsed(verb_app(verb, getattr(vestige, verb)), words or ("model",))

    return read


@pytest.mark.parametrize(("name", "table"), [("vestige.toml", ""), ("pyproject.toml", NESTED)])
def test_options_of_the_folder_are_read_and_explicit_ones_win(options, capsys, name, table):
    text = f'[{table}check]\nminutes = 3\nfail-on = "membership"\ntrained_on = "a.jsonl"\n'
    found = options({f"deep/{name}": text}, "model", "--minutes", "5")
    assert (found["minutes"], found["fail_on"], found["trained_on"]) == (5, "membership", "a.jsonl")
    said = capsys.readouterr().err
    assert said.startswith("Options from ")
    assert said.endswith(f"{name}\n")


def test_folders_above_count_up_to_the_root_of_the_repository(options, tmp_path):
    text = {"vestige.toml": "[check]\nminutes = 3\n"}
    assert "minutes" not in options(text)
    (tmp_path / "project" / ".git").mkdir()
    assert options(text)["minutes"] == 3
    (tmp_path / "project" / "deep" / ".git").mkdir()
    assert "minutes" not in options(text)


def test_the_nearest_file_counts_and_vestige_toml_before_pyproject(options, tmp_path):
    (tmp_path / "project" / ".git").mkdir()
    files = {
        "vestige.toml": "[check]\nminutes = 1\n",
        "deep/pyproject.toml": f"[{NESTED}check]\nminutes = 2\n",
    }
    assert options(files)["minutes"] == 2
    assert options({"deep/vestige.toml": "[check]\nminutes = 3\n"})["minutes"] == 3
    assert options({"deep/vestige.toml": "[report]\n", "deep/pyproject.toml": ""})["minutes"] == 1


def test_a_pyproject_of_others_is_passed_over(options, capsys):
    assert "minutes" not in options({"deep/pyproject.toml": "[tool.ruff]\nline-length = 9\n"})
    assert capsys.readouterr().err == ""


def test_a_repeated_run_and_other_commands_read_no_project(options, tmp_path):
    (tmp_path / "own.toml").write_text("minutes = 7\n")
    files = {"deep/vestige.toml": '[check]\nfail-on = "membership"\n'}
    found = options(files, "model", "--config", f"{tmp_path / 'own.toml'}")
    assert found["minutes"] == 7
    assert "fail_on" not in found
    (tmp_path / "project" / "deep" / "vestige.toml").write_text("[diff]\nminutes = 'SECRET'\n")
    assert "minutes" not in options({}, "a", "b", "--out", "run", verb="diff")


def test_the_limits_of_a_report_are_read(options):
    text = {"deep/vestige.toml": '[report]\nfail-above = ["exposure=6"]\n'}
    assert list(options(text, "run", verb="report")["fail_above"]) == ["exposure=6"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[check]\nminuts = 3", "vestige.toml: 'minuts' is no option of vestige check"),
        ("[check]\nminutes = 'SECRET'", "vestige.toml: --minutes must be a number"),
        ("[check]\nconfig = 'other'", "vestige.toml: 'config' is no option of vestige check"),
        ("[check]\nfail-on = 'SECRET'", "--fail-on must be one of leak, membership"),
        ("[chek]\nminutes = 3", "'chek' is no table of options. Write options of vestige check"),
        ("minutes = 3", r"'minutes' is no table of options. .* below \[check\]"),
        ("check = 3", "'check' is no table of options"),
        ("[tool.vestige.check]\nminutes = 3", r"'tool' is no table of options. .* \[check\]"),
        ("[check", "vestige.toml cannot be read: TOMLDecodeError"),
    ],
)
def test_a_wrong_entry_is_refused_by_file_and_key(options, text, said):
    with pytest.raises((DataError, UsageError), match=said) as error:
        options({"deep/vestige.toml": text})
    assert "SECRET" not in str(error.value)


def test_a_pyproject_with_a_number_for_a_table_is_refused(options):
    with pytest.raises(DataError, match=r"pyproject\.toml: 'vestige' is no table of options"):
        options({"deep/pyproject.toml": "[tool]\nvestige = 3\n"})


def test_a_bound_holds_in_a_file_too(options):
    with pytest.raises((DataError, UsageError), match="--minutes must be above 0"):
        options({"deep/vestige.toml": "[check]\nminutes = 0\n"})


def test_the_run_folder_of_a_check_needs_no_option(options):
    assert options({})["out"] == Path("check")
    text = {"deep/vestige.toml": '[check]\nout = "audit"\n'}
    assert options(text)["out"] == Path("audit")
