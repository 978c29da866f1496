"""Resuming of `diff`: a search stopped at any unit gives the same rows."""

import pytest

from tests.audits.update.worlds import Log
from vestige import diff, results
from vestige.audits.update import plan, searches
from vestige.claims import UNDECIDED
from vestige.data.files import plain
from vestige.errors import RunError
from vestige.store import KEPT, Store

SIZES = {"size": 0.2, "min_length": 2, "length": 6, "delta": 0.02, "device": "cpu"}


@pytest.fixture(autouse=True)
def quick_plans(monkeypatch):
    monkeypatch.setattr(plan, "TIMED_SECONDS", 0)


@pytest.fixture(scope="module")
def run(snapshots):
    """Searches the update and a null model."""

    def search(out, *, after="after", **options):
        options = {"null": snapshots / "nulls" / "0", **SIZES, **options}
        return diff(snapshots / "before", snapshots / after, out=out, **options)

    return search


@pytest.fixture(scope="module")
def complete(run, tmp_path_factory):
    """The result of a search without interruption."""
    result = run(tmp_path_factory.mktemp("whole") / "run")
    assert result.rows
    assert result.summary["complete"] is True
    return result


def same(result, other):
    return (result.summary, result.rows) == (other.summary, other.rows)


class Stop(KeyboardInterrupt):
    pass


@pytest.fixture
def stopped(run, monkeypatch):
    """Runs a search and returns the keys that it stored.

    The search is interrupted as soon as `until`, a function of the keys, is true.
    """

    def search(out, until=None, **options):
        keys, add = [], Store.__setitem__

        def adding(store, key, value):
            is_unit = not key.startswith("\0")  # other keys belong to the store
            if is_unit and until is not None and until(keys):
                raise Stop
            add(store, key, value)
            keys.extend([key] * is_unit)

        with monkeypatch.context() as patch:
            patch.setattr(Store, "__setitem__", adding)
            if until is None:
                run(out, **options)
                return keys
            with pytest.raises(Stop) as stop:
                run(out, **options)
        assert not out.exists()
        assert out.with_name(f"{out.name}.partial").exists() == bool(keys)
        assert getattr(stop.value, "__notes__", []) == ([KEPT] if keys else [])
        return keys

    return search


def after_units(number):
    return lambda keys: len(keys) == number


@pytest.mark.slow
def test_an_interrupted_search_resumes_to_the_same_rows(complete, run, stopped, tmp_path):
    total = len(stopped(tmp_path / "count"))
    assert total > 6
    for units in (0, 1, 2, total // 2, total - 2, total - 1):
        out = tmp_path / f"run-{units}"
        stopped(out, after_units(units))
        assert same(run(out), complete)
        assert results.load(out).rows == list(plain(complete.rows))
        assert not out.with_name(f"{out.name}.partial").exists()


@pytest.mark.slow
def test_finished_null_searches_are_not_repeated(run, stopped, snapshots, tmp_path, monkeypatch):
    nulls = {"null": snapshots / "nulls"}
    stopped(tmp_path / "run", lambda keys: "scores" in keys, **nulls)
    calls, search = [], searches.search
    monkeypatch.setattr(
        searches, "search", lambda *models, **how: calls.append(models) or search(*models, **how)
    )
    assert run(tmp_path / "run", **nulls).summary["null_searches"] == 2
    assert len(calls) == 1


@pytest.mark.slow
def test_other_search_options_are_refused_and_more_nulls_or_rows_resume(run, stopped, tmp_path):
    stopped(tmp_path / "run", after_units(3), null=())
    for options, difference in (
        ({"delta": 0.03}, "score"),
        ({"seed": 4}, "seed 0 and not 4"),
        ({"length": 5}, "max_tokens"),
        ({"after": "other"}, "models: after"),
    ):
        with pytest.raises(RunError, match=difference):
            run(tmp_path / "run", **options)
    log = Log()
    run(tmp_path / "run", top=3, monitor=log)
    assert any("Resuming: 3 finished parts" in line for line in log.lines)


@pytest.mark.slow
def test_a_run_that_hit_the_time_limit_is_completed(complete, run, tmp_path, monkeypatch):
    clock, out = iter([0.0, *[1.0] * 3, *[1e9] * 100]), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(searches.time, "monotonic", lambda: next(clock))
        part = run(out, minutes=1.0)
    assert (part.summary["complete"], part.summary["null_searches"]) == (False, 0)
    assert part.verdict == UNDECIDED
    assert results.load(out).summary["complete"] is False
    assert "Time limit: " in str(part)
    assert same(run(out), complete)
    assert results.load(out).summary["complete"] is True
    with pytest.raises(RunError, match="exists already"):
        run(out)


@pytest.mark.slow
def test_minutes_choose_a_size_that_the_record_repeats(snapshots, monkeypatch):
    pair, options = (snapshots / "before", snapshots / "after"), {"minutes": 5.0, "device": "cpu"}
    with monkeypatch.context() as patch:
        patch.setattr(searches, "size_for", lambda *_: 0.25)
        result = diff(*pair, **options)
    configuration = result.record["configuration"]
    assert result.record["arguments"]["size"] == configuration["plan"]["size"] == 0.25
    assert configuration["search"]["sampling"]["samples"] == 100
    assert same(diff(*pair, **options, size=0.25), result)


@pytest.mark.slow
def test_progress_never_decreases(run, snapshots, tmp_path):
    log = Log()
    run(tmp_path / "run", null=snapshots / "nulls", monitor=log)
    done, totals, activities = zip(*log.steps, strict=True)
    assert list(done) == sorted(done)
    assert {*totals} == {done[-1]}
    assert {"sampling", "extending", "null 2 of 2, sampling"} <= {*activities}


@pytest.mark.slow
@pytest.mark.parametrize("nulls", [2, 0])
def test_null_models_are_not_searched_if_no_verdict_is_possible(run, snapshots, tmp_path, nulls):
    """Both models are the same: the run is complete, and so is its progress."""
    log, null = Log(), snapshots / "nulls" if nulls else ()
    result = run(tmp_path / "run", after="before", null=null, monitor=log)
    names = ("complete", "null_searches", "nulls_asked")
    assert [result.summary[name] for name in names] == [True, 0, nulls]
    assert result.verdict == UNDECIDED
    assert log.steps[-1][0] == log.steps[-1][1]
    assert any("Null models are not searched." in line for line in log.lines) == bool(nulls)
    [powerful] = [check.sentence for check in result.claim.checks if check.name == "powerful"]
    assert powerful == f"No null model was {'searched' if nulls else 'given'}; a verdict needs 19."
