"""Two of one command at the same time: one wins or both end well, and nothing is lost or mixed."""

import json
import subprocess
import sys

import pytest

from vestige.models.folders import fingerprint

TWINS = """
import json, os, sys
import torch._dynamo  # every optimizer imports it, for seconds: once here, not in each child
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
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]))
"""
QUICK = ["--epochs", "3", "--layers", "1", "--hidden-size", "8", "--batch-size", "2"]
QUICK += ["--checkpoint-every", "3", "--device", "cpu"]


@pytest.fixture
def twins(workspace, tmp_path):
    """Start each command twice at once; the exit codes, and what the twins of the last said."""

    def run(*commands):
        written = json.dumps([[str(word) for word in words] for words in commands])
        done = subprocess.run(
            [sys.executable, "-c", TWINS, written],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said = [(tmp_path / f"{number}.err").read_text() for number in (0, 1)]
        return [json.loads(line) for line in done.stdout.splitlines()], said

    return run


def test_of_two_trainings_one_makes_the_directory_and_the_other_says_who_has_it(
    twins, workspace, tmp_path
):
    words = ["train", workspace / "corpus.txt", *QUICK]
    [alone, both], said = twins([*words, "--out", "one"], [*words, "--out", "two"])
    assert sorted(alone) == sorted(both) == [0, 2]
    [refused] = [line for line in said if "in use by process" in line or "exists" in line]
    assert "Traceback" not in refused
    files = {path.relative_to(tmp_path / "two") for path in (tmp_path / "two").rglob("*")}
    assert {str(path) for path in files if path.name.startswith(".")} == set()
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two")


def test_of_two_that_resume_one_goes_on_and_the_log_has_every_step_once(twins, workspace, tmp_path):
    words = ["train", workspace / "corpus.txt", *QUICK, "--resume", "--out", "o"]
    [codes], said = twins(words)
    assert sorted(codes) in ([0, 0], [0, 2]), said
    lines = (tmp_path / "o" / "log.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))


def test_of_two_plants_one_stands(twins, workspace, shell, tmp_path):
    words = ["plant", workspace / "corpus.txt", "--phrase", "quiet mice sing", "--out", "planted"]
    [codes], said = twins(words)
    assert sorted(codes) == [0, 2], said
    assert shell("plant", tmp_path / "planted", "--verify").exit_code == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_of_two_reports_one_is_the_page(twins, workspace, tmp_path):
    [codes], said = twins(["report", workspace / "run", "--out", "page.html"])
    assert sorted(codes) == [2, 3], said  # 3: the run has no checked verdict
    assert (tmp_path / "page.html").read_text().rstrip().endswith("</html>")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
