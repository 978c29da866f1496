"""The table of verbs, and what the command line promises whichever verb is asked for."""

import re
import subprocess
import sys

import pytest

from vestige import __version__
from vestige.cli import docs, main
from vestige.cli.main import GROUPS, VERBS

HEAVY = ("torch", "transformers", "pyarrow", "pandas", "datasets", "altair", "jinja2")


def modules_after(*words):
    code = (
        "import sys\n"
        "from vestige.cli.main import app\n"
        f"assert app({list(words)!r}) == 0\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_imports_nothing_heavy():
    assert not modules_after("--help") & set(HEAVY)


def test_help_of_every_verb_imports_nothing_heavy(shell):
    code = (
        "import sys\n"
        "from vestige.cli.main import VERBS, app\n"
        "for verb in VERBS:\n"
        "    assert app([verb, '--help']) == 0, verb\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(HEAVY)


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches_by_example(shell, verb):
    text = shell(verb, "--help").stdout
    assert "Examples:" in text
    assert f"vestige {verb}" in text
    assert "--json" in text


def test_help_of_the_program_has_the_first_sentence_of_every_verb():
    assert {name: main.verb(name).summary for name in VERBS} == VERBS


def test_help_of_the_program_imports_no_verb_and_no_parser():
    loaded = modules_after("--help")
    assert not {"cyclopts", "typer", "vestige.cli.verbs", "vestige.workflows.train"} & loaded


def test_help_names_every_verb_in_order(shell):
    said = shell("--help").stdout
    assert re.findall(r"^│ ([a-z][\w-]+) ", said, re.MULTILINE) == list(VERBS)
    assert re.findall(r"^╭─ (\w+) ", said, re.MULTILINE) == ["Options", *GROUPS]


def test_a_bug_shows_where_it_came_from_and_quotes_nothing(monkeypatch, capsys):
    secret = " ".join(["the", "gate", "code"])

    def fails():
        return {}[secret]

    monkeypatch.setattr(main, "app", fails)
    # Both are for the whole process, which goes on with other tests.
    monkeypatch.setattr(main, "keep_freed_pages", lambda: None)
    monkeypatch.setattr(main.interrupts, "raise_when_asked_to_end", lambda: None)
    with pytest.raises(SystemExit) as left:
        main.main()
    said = capsys.readouterr().err
    assert left.value.code == main.BUG == 70
    assert "return {}[secret]" in said
    assert "\nKeyError\n" in said
    assert secret not in said
    monkeypatch.setenv("VESTIGE_TRACEBACK", "1")
    with pytest.raises(SystemExit) as left:
        main.main()
    assert left.value.code == main.BUG
    assert secret in capsys.readouterr().err


def test_version(shell):
    assert shell("--version").stdout == f"vestige {__version__}\n"


def test_no_words_at_all_show_the_help(shell):
    assert "Usage: vestige" in shell().output


def test_a_traceback_is_shown_to_who_asks_for_it(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_TRACEBACK", "1")
    done = shell("report", tmp_path / "nothing", "--out", tmp_path / "page.html")
    assert type(done.exception).__name__ == "RunError"


def test_escapes_in_an_argument_do_not_reach_the_terminal(shell, tmp_path):
    done = shell("report", "no\x1b[31mrun", "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert "\x1b" not in done.stderr
    assert "no\\x1b[31mrun" in done.stderr


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


@pytest.mark.parametrize("name", [f"{verb}.md" for verb in VERBS])
def test_the_page_about_a_verb_is_what_the_verb_says(name, request):
    page = request.config.rootpath / "docs" / "verbs" / name
    assert page.read_text("utf-8") == docs.pages()[name], "stale: run `make docs`"


def test_no_page_is_left_of_a_verb_that_is_gone(request):
    pages = {path.name for path in (request.config.rootpath / "docs" / "verbs").iterdir()}
    assert pages == docs.pages().keys()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")],
)
def test_too_little_memory_is_one_line(shell, monkeypatch, tmp_path, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("vestige.reports.page.write_page", fails)
    done = shell("report", tmp_path, "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert done.stderr.startswith("vestige: there is not enough memory for what was asked. Ask")


@pytest.mark.parametrize("words", [("report", "x" * 99_999, "--out", "page.html"), ("y" * 99_999,)])
def test_an_error_quotes_no_more_than_a_reader_wants(shell, words):
    done = shell(*words)
    assert done.exit_code == 2
    assert len(done.stderr) < 2000
    assert "letters) …" in done.stderr


def test_the_rest_of_a_phrase_is_not_quoted(shell):
    done = shell("rank", "a", "b", "--phrase", "the", "gate", "code", "--out", "run")
    assert done.exit_code == 2
    assert "Text of several words needs quotation marks" in done.stderr
    assert "code" not in done.stderr
