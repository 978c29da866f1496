"""A store keeps all written values through kills and damage, and belongs to one process."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.monitors import RecordingMonitor
from vestige import store as store_module
from vestige.errors import RunError
from vestige.store import KEPT, Store

VALUES = {
    **{f"unit/{n}": [n, 0.1 * n, None, "\ud800"] * 5 * n for n in range(30)},
    "long": "x" * 9000,
    "arrays": {"ranks": np.arange(3000, dtype=np.int32), "places": np.zeros((0, 2))},
}


def plain(values):
    """Values as JSON, arrays with their type."""
    return json.dumps(values, default=lambda one: [str(one.dtype), one.tolist()], sort_keys=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "work.sqlite"


@pytest.fixture
def whole(path):
    """The bytes of a store of `VALUES`."""
    with Store(path) as store:
        with store.transaction():
            store.update(VALUES)
        store["deleted"] = "y" * 20_000
        del store["deleted"]
    return path.read_bytes()


def test_values_are_read_in_the_order_of_writing(path, whole):
    with Store(path) as store:
        assert plain(dict(store)) == plain(VALUES)
        assert list(store) == list(VALUES)
        assert len(store) == len(VALUES)
        assert b"yyyy" not in path.read_bytes(), "a deleted value leaves no trace"


KEYS = st.text(st.characters(codec=None), max_size=3) | st.sampled_from(["a/", "a/b", "\ud800"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


class LikeADict(RuleBasedStateMachine):
    """A store, a part of it, and a dict do the same."""

    def __init__(self):
        super().__init__()
        self.store, self.dict = Store(), {}

    @rule(key=KEYS.filter(lambda key: not key.startswith("\0")), value=JSON)
    def put(self, key, value):
        self.store[key] = self.dict[key] = value
        self.compare()

    @rule(key=KEYS, value=JSON)
    def put_in_a_part(self, key, value):
        self.store.part("a/")[key] = self.dict["a/" + key] = value
        self.compare()

    @rule(data=st.data())
    def delete(self, data):
        key = data.draw(st.sampled_from([*self.dict, "missing"]))
        assert (self.store.pop(key, 0), key in self.store) == (self.dict.pop(key, 0), False)
        self.compare()

    @rule(both=st.dictionaries(KEYS.filter(lambda key: not key.startswith("\0")), JSON))
    def write_together_or_not_at_all(self, both):
        with suppress(ZeroDivisionError), self.store.transaction():
            self.store.update(both)
            raise ZeroDivisionError
        self.compare()
        with self.store.transaction():
            self.store.update(both)
        self.dict.update(both)
        self.compare()

    def compare(self):
        assert list(self.store.items()) == list(self.dict.items())
        part = {key[2:]: value for key, value in self.dict.items() if key.startswith("a/")}
        assert dict(self.store.part("a/")) == dict(self.store.part("a").part("/")) == part
        assert len(self.store.part("a/")) == len(part)

    def teardown(self):
        self.store.close()


LikeADict.TestCase.settings = settings(max_examples=30, stateful_step_count=10, deadline=None)
test_a_store_is_like_a_dict = LikeADict.TestCase


def test_clearing_a_part_keeps_the_others(path):
    with Store(path) as store:
        store.update({"a/1": 1, "b": 2})
        store.part("a/").clear()
        assert dict(store) == {"b": 2}


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_arrays_keep_type_shape_and_bits(content):
    with Store() as store:
        for dtype in ("<f4", "<i8", "u1", "?", "<f2"):
            size = np.dtype(dtype).itemsize
            kept = content[: len(content) // size * size]
            array = np.frombuffer(kept if dtype != "?" else bytes(len(kept)), dtype)
            store["a"] = {"a": array, "b": array.reshape(1, -1, 1)}
            found = store["a"]
            assert found["a"].dtype == array.dtype
            assert found["b"].shape == (1, array.size, 1)
            assert found["a"].tobytes() == array.tobytes()


def test_large_values_are_stored(path):
    large = {"a": np.arange(1_000_000, dtype=np.float64)}
    with Store(path) as store:
        store["large"], store["text"] = large, "é" * 2_000_000
    with Store(path) as store:
        assert np.array_equal(store["large"]["a"], large["a"])
        assert store["text"] == "é" * 2_000_000


def test_values_without_json_are_refused_and_change_nothing():
    with Store() as store:
        store["a"] = 1
        with pytest.raises(TypeError):
            store["a"] = {1, 2}
        assert store["a"] == 1


def test_an_empty_store_leaves_no_file(path):
    with Store(path) as store:
        assert list(store) == []
        assert "a" not in store
    assert not path.parent.exists()


def test_the_store_is_one_private_file(path, whole):
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("what", ["link", "link to nothing", "folder", "pipe", "folder is a file"])
def test_a_path_that_is_not_a_regular_file_is_refused(path, what, tmp_path):
    path.parent.mkdir()
    target = tmp_path / "target"
    if what == "link":
        target.write_bytes(b"")
    make = {
        "link": lambda: path.symlink_to(target),
        "link to nothing": lambda: path.symlink_to(target),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "folder is a file": lambda: path.parent.rmdir() or path.parent.write_text("mine"),
    }
    make[what]()
    with pytest.raises(RunError, match=r"work\.sqlite|Not a directory"):
        Store(path)
    assert not target.exists() or target.read_bytes() == b""
    if what == "folder is a file":
        assert path.parent.read_text() == "mine"


def test_no_journal_follows_a_symbolic_link(path, whole, tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    Path(f"{path}-journal").symlink_to(target)
    with pytest.raises(RunError), Store(path) as store:
        store["a"] = 1
    assert target.read_text() == "mine"


def changed(whole, step):
    """Ways to damage a file: what was done, and what became of it."""
    lots = random.Random(0)
    for at in [*range(0, 100, 2), *range(100, len(whole), step)]:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << lots.randrange(8)
        yield f"bit of byte {at}", bytes(flipped)
    for at in range(0, len(whole), 3 * step):
        yield f"cut at {at}", whole[:at]
    for at in range(0, len(whole), 2 * 4096):
        head, page, tail = whole[:at], whole[at : at + 4096], whole[at + 4096 :]
        yield f"zeros at {at}", head + bytes(len(page)) + tail
        yield f"noise at {at}", head + lots.randbytes(len(page)) + tail
        yield f"nothing at {at}", head + tail
        yield f"another page at {at}", head + whole[4096:8192] + tail


@pytest.mark.slow
def test_damage_never_gives_wrong_values_or_crashes(path, whole):
    known = {key: plain(value) for key, value in VALUES.items()}
    partly = 0
    for what, content in changed(whole, 7999):
        path.write_bytes(content)
        told = RecordingMonitor()
        with Store(path, monitor=told) as store:
            found = {key: plain(value) for key, value in store.items()}
            assert found.items() <= known.items(), what
            assert len(found) == len(known) or not content or len(told.lines) == 1, what
            partly += 0 < len(found) < len(known)
            with store.transaction():
                store.update(VALUES)
        with Store(path, monitor=(told := RecordingMonitor())) as store:
            assert plain({key: store[key] for key in VALUES}) == plain(VALUES), what
            assert not told.lines, what
    assert partly > 10, "what is intact in a damaged file is read"


def test_a_damaged_value_is_dropped_and_logged(path):
    with Store(path) as store:
        store.update({"a": "first " * 9, "b": "second " * 9})
    path.write_bytes(path.read_bytes().replace(b"second second", b"second sacond", 1))
    told = RecordingMonitor()
    with Store(path, monitor=told) as store:
        assert list(store) == ["a"]
    assert told.lines == [
        f"{path} is damaged: 1 of its values are intact, the others are computed again"
    ]


@pytest.mark.parametrize("content", [b"no database" * 99, b"\0" * 9000, None])
def test_a_foreign_file_is_replaced_unless_an_essential_key_is_lost(path, content):
    path.parent.mkdir()
    if content is None:
        sqlite3.connect(path).execute("CREATE TABLE answers (question TEXT PRIMARY KEY)")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(RunError, match="cannot be used: it is damaged or of another version"):
        Store(path, essential="spent")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    told = RecordingMonitor()
    with Store(path, monitor=told) as store:
        store["a"] = 1
    assert len(told.lines) == 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_leftovers_of_a_kill_next_to_a_damaged_file_are_harmless(path, whole):
    """A hot journal, of a transaction whose pages were written in part."""
    journal = Path(f"{path}-journal")
    with Store(path) as store:
        store._db.execute("PRAGMA cache_size = 1")
        with suppress(KeyboardInterrupt), store.transaction():
            for n in range(20):
                store[f"unit/{n}"] = "z" * 50_000
            left = path.read_bytes(), journal.read_bytes()
            raise KeyboardInterrupt
    assert left[1].startswith(bytes.fromhex("d9d505f920a163d7"))
    known = {key: plain(value) for key, value in VALUES.items()}
    for database in (left[0], b"no database" * 999, left[0][:4096] + bytes(9999), whole[:9000]):
        path.write_bytes(database)
        journal.write_bytes(left[1])
        with Store(path) as store:
            store["new"] = 1
        assert not journal.exists()
        with Store(path) as store:
            assert store.pop("new") == 1
            found = {key: plain(value) for key, value in store.items()}
            assert found.items() <= known.items()
            assert found == known or database != left[0], "the transaction is rolled back"


def test_a_lost_page_loses_only_its_values(path):
    rows = {f"{n:03}": [n] * 60 for n in range(400)}
    with Store(path) as store, store.transaction():
        store.update(rows)
    whole = path.read_bytes()
    middle = whole.index(b"[200,200") // 4096 * 4096
    for content in (
        whole[:middle] + bytes(4096) + whole[middle + 4096 :],
        whole[: whole.index(b"[380,380") // 4096 * 4096],
    ):
        path.write_bytes(content)
        with Store(path) as store:
            assert dict(store).items() <= rows.items()
            assert len(store) > 300
            assert "000" in store
            assert "399" in store or len(content) < len(whole)


def test_an_invalid_schema_counts_as_damage(path, whole):
    assert b"tableworkwork" in whole
    for name in (b"tablewor\x85work", b"tableworkwor\x85"):
        path.write_bytes(whole.replace(b"tableworkwork", name))
        told = RecordingMonitor()
        with Store(path, monitor=told) as store:
            assert len(store) in (0, len(VALUES))
        assert len(told.lines) == 1


WRITER = """
import sys
from pathlib import Path
from vestige.store import Store
with Store(Path(sys.argv[1])) as store:
    for n in range(store.get("count", -1) + 1, 10**6):
        with store.transaction():
            store[f"{n}"] = [n] * (n % 700)
            store["count"] = n
        print(n, flush=True)
"""


def run(code, *words, **streams):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], text=True, **streams)


@pytest.mark.slow
def test_after_a_kill_reported_values_are_complete(path):
    lots = random.Random(0)
    for _ in range(3):
        with run(WRITER, path, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(lots.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            reported = [int(line) for line in process.stdout.read().splitlines()]
        told = RecordingMonitor()
        with Store(path, monitor=told) as store:
            last = store["count"]
            assert last >= max(reported, default=0)
            assert set(store) == {"count", *map(str, range(last + 1))}
            assert all(store[f"{n}"] == [n] * (n % 700) for n in range(last + 1))
        assert not told.lines


HOLDER = """
import sys
from pathlib import Path
from vestige.store import Store
with Store(Path(sys.argv[1]), shared=len(sys.argv) > 2) as store:
    store["held"] = 1
    print("", flush=True)
    sys.stdin.readline()
    store["held"] = 2
"""


def test_one_process_may_open_the_file_twice(path):
    with run(HOLDER, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(RunError, match=f"is in use by process {process.pid}") as refused:
            Store(path)
        assert "Wait for it to end" in str(refused.value)
        process.communicate("\n")
    with Store(path) as store, Store(path) as again:
        store["a"] = 1
        assert again["a"] == 1
        assert again["held"] == 2


def test_several_processes_use_a_shared_store(path):
    with run(HOLDER, path, "shared", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with Store(path, shared=True) as store:
            store["own"] = 1
            process.communicate("\n")
            assert dict(store) == {"held": 2, "own": 1}


@pytest.mark.slow
def test_threads_share_a_store(path):
    with Store(path) as store:
        store["sum"] = 0

        def add(number):
            for n in range(20):
                with store.transaction():
                    store["sum"] += 1
                store[f"{number}/{n}"] = n

        threads = [threading.Thread(target=add, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store["sum"] == 80
        assert len(store) == 81


class Failing:
    """A database that answers writes with an error."""

    def __init__(self, db, code, message):
        self.db, self.error = db, sqlite3.OperationalError(message)
        self.error.sqlite_errorcode = code

    def execute(self, statement, *values):
        if statement.startswith("INSERT"):
            raise self.error
        return self.db.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self.db, name)


@pytest.mark.parametrize(
    ("code", "message", "told", "remedy"),
    [
        (sqlite3.SQLITE_FULL, "database or disk is full", "cannot be written", "Make room"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error", "File too large", "Make room"),
        (sqlite3.SQLITE_READONLY, "readonly", "cannot be opened or written", "permissions"),
        (sqlite3.SQLITE_BUSY, "database is locked", "in use by another process", "Wait until"),
        (sqlite3.SQLITE_CORRUPT, "malformed", "cannot be used", "Delete it"),
    ],
)
def test_disk_errors_are_one_clear_error(path, code, message, told, remedy):
    with Store(path) as store:
        store["a"] = 1
        store._db = Failing(store._db, code, message)
        with pytest.raises(RunError, match=f"{path}.*{told}") as refused, store.transaction():
            store["b"] = 2
        assert remedy in refused.value.remedy
        notes = getattr(refused.value, "__notes__", [])
        assert notes == ([KEPT] if "Make room" in remedy else [])
    with Store(path) as store:
        assert dict(store) == {"a": 1}


FULL = """
import resource, sys
from pathlib import Path
from vestige.errors import RunError
from vestige.store import Store
with Store(Path(sys.argv[1])) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for n in range(100):
            store[f"{n}"] = "x" * 5000
    except RunError as error:
        print(n, error)
"""


def test_a_full_disk_keeps_earlier_values(path):
    with run(FULL, path, stdout=subprocess.PIPE) as process:
        written, _, error = process.communicate()[0].partition(" ")
    assert "Make room on that disk" in error
    assert 10 < int(written) < 100
    with Store(path) as store:
        assert list(store) == [f"{n}" for n in range(int(written))]
        store["more"] = 1


def test_an_identity_is_compared_by_name_and_quotes_no_text(path):
    first = {"seed": 0, "prompts": ["the gate code"], "models": {"after": "0f", "before": "1e"}}
    with Store(path) as store:
        store.identify(first)
        store["a"] = 1
    told = RecordingMonitor()
    with Store(path, monitor=told) as store:
        assert store.identity == first
        store.identify(first)
        assert "Resuming: 1 finished parts found in" in told.lines[0]
        other = {**first, "seed": 4, "prompts": ["4917"], "models": {"after": "0", "before": "1e"}}
        with pytest.raises(RunError) as refused:
            store.identify(other)
        assert "seed 0 and not 4, prompts, models: after" in str(refused.value)
        assert "gate" not in str(refused.value)
        assert "4917" not in str(refused.value)
        assert (dict(store), store.identity) == ({"a": 1}, first)


def test_work_without_its_identity_is_done_again(path):
    with Store(path) as store:
        store.identify({"seed": 0})
        store["a"] = 1
        del store["\0identity"]
    told = RecordingMonitor()
    with Store(path, monitor=told) as store:
        store.identify({"seed": 1})
        assert dict(store) == {}
        assert store.identity == {"seed": 1}
    assert len(told.lines) == 1


def test_the_checksum_covers_name_and_kind():
    sums = {
        store_module.checksum(*row) for row in ((b"a", 0, b"1"), (b"a", 1, b"1"), (b"b", 0, b"1"))
    }
    assert len(sums) == 3
    assert store_module.checksum(b"a", 0, b"11") != store_module.checksum(b"a1", 0, b"1")
