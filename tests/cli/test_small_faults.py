"""Small faults of the command line: an error says what to do, and help can be pasted."""

import re
import shlex
import subprocess
import sys
import time

import pytest

from vestige.cli import app as cli
from vestige.cli import help


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("one line of text\nanother line of it\n" * 20)
    return path


def test_an_empty_out_is_named(shell, corpus):
    done = shell("plant", corpus, "--copies", 1, "--out", "")
    assert done.exit_code == 2
    assert done.stderr.startswith("vestige: --out must name a new folder, got an empty name")


def test_a_phrase_as_long_as_a_document_is_refused(shell, corpus, tmp_path):
    long = " ".join(f"word{number}" for number in range(50_000))
    began = time.perf_counter()
    done = shell("plant", corpus, "--phrase", long, "--out", tmp_path / "planted")
    assert done.exit_code == 2
    assert "at most 1,000 words" in done.stderr
    assert "word7" not in done.stderr
    assert time.perf_counter() - began < 5


def test_a_folder_that_is_not_there_is_named_without_asking_a_hub(shell, tmp_path, monkeypatch):
    """Before, the hub's client retried for 24 seconds for each model."""
    from huggingface_hub.utils import _http

    monkeypatch.setattr(_http.time, "sleep", lambda seconds: pytest.fail("the hub was retried"))
    for name in (tmp_path / "nosuch", "nosuch", "a/b/c"):
        done = shell("diff", name, name, "--out", tmp_path / "run")
        assert done.exit_code == 2
        assert "no such folder" in done.stderr or "does not exist" in done.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("options.yaml", "copies: 1\ncopies: 2\n"),
        ("options.json", '{"copies": 1, "copies": 2}'),
        ("options.toml", "copies = 1\ncopies = 2\n"),
    ],
)
def test_a_key_that_stands_twice_in_a_configuration_is_refused(shell, corpus, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    done = shell("plant", corpus, "--config", tmp_path / name, "--out", tmp_path / "planted")
    assert done.exit_code == 2
    assert name in done.stderr
    assert not (tmp_path / "planted").exists()


@pytest.mark.slow
@pytest.mark.parametrize("verb", cli.names())
def test_help_fits_80_columns_and_its_examples_can_be_pasted(shell, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "80")
    said = shell(verb, "--help").stdout
    assert max(map(len, said.splitlines())) <= 80
    examples = help.examples(cli.function_of(verb))
    assert examples
    assert not re.search(r"--\S+ \\\n +[^- ]", said)  # an option without its value
    joined = " ".join(said.replace("\\\n", " ").split())
    for example in examples:
        assert " ".join(example.split()) in joined


@pytest.mark.long
def test_nothing_is_said_of_kernels_that_are_not_used():
    code = "import vestige.models.lora"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kernels" not in done.stderr, shlex.quote(done.stderr)
