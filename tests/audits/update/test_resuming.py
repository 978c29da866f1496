"""Stored units of `diff`: if stopped anywhere, the same call resumes to the same rows."""

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
    """The search of the update and a null model."""

    def search(out, *, after="after", **options):
        options = {"null": snapshots / "nulls" / "0", **SIZES, **options}
        return diff(snapshots / "before", snapshots / after, out=out, **options)

    return search


@pytest.fixture(scope="module")
def complete(run, tmp_path_factory):
    """The result of a search that nothing interrupted."""
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
    """Run a search that Ctrl-C ends as soon as a function of the stored keys is true; without a
    function it ends by itself. Returns the keys."""

    def search(out, until=None, **options):
        keys, add = [], Store.__setitem__

        def adding(store, key, value):
            is_unit = not key.startswith("\0")  # others are the store's
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


def stored(number):
    return lambda keys: len(keys) == number


@pytest.mark.slow
def test_stopped_at_any_unit_it_resumes_to_the_same_rows(complete, run, stopped, tmp_path):
    total = len(stopped(tmp_path / "count"))
    assert total > 6
    for entries in (0, 1, 2, total // 2, total - 2, total - 1):
        out = tmp_path / f"run-{entries}"
        stopped(out, stored(entries))
        assert same(run(out), complete)
        assert results.load(out).rows == list(plain(complete.rows))
        assert not out.with_name(f"{out.name}.partial").exists()


@pytest.mark.slow
def test_searched_null_models_are_not_loaded_again(run, stopped, snapshots, tmp_path, monkeypatch):
    two = {"null": snapshots / "nulls"}
    stopped(tmp_path / "run", lambda keys: "scores" in keys, **two)
    searched, search = [], searches.search
    monkeypatch.setattr(
        searches, "search", lambda *models, **how: searched.append(models) or search(*models, **how)
    )
    assert run(tmp_path / "run", **two).summary["null_searches"] == 2
    assert len(searched) == 1


@pytest.mark.slow
def test_another_search_is_refused_and_more_nulls_or_rows_resume(run, stopped, tmp_path):
    stopped(tmp_path / "run", stored(3), null=())
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
def test_a_time_limit_leaves_a_partial_run_that_is_replaced(complete, run, tmp_path, monkeypatch):
    clock, out = iter([0.0, *[1.0] * 3, *[1e9] * 100]), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(searches.time, "monotonic", lambda: next(clock))
        part = run(out, minutes=1.0)
    assert (part.summary["complete"], part.summary["null_searches"]) == (False, 0)
    assert results.load(out).summary["complete"] is False
    for words in ("Time limit: ", "0 of 1 null search done"):
        assert words in str(part)
    assert same(run(out), complete)
    assert results.load(out).summary["complete"] is True
    with pytest.raises(RunError, match="exists already"):
        run(out)


@pytest.mark.slow
def test_minutes_choose_a_size_that_the_record_repeats(snapshots, monkeypatch):
    pair, options = (snapshots / "before", snapshots / "after"), {"minutes": 5.0, "device": "cpu"}
    with monkeypatch.context() as patch:
        patch.setattr(searches, "size_for", lambda *_: 0.25)
        made = diff(*pair, **options)
    configuration = made.record["configuration"]
    assert made.record["arguments"]["size"] == configuration["plan"]["size"] == 0.25
    assert configuration["search"]["sampling"]["samples"] == 100
    assert same(diff(*pair, **options, size=0.25), made)


@pytest.mark.slow
def test_the_bar_never_goes_back(run, snapshots, tmp_path):
    log = Log()
    run(tmp_path / "run", null=snapshots / "nulls", monitor=log)
    done, totals, activities = zip(*log.steps, strict=True)
    assert list(done) == sorted(done)
    assert {*totals} == {done[-1]}
    assert {"sampling", "extending", "null 2 of 2, sampling"} <= {*activities}


@pytest.mark.slow
@pytest.mark.parametrize("nulls", [2, 0])
def test_null_models_are_not_searched_if_no_verdict_is_possible(run, snapshots, tmp_path, nulls):
    """The later model is the earlier one: the run is complete, and its bar is at the end."""
    log, null = Log(), snapshots / "nulls" if nulls else ()
    result = run(tmp_path / "run", after="before", null=null, monitor=log)
    names = ("complete", "null_searches", "nulls_asked")
    assert [result.summary[name] for name in names] == [True, 0, nulls]
    assert result.verdict == UNDECIDED
    assert log.steps[-1][0] == log.steps[-1][1]
    assert any("Null models are not searched." in line for line in log.lines) == bool(nulls)
    [powerful] = [check.sentence for check in result.claim.checks if check.name == "powerful"]
    assert powerful == f"No null model was {'searched' if nulls else 'given'}; a verdict needs 19."
