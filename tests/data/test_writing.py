"""Whole or not at all, private unless it is for others, and nothing left of a killed one."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vestige.data import writing
from vestige.data.writing import (
    append_line,
    make_directory,
    new_directory,
    replacing,
    replacing_name,
    share,
    write_text,
)

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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def writer(kind: str, path: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", KILLED, kind, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_a_file_appears_with_its_folder(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "é")
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "é"


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def fail_midway() -> None:
        with replacing(path) as file:
            file.write(b"half of the ne")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_is_its_owners_alone_unless_it_is_shared(tmp_path, umask) -> None:
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


def test_a_part_is_private_even_of_what_will_be_shared(tmp_path, umask) -> None:
    with replacing(tmp_path / "page", shared=True):
        [part] = tmp_path.iterdir()
        assert mode(part) == 0o600
    assert mode(tmp_path / "page") == 0o666 & ~umask


def test_what_a_writer_puts_beside_the_file_that_it_makes_is_gone(tmp_path, umask) -> None:
    with replacing_name(tmp_path / "weights") as part:
        (part.parent / "temporary").write_text("whole")
        (part.parent / "other").write_text("")
        (part.parent / "temporary").replace(part)
    assert mode(tmp_path / "weights") == 0o600
    assert (tmp_path / "weights").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "weights"]


def test_directories_that_are_there_keep_their_mode(tmp_path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    (tmp_path / "mine").chmod(0o755)
    make_directory(tmp_path / "mine")
    write_text(tmp_path / "mine" / "x", "")
    assert mode(tmp_path / "mine") == 0o755


def test_what_is_shared_is_open_down_to_its_last_file(tmp_path, umask) -> None:
    make_directory(tmp_path / "model" / "source")
    write_text(tmp_path / "model" / "source" / "words", "")
    share(tmp_path / "model")
    assert mode(tmp_path / "model") == mode(tmp_path / "model" / "source") == 0o777 & ~umask
    assert mode(tmp_path / "model" / "source" / "words") == 0o666 & ~umask


def test_a_new_file_never_takes_the_place_of_another(tmp_path, monkeypatch) -> None:
    def write(path: Path) -> None:
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


def test_a_new_directory_never_takes_the_place_of_another(tmp_path) -> None:
    def write() -> None:
        with new_directory(tmp_path / "run"):
            (tmp_path / "run").mkdir()

    with pytest.raises(FileExistsError):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_nothing_is_written_through_a_link(tmp_path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "page").symlink_to(tmp_path / "mine")
    write_text(tmp_path / "page", "ours")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "page").read_text() == "ours"


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(tmp_path, kind) -> None:
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


def test_a_part_that_is_taken_for_a_dead_ones_is_made_again(tmp_path, monkeypatch) -> None:
    lock, tried = writing._open_locked, []

    def swept(part: Path) -> int | None:
        tried.append(part)
        if len(tried) == 1:
            part.unlink()
        return lock(part)

    monkeypatch.setattr(writing, "_open_locked", swept)
    write_text(tmp_path / "x", "whole")
    assert (tmp_path / "x").read_text() == "whole"
    assert len(set(tried)) == 2


def test_a_full_disk_names_the_file(tmp_path) -> None:
    def write() -> None:
        with replacing(tmp_path / "x"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught:
        write()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_never_named_in_an_error(tmp_path) -> None:
    def write() -> None:
        with replacing_name(tmp_path / "x") as part:
            part.read_bytes()

    with pytest.raises(FileNotFoundError) as caught:
        write()
    assert caught.value.filename == str(tmp_path / "x")


def test_a_part_goes_with_the_process_where_its_block_was_never_entered(tmp_path) -> None:
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
