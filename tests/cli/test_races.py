"""Two of one command at the same time: one wins or both end well, and nothing is lost or mixed."""

import json
import subprocess
import sys

import pytest

from vestige.models.folders import fingerprint

pytestmark = pytest.mark.slow

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
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps([codes, [open(f"{number}.err").read() for number in (0, 1)]]))
"""
QUICK = ["--epochs", "3", "--layers", "1", "--hidden-size", "8", "--batch-size", "2"]
QUICK += ["--checkpoint-every", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def raced(workspace, tmp_path_factory):
    """The folder, codes and messages by command: each was started twice at once."""
    folder = tmp_path_factory.mktemp("races")
    corpus = workspace / "corpus.txt"
    train = ["train", corpus, *QUICK, "--out"]
    commands = {
        "alone": [*train, "one"],
        "train": [*train, "two"],
        "resume": [*train, "three", "--resume"],
        "plant": ["plant", corpus, "--phrase", "quiet mice sing", "--out", "planted"],
        "report": ["report", workspace / "run", "--out", "page.html"],
    }
    written = json.dumps([[str(word) for word in words] for words in commands.values()])
    done = subprocess.run(
        [sys.executable, "-c", TWINS, written],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return folder, dict(zip(commands, told, strict=True))


def test_of_two_trainings_one_makes_the_directory_and_the_other_says_who_has_it(raced):
    folder, told = raced
    for name in ("alone", "train"):
        codes, said = told[name]
        assert sorted(codes) == [0, 2]
        [refused] = [line for line in said if "in use by process" in line or "exists" in line]
        assert "Traceback" not in refused
    assert [path for path in (folder / "two").rglob("*") if path.name.startswith(".")] == []
    assert fingerprint(folder / "one") == fingerprint(folder / "two")


def test_of_two_that_resume_one_goes_on_and_the_log_has_every_step_once(raced):
    folder, told = raced
    codes, said = told["resume"]
    assert sorted(codes) in ([0, 0], [0, 2]), said
    lines = (folder / "three" / "log.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))


def test_of_two_plants_and_of_two_reports_one_is_there(raced, shell):
    folder, told = raced
    assert sorted(told["plant"][0]) == [0, 2], told["plant"]
    assert shell("plant", folder / "planted", "--verify").exit_code == 0
    assert sorted(told["report"][0]) == [2, 3], told["report"]  # 3: no checked verdict
    assert (folder / "page.html").read_text().rstrip().endswith("</html>")
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
