"""An interrupted call keeps its finished work, and the same call resumes it."""

import json
import subprocess
import sys
from functools import partial

import pytest

from tests.monitors import RecordingMonitor
from vestige.data.writing import lock_directory
from vestige.errors import RunError
from vestige.monitor import SILENT
from vestige.new_files import FILE, NOT_KEPT, resumable, save_run
from vestige.store import KEPT, Store


def run_directory(out, *, complete):
    """A run folder with a summary alone."""
    out.mkdir()
    (out / "summary.json").write_text(json.dumps({"complete": complete}))


def call(out, *, units, stop=None, error=KeyboardInterrupt, complete=True, seed=0, monitor=SILENT):
    """Compute units of work and stop before one of them; the units that were computed."""
    computed = []
    with resumable(out, monitor) as store:
        store.identify({"seed": seed})
        for unit in range(units):
            if unit == stop:
                raise error
            if f"{unit}" not in store:
                store[f"{unit}"] = unit
                computed.append(unit)
        save_run(partial(run_directory, complete=complete), out, store, complete=complete)
    return computed


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


def names(out):
    return sorted(path.name for path in out.parent.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "full"), RuntimeError])
def test_an_interrupted_call_is_resumed_by_the_same_call(out, error):
    for stop in range(1, 4):
        with pytest.raises(BaseException) as stopped:  # noqa: PT011
            call(out, units=4, stop=stop, error=error)
        expected = [] if error is RuntimeError else [KEPT]
        assert getattr(stopped.value, "__notes__", [])[-1:] == expected
        assert names(out) == ["run.partial"]
    monitor = RecordingMonitor()
    assert call(out, units=4, monitor=monitor) == [3]
    assert monitor.lines == [f"Resuming: 3 finished parts found in {out}.partial"]
    assert names(out) == ["run"]


def test_a_call_without_finished_work_leaves_no_files(out):
    with pytest.raises(KeyboardInterrupt) as stopped:
        call(out, units=4, stop=0)
    assert not getattr(stopped.value, "__notes__", [])
    assert names(out) == []


@pytest.mark.parametrize("units", [0, 2])
def test_only_the_same_call_replaces_a_partial_run(out, units):
    assert call(out, units=units, complete=False) == list(range(units))
    assert names(out) == ["run", "run.partial"]
    with pytest.raises(RunError, match="seed 0 and not 1"):
        call(out, units=4, seed=1)
    assert names(out) == ["run", "run.partial"]
    with pytest.raises(KeyboardInterrupt):
        call(out, units=4, stop=units)
    assert call(out, units=4) == list(range(units, 4))
    assert json.loads((out / "summary.json").read_text()) == {"complete": True}
    assert names(out) == ["run"]


@pytest.mark.parametrize(
    "make",
    [
        lambda out: out.write_text("mine"),
        lambda out: out.mkdir(),
        lambda out: run_directory(out, complete=True),
        lambda out: run_directory(out, complete=False),
        lambda out: out.symlink_to("nothing"),
    ],
    ids=["file", "folder", "run", "partial run of other work", "link"],
)
def test_an_existing_out_is_never_overwritten(out, make):
    make(out)
    with pytest.raises(RunError, match="exists already, and a run is never overwritten"):
        call(out, units=2)
    assert names(out) == ["run"]


def test_an_empty_store_with_other_settings_is_ignored(out):
    """A killed call may leave its settings without finished work."""
    partial_run = out.with_name("run.partial")
    with lock_directory(partial_run), Store(partial_run / FILE) as store:
        store.identify({"seed": 1})
    assert call(out, units=1) == [0]


@pytest.mark.slow
def test_a_kill_between_saving_and_clearing_leaves_a_complete_run(out):
    code = (
        "import os, sys, json\nfrom pathlib import Path\n"
        "from vestige.new_files import resumable, save_run\nout = Path(sys.argv[1])\n"
        "def write(out):\n"
        "    out.mkdir()\n"
        "    (out / 'summary.json').write_text(json.dumps({'complete': True}))\n"
        "    os.kill(os.getpid(), 9)\n"
        "with resumable(out) as store:\n"
        "    store.identify({'seed': 0})\n"
        "    store['0'] = 0\n"
        "    save_run(write, out, store, complete=True)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, out], check=False).returncode == -9
    assert names(out) == ["run", "run.partial"]
    with pytest.raises(RunError, match="exists already"):
        call(out, units=1)
    assert names(out) == ["run"]


def test_unfinished_work_remains_when_another_run_appears_at_out(out):
    with pytest.raises(KeyboardInterrupt):
        call(out, units=2, stop=1)
    run_directory(out, complete=True)
    with pytest.raises(RunError, match="exists already"):
        call(out, units=2)
    assert names(out) == ["run", "run.partial"]


def test_a_second_process_is_refused(out):
    code = (
        "import sys\nfrom pathlib import Path\nfrom vestige.new_files import resumable\n"
        "with resumable(Path(sys.argv[1])):\n"
        "    print('', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, out], **streams) as process:
        process.stdout.readline()
        with pytest.raises(RunError, match=f"run.partial is in use by process {process.pid}"):
            call(out, units=1)
        process.communicate("\n")
    assert names(out) == []
    assert call(out, units=1) == [0]


def test_without_out_the_store_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt) as stopped:
        call(None, units=3, stop=1)
    assert stopped.value.__notes__ == [NOT_KEPT]
    assert call(None, units=3) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_is_logged_and_recomputed(out):
    with pytest.raises(KeyboardInterrupt):
        call(out, units=4, stop=3)
    file = out.with_name("run.partial") / FILE
    file.write_bytes(file.read_bytes()[:5000] + bytes(4000))
    monitor = RecordingMonitor()
    assert set(call(out, units=4, monitor=monitor)) >= {3}
    assert "is damaged" in monitor.lines[0]
    assert names(out) == ["run"]


def test_a_folder_of_an_older_version_is_ignored(out):
    old = out.with_name("run.partial")
    old.mkdir()
    (old / "units.jsonl").write_text("0 [")
    (old / "search.json").write_text("{")
    assert call(out, units=2) == [0, 1]
    assert sorted(path.name for path in old.iterdir()) == ["search.json", "units.jsonl"]
