"""What `vestige diff` keeps: interrupted anywhere, the same call goes on to the same rows."""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.cli.conftest import table_model
from vestige import diff, results
from vestige.audits.update import plan, searches
from vestige.claims import UNDECIDED
from vestige.data.files import plain
from vestige.errors import RunError
from vestige.models.checkpoints import save_model
from vestige.new_files import FILE
from vestige.store import KEPT, Store

WORDS = ["the", "code", "gate", "of", "is"]


SIZES = {"size": 0.2, "min_length": 2, "length": 6, "delta": 0.02, "device": "cpu"}


@pytest.fixture(autouse=True)
def quick_plans(monkeypatch):
    monkeypatch.setattr(plan, "TIMED_SECONDS", 0)


class Log:
    """A monitor that remembers its lines and every step."""

    def __init__(self):
        self.lines, self.steps = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        from contextlib import nullcontext

        search = task == "searching"  # and no planning
        return nullcontext(lambda *told: self.steps.append(told) if search else None)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("before", "after", "other", "null-0", "null-1"), 2):
        save_model(table_model(WORDS, seed), root / name)
    return root


def search(models, out, **settings):
    given = {"null": models / "null-0", "out": out, **SIZES, **settings}
    return diff(models / "before", models / "after", **given)


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    """The rows and summary of a search that nothing interrupted."""
    found = search(models, tmp_path_factory.mktemp("whole") / "run")
    assert found.rows
    assert found.summary["complete"] is True
    return found


def same(found, other):
    return (found.summary, found.rows) == (other.summary, other.rows)


class Stop(KeyboardInterrupt):
    pass


def stopped_after(units, monkeypatch):
    """Make a search end by Ctrl-C when so many entries were written."""
    written = []
    add = Store.__setitem__

    def adding(kept, key, value):
        if key.startswith("\0"):  # of the store itself
            return add(kept, key, value)
        if len(written) == units:
            raise Stop
        add(kept, key, value)
        written.append(key)

    monkeypatch.setattr(Store, "__setitem__", adding)
    return written


def entries(whole, models, tmp_path, monkeypatch):
    """How many entries a search writes."""
    with monkeypatch.context() as patch:
        written = stopped_after(10**9, patch)
        search(models, tmp_path / "count")
    return len(written)


@pytest.mark.slow
def test_stopped_at_a_unit_it_goes_on_to_the_same_rows(whole, models, tmp_path, monkeypatch):
    total = entries(whole, models, tmp_path, monkeypatch)
    assert total > 6
    for units in (0, 1, 2, total // 2, total - 2, total - 1):
        out = tmp_path / f"run-{units}"
        with monkeypatch.context() as patch:
            stopped_after(units, patch)
            with pytest.raises(Stop) as stop:
                search(models, out)
        assert not out.exists()
        partial = tmp_path / f"run-{units}.partial"
        assert partial.exists() == (units > 0)
        notes = getattr(stop.value, "__notes__", [])
        assert notes == ([KEPT] if units else [])
        found = search(models, out)
        assert same(found, whole)
        assert results.load(out).rows == list(plain(whole.rows))
        assert not partial.exists()


@pytest.mark.slow
def test_nulls_that_were_searched_are_not_opened_again(models, tmp_path, monkeypatch):
    two = [models / "null-0", models / "null-1"]
    with monkeypatch.context() as patch:
        add = Store.__setitem__

        def adding(kept, key, value):
            add(kept, key, value)
            if key == "scores":
                raise Stop

        patch.setattr(Store, "__setitem__", adding)
        with pytest.raises(Stop):
            search(models, tmp_path / "run", null=two)
    asked = []
    monkeypatch.setattr(
        searches,
        "search",
        lambda *given, real=searches.search, **rest: asked.append(given) or real(*given, **rest),
    )
    assert search(models, tmp_path / "run", null=two).summary["null_searches"] == 2
    assert len(asked) == 1


@pytest.mark.slow
def test_a_damaged_line_is_told_of_and_done_again(whole, models, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stopped_after(6, patch)
        with pytest.raises(Stop):
            search(models, tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run.partial" / FILE)) as file, file:
        changed = file.execute("UPDATE work SET value = x'5b5d' WHERE rowid IN (3, 5)")
        assert changed.rowcount == 2
    log = Log()
    assert same(search(models, tmp_path / "run", monitor=log), whole)
    assert any("is damaged: 5 of its values are intact" in line for line in log.lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "name"),
    [({"delta": 0.03}, "score"), ({"seed": 4}, "seed 0 and not 4"), ({"length": 5}, "max_tokens")],
)
def test_another_search_is_refused_by_what_differs(models, tmp_path, monkeypatch, settings, name):
    with monkeypatch.context() as patch:
        stopped_after(2, patch)
        with pytest.raises(Stop):
            search(models, tmp_path / "run")
    with pytest.raises(RunError, match=name):
        search(models, tmp_path / "run", **settings)
    with pytest.raises(RunError, match="models: after"):
        diff(models / "before", models / "other", out=tmp_path / "run", **SIZES)


@pytest.mark.slow
def test_more_nulls_and_another_top_go_on_with_what_is_there(models, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stopped_after(3, patch)
        with pytest.raises(Stop):
            search(models, tmp_path / "run", null=())
    log = Log()
    search(models, tmp_path / "run", top=3, monitor=log)
    assert any("Resuming: 3 finished parts" in line for line in log.lines)


@pytest.mark.slow
def test_a_deadline_leaves_a_partial_run_that_is_replaced(whole, models, tmp_path, monkeypatch):
    clock = iter([0.0, *[1.0] * 3, *[1e9] * 100])
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(searches.time, "monotonic", lambda: next(clock))
        part = search(models, out, minutes=1.0)
    assert part.summary["complete"] is False
    assert part.summary["null_searches"] == 0
    assert results.load(out).summary["complete"] is False
    assert "Time limit: " in str(part)
    assert "0 of 1 null search done" in str(part)
    assert same(search(models, out), whole)
    assert results.load(out).summary["complete"] is True
    with pytest.raises(RunError, match="exists already"):
        search(models, out)


@pytest.mark.slow
def test_minutes_choose_a_size_that_the_record_repeats(models, monkeypatch):
    pair = (models / "before", models / "after")
    with monkeypatch.context() as patch:
        patch.setattr(searches, "size_for", lambda *_: 0.25)
        made = diff(*pair, minutes=5.0, device="cpu")
    assert made.record["arguments"]["size"] == 0.25
    assert made.record["configuration"]["plan"]["size"] == 0.25
    assert made.record["configuration"]["search"]["sampling"]["samples"] == 100
    assert same(diff(*pair, minutes=5.0, size=0.25, device="cpu"), made)


@pytest.mark.slow
def test_the_bar_never_goes_back(models, tmp_path):
    log = Log()
    search(models, tmp_path / "run", null=[models / "null-0", models / "null-1"], monitor=log)
    done = [step[0] for step in log.steps]
    assert done == sorted(done)
    assert {step[1] for step in log.steps} == {done[-1]}
    told = {step[2] for step in log.steps}
    assert {"sampling", "extending", "null 2 of 2, sampling"} <= told


@pytest.mark.slow
def test_null_models_are_not_searched_where_no_verdict_can_come(models, tmp_path):
    """The later model is the earlier one: the run is complete, and its bar is at the end."""
    log = Log()
    pair, two = (models / "before", models / "before"), [models / "null-0", models / "null-1"]
    found = diff(*pair, null=two, out=tmp_path / "run", monitor=log, **SIZES)
    names = ("complete", "null_searches", "nulls_asked")
    assert (found.verdict, *(found.summary[name] for name in names)) == (UNDECIDED, True, 0, 2)
    assert log.steps[-1][0] == log.steps[-1][1]
    assert [line for line in log.lines if "Null models are not searched." in line]
    told = [check.sentence for check in found.claim.checks if check.name == "powerful"]
    assert told == ["No null model was searched; a verdict needs 19."]
    alone = Log()
    diff(*pair, out=tmp_path / "alone", monitor=alone, **SIZES)
    assert not any("Null models" in line for line in alone.lines)


def test_a_file_of_units_is_private_and_plain(models, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stopped_after(2, patch)
        with pytest.raises(Stop):
            search(models, tmp_path / "run")
    file = tmp_path / "run.partial" / FILE
    assert file.stat().st_mode & 0o077 == 0
    with Store(file) as store:
        assert len(store) == 2
        for key, value in store.items():
            assert key.startswith("update/")
            assert "forward_tokens" in json.loads(json.dumps(value))


# The command, killed by a real kill -9 as soon as two units of work are on the disk.


def units(file):
    """Finished units of a process that is running."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as store:
        try:
            where = "WHERE CAST(name AS TEXT) LIKE 'update/%'"
            [row] = store.execute(f"SELECT count(*) FROM work {where}")
            return row[0]
        except sqlite3.DatabaseError:
            return 0


@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_goes_on(shell, models, whole, tmp_path):
    words = ["diff", models / "before", models / "after", "--null", models / "null-0"]
    words += ["--size", 0.2, "--min-length", 2, "--length", 6, "--delta", 0.02, "--device", "cpu"]
    main = [sys.executable, "-c", "from vestige.cli.app import main; main()"]
    command = [*main, *map(str, words), "--out", str(tmp_path / "run")]
    kept = tmp_path / "run.partial" / FILE
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 300
        while units(kept) < 2 and time.monotonic() < until and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -9
    assert not (tmp_path / "run").exists()
    done = shell(*words, "--out", tmp_path / "run")
    assert done.finished, done.stderr
    assert "finished parts found in" in done.stderr
    assert results.load(tmp_path / "run").rows == list(plain(whole.rows))
    assert not kept.parent.exists()
