"""All displays begin with the verdict, its test, and the failed checks."""

import re
from dataclasses import replace

import pytest

from tests.reports.made_claims import made_checks, made_claim, with_claim
from tests.reports.parsed import Parsed
from vestige import results
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, VERDICTS, Direct, Estimate, Test
from vestige.reports import notebook
from vestige.reports.blocks import Cell, Prose, Table
from vestige.reports.page import card, render
from vestige.reports.report import Report, lines, report_of
from vestige.reports.terminal import MAX_ROWS, show
from vestige.reports.verdicts import verdict_of

SENTENCE = (
    "Exposure: 7.5 bits (95% CI 6.9 to 8.1); p = 0.001 compared with the controls (level 0.05)."
)


def diff_with_claim(diff, verdict, **more):
    return with_claim(diff([["a", " b"]], threshold=2.0), made_claim("diff", verdict, **more))


def in_order(text, parts):
    """Whether parts occur in a text in this order."""
    positions = [text.index(part) for part in parts]
    return positions == sorted(positions)


@pytest.mark.parametrize(
    ("verdict", "more", "sentence"),
    [
        (LEAK, {}, SENTENCE),
        (UNDECIDED, {"estimate": None, "test": None}, "Nothing was measured."),
        (
            UNDECIDED,
            {"estimate": Estimate("texts used", 12.0, 10.0, None, "texts"), "test": None},
            "Texts used: 12 texts (95% CI from 10).",
        ),
        (
            UNDECIDED,
            {"estimate": Estimate("x", float("nan")), "test": Test(0.5, 0.1, 0.05, "Y")},
            "p = 0.5 compared with Y (level 0.05).",
        ),
        (
            UNDECIDED,
            {"estimate": None, "test": None, "direct": Direct("Secret 1 was generated.", 0.01)},
            "Secret 1 was generated.",
        ),
    ],
)
def test_a_verdict_sentence_has_estimate_interval_and_test(verdict, more, sentence):
    result = verdict_of(made_claim("diff", verdict, **more))
    assert (result.word, result.sentence) == (verdict.upper(), sentence)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_page_begins_with_verdict_evidence_and_failed_checks(diff, verdict):
    more, failed = {}, ()
    if verdict == UNDECIDED:
        more = {"checks": made_checks("diff", failing=("different",), open_=("alive",))}
        failed = [f"The check “{name}” of diff" for name in ("different", "alive")]
    page = Parsed(
        render([results.run_of(diff_with_claim(diff, verdict, **more))], show_secrets=False)
    )
    text = " ".join(page.text.split())
    assert in_order(text, [verdict.upper(), page.evidence[0], *failed, "Checks passed: "])
    assert not {"claim", "verdict"} & set(page.facts)
    assert "'checks'" not in page.text


def test_notebooks_texts_and_cards_begin_with_the_verdict(diff):
    result = diff_with_claim(diff, UNDECIDED)
    parts = ["UNDECIDED", "The check “powerful” of diff failed.", "Checks passed: alive, different"]
    html = " ".join(Parsed(notebook.html(result)).text.split())
    for text in (html, notebook.text(result), card([results.run_of(result)])):
        assert in_order(text, parts)


@pytest.mark.parametrize("reason", ["no claim", "no checksums"])
def test_a_verdict_without_a_claim_is_not_checked(diff, saved, tmp_path, reason):
    if reason == "no claim":
        run = saved(diff([["a"]]))
    else:
        file = saved(diff_with_claim(diff, NO_LEAK)).directory / "run.json"
        file.write_text(re.sub(r'"files": {[^}]*}', '"files": null', file.read_text()))
        run = results.load(file.parent)
    page = Parsed(render([run], show_secrets=False))
    assert page.verdict.startswith("NOT CHECKED This run has no checked verdict")
    assert "NO LEAK SHOWN" not in page.text


# On a terminal


def shown(report, capsys):
    show(report)
    return capsys.readouterr()


def test_failed_checks_precede_tables_and_notices_go_to_stderr(diff, capsys):
    report = report_of(results.run_of(diff_with_claim(diff, UNDECIDED)), show_secrets=True)
    printed = shown(replace(report, notices=("A notice.",)), capsys)
    assert in_order(printed.out, ("UNDECIDED", "✗ The check", "Phrases", "a b"))
    assert "A notice." in printed.err
    assert "A notice." not in printed.out


def test_terminals_shorten_tables_and_skip_folded_ones(capsys):
    long = Table(title="Long", columns=("n",), rows=tuple((str(n),) for n in range(MAX_ROWS + 3)))
    folded = Table(title="Folded", columns=("n",), rows=(("1",),), folded=True)
    prose = Prose(title="Prose", lines=("Words.",))
    report = Report(title="T", evidence=lines("A finding.", ""), blocks=(long, folded, prose))
    printed = shown(report, capsys)
    assert report.evidence == ("A finding.",)
    assert str(MAX_ROWS - 1) in printed.out
    assert not [text for text in (str(MAX_ROWS), "Folded", "Words.") if text in printed.out]
    assert "3 more rows are in the run folder." in printed.err


def test_terminals_show_markup_and_escapes_as_text(capsys):
    rows = (("Group",), ("[b]x[/]", Cell(text="\x1b[31m7\x07", notes=("1 to 9",))))
    table = Table(title="[b]T[/b] \x1b]0;t", columns=("a", "b"), rows=rows)
    out = shown(Report(title="T", evidence=("\x1b[0m",), blocks=(table,)), capsys).out
    assert not {"\x1b", "\x07"} & set(out)
    for text in ("[b]x[/]", "\\x1b[31m7\\x07 (1 to 9)", "Group", "[b]T[/b] \\x1b]0;t"):
        assert text in out


def test_redacted_reports_name_the_show_secrets_option(diff, capsys):
    run = results.run_of(diff([["Rosalind", " hides"]]))
    for show_secrets in (False, True):
        printed = shown(report_of(run, show_secrets=show_secrets), capsys)
        assert ("Rosalind" in printed.out) == show_secrets
        assert ("--show-secrets" in printed.err) != show_secrets


def test_evidence_has_at_most_three_lines():
    with pytest.raises(ValueError, match="at most 3 lines"):
        Report(title="T", evidence=("1", "2", "3", "4"))
