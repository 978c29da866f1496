"""Whole or not at all, private unless it is for others, and nothing left of a killed one."""

import errno
import os
import re
import stat
import subprocess
import sys
import threading
from errno import ENOSYS

import filelock
import pytest

from vestige.data import writing
from vestige.data.writing import (
    LOCK,
    alone,
    append_line,
    claimed,
    discard,
    locked,
    make_directory,
    new_directory,
    replacing,
    replacing_name,
    share,
    vacant,
    write_text,
)
from vestige.errors import RunError

KILLED = """
import os, signal, sys
from pathlib import Path
from vestige.data.writing import new_directory, replacing
path = Path(sys.argv[2])
with (replacing if sys.argv[1] == "file" else new_directory)(path) as part:
    if sys.argv[1] == "file":
        part.write(b"half")
        part.flush()
    else:
        (part / "half").write_text("")
    print("open", flush=True)
    sys.stdin.read()
"""


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def writer(kind, path):
    words = [sys.executable, "-c", KILLED, kind, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_a_file_appears_with_its_folder(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "é")
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "é"


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def fail_midway():
        with replacing(path) as file:
            file.write(b"half of the ne")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_is_its_owners_alone_unless_it_is_shared(tmp_path, umask):
    (tmp_path / "plain").write_text("")
    write_text(tmp_path / "a" / "b" / "ours", "")
    write_text(tmp_path / "shared" / "page", "", shared=True)
    append_line(tmp_path / "a" / "log", "one")
    with new_directory(tmp_path / "a" / "run") as part:
        assert mode(part) == 0o700
    assert {mode(tmp_path / name) for name in ("a", "a/b", "a/run")} == {0o700}
    assert mode(tmp_path / "a" / "b" / "ours") == mode(tmp_path / "a" / "log") == 0o600
    assert mode(tmp_path / "shared" / "page") == mode(tmp_path / "plain")
    assert mode(tmp_path / "shared") == 0o777 & ~umask


def test_a_part_is_private_even_of_what_will_be_shared(tmp_path, umask):
    with replacing(tmp_path / "page", shared=True):
        [part] = tmp_path.iterdir()
        assert mode(part) == 0o600
    assert mode(tmp_path / "page") == 0o666 & ~umask


def test_what_a_writer_puts_beside_the_file_that_it_makes_is_gone(tmp_path, umask):
    with replacing_name(tmp_path / "weights") as part:
        (part.parent / "temporary").write_text("whole")
        (part.parent / "other").write_text("")
        (part.parent / "temporary").replace(part)
    assert mode(tmp_path / "weights") == 0o600
    assert (tmp_path / "weights").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "weights"]


def test_directories_that_are_there_keep_their_mode(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o755)
    (tmp_path / "mine").chmod(0o755)
    make_directory(tmp_path / "mine")
    write_text(tmp_path / "mine" / "x", "")
    assert mode(tmp_path / "mine") == 0o755


def test_what_is_shared_is_open_down_to_its_last_file(tmp_path, umask):
    make_directory(tmp_path / "model" / "source")
    write_text(tmp_path / "model" / "source" / "words", "")
    share(tmp_path / "model")
    assert mode(tmp_path / "model") == mode(tmp_path / "model" / "source") == 0o777 & ~umask
    assert mode(tmp_path / "model" / "source" / "words") == 0o666 & ~umask


def test_modes_are_given_without_a_change_of_the_umask(tmp_path, monkeypatch):
    """Another thread would write its files under the changed one."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("this system does not show a process's umask")
    (tmp_path / "file").touch(mode=0o600)
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
    threads = [threading.Thread(target=share, args=(tmp_path,)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (tmp_path / "file").stat().st_mode & 0o600 == 0o600


def test_a_new_file_never_takes_the_place_of_another(tmp_path, monkeypatch):
    def write(path):
        with replacing(path, new=True) as file:
            path.write_text("theirs")
            file.write(b"ours")

    for name in ("linked", "renamed"):
        with pytest.raises(FileExistsError):
            write(tmp_path / name)
        assert (tmp_path / name).read_text() == "theirs"
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError))
    write_text(tmp_path / "new", "ours", new=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linked", "new", "renamed"]


def test_a_new_directory_never_takes_the_place_of_another(tmp_path):
    def write():
        with new_directory(tmp_path / "run"):
            (tmp_path / "run").mkdir()

    with pytest.raises(FileExistsError):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "page").symlink_to(tmp_path / "mine")
    write_text(tmp_path / "page", "ours")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "page").read_text() == "ours"


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(tmp_path, kind):
    with writer(kind, tmp_path / "x") as dead:
        dead.kill()
    with writer(kind, tmp_path / "x") as living:  # it has removed the dead one's part
        [part] = tmp_path.iterdir()
        write_text(tmp_path / "x", "")
        (tmp_path / "x").unlink()
        assert list(tmp_path.iterdir()) == [part]
        living.kill()
    write_text(tmp_path / "xy", "")  # of another name
    assert set(tmp_path.iterdir()) == {part, tmp_path / "xy"}
    write_text(tmp_path / "x", "")
    assert set(tmp_path.iterdir()) == {tmp_path / "x", tmp_path / "xy"}


def test_a_part_that_is_taken_for_a_dead_ones_is_made_again(tmp_path, monkeypatch):
    lock, tried = writing._open_locked, []

    def swept(part):
        tried.append(part)
        if len(tried) == 1:
            part.unlink()
        return lock(part)

    monkeypatch.setattr(writing, "_open_locked", swept)
    write_text(tmp_path / "x", "whole")
    assert (tmp_path / "x").read_text() == "whole"
    assert len(set(tried)) == 2


def test_a_full_disk_names_the_file(tmp_path):
    def write():
        with replacing(tmp_path / "x"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught:
        write()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_never_named_in_an_error(tmp_path):
    def write():
        with replacing_name(tmp_path / "x") as part:
            part.read_bytes()

    with pytest.raises(FileNotFoundError) as caught:
        write()
    assert caught.value.filename == str(tmp_path / "x")


def test_a_part_goes_with_the_process_where_its_block_was_never_entered(tmp_path):
    """As where a signal comes between making the part and entering the block."""
    code = """
import sys
from pathlib import Path
from vestige.data.writing import replacing

sys.held = replacing(Path(sys.argv[1]) / "x")
sys.held.__enter__()
print(len(list(Path(sys.argv[1]).iterdir())))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
    assert list(tmp_path.iterdir()) == []


# Locks: one process at a time, and a dead one holds nothing.

HOLD = """
import sys, time
from pathlib import Path
from vestige.data.writing import alone, locked
with (alone if "alone" in sys.argv else locked)(Path(sys.argv[1])):
    print("held", flush=True)
    if sys.argv[2] == "forever":
        time.sleep(60)
"""


def holder(path, *how):
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

    def fail():
        with claimed(out, worth=lambda _: False):
            (out / "data").mkdir()
            (out / "data" / "x").write_text("")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert out.exists() == there
    assert vacant(out)


def test_what_is_worth_keeping_or_was_there_is_kept(tmp_path):
    def fail(out, worth):
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
