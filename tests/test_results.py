"""Run folders: what goes in comes out, whole or not at all."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige import new_files, results
from vestige.errors import RunError


@dataclass(frozen=True, kw_only=True)
class Found:
    """A result made by hand."""

    phrases: list[dict[str, Any]] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=lambda: {"phrases": 1})

    def summary(self):
        return self.scalars

    def rows(self):
        return iter(self.phrases)


class Unsaveable(Found):
    """A result whose rows fail half-way."""

    def rows(self):
        yield {"rank": 0}
        raise RuntimeError("the disk of the test is full")


def test_what_was_saved_is_loaded(tmp_path):
    rows = [{"rank": 0, "phrase": "<b> é", "tokens": [1, 2], "found": None, "score": 0.5}]
    saved = results.save(Found(phrases=rows), tmp_path / "a" / "run", run={"seed": 3})

    run = results.load(saved)

    assert run.rows == rows
    assert run.summary == {"phrases": 1}
    assert (run.result, run.run["seed"], run.directory) == ("Found", 3, saved)
    assert {"python", "vestige", "torch"} <= run.run["versions"].keys()


def test_rows_of_different_keys_keep_all_their_values(tmp_path):
    rows = [{"kind": "phrase", "score": 1.5}, {"gap": [2], "kind": "gap"}, {"text": "b", "gap": []}]
    whole = [
        {"kind": "phrase", "score": 1.5, "gap": None, "text": None},
        {"kind": "gap", "score": None, "gap": [2], "text": None},
        {"kind": None, "score": None, "gap": [], "text": "b"},
    ]

    read = results.load(results.save(Found(phrases=rows), tmp_path / "run", run={})).rows
    shown = results.run_of(Found(phrases=rows)).rows

    assert read == shown == whole
    assert [list(row) for row in read] == [["kind", "score", "gap", "text"]] * 3


def test_a_directory_that_exists_is_refused_and_stays_as_it_was(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match=r"run exists already.*another --out"):
        results.save(Found(), tmp_path / "run", run={})
    assert list((tmp_path / "run").iterdir()) == []


def test_a_failing_result_leaves_nothing_behind(tmp_path):
    with pytest.raises(RuntimeError):
        results.save(Unsaveable(), tmp_path / "run", run={})
    assert list(tmp_path.iterdir()) == []


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", broken)
    with pytest.raises(RunError, match=r"run cannot be written: No space.*Make room"):
        results.save(Found(), tmp_path / "run", run={})
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_appears_meanwhile_is_not_overwritten(tmp_path):
    target = tmp_path / "run"
    with pytest.raises(RunError, match="exists already"), new_files.new_directory(target):
        target.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_undefined_numbers_become_null_in_json(tmp_path):
    scalars = {"a": math.nan, "b": -math.inf, "c": np.float32("nan"), "d": [np.inf, 1]}
    saved = results.save(Found(scalars=scalars), tmp_path / "run", run={})
    assert json.loads((saved / "summary.json").read_text()) == {
        "a": None,
        "b": None,
        "c": None,
        "d": [None, 1],
    }


def test_half_a_surrogate_pair_is_saved_as_a_question_mark(tmp_path):
    saved = results.save(Found(phrases=[{"phrase": "a\ud800b"}]), tmp_path / "run", run={})
    assert results.load(saved).rows == [{"phrase": "a?b"}]


def test_a_number_beyond_64_bits_becomes_a_float(tmp_path):
    rows = [{"rank": 3, "most": 10**20}, {"rank": 4, "most": 7}, {"rank": 5, "most": None}]
    saved = results.load(results.save(Found(phrases=rows), tmp_path / "run", run={}))
    assert [row["most"] for row in saved.rows] == [1e20, 7.0, None]
    assert [row["rank"] for row in saved.rows] == [3, 4, 5]


def test_a_result_without_rows_has_an_empty_table(tmp_path):
    assert results.load(results.save(Found(), tmp_path / "run", run={})).rows == []


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_becomes_strict_json(value):
    def no_constants(name):
        raise AssertionError(name)

    json.loads(results.to_json(value), parse_constant=no_constants)


@pytest.mark.parametrize("missing", ["run.json", "summary.json", "rows.parquet"])
def test_a_missing_file_is_named(tmp_path, missing):
    saved = results.save(Found(), tmp_path / "run", run={})
    (saved / missing).unlink()
    with pytest.raises(RunError, match=missing):
        results.load(saved)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b"{"),
        ("run.json", b"[]"),
        ("run.json", b"\xff\xfe"),
        ("run.json", b'{"format": 99, "result": "Found"}'),
        ("run.json", b'{"format": 1}'),
        ("summary.json", b"3"),
        ("summary.json", b""),
        ("rows.parquet", b"PAR1"),
        ("rows.parquet", b""),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    saved = results.save(Found(), tmp_path / "run", run={})
    (saved / name).write_bytes(content)
    with pytest.raises(RunError, match=name):
        results.load(saved)


def test_a_cut_off_table_is_not_taken_for_a_whole_one(tmp_path):
    saved = results.save(Found(phrases=[{"rank": i} for i in range(9)]), tmp_path / "run", run={})
    table = saved / "rows.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(RunError, match=r"rows\.parquet"):
        results.load(saved)
