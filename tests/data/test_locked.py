"""One process at a time, and a dead one holds nothing."""

import subprocess
import sys
from pathlib import Path

from vestige.data.locked import locked

HOLD = """
import sys, time
from pathlib import Path
from vestige.data.locked import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    if sys.argv[2] == "forever":
        time.sleep(60)
"""


def holder(path: Path, how: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLD, str(path), how]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_another_process_waits_until_the_block_ends(tmp_path):
    path = tmp_path / "new" / ".lock"
    with locked(path):
        other = holder(path, "briefly")
        try:
            other.wait(1.5)
            raise AssertionError("it did not wait")
        except subprocess.TimeoutExpired:
            pass
    said, _ = other.communicate(timeout=60)
    assert said == "held\n"
    assert other.returncode == 0


def test_a_killed_process_lets_go(tmp_path):
    path = tmp_path / ".lock"
    with holder(path, "forever") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        other.kill()
    with locked(path):
        pass


def test_an_error_in_the_block_lets_go(tmp_path):
    try:
        with locked(tmp_path / ".lock"):
            raise KeyError
    except KeyError:
        pass
    with holder(tmp_path / ".lock", "briefly") as other:
        assert other.wait(60) == 0
