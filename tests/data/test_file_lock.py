"""One process at a time, and a dead one holds nothing."""

import os
import re
import subprocess
import sys
from errno import ENOSYS
from pathlib import Path

import filelock
import pytest

from vestige.data.writing import LOCK, alone, claimed, discard, locked, vacant
from vestige.errors import RunError

HOLD = """
import sys, time
from pathlib import Path
from vestige.data.writing import alone, locked
with (alone if "alone" in sys.argv else locked)(Path(sys.argv[1])):
    print("held", flush=True)
    if sys.argv[2] == "forever":
        time.sleep(60)
"""


def holder(path: Path, *how: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLD, str(path), *how]
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


def test_a_directory_that_is_written_says_by_whom(tmp_path):
    with holder(tmp_path / "o", "forever", "alone") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for said in (rf"process {other.pid}, since 20.*Wait for", "by another process"):
            with pytest.raises(RunError, match=said), alone(tmp_path / "o"):
                pass
            (tmp_path / "o" / LOCK).write_text("{")
        other.kill()
    with alone(tmp_path / "o"):
        assert re.search(rf'"process": {os.getpid()}\b', (tmp_path / "o" / LOCK).read_text())
    assert list((tmp_path / "o").iterdir()) == []


def test_a_process_may_ask_twice_and_holds_to_the_last(tmp_path):
    with alone(tmp_path):
        with alone(tmp_path):
            pass
        with holder(tmp_path, "briefly", "alone") as other:
            assert other.wait(60) == 1
    with holder(tmp_path, "briefly", "alone") as other:
        assert other.wait(60) == 0


def test_a_place_without_locks_is_refused(tmp_path, monkeypatch):
    def without(*_, **__):
        raise OSError(ENOSYS, os.strerror(ENOSYS))

    monkeypatch.setattr(filelock.FileLock, "acquire", without)
    for lock in (alone(tmp_path), locked(tmp_path / "x")):
        with pytest.raises(RunError, match="file system without locks"), lock:
            pass


def test_a_lock_is_never_followed_to_another_file(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match="cannot be written"), alone(tmp_path / "o"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("there", [False, True])
def test_what_could_not_begin_leaves_what_it_found(tmp_path, there):
    out = tmp_path / "a" / "o"
    if there:
        out.mkdir(parents=True)
        (out / ".x.12345678.part").write_text("a killed one's")

    def fail() -> None:
        with claimed(out, worth=lambda _: False):
            (out / "data").mkdir()
            (out / "data" / "x").write_text("")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert out.exists() == there
    assert vacant(out)


def test_what_is_worth_keeping_or_was_there_is_kept(tmp_path):
    def fail(out: Path, worth: bool) -> None:
        with claimed(out, worth=lambda _: worth):
            (out / "x").write_text("")
            raise KeyError

    for out, worth in ((tmp_path / "worth", True), (tmp_path, False)):
        with pytest.raises(KeyError):
            fail(out, worth)
        assert (out / "x").exists()
        assert not (out / LOCK).exists()


def test_the_file_of_a_dead_ones_lock_goes_and_that_of_a_living_one_stays(tmp_path):
    path = tmp_path / ".x.lock"
    discard(path)
    with holder(path, "forever") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        discard(path)
        assert path.exists()
        other.kill()
    discard(path)
    assert list(tmp_path.iterdir()) == []
