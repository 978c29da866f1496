"""Files are whole or absent, private unless shared, and a killed process leaves none."""

import errno
import os
import re
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from errno import ENOSYS

import filelock
import pytest

from vestige.data import writing
from vestige.data.writing import (
    LOCK,
    append_line,
    is_vacant,
    lock_directory,
    lock_output,
    make_directory,
    new_directory,
    remove_stale_lock,
    replacing,
    replacing_path,
    share,
    wait_for_lock,
    write_text,
)
from vestige.errors import RunError


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run(manager, do):
    """Do something within a block."""
    with manager as part:
        do(part)


def fail(error):
    """A function that raises an error in a block."""

    def do(part):
        raise error

    return do


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_file_is_made_with_its_folder_and_never_through_a_link(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "é")
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "é"
    (tmp_path / "page").symlink_to(tmp_path / "a" / "b.txt")
    write_text(tmp_path / "page", "ours")
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "é"
    assert (tmp_path / "page").read_text() == "ours"


def test_a_failed_write_changes_nothing(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def half(file):
        file.write(b"half of the ne")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(replacing(path), half)
    assert path.read_text() == "old"
    with pytest.raises(OSError, match="No space") as caught:
        run(replacing(path), fail(OSError(errno.ENOSPC, "No space left on device")))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    with pytest.raises(FileNotFoundError) as caught:
        run(replacing_path(path), lambda part: part.read_bytes())
    assert caught.value.filename == str(path)  # errors never name an unfinished file
    assert names(tmp_path) == ["x"]


def test_files_are_private_unless_shared(tmp_path, umask):
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
    with replacing(tmp_path / "b" / "page", shared=True):
        [part] = (tmp_path / "b").iterdir()
        assert mode(part) == 0o600  # even if it will be shared
    assert mode(tmp_path / "b" / "page") == 0o666 & ~umask


def test_other_files_of_a_writer_are_removed(tmp_path, umask):
    with replacing_path(tmp_path / "weights") as part:
        (part.parent / "temporary").write_text("whole")
        (part.parent / "other").write_text("")
        (part.parent / "temporary").replace(part)
    assert mode(tmp_path / "weights") == 0o600
    assert (tmp_path / "weights").read_text() == "whole"
    assert names(tmp_path) == ["weights"]


def test_existing_directories_keep_their_mode(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o755)
    make_directory(tmp_path / "mine")
    write_text(tmp_path / "mine" / "x", "")
    assert mode(tmp_path / "mine") == 0o755


def test_sharing_includes_all_files_of_a_directory(tmp_path, umask):
    make_directory(tmp_path / "model" / "source")
    write_text(tmp_path / "model" / "source" / "words", "")
    share(tmp_path / "model")
    assert mode(tmp_path / "model") == mode(tmp_path / "model" / "source") == 0o777 & ~umask
    assert mode(tmp_path / "model" / "source" / "words") == 0o666 & ~umask


def test_modes_are_set_without_a_change_of_the_umask(tmp_path, monkeypatch):
    """Another thread would write its files with the changed umask."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("this system does not show a process's umask")
    (tmp_path / "file").touch(mode=0o600)
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
    threads = [threading.Thread(target=share, args=(tmp_path,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mode(tmp_path / "file") & 0o600 == 0o600


def test_a_new_file_never_replaces_another(tmp_path, monkeypatch):
    def meanwhile(path):
        def write(file):
            path.write_text("theirs")
            file.write(b"ours")

        return write

    for name in ("linked", "renamed"):
        path = tmp_path / name
        with pytest.raises(FileExistsError):
            run(replacing(path, new=True), meanwhile(path))
        assert path.read_text() == "theirs"
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError))
    write_text(tmp_path / "new", "ours", new=True)
    with pytest.raises(FileExistsError):
        run(new_directory(tmp_path / "run"), lambda _: (tmp_path / "run").mkdir())
    assert names(tmp_path) == ["linked", "new", "renamed", "run"]


KILLED = """
import sys
from pathlib import Path
from vestige.data.writing import new_directory, replacing
path = Path(sys.argv[2])
with (replacing if sys.argv[1] == "file" else new_directory)(path) as part:
    if sys.argv[1] == "file":
        part.write(b"half")
        part.flush()
    else:
        (part / "half").write_text("")
    print("held", flush=True)
    sys.stdin.read()
"""
HOLD = """
import sys, time
from pathlib import Path
from vestige.data.writing import lock_directory, wait_for_lock
with (lock_directory if "lock_directory" in sys.argv else wait_for_lock)(Path(sys.argv[1])):
    print("held", flush=True)
    if sys.argv[2] == "forever":
        time.sleep(60)
"""
NEVER_ENTERED = """
import sys
from pathlib import Path
from vestige.data.writing import replacing

sys.held = replacing(Path(sys.argv[1]) / "x")
sys.held.__enter__()
print(len(list(Path(sys.argv[1]).iterdir())))
"""


@contextmanager
def process(code, *words, waits=True):
    """Another process that runs some code, after it took the lock."""
    command = [sys.executable, "-c", code, *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        if waits:
            assert other.stdout.readline() == "held\n"
        yield other


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_unfinished_files_of_killed_processes_only_are_removed(tmp_path, kind):
    with process(KILLED, kind, tmp_path / "x") as dead:
        dead.kill()
    with process(KILLED, kind, tmp_path / "x") as living:  # it has removed the abandoned file
        [part] = tmp_path.iterdir()
        write_text(tmp_path / "x", "")
        (tmp_path / "x").unlink()
        assert list(tmp_path.iterdir()) == [part]
        living.kill()
    write_text(tmp_path / "xy", "")  # of another name
    assert names(tmp_path) == sorted([part.name, "xy"])
    write_text(tmp_path / "x", "")
    assert names(tmp_path) == ["x", "xy"]


def test_a_part_that_another_process_removed_is_made_again(tmp_path, monkeypatch):
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


def test_an_unfinished_file_is_removed_at_exit_if_its_block_was_never_entered(tmp_path):
    """As if a signal came between making the unfinished file and entering the block."""
    command = [sys.executable, "-c", NEVER_ENTERED, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert names(tmp_path) == []


@pytest.mark.slow
def test_another_process_waits_until_the_block_ends(tmp_path):
    path = tmp_path / "new" / ".lock"
    with wait_for_lock(path):
        waiting = process(HOLD, path, "briefly", waits=False)
        other = waiting.__enter__()
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.5)
    said, _ = other.communicate(timeout=60)
    waiting.__exit__(None, None, None)
    assert (said, other.returncode) == ("held\n", 0)


def test_a_killed_process_and_an_error_in_the_block_release_the_lock(tmp_path):
    with process(HOLD, tmp_path / ".lock", "forever") as other:
        other.kill()
    with pytest.raises(KeyError):
        run(wait_for_lock(tmp_path / ".lock"), fail(KeyError))
    with process(HOLD, tmp_path / ".lock", "briefly") as other:
        assert other.wait(60) == 0


def test_the_error_about_a_lock_describes_its_holder(tmp_path):
    with process(HOLD, tmp_path / "o", "forever", "lock_directory") as other:
        for said in (rf"process {other.pid}, since 20.*Wait for", "by another process"):
            with pytest.raises(RunError, match=said), lock_directory(tmp_path / "o"):
                pass
            (tmp_path / "o" / LOCK).write_text("{")
        other.kill()
    with lock_directory(tmp_path / "o"):
        assert re.search(rf'"process": {os.getpid()}\b', (tmp_path / "o" / LOCK).read_text())
    assert names(tmp_path / "o") == []


def test_a_process_may_lock_twice_and_holds_until_both_are_released(tmp_path):
    with lock_directory(tmp_path):
        with lock_directory(tmp_path):
            pass
        with process(HOLD, tmp_path, "briefly", "lock_directory", waits=False) as other:
            assert other.wait(60) == 1
    with process(HOLD, tmp_path, "briefly", "lock_directory") as other:
        assert other.wait(60) == 0


def test_a_file_system_without_locks_is_refused_and_a_lock_follows_no_link(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match="cannot be written"), lock_directory(tmp_path / "o"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"

    def without(*_, **__):
        raise OSError(ENOSYS, os.strerror(ENOSYS))

    monkeypatch.setattr(filelock.FileLock, "acquire", without)
    for lock in (lock_directory(tmp_path), wait_for_lock(tmp_path / "x")):
        with pytest.raises(RunError, match="file system without locks"), lock:
            pass


@pytest.mark.parametrize("there", [False, True])
def test_a_failure_at_the_start_leaves_the_directory_unchanged(tmp_path, there):
    out = tmp_path / "a" / "o"
    if there:
        out.mkdir(parents=True)
        (out / ".x.12345678.part").write_text("a killed one's")

    def begin(_):
        (out / "data").mkdir()
        (out / "data" / "x").write_text("")
        raise KeyError

    with pytest.raises(KeyError):
        run(lock_output(out, keep_if=lambda _: False), begin)
    assert out.exists() == there
    assert is_vacant(out)


def test_contents_to_keep_and_earlier_contents_are_kept(tmp_path):
    def begin(out):
        def write(_):
            (out / "x").write_text("")
            raise KeyError

        return write

    for out, worth in ((tmp_path / "worth", True), (tmp_path, False)):
        with pytest.raises(KeyError):
            run(lock_output(out, keep_if=lambda _, worth=worth: worth), begin(out))
        assert (out / "x").exists()
        assert not (out / LOCK).exists()


def test_only_the_lock_file_of_a_killed_process_is_removed(tmp_path):
    path = tmp_path / ".x.lock"
    remove_stale_lock(path)
    with process(HOLD, path, "forever") as other:
        remove_stale_lock(path)
        assert path.exists()
        other.kill()
    remove_stale_lock(path)
    assert names(tmp_path) == []
