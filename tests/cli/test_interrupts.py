"""Ctrl-C and SIGTERM end every verb in one line, with the shell's code and nothing half-written."""

import os
import signal
import subprocess
import sys
import time

import pytest

QUICK = ["--layers", "1", "--hidden-size", "8", "--batch-size", "2", "--device", "cpu"]
STARTED = """
import sys
import vestige.cli.app as main
import {module} as module
original = module.{function}
def told(*given, **named):
    print("there", flush=True)
    result = original(*given, **named)
    return result
module.{function} = told
sys.argv = ["vestige", *sys.argv[1:]]
main.main()
"""


def ended(words, where, number, after, cwd):
    """Send a signal some seconds after a function was called for the first time."""
    module, _, function = where.rpartition(".")
    code = STARTED.format(module=module, function=function)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    time.sleep(after)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)],
)
def test_a_training_that_is_ended_says_how_to_go_on(workspace, tmp_path, number, code):
    words = ["train", workspace / "corpus.txt", *QUICK, "--epochs", 4000, "--checkpoint-every", 1]
    words += ["--out", tmp_path / "o"]
    got, said = ended(words, "vestige.training.loop._write_history", number, 0.5, tmp_path)
    assert got == code, said
    line = said.splitlines()[-1]
    assert "Traceback" not in said
    by = "Ctrl-C" if code == 130 else "SIGTERM"
    assert line.startswith(f"vestige: ended by {by}. The same command with --resume continues")
    hidden = list((tmp_path / "o").rglob(".*"))
    assert hidden == []


def test_a_plant_that_is_ended_leaves_nothing(workspace, tmp_path):
    (tmp_path / "long.txt").write_text("the gate opens at nine and the code is new\n" * 200_000)
    words = ["plant", "long.txt", "--out", tmp_path / "new", "--phrase", "quiet mice sing"]
    where = "vestige.data.corpus.write_corpus"
    code, said = ended(words, where, signal.SIGTERM, 0.05, tmp_path)
    assert (code, said) == (143, "vestige: ended by SIGTERM\n")
    assert [path.name for path in tmp_path.iterdir()] == ["long.txt"]


def test_an_end_that_python_drops_is_asked_for_again(tmp_path):
    code = """
import os, signal, time
from vestige.cli import interrupts

class Deaf:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

interrupts.raise_when_asked_to_end()
try:
    Deaf()
    time.sleep(30)
except KeyboardInterrupt as error:
    print(interrupts.last_words(error), error.code)
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert (done.stdout, done.stderr) == ("ended by SIGTERM 143\n", "")
