"""Terminated, killed and concurrent commands print one line and leave no partial files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vestige.models.folders import fingerprint

SMALL = ["--layers", "1", "--hidden-size", "8", "--batch-size", "2", "--device", "cpu"]
KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"

# Ctrl-C and SIGTERM

STARTED = """
import sys
import vestige.cli.app as main
import {module} as module
original = module.{function}
def watched(*args, **kwargs):
    print("called", flush=True)
    return original(*args, **kwargs)
module.{function} = watched
sys.argv = ["vestige", *sys.argv[1:]]
main.main()
"""


def terminated(words, call, number, after, cwd):
    """Send a signal some seconds after the first call of a function; (exit code, stderr)."""
    module, _, function = call.rpartition(".")
    code = STARTED.format(module=module, function=function)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "called\n"
    time.sleep(after)
    os.kill(process.pid, number)
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (signal.SIGINT, 130, "Ctrl-C"),
        pytest.param(signal.SIGTERM, 143, "SIGTERM", marks=pytest.mark.long),
    ],
)
def test_a_terminated_training_shows_how_to_resume(workspace, tmp_path, number, code, name):
    words = ["train", workspace / "corpus.txt", *SMALL, "--epochs", 4000, "--checkpoint-every", 1]
    words += ["--out", tmp_path / "o"]
    call = "vestige.training.loop._write_history"
    exit_code, stderr = terminated(words, call, number, 0.5, tmp_path)
    assert exit_code == code, stderr
    assert "Traceback" not in stderr
    line = stderr.splitlines()[-1]
    assert line.startswith(f"vestige: ended by {name}. The same command with --resume continues")
    assert list((tmp_path / "o").rglob(".*")) == []


@pytest.mark.slow
def test_a_terminated_plant_leaves_no_files(tmp_path):
    (tmp_path / "long.txt").write_text("the gate opens at nine and the code is new\n" * 200_000)
    words = ["plant", "long.txt", "--out", tmp_path / "new", "--phrase", "quiet mice sing"]
    call = "vestige.data.corpus.write_corpus"
    result = terminated(words, call, signal.SIGTERM, 0.05, tmp_path)
    assert result == (143, "vestige: ended by SIGTERM\n")
    assert [path.name for path in tmp_path.iterdir()] == ["long.txt"]


def test_an_interrupt_that_a_destructor_drops_is_raised_again():
    code = """
import os, signal, time
from vestige.cli import interrupts

class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

interrupts.raise_on_signals()
try:
    Dropping()
    time.sleep(30)
except KeyboardInterrupt as error:
    print(interrupts.interrupt_message(error), error.code)
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("ended by SIGTERM 143\n", "")


# Kills and full disks


@pytest.mark.long
def test_killed_commands_lose_no_finished_work():
    """A few commands that are killed, started twice, out of disk space or terminated."""
    command = [sys.executable, str(KILLS), "--times", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    parts = json.loads(done.stdout.splitlines()[-1])
    trials = [row for rows in parts.values() if isinstance(rows, list) for row in rows]
    assert len(trials) > 40
    assert [trial for trial in trials if trial["faults"]] == []


# The same command twice at the same time

TWINS = """
import json, os, sys
import torch._dynamo  # takes seconds; import it once, not in each child
import pyarrow.parquet
from vestige.cli.app import run as command

def twin(words, number):
    if pid := os.fork():
        return pid
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{number}.{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), stream)
    try:
        code = command(words)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(70)
    sys.stderr.flush()
    os._exit(code or 0)

for words in json.loads(sys.argv[1]):
    pids = [twin(words, number) for number in (0, 1)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps([codes, [open(f"{number}.err").read() for number in (0, 1)]]))
"""


@pytest.mark.slow
def test_concurrent_commands_do_not_mix_their_files(workspace, tmp_path, shell):
    corpus = workspace / "corpus.txt"
    train = ["train", corpus, *SMALL, "--epochs", "3", "--checkpoint-every", "3", "--out"]
    commands = {
        "train": [*train, "one"],
        "again": [*train, "two"],
        "resume": [*train, "three", "--resume"],
        "plant": ["plant", corpus, "--phrase", "quiet mice sing", "--out", "planted"],
        "report": ["report", workspace / "run", "--out", "page.html"],
    }
    command = [sys.executable, "-c", TWINS, json.dumps([*commands.values()], default=str)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes, errors = zip(*map(json.loads, done.stdout.splitlines()), strict=True)
    codes, errors = (dict(zip(commands, rows, strict=True)) for rows in (codes, errors))

    for name in ("train", "again"):
        assert sorted(codes[name]) == [0, 2]
        [refusal] = [e for e in errors[name] if "in use by process" in e or "exists" in e]
        assert "Traceback" not in refusal
    assert [path for path in (tmp_path / "two").rglob("*") if path.name.startswith(".")] == []
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two")

    assert sorted(codes["resume"]) in ([0, 0], [0, 2]), errors["resume"]
    lines = (tmp_path / "three" / "log.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))

    assert sorted(codes["plant"]) == [0, 2], errors["plant"]
    assert shell("plant", tmp_path / "planted", "--verify").exit_code == 0
    assert sorted(codes["report"]) == [2, 3], errors["report"]  # 3: no checked verdict
    assert (tmp_path / "page.html").read_text().rstrip().endswith("</html>")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
