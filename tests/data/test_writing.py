"""Files are complete or absent, and private unless shared; killed processes leave no locks."""

import errno
import os
import re
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from unittest.mock import Mock

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


def run(manager, action):
    """Call a function within a context."""
    with manager as part:
        action(part)


def fail(error):
    """A function that raises an error."""

    def action(part):
        raise error

    return action


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_writing_makes_folders_and_replaces_links(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "é")
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "é"
    (tmp_path / "page").symlink_to(tmp_path / "a" / "b.txt")
    write_text(tmp_path / "page", "new")
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "é"
    assert (tmp_path / "page").read_text() == "new"


def test_a_failed_write_changes_nothing(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def write_half(file):
        file.write(b"half of the ne")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(replacing(path), write_half)
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
    write_text(tmp_path / "a" / "b" / "private", "")
    write_text(tmp_path / "shared" / "page", "", shared=True)
    append_line(tmp_path / "a" / "log", "one")
    with new_directory(tmp_path / "a" / "run") as part:
        assert mode(part) == 0o700
    assert {mode(tmp_path / name) for name in ("a", "a/b", "a/run")} == {0o700}
    assert mode(tmp_path / "a" / "b" / "private") == mode(tmp_path / "a" / "log") == 0o600
    assert mode(tmp_path / "shared" / "page") == mode(tmp_path / "plain")
    assert mode(tmp_path / "shared") == 0o777 & ~umask
    with replacing(tmp_path / "b" / "page", shared=True):
        [part] = (tmp_path / "b").iterdir()
        assert mode(part) == 0o600  # private until it is complete
    assert mode(tmp_path / "b" / "page") == 0o666 & ~umask


def test_other_files_beside_an_unfinished_file_are_removed(tmp_path, umask):
    with replacing_path(tmp_path / "weights") as part:
        (part.parent / "temporary").write_text("whole")
        (part.parent / "other").write_text("")
        (part.parent / "temporary").replace(part)
    assert mode(tmp_path / "weights") == 0o600
    assert (tmp_path / "weights").read_text() == "whole"
    assert names(tmp_path) == ["weights"]


def test_existing_directories_keep_their_mode(tmp_path):
    folder = tmp_path / "existing"
    folder.mkdir()
    folder.chmod(0o755)
    make_directory(folder)
    write_text(folder / "x", "")
    assert mode(folder) == 0o755


def test_sharing_includes_all_files_of_a_directory(tmp_path, umask):
    make_directory(tmp_path / "model" / "source")
    write_text(tmp_path / "model" / "source" / "words", "")
    share(tmp_path / "model")
    assert mode(tmp_path / "model") == mode(tmp_path / "model" / "source") == 0o777 & ~umask
    assert mode(tmp_path / "model" / "source" / "words") == 0o666 & ~umask


def test_sharing_never_changes_the_umask(tmp_path, monkeypatch):
    """Other threads would write their files with the changed umask."""
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
    def write_both(file):
        path.write_text("other")
        file.write(b"own")

    for name in ("linked", "renamed"):
        path = tmp_path / name
        with pytest.raises(FileExistsError):
            run(replacing(path, new=True), write_both)
        assert path.read_text() == "other"
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError))
    write_text(tmp_path / "new", "own", new=True)
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
    """Another process that runs some code; if `waits`, it has the lock already."""
    command = [sys.executable, "-c", code, *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        if waits:
            assert other.stdout.readline() == "held\n"
        yield other


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_only_unfinished_files_of_killed_processes_are_removed(tmp_path, kind):
    with process(KILLED, kind, tmp_path / "x") as first:
        first.kill()
    with process(KILLED, kind, tmp_path / "x") as second:  # it has removed the abandoned file
        [part] = tmp_path.iterdir()
        write_text(tmp_path / "x", "")
        (tmp_path / "x").unlink()
        assert list(tmp_path.iterdir()) == [part]
        second.kill()
    write_text(tmp_path / "xy", "")  # another name
    assert names(tmp_path) == sorted([part.name, "xy"])
    write_text(tmp_path / "x", "")
    assert names(tmp_path) == ["x", "xy"]


def test_an_unfinished_file_that_another_process_removed_is_made_again(tmp_path, monkeypatch):
    open_locked, attempts = writing._open_locked, []

    def remove_first(part):
        attempts.append(part)
        if len(attempts) == 1:
            part.unlink()
        return open_locked(part)

    monkeypatch.setattr(writing, "_open_locked", remove_first)
    write_text(tmp_path / "x", "complete")
    assert (tmp_path / "x").read_text() == "complete"
    assert len(set(attempts)) == 2


def test_an_unfinished_file_is_removed_at_exit(tmp_path):
    """As if a signal arrived after the file was made and before the `with` block began."""
    command = [sys.executable, "-c", NEVER_ENTERED, tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "1\n"
    assert names(tmp_path) == []


@pytest.mark.slow
def test_another_process_waits_until_the_lock_is_released(tmp_path):
    path = tmp_path / "new" / ".lock"
    with ExitStack() as processes:
        with wait_for_lock(path):
            other = processes.enter_context(process(HOLD, path, "briefly", waits=False))
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(1.5)
        output, _ = other.communicate(timeout=60)
        assert (output, other.returncode) == ("held\n", 0)


def test_a_killed_process_and_an_error_release_the_lock(tmp_path):
    with process(HOLD, tmp_path / ".lock", "forever") as other:
        other.kill()
    with pytest.raises(KeyError):
        run(wait_for_lock(tmp_path / ".lock"), fail(KeyError))
    with process(HOLD, tmp_path / ".lock", "briefly") as other:
        assert other.wait(60) == 0


def test_the_error_about_a_lock_describes_its_holder(tmp_path):
    with process(HOLD, tmp_path / "o", "forever", "lock_directory") as other:
        for message in (rf"process {other.pid}, since 20.*Wait for", "by another process"):
            with pytest.raises(RunError, match=message), lock_directory(tmp_path / "o"):
                pass
            (tmp_path / "o" / LOCK).write_text("{")
        other.kill()
    with lock_directory(tmp_path / "o"):
        assert re.search(rf'"process": {os.getpid()}\b', (tmp_path / "o" / LOCK).read_text())
    assert names(tmp_path / "o") == []


def test_a_process_may_lock_a_directory_twice(tmp_path):
    with lock_directory(tmp_path):
        with lock_directory(tmp_path):
            pass
        with process(HOLD, tmp_path, "briefly", "lock_directory", waits=False) as other:
            assert other.wait(60) == 1
    with process(HOLD, tmp_path, "briefly", "lock_directory") as other:
        assert other.wait(60) == 0


def test_a_file_system_without_locks_is_refused_and_a_lock_follows_no_link(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("unchanged")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / LOCK).symlink_to(tmp_path / "file")
    with pytest.raises(RunError, match="cannot be written"), lock_directory(tmp_path / "o"):
        pass
    assert (tmp_path / "file").read_text() == "unchanged"
    unsupported = OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    monkeypatch.setattr(filelock.FileLock, "acquire", Mock(side_effect=unsupported))
    for lock in (lock_directory(tmp_path), wait_for_lock(tmp_path / "x")):
        with pytest.raises(RunError, match="file system without locks"), lock:
            pass


@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_removes_new_contents(tmp_path, exists):
    out = tmp_path / "a" / "o"
    if exists:
        out.mkdir(parents=True)
        (out / ".x.12345678.part").write_text("of a killed process")

    def write_and_fail(_):
        write_text(out / "data" / "x", "")
        raise KeyError

    with pytest.raises(KeyError):
        run(lock_output(out, keep_if=lambda _: False), write_and_fail)
    assert out.exists() == exists
    assert is_vacant(out)


def test_a_failure_keeps_contents_to_keep_and_earlier_contents(tmp_path):
    def write_and_fail(_):
        (out / "x").write_text("")
        raise KeyError

    for out, keep in ((tmp_path / "new", True), (tmp_path, False)):
        with pytest.raises(KeyError):
            run(lock_output(out, keep_if=lambda _, keep=keep: keep), write_and_fail)
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
