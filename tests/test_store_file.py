"""The file of a store is private, and intact values survive damage to it."""

import json
import os
import random
import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.monitors import RecordingMonitor
from vestige.errors import RunError
from vestige.store import Store, checksum

VALUES = {
    **{f"unit/{n}": [n, 0.1 * n, None, "\ud800"] * 5 * n for n in range(30)},
    "long": "x" * 9000,
    "arrays": {"ranks": np.arange(3000, dtype=np.int32), "positions": np.zeros((0, 2))},
}


def as_json(values):
    """Values as JSON, arrays with their type."""
    return json.dumps(values, default=lambda x: [str(x.dtype), x.tolist()], sort_keys=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "work.sqlite"


@pytest.fixture
def content(path):
    """The bytes of a store of `VALUES`, from which one value was deleted."""
    with Store(path) as store:
        with store.transaction():
            store.update(VALUES)
        store["deleted"] = "y" * 20_000
        del store["deleted"]
    return path.read_bytes()


@pytest.mark.usefixtures("content")
def test_values_are_read_in_the_order_of_writing(path):
    with Store(path) as store:
        assert as_json(dict(store)) == as_json(VALUES)
        assert list(store) == list(VALUES)
        assert len(store) == len(VALUES)
        assert b"yyyy" not in path.read_bytes(), "a deleted value is overwritten"


@pytest.mark.usefixtures("content")
def test_the_store_is_one_private_file(path):
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_a_path_that_is_not_a_regular_file_is_refused(path, kind, tmp_path):
    path.parent.mkdir()
    target = tmp_path / "target"
    if kind == "link":
        target.write_bytes(b"")
    if "link" in kind:
        path.symlink_to(target)
    else:
        {"folder": os.mkdir, "pipe": os.mkfifo}[kind](path)
    with pytest.raises(RunError, match=r"work\.sqlite"):
        Store(path)
    assert target.exists() == (kind == "link")
    assert kind != "link" or target.read_bytes() == b""


def test_a_file_in_place_of_the_folder_is_refused_and_unchanged(path):
    path.parent.write_text("mine")
    with pytest.raises(RunError, match=r"Not a directory"):
        Store(path)
    assert path.parent.read_text() == "mine"


@pytest.mark.usefixtures("content")
def test_a_journal_that_is_a_symbolic_link_is_refused(path, tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    Path(f"{path}-journal").symlink_to(target)
    with pytest.raises(RunError), Store(path) as store:
        store["a"] = 1
    assert target.read_text() == "mine"


def damaged_files(content, step):
    """(damage, damaged content) for bits, truncation and whole pages."""
    generator = random.Random(0)
    for at in [*range(0, 100, 2), *range(100, len(content), step)]:
        flipped = bytearray(content)
        flipped[at] ^= 1 << generator.randrange(8)
        yield f"bit of byte {at}", bytes(flipped)
    for at in range(0, len(content), 3 * step):
        yield f"cut at {at}", content[:at]
    for at in range(0, len(content), 2 * 4096):
        head, page, tail = content[:at], content[at : at + 4096], content[at + 4096 :]
        yield f"zeros at {at}", head + bytes(len(page)) + tail
        yield f"noise at {at}", head + generator.randbytes(len(page)) + tail
        yield f"page missing at {at}", head + tail
        yield f"another page at {at}", head + content[4096:8192] + tail


@pytest.mark.slow
def test_damage_never_gives_wrong_values_or_crashes(path, content):
    expected = {key: as_json(value) for key, value in VALUES.items()}
    partly_read = 0
    for damage, damaged in damaged_files(content, 7999):
        path.write_bytes(damaged)
        monitor = RecordingMonitor()
        with Store(path, monitor=monitor) as store:
            values = {key: as_json(value) for key, value in store.items()}
            assert values.items() <= expected.items(), damage
            assert len(values) == len(expected) or not damaged or len(monitor.lines) == 1, damage
            partly_read += 0 < len(values) < len(expected)
            with store.transaction():
                store.update(VALUES)
        with Store(path, monitor=(monitor := RecordingMonitor())) as store:
            assert as_json({key: store[key] for key in VALUES}) == as_json(VALUES), damage
            assert not monitor.lines, damage
    assert partly_read > 10, "intact values of a damaged file are read"


def test_a_damaged_value_is_dropped_and_logged(path):
    with Store(path) as store:
        store.update({"a": "first " * 9, "b": "second " * 9})
    path.write_bytes(path.read_bytes().replace(b"second second", b"second sacond", 1))
    monitor = RecordingMonitor()
    with Store(path, monitor=monitor) as store:
        assert list(store) == ["a"]
    assert monitor.lines == [
        f"{path} is damaged: 1 of its values are intact, the others are computed again"
    ]


@pytest.mark.parametrize("foreign", [b"no database" * 99, b"\0" * 9000, None])
def test_a_foreign_file_is_replaced_unless_an_essential_key_is_lost(path, foreign):
    path.parent.mkdir()
    if foreign is None:
        sqlite3.connect(path).execute("CREATE TABLE answers (question TEXT PRIMARY KEY)")
    else:
        path.write_bytes(foreign)
    before = path.read_bytes()
    with pytest.raises(RunError, match="cannot be used: it is damaged or of another version"):
        Store(path, essential="spent")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    monitor = RecordingMonitor()
    with Store(path, monitor=monitor) as store:
        store["a"] = 1
    assert len(monitor.lines) == 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_journal_of_a_killed_process_does_no_harm(path, content):
    """The journal of a transaction whose pages were partly written, with several databases."""
    journal = Path(f"{path}-journal")
    with Store(path) as store:
        store._db.execute("PRAGMA cache_size = 1")
        with suppress(KeyboardInterrupt), store.transaction():
            for n in range(20):
                store[f"unit/{n}"] = "z" * 50_000
            left, left_journal = path.read_bytes(), journal.read_bytes()
            raise KeyboardInterrupt
    assert left_journal.startswith(bytes.fromhex("d9d505f920a163d7"))
    expected = {key: as_json(value) for key, value in VALUES.items()}
    for database in (left, b"no database" * 999, left[:4096] + bytes(9999), content[:9000]):
        path.write_bytes(database)
        journal.write_bytes(left_journal)
        with Store(path) as store:
            store["new"] = 1
        assert not journal.exists()
        with Store(path) as store:
            assert store.pop("new") == 1
            values = {key: as_json(value) for key, value in store.items()}
            assert values.items() <= expected.items()
            assert values == expected or database != left, "the transaction is rolled back"


def test_a_lost_page_loses_only_its_values(path):
    rows = {f"{n:03}": [n] * 60 for n in range(400)}
    with Store(path) as store, store.transaction():
        store.update(rows)
    content = path.read_bytes()
    middle = content.index(b"[200,200") // 4096 * 4096
    for damaged in (
        content[:middle] + bytes(4096) + content[middle + 4096 :],
        content[: content.index(b"[380,380") // 4096 * 4096],
    ):
        path.write_bytes(damaged)
        with Store(path) as store:
            assert dict(store).items() <= rows.items()
            assert len(store) > 300
            assert "000" in store
            assert "399" in store or len(damaged) < len(content)


def test_an_invalid_schema_counts_as_damage(path, content):
    assert b"tableworkwork" in content
    for name in (b"tablewor\x85work", b"tableworkwor\x85"):
        path.write_bytes(content.replace(b"tableworkwork", name))
        monitor = RecordingMonitor()
        with Store(path, monitor=monitor) as store:
            assert len(store) in (0, len(VALUES))
        assert len(monitor.lines) == 1


def test_the_checksum_covers_name_and_kind():
    rows = ((b"a", 0, b"1"), (b"a", 1, b"1"), (b"b", 0, b"1"), (b"a", 0, b"11"), (b"a1", 0, b"1"))
    assert len({checksum(*row) for row in rows}) == len(rows)
