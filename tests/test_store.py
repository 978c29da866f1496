"""A store acts like a dict, belongs to one process, and survives kills and full disks."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.monitors import RecordingMonitor
from vestige.errors import RunError
from vestige.store import KEPT, Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "work.sqlite"


KEYS = st.text(st.characters(codec=None), max_size=3) | st.sampled_from(["a/", "a/b", "\ud800"])
VISIBLE_KEYS = KEYS.filter(lambda key: not key.startswith("\0"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


class LikeADict(RuleBasedStateMachine):
    """Compares a store and a part of it with a dict."""

    def __init__(self):
        super().__init__()
        self.store, self.dict = Store(), {}

    @rule(key=VISIBLE_KEYS, value=JSON)
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

    @rule(values=st.dictionaries(VISIBLE_KEYS, JSON))
    def write_all_or_nothing(self, values):
        with suppress(ZeroDivisionError), self.store.transaction():
            self.store.update(values)
            raise ZeroDivisionError
        self.compare()
        with self.store.transaction():
            self.store.update(values)
        self.dict.update(values)
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
            data = content[: len(content) // size * size]
            array = np.frombuffer(data if dtype != "?" else bytes(len(data)), dtype)
            store["a"] = {"a": array, "b": array.reshape(1, -1, 1)}
            loaded = store["a"]
            assert loaded["a"].dtype == array.dtype
            assert loaded["b"].shape == (1, array.size, 1)
            assert loaded["a"].tobytes() == array.tobytes()


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


def start(code, *arguments):
    """A Python process whose standard input and output are pipes."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.slow
def test_after_a_kill_reported_values_are_complete(path):
    generator = random.Random(0)
    for _ in range(3):
        with start(WRITER, path) as process:
            process.stdout.readline()
            time.sleep(generator.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            reported = [int(line) for line in process.stdout.read().splitlines()]
        monitor = RecordingMonitor()
        with Store(path, monitor=monitor) as store:
            last = store["count"]
            assert last >= max(reported, default=0)
            assert set(store) == {"count", *map(str, range(last + 1))}
            assert all(store[f"{n}"] == [n] * (n % 700) for n in range(last + 1))
        assert not monitor.lines


HOLDER = """
import sys
from pathlib import Path
from vestige.store import Store
with Store(Path(sys.argv[1]), shared=len(sys.argv) > 2) as store:
    store["other"] = 1
    print("", flush=True)
    sys.stdin.readline()
    store["other"] = 2
"""


def test_only_the_same_process_can_open_a_file_twice(path):
    with start(HOLDER, path) as process:
        process.stdout.readline()
        with pytest.raises(RunError, match=f"is in use by process {process.pid}.*Wait for it to"):
            Store(path)
        process.communicate("\n")
    with Store(path) as store, Store(path) as again:
        store["a"] = 1
        assert again["a"] == 1
        assert again["other"] == 2


def test_several_processes_use_a_shared_store(path):
    with start(HOLDER, path, "shared") as process:
        process.stdout.readline()
        with Store(path, shared=True) as store:
            store["mine"] = 1
            process.communicate("\n")
            assert dict(store) == {"other": 2, "mine": 1}


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
    """A database whose writes fail."""

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
    ("code", "message", "problem", "remedy"),
    [
        (sqlite3.SQLITE_FULL, "database or disk is full", "cannot be written", "Make room"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error", "File too large", "Make room"),
        (sqlite3.SQLITE_READONLY, "readonly", "cannot be opened or written", "permissions"),
        (sqlite3.SQLITE_BUSY, "database is locked", "in use by another process", "Wait until"),
        (sqlite3.SQLITE_CORRUPT, "malformed", "cannot be used", "Delete it"),
    ],
)
def test_a_disk_error_has_problem_and_remedy(path, code, message, problem, remedy):
    with Store(path) as store:
        store["a"] = 1
        store._db = Failing(store._db, code, message)
        with pytest.raises(RunError, match=f"{path}.*{problem}") as error, store.transaction():
            store["b"] = 2
        assert remedy in error.value.remedy
        notes = getattr(error.value, "__notes__", [])
        assert notes == ([KEPT] if "Make room" in remedy else [])
    with Store(path) as store:
        assert dict(store) == {"a": 1}


FULL_DISK = """
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
    with start(FULL_DISK, path) as process:
        written, _, error = process.communicate()[0].partition(" ")
    assert "Make room on that disk" in error
    assert 10 < int(written) < 100
    with Store(path) as store:
        assert list(store) == [f"{n}" for n in range(int(written))]
        store["more"] = 1


def test_different_settings_are_named_without_their_text(path):
    identity = {"seed": 0, "prompts": ["the gate code"], "models": {"after": "0f", "before": "1e"}}
    with Store(path) as store:
        store.identify(identity)
        store["a"] = 1
    monitor = RecordingMonitor()
    with Store(path, monitor=monitor) as store:
        assert store.identity == identity
        store.identify(identity)
        assert "Resuming: 1 finished parts found in" in monitor.lines[0]
        changed = {
            **identity,
            "seed": 4,
            "prompts": ["4917"],
            "models": {"after": "0", "before": "1e"},
        }
        with pytest.raises(RunError, match="seed 0 and not 4, prompts, models: after") as error:
            store.identify(changed)
        assert "gate" not in str(error.value)
        assert "4917" not in str(error.value)
        assert (dict(store), store.identity) == ({"a": 1}, identity)


def test_work_without_its_identity_is_discarded(path):
    with Store(path) as store:
        store.identify({"seed": 0})
        store["a"] = 1
        del store["\0identity"]
    monitor = RecordingMonitor()
    with Store(path, monitor=monitor) as store:
        store.identify({"seed": 1})
        assert dict(store) == {}
        assert store.identity == {"seed": 1}
    assert len(monitor.lines) == 1
