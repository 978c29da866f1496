"""Help, errors and exit codes of the program."""

import inspect
import re
import subprocess
import sys
import time

import pytest

from vestige import __version__
from vestige.cli import app as cli
from vestige.cli import help

HEAVY = {
    "torch", "numpy", "transformers", "pyarrow", "pandas", "datasets", "altair", "jinja2", "scipy",
}  # fmt: skip
VERBS = cli.names()


# Help


@pytest.mark.slow
def test_help_imports_only_its_verb():
    code = """
import sys
from vestige.cli import app as cli

def loaded(parts):
    return sorted(name for name in sys.modules if name.startswith(parts))

assert cli.run(["--help"]) == 0
assert not loaded(("vestige.audits", "vestige.prepar")), loaded(("vestige.",))
for verb in cli.names():
    assert cli.run([verb, "--help"]) == 0, verb
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_80_columns_and_has_all_options_and_examples(shell, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "80")
    text = shell(verb, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert f"  vestige {verb}" in text.partition("Examples:")[2]
    assert "--json" in text
    assert not re.search(r"--\S+ \\\n +[^- ]", text)  # a line break between option and value
    joined = " ".join(text.replace("\\\n", " ").split())
    examples = help.examples(cli.function_of(verb))
    assert examples
    assert all(" ".join(example.split()) in joined for example in examples)
    app = cli.verb_app(verb, cli.function_of(verb))
    for argument in app.assemble_argument_collection(parse_docstring=True):
        if argument.name != "*" and argument.show:
            assert argument.parameter.help, argument.name


def test_the_command_list_has_the_first_sentence_of_each_verb(shell):
    text = shell("--help").stdout
    for group in cli.VERBS.values():
        for name, sentence in group.items():
            paragraph = inspect.getdoc(cli.function_of(name)).partition("\n\n")[0]
            assert " ".join(paragraph.split()).startswith(sentence), name
            assert sentence in " ".join(text.split())
    assert re.findall(r"^  ([a-z][\w-]+)  ", text, re.MULTILINE) == VERBS
    assert "Usage: vestige" in shell().output
    assert shell("--version").stdout == f"vestige {__version__}\n"


@pytest.mark.slow
def test_documentation_pages_of_verbs_are_up_to_date(request):
    folder = request.config.rootpath / "docs" / "verbs"
    pages = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert pages == help.pages(), "stale: run `make docs`"


# Errors


def test_a_bug_shows_its_traceback_without_its_message(monkeypatch, capsys):
    secret = " ".join(["the", "gate", "code"])

    def fails():
        return {}[secret]

    monkeypatch.setattr(cli, "run", lambda words: fails())
    # Both change the whole process, which runs other tests.
    monkeypatch.setattr(cli, "keep_freed_pages", lambda: None)
    monkeypatch.setattr(cli.interrupts, "raise_on_signals", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    output = capsys.readouterr().err
    assert ended.value.code == cli.BUG == 70
    assert "return {}[secret]" in output
    assert "\nKeyError\n" in output
    assert secret not in output
    monkeypatch.setenv("VESTIGE_TRACEBACK", "1")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == cli.BUG
    assert secret in capsys.readouterr().err


@pytest.mark.slow
def test_main_exits_with_the_code_and_can_show_a_traceback(shell, tmp_path, monkeypatch):
    words = ["report", str(tmp_path / "nothing"), "--out", str(tmp_path / "page.html")]
    command = [sys.executable, "-m", "vestige", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("vestige: ")
    assert "Traceback" not in done.stderr
    monkeypatch.setenv("VESTIGE_TRACEBACK", "1")
    assert type(shell(*words).exception).__name__ == "RunError"


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_out_of_memory_is_a_one_line_error(shell, monkeypatch, tmp_path, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("vestige.results.find", fails)
    done = shell("report", tmp_path, "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert done.stderr.startswith("vestige: there is not enough memory. Choose smaller")


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (("report", "x" * 99_999, "--out", "page.html"), "letters) …"),
        (("y" * 99_999,), "letters) …"),
        (("diff", "a", "b", "--phrase", "the", "gate", "y7", "--out", "run"), "Quote texts of"),
        (("plant", "corpus.txt", "--copies", 1, "--out", ""), "--out must name a new folder, got"),
        (("report", "[/]", '["run"]', "--out", "page.html"), "[/] is not a run folder"),
        (
            ("plant", "corpus.txt", "--phrase", "y7 " * 50_000, "--out", "new"),
            "at most 1,000 words",
        ),
    ],
)
def test_long_error_messages_are_shortened(shell, monkeypatch, workspace, words, fragment):
    monkeypatch.chdir(workspace)
    began = time.perf_counter()
    done = shell(*words)
    assert done.exit_code == 2
    assert fragment in done.stderr
    assert len(done.stderr) < 2000
    assert "y7" not in done.stderr
    assert time.perf_counter() - began < 5


@pytest.mark.slow
def test_a_missing_folder_is_named_without_a_hub_request(shell, tmp_path, monkeypatch):
    """The hub's client would retry for 24 seconds."""
    from huggingface_hub.utils import _http

    monkeypatch.setattr(_http.time, "sleep", lambda seconds: pytest.fail("the hub was retried"))
    for name in (tmp_path / "nosuch", "nosuch", "a/b/c"):
        done = shell("diff", name, name, "--out", tmp_path / "run")
        assert done.exit_code == 2
        assert "no such folder" in done.stderr or "does not exist" in done.stderr


@pytest.mark.long
def test_no_warning_mentions_missing_kernels():
    code = "import vestige.models.lora"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kernels" not in done.stderr


def test_report_writes_a_page_of_several_runs(shell, workspace, tmp_path):
    done = shell("report", workspace / "run", workspace / "run", "--out", tmp_path / "page.html")
    assert done.finished, done.stderr
    assert f"Page: {tmp_path / 'page.html'}\n" in done.stderr
    assert (tmp_path / "page.html").read_text().count("<article") == 2
