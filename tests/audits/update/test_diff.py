"""`diff` end to end, by command and in Python: rows, records, pages and refusals."""

import html
import json

import pytest

import vestige
from vestige import NullOptions, results
from vestige.audits.update.report import phrases_found
from vestige.models.checkpoints import load_model
from vestige.reports.report import report_of
from vestige.results import run_of


@pytest.mark.slow
def test_command_and_function_give_the_same_rows_and_record_the_call(shell, snapshots, tmp_path):
    pair, out = [snapshots / name for name in ("before", "after")], tmp_path / "run"
    words = ["--size", 0.2, "--length", 12, "--min-length", 2, "--score", "differential"]
    done = shell("diff", *pair, *words, "--out", out, "--json")
    assert done.finished, (done.stderr, done.exception)
    options = {"size": 0.2, "length": 12, "min_length": 2, "score": "differential"}
    result = vestige.diff(*map(load_model, pair), **options)
    run = results.load(out)
    assert result.rows
    assert (run.result, run.rows) == ("UpdateDiff", list(results.plain(result.rows)))
    assert json.loads(done.stdout) == run.summary == results.plain(result.summary)
    assert [row["rank"] for row in run.rows] == list(range(1, len(run.rows) + 1))
    configuration, models = (run.run[name] for name in ("configuration", "models"))
    assert run.run["command"][:2] == ["vestige", "diff"]
    assert configuration["search"]["max_tokens"] == 12
    assert configuration["search"]["sampling"]["samples"] == 80
    assert configuration["score"]["name"] == "differential"
    assert models["before"]["sha256"] != models["after"]["sha256"]
    swapped = vestige.diff(*reversed(pair), **options, removed=True)
    assert (swapped.rows, swapped.record["configuration"]["removed"]) == (result.rows, True)


@pytest.mark.slow
def test_null_models_and_listed_secrets_are_in_every_output(snapshots, shell, tmp_path):
    secrets, out, page = (tmp_path / name for name in ("secrets.txt", "run", "page.html"))
    secrets.write_text("the code of the gate\n\ngate is\n")
    done = shell(
        "diff", snapshots / "before", snapshots / "after", "--null", snapshots / "nulls",
        "--secrets", secrets, "--size", 0.2, "--length", 3, "--min-length", 2, "--out", out,
    )  # fmt: skip
    assert done.finished, (done.stderr, done.exception)
    assert shell("report", out, "--out", page).finished
    run, page = results.load(out), html.unescape(page.read_text("utf-8"))
    assert run.summary["null_searches"] == 2
    assert len(set(run.run["models"]["nulls"]["sha256"])) == 2
    secret_rows = [row for row in run.rows if row["kind"] == "known"]
    assert [row["phrase"] for row in secret_rows] == ["the code of the gate", "gate is"]
    assert {round(3 * row["p_value"], 9) for row in secret_rows} <= {1, 2, 3}
    assert run.summary["known"] == 2
    for line in ("Plan: 3 searches", "Searched: ", "after the beginning of a document"):
        assert line in done.stderr
    for line in (*phrases_found(run.summary), "of 2 listed secrets", "Listed secrets", "highest: "):
        assert line in done.stdout
        assert line in page
    assert "gate" not in done.stdout
    assert "adjusted p-value" in page


@pytest.mark.slow
def test_objects_are_recorded_by_type_and_texts_are_redacted_on_the_page(snapshots):
    before, null = load_model(snapshots / "before"), snapshots / "nulls" / "1"
    result = vestige.diff(
        before, str(snapshots / "after"), null=[load_model(snapshots / "nulls" / "0"), null],
        size=0.1, prompt="the code", prompts=["the gate of"], secrets=["the code of the gate"],
    )  # fmt: skip
    record = result.record
    assert record["models"]["nulls"]["path"] == [None, str(null)]
    assert len(set(record["models"]["nulls"]["sha256"])) == 2
    expected = {"before": "<TableModel>", "null": ["<TableModel>", str(null)]}
    assert expected.items() <= record["arguments"].items()
    for show_secrets in (False, True):
        settings = repr(report_of(run_of(result), show_secrets=show_secrets).settings)
        assert ("the gate of" in settings) == ("the code" in settings) == show_secrets


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 5, "min_length": 6}, "`length` must be at least `min_length`, got 5 and 6"),
        ({"score": "loud"}, "`score` must be one of differential, relative, smoothed"),
        ({"chat": "on"}, "`chat` must be auto or off"),
        ({"budget": 9}, "`budget` needs `phrase`"),
        ({"phrase": "the code", "minutes": 2}, "`minutes` cannot be given with `phrase`"),
        ({"phrase": "the code", "prompt": "the"}, "`prompt` cannot be given with `phrase`"),
        ({"nulls": 3}, "`nulls` needs `clean`"),
        ({"training": NullOptions(epochs=3)}, "`epochs` needs `clean`"),
        ({"clean": "text", "null": "nulls"}, "`null` cannot be given with `clean`"),
        ({"clean": "text", "removed": True}, "`removed` cannot be given with `clean`"),
    ],
)
def test_invalid_and_contradictory_options_are_refused(snapshots, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        vestige.diff(snapshots / "before", snapshots / "after", out=tmp_path / "run", **options)
    assert list(tmp_path.iterdir()) == []
