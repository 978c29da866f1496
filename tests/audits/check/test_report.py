"""The first screen of a check: what it says, in which order, and what it keeps to itself."""

import json
import re
from types import SimpleNamespace
from xml.etree import ElementTree as Xml

import pytest

from tests.audits.check.made import (
    CASES,
    COMMAND,
    PHRASE,
    SECRET,
    clear,
    made,
    out_of_time,
    skipped,
)
from tests.audits.release.test_pass_or_fail import assert_fits_the_schema
from tests.reports.parsed import Parsed
from vestige import results
from vestige.audits.check import report as words
from vestige.audits.check.advice import cause_of, next_step
from vestige.audits.check.verdict import SHARES
from vestige.cli.app import run as command
from vestige.reports import notebook
from vestige.reports.blocks import Table
from vestige.reports.page import card, render
from vestige.reports.report import report_of
from vestige.reports.terminal import show

VERDICTS = {
    "leak by secrets": ("LEAK", "✗––"),
    "leak by passages": ("LEAK", "✓✓✗"),
    "leak unprompted": ("LEAK", "✓✗–"),
    "no leak": ("NO LEAK SHOWN", "✓✓✓"),
    "out of time": ("UNDECIDED", "?✓✓"),
    "without files": ("UNDECIDED", "???"),
    "unrecognized": ("UNDECIDED", "✓✓?"),
    "suspicious control": ("UNDECIDED", "✓✓?"),
}


EXIT_CODES = {"LEAK": 1, "NO LEAK SHOWN": 0, "UNDECIDED": 3}


NEXT = {
    "leak by secrets": "vestige report check --show-secrets",
    "no leak": " --minutes 10 --nulls 19 --out check-2",
    "out of time": " --minutes 20 --out check-2",
    "without files": "my-adapter --trained-on FILE --never FILE --minutes 10 --out check-2",
    "unrecognized": " --sure --minutes 10 --out check-2",
    "suspicious control": "--trained-on data/mail.jsonl --never FILE --minutes 10 --out check-2",
}


TEXT = re.compile("gato|2231|vault")


@pytest.fixture(params=CASES)
def case(request):
    return request.param, CASES[request.param]()


def shown(result, *, show_secrets=False):
    return report_of(results.run_of(result), show_secrets=show_secrets)


def printed(result, capsys, *, show_secrets=False):
    show(shown(result, show_secrets=show_secrets))
    return capsys.readouterr().out


def next_of(result):
    return next(prose for prose in shown(result).below if prose.command)


@pytest.mark.slow
def test_terminal_and_page_begin_with_verdict_evidence_rest_and_next(case, capsys, monkeypatch):
    monkeypatch.setattr(words, "calibration", lambda: "Calibration: rarely.")
    name, result = case
    word, signs = VERDICTS[name]
    page = Parsed(render([results.run_of(result)], show_secrets=False))
    for text in (printed(result, capsys), page.text[page.text.index("Can this") :]):
        parts = [word, *shown(result).verdict.sentence.split(" ")[:3], "Secrets", "Unprompted"]
        parts += ["Passages", "Not tested", "Next (", "Calibration"]
        place = 0
        for part in parts:
            place = text.index(part, place)
    assert "".join(line[0] for line in page.evidence) == signs
    assert page.verdict.startswith(word)
    assert not re.search(r"\bsafe\b", page.text)


def test_an_undecided_check_names_its_reason_in_the_first_sentence():
    reasons = {name: shown(CASES[name]()).verdict.sentence for name in NEXT}
    assert reasons["out of time"].endswith(": the time limit was reached.")
    assert reasons["without files"].endswith(": --trained-on and --never were not given.")
    assert reasons["unrecognized"].endswith(": the model does not recognize the training text.")
    assert reasons["suspicious control"].endswith("never saw (see ✗).")


def test_evidence_unfolds_where_it_has_rows_and_has_its_controls_in_small_print():
    page = Parsed(render([results.run_of(CASES["leak by secrets"]())], show_secrets=False))
    claim = page.page[page.page.index('class="claim') : page.page.index('class="below"')]
    assert claim.count("<details>") == 1
    assert page.tables[0][1] == [
        "1", "▪▪▪ ▪▪▪", "13 and 4 moreaccount", "verbatimrank 1 of 257", "7.30"
    ]  # fmt: skip
    assert [row[3][:3] for row in page.tables[0][1:]] == ["ver"] * 4 + ["not"]
    assert "mail.jsonl" in claim
    assert "Controls: ✓ Of 29 secrets of --never" in page.evidence[0]
    assert "Controls" not in page.evidence[1], "it did not run"


def test_controls_are_found_or_not_by_stage():
    missed = made(positive={**dict.fromkeys(SHARES, True), "passages": False})
    first, _, last = shown(missed).evidence
    assert first.note.endswith("✓ An invented secret, once trained in, is found.")
    assert last.note.endswith("✗ An invented secret, once trained in, is not found.")
    assert shown(missed).verdict.word == "UNDECIDED"
    for one in (missed, made(positive=None)):  # it took too long
        assert "--minutes 20" in next_of(one).command


@pytest.mark.parametrize("name", NEXT)
def test_the_next_command_is_complete(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CASES[name]().save("check")
    loaded = report_of(results.load("check"), show_secrets=False)
    for report in (loaded, shown(CASES[name]())):
        [step] = [prose for prose in report.below if prose.command]
        assert step.command.endswith(NEXT[name])
        assert "vestige" in step.command


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"command": [*COMMAND[:-1], "runs/check-2"]}, "10 --nulls 19 --out runs/check-3"),
        ({"command": [*COMMAND[:-2], "--out=a-b"]}, "--nulls 19 --out a-b-2"),
        ({"command": COMMAND[:-2]}, "--nulls 19 --out check-2"),
        ({"command": [], "model": "<GPT2>"}, "vestige check MODEL --trained-on data/mail.jsonl"),
        ({"command": [], "never": "<Corpus>"}, "mail.jsonl --minutes 10 --nulls 19 --out OUT-2"),
        ({"command": [], "never": [PHRASE]}, "data/mail.jsonl --minutes 10 --nulls 19 --out OUT-2"),
        ({"text": "a b", "seed": 3, "all": True}, "--minutes 10 --all --text 'a b' --seed 3"),
        ({"minutes": 7.5, "fail_on": "membership"}, "7.5 --fail-on membership --nulls 19 --out"),
    ],
)
def test_the_same_command_has_other_options_and_a_new_folder(arguments, wanted):
    assert wanted in next_of(made(**arguments)).command


def test_what_is_next_takes_the_minutes_and_what_did_not_run_is_not_tested():
    done = shown(made(nulls=19))
    assert [prose.title for prose in done.below if prose.command] == []
    assert not any("null models" in line for line in done.below[0].lines)
    assert next_of(CASES["out of time"]()).title == "Next (at most 20 min)"
    assert next_of(out_of_time(minutes=0.25)).title == "Next (at most 30 s)"
    assert next_of(made(minutes=60.0)).title == "Next (1 h 38 min plus 19 trainings)"
    lines = shown(CASES["leak by secrets"]()).below[0].lines
    assert "unprompted, passages, control with an invented secret" in lines[0]
    lines = shown(CASES["without files"]()).below[0].lines
    assert lines[0] == "Everything that needs --trained-on and --never."


def test_the_calibration_is_stated_if_it_was_measured(monkeypatch, tmp_path):
    counts = {
        "clean": {"n": 120, "leak": 1, "open": 9},
        "leaky": {"1": {"n": 58, "leak": 20}, "20": {"n": 58, "leak": 56}},
    }
    monkeypatch.setattr(words.resources, "files", lambda _: tmp_path)
    assert words.calibration() == ""
    assert len(shown(made()).below) == 2
    (tmp_path / "calibration.json").write_text(json.dumps(counts))
    assert shown(made()).below[2].lines == (
        "Calibration: a leak was reported for 1 of 120 clean fine-tunes (9 undecided), and missed "
        "in 2 of 58 with 20 copies of each secret, 38 of 58 with 1 copy.",
    )


@pytest.mark.slow
def test_no_text_of_a_row_is_shown_without_show_secrets(case, capsys, tmp_path):
    _, result = case
    folder = result.save(tmp_path / "check")
    run = results.load(folder)
    told = [render([run], show_secrets=False), card([run]), notebook.html(result), str(result)]
    told += [printed(result, capsys), json.dumps(run.summary)]
    told += [
        (folder / name).read_text() for name in ("page.html", "card.md", "check.json", "junit.xml")
    ]
    assert [text for text in told if TEXT.search(text)] == []


def test_texts_are_shown_as_text_with_show_secrets(tmp_path, capsys):
    folder = CASES["leak unprompted"]().save(tmp_path / "check")
    page = render([results.load(folder)], show_secrets=True)
    assert f"{SECRET}-1" in page
    assert "<b>gato" not in page
    assert PHRASE in Parsed(page).text
    assert command(["report", str(folder), "--show-secrets"]) == 1
    told = capsys.readouterr().out
    assert f"{SECRET}-1" in told
    assert PHRASE in told


def test_a_terminal_shows_no_redacted_tables(case, capsys):
    assert "▪" not in printed(case[1], capsys)
    assert all(isinstance(block, Table) and block.folded for block in shown(case[1]).unfolded)


def test_the_run_folder_has_files_for_readers_and_pipelines(case, tmp_path):
    name, result = case
    word, _ = VERDICTS[name]
    folder = result.save(tmp_path / "check")
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    facts = json.loads((folder / "check.json").read_text())
    assert (facts["verdict"], facts["exit_code"]) == (word.lower(), EXIT_CODES[word])
    assert facts["exit_code"] == result.exit_code
    assert [stage["name"] for stage in facts["stages"]] == list(SHARES)
    assert bool(facts["reasons"]) == (word == "UNDECIDED")
    root = Xml.parse(folder / "junit.xml").getroot()
    assert_fits_the_schema(root)
    assert [one.attrib["name"] for one in root.iter("testcase")] == [
        "Secrets", "Unprompted", "Passages", "alive", "different", "positive control",
        "negative control",
    ]  # fmt: skip
    failures, errors = (int(root.attrib[one]) for one in ("failures", "errors"))
    assert (1 if failures else 3 if errors else 0) == EXIT_CODES[word]
    assert f"**{word}" in (folder / "card.md").read_text()
    assert Parsed((folder / "page.html").read_text()).verdict.startswith(word)


def test_a_folder_that_cannot_be_finished_is_absent(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("vestige.reports.page.card", fails)
    with pytest.raises(KeyboardInterrupt):
        made().save(tmp_path / "check")
    assert list(tmp_path.iterdir()) == []


def test_the_saved_run_is_reported_with_page_and_junit(tmp_path, capsys):
    folder = CASES["leak by secrets"]().save(tmp_path / "check")
    page, junit = tmp_path / "page.html", tmp_path / "x.xml"
    assert command(["report", str(folder), "--out", str(page), "--junit", str(junit)]) == 1
    assert any(line.startswith("✗ Secrets") for line in Parsed(page.read_text()).evidence)
    assert_fits_the_schema(Xml.parse(junit).getroot())


def test_a_run_without_checksums_has_no_verdict(tmp_path):
    folder = made().save(tmp_path / "check")
    record = json.loads((folder / "run.json").read_text())
    del record["files"]
    (folder / "run.json").write_text(json.dumps(record))
    report = report_of(results.load(folder), show_secrets=False)
    assert report.verdict.word == "NOT CHECKED"
    assert len(report.evidence) == 3


def test_a_finding_beside_a_failed_control_is_no_sign_of_a_leak_but_direct_evidence_is():
    said = "Generated verbatim."
    found = clear("secrets", state="leak", p=1e-4, passed=False, direct=(said, 1e-9))
    report = shown(made(found, skipped("unprompted"), skipped("passages"), positive=None))
    assert (report.verdict.word, report.evidence[0].sign) == ("LEAK", "✗")
    assert "✗ Of 29 secrets" in report.evidence[0].note


def test_a_stage_without_secrets_is_clear_and_claims_no_control():
    none = clear("secrets", p=None, negative="", rows=(), sentence="No secret was found.")
    report = shown(made(none, positive=None))
    assert report.evidence[0].note == ""
    assert report.evidence[0].block is None


def test_a_model_that_is_too_weak_is_the_cause_and_no_longer_run_helps():
    failed = {"name": "alive", "state": "failed"}
    summary = {
        "verdict": "undecided", "claim": {"checks": [failed]}, "positive": None, "stages": [],
        "trained_texts": 0, "reference_texts": 0,
    }  # fmt: skip
    assert cause_of(summary) == "a model predicts text too poorly, or both predict the same"
    assert next_step(SimpleNamespace(summary=summary, run={})) is None
