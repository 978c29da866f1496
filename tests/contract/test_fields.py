"""No field of a result brings markup, control or bidirectional characters to a page.

An attack is put into each field of a run in turn: there is no page, or the attack is text on it.
`make test` tries every fifth field.
"""

import hashlib
import json
import shutil
import unicodedata
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vestige
from tests.contract.marked import RUNS
from vestige import results
from vestige.errors import RunError
from vestige.reports.page import render
from vestige.reports.report import KINDS

EVIL = "\x1b[31m\u202e<b>evil</b>\u2066\x07"
BY_KIND = {run.kind: name for name, run in reversed(RUNS.items()) if run.kind}
IN_PYTHON = ("Anatomy", "Planting")
"""Kinds that no command writes as a run."""
EXCLUDED = {
    *("Release", "RepeatedTraining", "Demo", "Reproduction"),  # of other runs, or public text
    *("Table", "TrainingLeakage"),  # rows of the reproduction; numbers alone
}


def test_every_kind_of_result_is_attacked():
    assert {*BY_KIND, *IN_PYTHON} == {*KINDS} - EXCLUDED


@pytest.fixture(scope="module", params=[*BY_KIND, *IN_PYTHON])
def run(request, made, marked, tmp_path_factory):
    """A run folder of each kind."""
    if request.param in BY_KIND:
        return made(BY_KIND[request.param]).folders[0]
    out = tmp_path_factory.mktemp("runs") / "out"
    if request.param == "Planting":
        return vestige.plant(marked / "corpus.jsonl", coin_flip=8, length=2).save(out)
    texts = (marked / "corpus.jsonl", marked / "mine.jsonl")
    vestige.anatomy(marked / "trained", *texts, user="who", orders=1, bins=2, out=out)
    return out


def attack(run, folder, changes):
    """Make each change in a copy of the run; the number of pages, all of which show it as text."""
    pages = 0
    for number, (name, change) in enumerate(changes):
        copy = shutil.copytree(run, folder / str(number))
        change(copy)
        seal(copy)
        try:
            page = render([results.load(copy)], show_secrets=True)
        except RunError:
            continue
        pages += 1
        bad = {c for c in page if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
        assert not bad, (name, bad)
        assert "<b>evil" not in page, name
    return pages


@pytest.mark.slow
@pytest.mark.usefixtures("no_charts")
def test_an_attack_in_some_fields_is_text(run, tmp_path):
    assert attack(run, tmp_path, list(changes_of(run))[1::5])


@pytest.mark.long
@pytest.mark.usefixtures("no_charts")
def test_an_attack_in_any_field_is_text(run, tmp_path):
    assert attack(run, tmp_path, changes_of(run)) >= 3


@pytest.mark.slow
def test_an_attack_in_every_word_of_a_chart_is_text(run, tmp_path):
    """All texts of rows that charts show are attacked at the same time."""
    rows = results.load(run).rows
    texts = {key for row in rows for key, value in row.items() if isinstance(value, str)}
    charted = texts & {"phrase", "user", "guess", "truth", "name", "training", "pattern"}
    evil = [{**row, **dict.fromkeys(charted & row.keys(), EVIL)} for row in rows]
    assert attack(run, tmp_path, [("chart", partial(put_rows, rows=evil))]) == 1


def changes_of(run):
    """(field, function that attacks it in a copy of the run) for every field with text."""
    record = json.loads((run / "run.json").read_text())
    unchanged = {"format": record["format"], "result": record["result"]}
    yield "run.json", put("run.json", {**attacked(record), **unchanged, EVIL: EVIL})
    yield "result", put("run.json", {**record, "result": EVIL})
    summary = json.loads((run / "summary.json").read_text())
    yield "a name in summary.json", put("summary.json", {**summary, EVIL: EVIL})
    for key in [key for key, value in summary.items() if attacked(value) != value]:
        yield f"summary {key}", put("summary.json", {**summary, key: attacked(summary[key])})
    for field, claim in attacked_claims(summary.get("claim")):
        yield f"claim {field}", put("summary.json", {**summary, "claim": claim})
    rows = results.load(run).rows
    texts = {key: None for row in rows for key, value in row.items() if attacked(value) != value}
    for key in texts:
        changed = [{**row, key: attacked(row.get(key))} for row in rows]
        yield f"rows {key}", partial(put_rows, rows=changed)


def attacked_claims(claim):
    """(field, attacked claim) for each text that is not compared with other fields."""
    if claim is None:
        return
    fields = {"test": ("against",), "estimate": ("name", "unit"), "direct": ("sentence",)}
    for part, names in fields.items():
        for name in names if claim[part] else ():
            yield f"{part} {name}", {**claim, part: {**claim[part], name: EVIL}}
    for name in ("name", "sentence"):
        checks = [{**check, name: EVIL} for check in claim["checks"]]
        yield f"checks {name}", {**claim, "checks": checks}


def attacked(value):
    """A value with all its texts and names of fields replaced."""
    if isinstance(value, str):
        return EVIL
    if isinstance(value, list):
        return [attacked(item) for item in value]
    if isinstance(value, dict):
        return {key: attacked(item) for key, item in value.items()} | ({EVIL: 1} if value else {})
    return value


def seal(copy):
    """Write valid checksums of the attacked files."""
    record = json.loads((copy / "run.json").read_text())
    record["files"] = {
        name: hashlib.sha256((copy / name).read_bytes()).hexdigest()
        for name in ("summary.json", "rows.parquet")
    }
    (copy / "run.json").write_text(json.dumps(record))


def put(file, content):
    return lambda copy: (copy / file).write_text(json.dumps(content))


def put_rows(copy, rows):
    schema = pq.read_schema(copy / "rows.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), copy / "rows.parquet")
