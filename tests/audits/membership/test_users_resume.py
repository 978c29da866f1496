"""An audit of users that is killed at many moments gives the same result and queries once."""

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
def key(words, word):
    return hashlib.md5(" ".join([*words[-1:], word]).encode()).digest()
def ask(contexts):
    with Path(__file__).with_name(os.environ["OUT"] + ".queries").open("a") as file:
        for context in contexts:
            print(json.dumps(context.words), file=file)
    return [sorted(WORDS, key=lambda word: key(c.words, word))[:5] for c in contexts]
"""

FORKS = """
import json, os, random, signal, sys, time
from pathlib import Path
import pyarrow.parquet as parquet
import torch._dynamo  # slow, and every optimizer imports it: once here, not in each child
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

def logged(model, task, *, directory, learn=shadows.learn, **options):
    with Path(os.environ["OUT"] + ".trained").open("a") as file:
        print(directory.name, (directory / "shadow.json").exists(), file=file)
    return learn(model, task, directory=directory, **options)

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
for argument in sys.argv[2:]:
    out, _, moment = argument.partition("/")
    finished = Path(out, "run.json").exists()
    pid = child(out, moment)
    if moment.startswith("after:"):
        time.sleep(rng.uniform(0, float(moment[6:])))
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # A verdict, or killed, or 2 if the audit is finished: it is never overwritten.
    if code not in (0, 1, 3, -signal.SIGKILL, *([2] if finished else [])):
        sys.exit(f"{argument}: exit code {code}")
    killed += code == -signal.SIGKILL
    if moment == "end":
        files = {str(path): path.stat().st_mtime_ns for path in Path().glob(f"{out}*/**/*")}
        print(json.dumps([killed, files]))
        killed = 0
"""

# Named moments first: on a fast machine the audit may end before the timed one.
MOMENTS = [
    *("answer:1", "stored:2", "file:1", "checkpoint:2", "record:1", "recorded:2", "model:1"),
    *("ranks:2", "answer:3", "stored:9", "save:1", "rows:1", "after:1"),
]


@pytest.fixture
def folder(tmp_path):
    """Texts, and a service that logs its queries."""
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


def run_audits(folder, *moments):
    """Run one audit per "OUT/MOMENT" of its kill; returns the kills and files at each "end"."""
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


def test_a_killed_audit_gives_the_same_result_and_trains_nothing_twice(folder):
    moments = [f"killed/{moment}" for moment in MOMENTS]
    ends = run_audits(folder, "whole/end", *moments, "killed/end", "killed/end")
    _, (kills, files), (_, files_later) = ends
    assert kills >= 8
    assert files_later == files, "a finished audit does not change"
    assert not (folder / "killed.partial").exists()
    expected, result = (results.load(folder / name) for name in ("whole", "killed"))
    assert result.rows == expected.rows
    costs = ("queries", "calls", "cached", "seconds", "contexts")
    assert {k: v for k, v in result.summary.items() if k not in costs} == {
        k: v for k, v in expected.summary.items() if k not in costs
    }

    def lines(name):
        return (folder / name).read_text().splitlines()

    names = {line.split()[0] for line in lines("whole.trained")}
    assert len(names) == 4
    assert {line.split()[0] for line in lines("killed.trained")} == names
    assert all(line.endswith(" False") for line in lines("killed.trained")), "trained again"
    queries, with_kills = Counter(lines("whole.queries")), Counter(lines("killed.queries"))
    assert with_kills.keys() == queries.keys()
    # Each kill repeats one call at most, of 16 contexts.
    assert with_kills.total() - queries.total() <= 16 * kills
    assert with_kills.total() <= result.summary["queries"] <= 3000
