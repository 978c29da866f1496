"""The benchmarks' harness: saved rows, paired times, memory, rates, tables, and the last line."""

import json
from functools import partial

import harness
import pytest
import torch


def bench(parts, *arguments):
    return harness.main("bench", "A benchmark.", parts, None, arguments)


def squares(run):
    return run.draw("squares", lambda number: {"square": number**2}, run.times(4, 2))


def test_a_result_is_a_table_and_the_last_line(capsys):
    results = bench({"squares": squares}, "--quick")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == ["## squares", "", "| square |", "| --- |", "| 0 |", "| 1 |"]
    assert json.loads(lines[-1]) == results
    assert results == {
        "benchmark": "bench", "quick": True, "squares": [{"square": 0}, {"square": 1}]
    }  # fmt: skip


def test_rows_are_saved_and_not_computed_again(tmp_path, capsys):
    file, computed = tmp_path / "rows.jsonl", []

    def row(number):
        computed.append(number)
        return {"value": 10 * number}

    parts = {"part": lambda run: run.draw("case", row, run.times(5))}
    bench(parts, "--rows", str(file), "--times", "2")
    with file.open("a") as rows:  # as another process would
        rows.write('{"case": "case", "number": 3, "row": {"value": 30}}\n')
    rows = bench(parts, "--rows", str(file))["part"]
    assert [row["value"] for row in rows] == [0, 10, 20, 30, 40]
    assert computed == [0, 1, 2, 4]
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_unknown_part_is_a_usage_error(capsys):
    with pytest.raises(SystemExit, match="2"):
        bench({"squares": squares}, "cubes")
    assert "unknown part cubes; choose from squares" in capsys.readouterr().err


def test_times_are_relative_to_the_first_program():
    calls = []
    rows = harness.paired({"one": lambda: calls.append(1), "two": lambda: calls.append(2)}, 2)
    assert calls == [2, 1, 1, 2, 2, 1]  # in turns; the first round warms up
    assert rows["one"]["ratio"] == rows["one"]["fastest"] == 1
    assert rows["two"]["ratio"] == rows["two"]["seconds"] / rows["one"]["seconds"]


def fill(mebibytes):
    return lambda: torch.ones(mebibytes * 2**20 // 4)


@pytest.mark.slow
def test_peak_memory_is_measured_in_a_new_process():
    small, large = (harness.peak_mib(partial(fill, n)) for n in (8, 72))
    assert large - small == pytest.approx(64, abs=16)


@pytest.mark.slow
def test_an_error_in_a_new_process_is_raised():
    with pytest.raises(RuntimeError, match="exit code 1"):
        harness.in_new_process(partial(int, "no number"))


def test_a_rate_has_its_exact_interval():
    row = harness.rate(0, 20)
    assert row["high"] == pytest.approx(1 - 0.025 ** (1 / 20))  # (1 - p) ** 20 = 0.025
    rows = [{"false": False, "p": None}, {"false": True, "p": 0.5}]
    assert harness.rates(rows, "false", "p") == {
        "false": harness.rate(1, 2),
        "p": harness.rate(1, 1),
    }
    table = harness.table([{"false": harness.rate(1, 2), "also": [0.5, "x"]}])
    assert table.splitlines()[-1] == "| 1 of 2 (1.3 to 98.7 %) | 0.5, x |"


def test_verdicts_are_counted_as_rates():
    rows = [{"verdict": "leak"}, {"verdict": "undecided"}, {"verdict": "leak"}]
    assert harness.verdicts(rows) == {
        "leak": harness.rate(2, 3), "undecided": harness.rate(1, 3)
    }  # fmt: skip
