"""An audit that is killed, again and again, ends as if nothing had happened, and pays once."""

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from tests.killing import environment
from vestige import results

pytestmark = pytest.mark.slow

WORDS = [f"w{n}" for n in range(20)]

SERVICE = """
import hashlib, json, os
from pathlib import Path
WORDS = [f"w{n}" for n in range(20)]
def key(words, one):
    return hashlib.md5(" ".join([*words[-1:], one]).encode()).digest()
def ask(contexts):
    with Path(__file__).with_name(os.environ["OUT"] + ".asked").open("a") as file:
        for context in contexts:
            print(json.dumps(context.words), file=file)
    return [sorted(WORDS, key=lambda one: key(c.words, one))[:5] for c in contexts]
"""

FORKS = """
import json, os, random, signal, sys, time
from pathlib import Path
import pyarrow.parquet as parquet
import torch._dynamo  # every optimizer imports it, for seconds: once here, not in each child
import sklearn.ensemble
from vestige import results
from vestige.cli.app import run as command
from vestige.data import writing
from vestige.models.remote.client import Client
from vestige.audits.membership.user_inputs import UserInputs
from vestige.store import Store
from tests.killing import kill_at
from vestige.training import checkpoint, loop, shadows

words, rng = json.loads(sys.argv[1]), random.Random(0)
calls = {
    "answer": (Client, "_begin_call"),
    "stored": (Store, "__setitem__"),
    "checkpoint": (checkpoint, "save"),
    "model": (loop, "save_model"),
    "record": (shadows, "write_text"),
    "recorded": (shadows, "_there"),
    "ranks": (UserInputs, "key"),
    "file": (writing.os, "replace"),
    "save": (results, "save"),
    "rows": (parquet, "write_table"),
}

def logged(model, task, *, directory, learn=shadows.learn, **named):
    with Path(os.environ["OUT"] + ".trained").open("a") as file:
        print(directory.name, (directory / "shadow.json").exists(), file=file)
    return learn(model, task, directory=directory, **named)

def child(out, moment):
    if pid := os.fork():
        return pid
    os.environ["OUT"] = out
    kill_at(moment, calls)
    shadows.learn = logged
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        code = command([*words, out])
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(70)
    os._exit(code or 0)

killed = 0
for each in sys.argv[2:]:
    out, _, moment = each.partition("/")
    finished = Path(out, "run.json").exists()
    pid = child(out, moment)
    if moment.startswith("after:"):
        time.sleep(rng.uniform(0, float(moment[6:])))
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # The three verdicts, or killed, or a finished audit, which is never overwritten.
    if code not in (0, 1, 3, -signal.SIGKILL, *([2] if finished else [])):
        sys.exit(f"{each}: exit code {code}")
    killed += code == -signal.SIGKILL
    if moment == "end":
        files = {str(path): path.stat().st_mtime_ns for path in Path().glob(f"{out}*/**/*")}
        print(json.dumps([killed, files]))
        killed = 0
"""

# Named places first: a fast machine may end within the seconds of the others.
MOMENTS = [
    *("answer:1", "stored:2", "file:1", "checkpoint:2", "record:1", "recorded:2", "model:1"),
    *("ranks:2", "answer:3", "stored:9", "save:1", "rows:1", "after:1"),
]


@pytest.fixture
def folder(tmp_path):
    """Texts, and a service that logs what it is asked."""
    rng = np.random.default_rng(0)
    for name, users in (("mine", ["me", "you"]), ("others", [f"user {n:02}" for n in range(40)])):
        rows = [
            {"who": user, "text": " ".join(rng.choice(WORDS, 8))}
            for user in users
            for _ in range(6)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "service_that_logs.py").write_text(SERVICE)
    return tmp_path


def audits(folder, *moments):
    """Run them, each "OUT/moment" when it is killed; for every end: kills before, and files."""
    words = [
        "membership", "service_that_logs:ask", "--unit", "user", "--texts", "mine.jsonl",
        "--reference", "others.jsonl", "--user", "who", "--top-k", "5", "--calls", "24",
        "--budget", "3000", "--shadows", "4", "--epochs", "3", "--hidden-size", "8",
        "--batch-size", "20", "--vocabulary-size", "22", "--device", "cpu", "--out",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(words), *moments],
        cwd=folder, capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_killed_at_any_moment_it_ends_in_the_same_result_and_trains_nothing_twice(folder):
    killed = [f"killed/{moment}" for moment in MOMENTS]
    _, (kills, first), (_, again) = audits(folder, "whole/end", *killed, "killed/end", "killed/end")
    assert kills >= 8
    assert again == first, "a finished audit is left alone"
    assert not (folder / "killed.partial").exists()
    expected, result = (results.load(folder / name) for name in ("whole", "killed"))
    assert result.rows == expected.rows
    apart = ("queries", "calls", "cached", "seconds", "contexts")
    assert {k: v for k, v in result.summary.items() if k not in apart} == {
        k: v for k, v in expected.summary.items() if k not in apart
    }
    once, trained = (
        [line.split() for line in (folder / f"{name}.trained").read_text().splitlines()]
        for name in ("whole", "killed")
    )
    assert len({name for name, _ in once}) == 4
    assert {name for name, _ in trained} == {name for name, _ in once}
    assert all(finished == "False" for _, finished in trained), "what had ended began again"
    asked, again = (
        Counter((folder / f"{name}.asked").read_text().splitlines()) for name in ("whole", "killed")
    )
    assert again.keys() == asked.keys()
    # What is asked again is what a kill cut short: one call of 16 contexts at most.
    assert again.total() - asked.total() <= 16 * kills
    assert again.total() <= result.summary["queries"] <= 3000
