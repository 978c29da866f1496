"""The table of verbs, and what the command line promises for every verb."""

import inspect
import re
import subprocess
import sys

import pytest

from vestige import __version__
from vestige.cli import app as cli
from vestige.cli import help

HEAVY = ("torch", "transformers", "pyarrow", "pandas", "datasets", "altair", "jinja2", "scipy")
VERBS = cli.names()


def modules_after(code):
    code = f"import sys\nfrom vestige.cli import app as cli\n{code}\nprint(*sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_help_imports_nothing_heavy_and_no_verb_but_the_one_that_is_asked_about():
    code = """
def loaded(parts):
    return sorted(name for name in sys.modules if name.startswith(parts))

assert cli.run(["--help"]) == 0
assert not loaded(("vestige.audits", "vestige.prepar")), loaded(("vestige.",))
for verb in cli.names():
    assert cli.run([verb, "--help"]) == 0, verb
"""
    assert not modules_after(code) & set(HEAVY)


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches_by_example(shell, verb):
    text = shell(verb, "--help").stdout
    assert "Examples:" in text
    assert f"  vestige {verb}" in text
    assert "--json" in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_help(verb):
    app = cli.verb_app(verb, cli.function_of(verb))
    for argument in app.assemble_argument_collection(parse_docstring=True):
        if argument.name != "*" and argument.show:
            assert argument.parameter.help, argument.name


def test_help_of_the_program_has_the_first_sentence_of_every_verb(shell):
    said = shell("--help").stdout
    for group in cli.VERBS.values():
        for name, sentence in group.items():
            told = inspect.getdoc(cli.function_of(name)).partition("\n\n")[0]
            assert " ".join(told.split()).startswith(sentence), name
            assert sentence in " ".join(said.split())
    assert re.findall(r"^  ([a-z][\w-]+)  ", said, re.MULTILINE) == VERBS


def test_a_bug_shows_where_it_came_from_and_quotes_nothing(monkeypatch, capsys):
    secret = " ".join(["the", "gate", "code"])

    def fails():
        return {}[secret]

    monkeypatch.setattr(cli, "run", lambda words: fails())
    # Both are for the whole process, which goes on with other tests.
    monkeypatch.setattr(cli, "keep_freed_pages", lambda: None)
    monkeypatch.setattr(cli.interrupts, "raise_when_asked_to_end", lambda: None)
    with pytest.raises(SystemExit) as left:
        cli.main()
    said = capsys.readouterr().err
    assert left.value.code == cli.BUG == 70
    assert "return {}[secret]" in said
    assert "\nKeyError\n" in said
    assert secret not in said
    monkeypatch.setenv("VESTIGE_TRACEBACK", "1")
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == cli.BUG
    assert secret in capsys.readouterr().err


def test_version(shell):
    assert shell("--version").stdout == f"vestige {__version__}\n"


def test_no_words_at_all_show_the_help(shell):
    assert "Usage: vestige" in shell().output


def test_a_traceback_is_shown_to_who_asks_for_it(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_TRACEBACK", "1")
    done = shell("report", tmp_path / "nothing", "--out", tmp_path / "page.html")
    assert type(done.exception).__name__ == "RunError"


@pytest.mark.slow
def test_the_program_leaves_with_the_exit_code(tmp_path):
    words = ["report", str(tmp_path / "nothing"), "--out", str(tmp_path / "page.html")]
    done = subprocess.run(
        [sys.executable, "-m", "vestige", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("vestige: ")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"{verb}.md" for verb in VERBS])
def test_the_page_about_a_verb_is_what_the_verb_says(name, request):
    page = request.config.rootpath / "docs" / "verbs" / name
    assert page.read_text("utf-8") == help.pages()[name], "stale: run `make docs`"


def test_no_page_is_left_of_a_verb_that_is_gone(request):
    pages = {path.name for path in (request.config.rootpath / "docs" / "verbs").iterdir()}
    assert pages == help.pages().keys()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")],
)
def test_too_little_memory_is_one_line(shell, monkeypatch, tmp_path, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("vestige.results.find", fails)
    done = shell("report", tmp_path, "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert done.stderr.startswith("vestige: there is not enough memory. Choose smaller")


@pytest.mark.parametrize("words", [("report", "x" * 99_999, "--out", "page.html"), ("y" * 99_999,)])
def test_an_error_quotes_no_more_than_a_reader_wants(shell, words):
    done = shell(*words)
    assert done.exit_code == 2
    assert len(done.stderr) < 2000
    assert "letters) …" in done.stderr


def test_the_rest_of_a_phrase_is_not_quoted(shell):
    done = shell("diff", "a", "b", "--phrase", "the", "gate", "code", "--out", "run")
    assert done.exit_code == 2
    assert "Quote texts of several words" in done.stderr
    assert "code" not in done.stderr
