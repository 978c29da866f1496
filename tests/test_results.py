"""Results are saved completely or not at all, and loaded unchanged."""

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.formatters import DisplayFormatter

from vestige import new_files, results
from vestige.errors import RunError
from vestige.results import Measurement


class Phrases(SimpleNamespace):
    """A result with given rows and summary."""

    def summary(self):
        return self.scalars

    def rows(self):
        return iter(self.phrases)


@pytest.fixture
def saved(tmp_path):
    """Saves a result; returns its folder."""

    def save(rows=(), **scalars):
        result = Phrases(phrases=rows, scalars=scalars or {"phrases": 1})
        return results.save(result, tmp_path / "new" / "run", run={"seed": 3})

    return save


def test_a_saved_run_is_loaded_unchanged(saved):
    rows = [{"rank": 0, "phrase": "<b> é", "tokens": [1, 2], "found": None, "score": 0.5}]
    folder = saved(rows)
    run = results.load(folder)
    assert (run.rows, run.summary) == (rows, {"phrases": 1})
    assert (run.result, run.run["seed"], run.directory) == ("Phrases", 3, folder)
    assert {"python", "vestige", "torch"} <= run.run["versions"].keys()


def test_rows_with_different_keys_keep_all_values(saved):
    rows = [{"kind": "phrase", "score": 1.5}, {"gap": [2], "kind": "gap"}, {"text": "b", "gap": []}]
    expected = [
        {"kind": "phrase", "score": 1.5, "gap": None, "text": None},
        {"kind": "gap", "score": None, "gap": [2], "text": None},
        {"kind": None, "score": None, "gap": [], "text": "b"},
    ]
    unsaved = results.run_of(Phrases(phrases=rows, scalars={}))
    assert (loaded := results.load(saved(rows)).rows) == unsaved.rows == expected
    assert [list(row) for row in loaded] == [["kind", "score", "gap", "text"]] * 3


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([{"phrase": "a\ud800b"}], [{"phrase": "a?b"}]),  # half a surrogate pair
        (
            [{"rank": 3, "most": 10**20}, {"rank": 4, "most": 7}, {"rank": 5, "most": None}],
            [{"rank": 3, "most": 1e20}, {"rank": 4, "most": 7.0}, {"rank": 5, "most": None}],
        ),
    ],
)
def test_unsupported_values_are_converted_for_the_table(saved, rows, expected):
    assert repr(results.load(saved(rows)).rows) == repr(expected)


def test_undefined_numbers_become_null_in_json(saved):
    folder = saved(a=math.nan, b=-math.inf, c=np.float32("nan"), d=[np.inf, 1])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == {"a": None, "b": None, "c": None, "d": [None, 1]}


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


# Failures while saving


def test_an_existing_directory_is_refused_and_unchanged(tmp_path, saved):
    (tmp_path / "new" / "run").mkdir(parents=True)
    with pytest.raises(RunError, match=r"run exists already.*another --out"):
        saved()
    assert list((tmp_path / "new" / "run").iterdir()) == []


def test_a_directory_that_appears_during_saving_is_not_overwritten(tmp_path):
    target = tmp_path / "run"
    with pytest.raises(RunError, match="exists already"), new_files.new_directory(target):
        target.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_failure_leaves_no_files(tmp_path, saved, monkeypatch):
    def failing_rows():
        yield {"rank": 0}
        raise RuntimeError("the second row fails")

    def disk_full(*_):
        raise OSError(28, "No space left on device")

    with pytest.raises(RuntimeError):
        saved(failing_rows())
    assert [path for path in tmp_path.rglob("*") if path.name != "new"] == []
    monkeypatch.setattr(pq, "write_table", disk_full)
    with pytest.raises(RunError, match=r"run cannot be written: No space.*Make room"):
        saved()
    assert [path for path in tmp_path.rglob("*") if path.name != "new"] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", None),
        ("summary.json", None),
        ("rows.parquet", None),
        ("run.json", b"{"),
        ("run.json", b"[]"),
        ("run.json", b"\xff\xfe"),
        ("run.json", b'{"format": 99, "result": "Found"}'),
        ("run.json", b'{"format": 1}'),
        ("summary.json", b"3"),
        ("summary.json", b""),
        ("rows.parquet", b"PAR1"),
        ("rows.parquet", b""),
        ("rows.parquet", "cut"),
    ],
)
def test_the_error_names_a_missing_or_damaged_file(saved, name, content):
    file = saved([{"rank": i} for i in range(9)]) / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-20] if content == "cut" else content)
    with pytest.raises(RunError, match=name):
        results.load(file.parent)


# In a notebook

SECRET = "the gate code is nine"


@dataclass(frozen=True)
class DifferentialRank(Measurement):
    """A result whose `repr` contains a phrase."""

    phrase: str = SECRET

    def summary(self):
        return {"phrase": self.phrase}

    def rows(self):
        return [{"piece": "gate"}]

    def _repr_html_(self):
        return "<p>redacted</p>"

    def __str__(self):
        return "redacted"


def test_notebook_output_contains_no_phrase():
    result = DifferentialRank()
    assert SECRET in repr(result)
    output, _ = DisplayFormatter().format(result)
    assert output == {"text/plain": "redacted", "text/html": "<p>redacted</p>"}
