"""The first screen of a check: content, order and redaction."""

import json
import re
from types import SimpleNamespace
from xml.etree import ElementTree as Xml

import pytest

from tests.audits.check.made import (
    ALL_DETECTED,
    CASES,
    COMMAND,
    PHRASE,
    SECRET,
    clear_stage,
    made_check,
    out_of_time,
    stage_not_run,
)
from tests.audits.release.made import assert_valid_junit
from tests.reports.parsed import Parsed
from vestige import results
from vestige.audits.check import report as check_report
from vestige.audits.check.advice import cause_of, next_step
from vestige.audits.check.verdict import SHARES
from vestige.cli.app import run as run_command
from vestige.reports.blocks import Table
from vestige.reports.page import render
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


@pytest.fixture(params=CASES)
def case(request):
    return request.param, CASES[request.param]()


def report_for(result, *, show_secrets=False):
    return report_of(results.run_of(result), show_secrets=show_secrets)


def page_of(result):
    return Parsed(render([results.run_of(result)], show_secrets=False))


def terminal_output(result, capsys):
    show(report_for(result))
    return capsys.readouterr().out


def next_command(result):
    return next(prose for prose in report_for(result).below if prose.command)


@pytest.mark.slow
def test_terminal_and_page_have_the_same_order(case, capsys, monkeypatch):
    monkeypatch.setattr(check_report, "calibration", lambda: "Calibration: rarely.")
    name, result = case
    (word, signs), page, terminal = VERDICTS[name], page_of(result), terminal_output(result, capsys)
    parts = [word, *report_for(result).verdict.sentence.split(" ")[:3], "Secrets", "Unprompted",
             "Passages", "Not tested", "Next (", "Calibration"]  # fmt: skip
    for text in (terminal, page.text[page.text.index("Can this") :]):
        position = 0
        for part in parts:
            position = text.index(part, position)
    assert "".join(line[0] for line in page.evidence) == signs
    assert page.verdict.startswith(word)
    assert not re.search(r"\bsafe\b", page.text)
    assert "▪" not in terminal
    assert all(isinstance(block, Table) and block.folded for block in report_for(result).unfolded)


REASONS = {
    "out of time": ": the time limit was reached.",
    "without files": ": --trained-on and --never were not given.",
    "unrecognized": ": the model does not recognize the training text.",
    "suspicious control": "never saw (see ✗).",
}
NEXT = {
    "leak by secrets": "vestige report check --show-secrets",
    "no leak": " --minutes 10 --nulls 19 --out check-2",
    "out of time": " --minutes 20 --out check-2",
    "without files": "my-adapter --trained-on FILE --never FILE --minutes 10 --out check-2",
    "unrecognized": " --sure --minutes 10 --out check-2",
    "suspicious control": "--trained-on data/mail.jsonl --never FILE --minutes 10 --out check-2",
}


@pytest.mark.parametrize("name", NEXT)
def test_reasons_and_the_next_command_are_shown(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CASES[name]()
    assert report_for(result).verdict.sentence.endswith(REASONS.get(name, ""))
    result.save("check")
    for report in (report_of(results.load("check"), show_secrets=False), report_for(result)):
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
def test_the_next_command_keeps_options_and_changes_the_folder(arguments, wanted):
    assert wanted in next_command(made_check(**arguments)).command


@pytest.mark.parametrize(
    ("result", "title"),
    [
        (CASES["out of time"](), "Next (at most 20 min)"),
        (out_of_time(minutes=0.25), "Next (at most 30 s)"),
        (made_check(minutes=60.0), "Next (1 h 38 min plus 19 trainings)"),
    ],
)
def test_the_next_command_has_a_duration(result, title):
    assert next_command(result).title == title


def test_stages_that_did_not_run_are_listed_as_not_tested():
    with_nulls = report_for(made_check(nulls=19))
    assert not any(prose.command for prose in with_nulls.below)
    assert not any("null models" in line for line in with_nulls.below[0].lines)
    not_tested = report_for(CASES["leak by secrets"]()).below[0].lines[0]
    assert "unprompted, passages, control with an invented secret" in not_tested
    not_tested = report_for(CASES["without files"]()).below[0].lines[0]
    assert not_tested == "Everything that needs --trained-on and --never."


def test_evidence_with_rows_unfolds_and_lists_its_controls():
    page = page_of(CASES["leak by secrets"]())
    claim = page.page[page.page.index('class="claim') : page.page.index('class="below"')]
    assert claim.count("<details>") == 1
    first = ["1", "▪▪▪ ▪▪▪", "13 and 4 moreaccount", "verbatimrank 1 of 257", "7.30"]
    assert page.tables[0][1] == first
    assert [row[3][:3] for row in page.tables[0][1:]] == ["ver"] * 4 + ["not"]
    assert "mail.jsonl" in claim
    assert "Controls: ✓ Of 29 secrets of --never" in page.evidence[0]
    assert "Controls" not in page.evidence[1], "the stage did not run"


def test_detected_and_undetected_controls_are_shown_by_stage():
    undetected = made_check(positive={**ALL_DETECTED, "passages": False})
    first, _, last = report_for(undetected).evidence
    assert first.note.endswith("✓ An invented secret, once trained in, is found.")
    assert last.note.endswith("✗ An invented secret, once trained in, is not found.")
    assert report_for(undetected).verdict.word == "UNDECIDED"
    for result in (undetected, made_check(positive=None)):  # the time limit was reached
        assert "--minutes 20" in next_command(result).command


def test_direct_evidence_is_a_leak_despite_a_failed_control():
    direct = ("Generated verbatim.", 1e-9)
    stage = clear_stage("secrets", state="leak", p=1e-4, passed=False, direct=direct)
    report = report_for(
        made_check(stage, stage_not_run("unprompted"), stage_not_run("passages"), positive=None)
    )
    assert (report.verdict.word, report.evidence[0].sign) == ("LEAK", "✗")
    assert "✗ Of 29 secrets" in report.evidence[0].note


def test_a_stage_without_secrets_has_no_control():
    stage = clear_stage("secrets", p=None, negative="", rows=(), sentence="No secret was found.")
    evidence = report_for(made_check(stage, positive=None)).evidence[0]
    assert (evidence.note, evidence.block) == ("", None)


def test_a_weak_model_is_the_cause_and_has_no_next_step():
    summary = {
        "verdict": "undecided", "positive": None, "stages": [], "trained_texts": 0,
        "claim": {"checks": [{"name": "alive", "state": "failed"}]}, "reference_texts": 0,
    }  # fmt: skip
    assert cause_of(summary) == "a model predicts text too poorly, or both predict the same"
    assert next_step(SimpleNamespace(summary=summary, run={})) is None


def test_a_measured_calibration_is_shown(monkeypatch, tmp_path):
    counts = {
        "clean": {"n": 120, "leak": 1, "open": 9},
        "leaky": {"1": {"n": 58, "leak": 20}, "20": {"n": 58, "leak": 56}},
    }
    monkeypatch.setattr(check_report.resources, "files", lambda _: tmp_path)
    assert check_report.calibration() == ""
    assert len(report_for(made_check()).below) == 2
    (tmp_path / "calibration.json").write_text(json.dumps(counts))
    assert report_for(made_check()).below[2].lines == (
        "Calibration: a leak was reported for 1 of 120 clean fine-tunes (9 undecided), and missed "
        "in 2 of 58 with 20 copies of each secret, 38 of 58 with 1 copy.",
    )


# The run folder, its files and their redaction.


def test_show_secrets_escapes_texts(tmp_path, capsys):
    folder = CASES["leak unprompted"]().save(tmp_path / "check")
    page = render([results.load(folder)], show_secrets=True)
    assert "<b>gato" not in page
    assert run_command(["report", str(folder), "--show-secrets"]) == 1
    for text in (Parsed(page).text, capsys.readouterr().out):
        assert f"{SECRET}-1" in text
        assert PHRASE in text


def test_the_run_folder_has_files_for_people_and_pipelines(case, tmp_path, capsys):
    name, result = case
    word, _ = VERDICTS[name]
    folder, code = result.save(tmp_path / "check"), EXIT_CODES[word]
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    facts = json.loads((folder / "check.json").read_text())
    assert (facts["verdict"], facts["exit_code"], result.exit_code) == (word.lower(), code, code)
    assert [stage["name"] for stage in facts["stages"]] == list(SHARES)
    assert bool(facts["reasons"]) == (word == "UNDECIDED")
    root = Xml.parse(folder / "junit.xml").getroot()
    assert_valid_junit(root)
    controls = ["alive", "different", "positive control", "negative control"]
    cases = [element.attrib["name"] for element in root.iter("testcase")]
    assert cases == ["Secrets", "Unprompted", "Passages", *controls]
    failures, errors = (int(root.attrib[element]) for element in ("failures", "errors"))
    assert (1 if failures else 3 if errors else 0) == code
    assert f"**{word}" in (folder / "card.md").read_text()
    assert Parsed((folder / "page.html").read_text()).verdict.startswith(word)


def test_the_saved_run_is_reported_with_page_and_junit(tmp_path, capsys):
    folder = CASES["leak by secrets"]().save(tmp_path / "check")
    page, junit = tmp_path / "page.html", tmp_path / "x.xml"
    assert run_command(["report", str(folder), "--out", str(page), "--junit", str(junit)]) == 1
    assert any(line.startswith("✗ Secrets") for line in Parsed(page.read_text()).evidence)
    assert_valid_junit(Xml.parse(junit).getroot())


def test_an_interrupted_save_leaves_no_folder(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("vestige.reports.page.card", fails)
    with pytest.raises(KeyboardInterrupt):
        made_check().save(tmp_path / "check")
    assert list(tmp_path.iterdir()) == []
