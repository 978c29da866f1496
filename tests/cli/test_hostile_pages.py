"""No field of any result brings markup, control or bidirectional characters to a page.

A run of every kind is made and each of its fields in turn, in every row, holds an attack: then
there is no page, or one on which the attack is text.
"""

import hashlib
import json
import shutil
import sys
import unicodedata
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vestige
from tests.audits.check.made import CASES
from tests.cli import secret_cases
from vestige import results
from vestige.errors import RunError
from vestige.reports.page import render
from vestige.reports.report import KINDS as SECTIONS

EVIL = "\x1b[31m\u202e<b>evil</b>\u2066\x07"
# The verb and the first of its cases that makes a run of this kind.
KINDS = {
    "UpdateDiff": ("diff", 0),
    "DifferentialRank": ("diff", 12),
    "SecretRank": ("exposure", 11),
    "CanaryExposure": ("exposure", 0),
    "SecretExposure": ("exposure", 7),
    "Completion": ("extract", 4),
    "SecretCompletion": ("extract", 0),
    "SecretAudit": ("extract", 14),
    "Extraction": ("extract", 16),
    "UserAudit": ("membership", 6),
    "TextAudit": ("membership", 0),
    "TextMemorization": ("extract", 9),
    "Deletion": ("unlearning", 0),
    "DefenceComparison": ("compare", 0),
    "DefendedTraining": ("train", 0),
    "IntentSlotTraining": ("train", 3),
    "Anatomy": (None, 0),
    "Planting": (None, 1),
    "ReleaseCheck": (None, 2),
}


_OTHERS = {"Release", "RepeatedTraining", "Demo", "Reproduction"}
"""Made of runs of the other kinds, or of our own text."""


def test_every_kind_of_result_is_there():
    known = set(SECTIONS)
    # Tables of `reproduce` have rows of our own; a training on pairs is shown as one on utterances;
    # what a callback measured is numbers alone.
    assert set(KINDS) == known - {*_OTHERS, "Table", "PairTraining", "TrainingLeakage"}


@pytest.fixture(scope="module", params=KINDS)
def run(request, tmp_path_factory, marked, shell):
    """A run folder of each kind."""
    verb, number = KINDS[request.param]
    out = tmp_path_factory.mktemp("runs") / "out"
    if verb is None:
        return _without_command(number, marked, out)
    words = secret_cases.CASES[verb][number].split(" ", 1)[1]
    done = shell(verb, *secret_cases.filled(words, marked, out))
    assert done.finished, done.stderr
    [made] = [path.parent for path in out.rglob("run.json")]
    assert results.load(made).result == request.param
    return made


def _without_command(number, marked, out):
    """A run that no command writes, or only one that takes minutes."""
    if number == 2:
        return CASES["leak unprompted"]().save(out)
    if number:
        return vestige.plant(marked / "corpus.jsonl", coin_flip=8, length=2).save(out)
    texts = (marked / "corpus.jsonl", marked / "mine.jsonl")
    vestige.anatomy(marked / "trained", *texts, user="who", orders=1, bins=2, out=out)
    return out


def test_an_attack_in_any_field_is_text(run, tmp_path, monkeypatch):
    for name, module in sys.modules.items():
        if name.startswith("vestige.") and hasattr(module, "svg_of"):
            monkeypatch.setattr(module, "svg_of", lambda chart: "<svg></svg>")  # it is slow
    pages = 0
    for number, (name, harm) in enumerate(harmed(run)):
        copy = tmp_path / str(number)
        shutil.copytree(run, copy)
        harm(copy)
        seal(copy)
        try:
            page = render([results.load(copy)], show_secrets=True)
        except RunError:
            continue
        pages += 1
        bad = {c for c in page if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
        assert not bad, (name, bad)
        assert "<b>evil" not in page, name
    assert pages >= 3  # else nothing was shown at all


def test_an_attack_in_every_word_of_a_chart_is_text(run, tmp_path):
    """Once with charts as they are: all that is shown of rows is text at the same time."""
    rows = results.load(run).rows
    texts = {key for row in rows for key, value in row.items() if isinstance(value, str)}
    shown = texts & {"phrase", "user", "guess", "truth", "name", "training", "pattern"}
    copy = shutil.copytree(run, tmp_path / "copy")
    put_rows(copy, [{**row, **dict.fromkeys(shown & row.keys(), EVIL)} for row in rows])
    seal(copy)
    page = render([results.load(copy)], show_secrets=True)
    assert not {c for c in page if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
    assert "<b>evil" not in page


def harmed(run):
    """(what it is, does it to a copy of the run) for every field that holds text."""
    record = json.loads((run / "run.json").read_text())
    kept = {"format": record["format"], "result": record["result"]}
    yield "run.json", put("run.json", {**attacked(record), **kept, EVIL: EVIL})
    yield "result", put("run.json", {**record, "result": EVIL})
    summary = json.loads((run / "summary.json").read_text())
    yield "a name in summary.json", put("summary.json", {**summary, EVIL: EVIL})
    for key in [key for key, value in summary.items() if attacked(value) != value]:
        yield f"summary {key}", put("summary.json", {**summary, key: attacked(summary[key])})
    for place, claim in claims_attacked(summary.get("claim")):
        yield f"claim {place}", put("summary.json", {**summary, "claim": claim})
    rows = results.load(run).rows
    for key in {
        key: None for row in rows for key, value in row.items() if attacked(value) != value
    }:
        changed = [{**row, key: attacked(row.get(key))} for row in rows]
        yield f"rows {key}", partial(put_rows, rows=changed)


def claims_attacked(claim):
    """(what is attacked, the claim) with a text that no reader compares with others."""
    if claim is None:
        return
    for part, names in (
        ("test", ("against",)),
        ("estimate", ("name", "unit")),
        ("direct", ("sentence",)),
    ):
        for name in names if claim[part] else ():
            yield f"{part} {name}", {**claim, part: {**claim[part], name: EVIL}}
    for name in ("name", "sentence"):
        yield (
            f"checks {name}",
            {**claim, "checks": [{**one, name: EVIL} for one in claim["checks"]]},
        )


def attacked(value):
    """Every text in a value replaced, names of fields too."""
    if isinstance(value, str):
        return EVIL
    if isinstance(value, list):
        return [attacked(item) for item in value]
    if isinstance(value, dict):
        return {key: attacked(item) for key, item in value.items()} | ({EVIL: 1} if value else {})
    return value


def seal(copy):
    """Checksums of the attacked files: who attacks can count them too."""
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
