"""A report on a terminal: verdict, evidence and failed checks, then tables, then notices."""

from dataclasses import replace

import pytest

from tests.reports.made_claims import made_claim, with_claim
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.claims import UNDECIDED
from vestige.reports.blocks import Cell, Prose, Table
from vestige.reports.report import Report, lines, report_of
from vestige.reports.terminal import MOST, show


def shown(report, capsys):
    show(report)
    return capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_begins_with_its_headline(kind, capsys):
    report = report_of(results.run_of(RESULTS[kind]()), show_secrets=False)
    out = shown(report, capsys).out
    assert out.startswith("\n".join(report.headline))
    assert len(report.evidence) <= 3


def test_failed_checks_precede_tables_and_notices_go_to_stderr(diff, capsys):
    result = with_claim(diff([["a", " b"]], threshold=2.0), made_claim("diff", UNDECIDED))
    report = report_of(results.run_of(result), show_secrets=True)
    printed = shown(replace(report, notices=("A notice.",)), capsys)
    first = [printed.out.index(text) for text in ("UNDECIDED", "✗ The check", "Phrases", "a b")]
    assert first == sorted(first)
    assert "A notice." in printed.err
    assert "A notice." not in printed.out


def test_tables_are_cut_folded_ones_left_out_and_prose_not_printed(capsys):
    long = Table(title="Long", columns=("n",), rows=tuple((str(n),) for n in range(MOST + 3)))
    report = Report(
        title="T",
        evidence=lines("It is so.", ""),
        blocks=(
            long,
            Table(title="Folded", columns=("n",), rows=(("1",),), folded=True),
            Prose(title="Prose", lines=("Words.",)),
        ),
    )
    printed = shown(report, capsys)
    assert report.evidence == ("It is so.",)
    assert str(MOST - 1) in printed.out
    assert str(MOST) not in printed.out
    assert "3 more rows are in the run folder." in printed.err
    assert "Folded" not in printed.out
    assert "Words." not in printed.out


def test_escapes_are_shown_and_groups_and_notes_printed(capsys):
    table = Table(
        title="\x1b]0;t",
        columns=("a", "b"),
        rows=(("Group",), ("[b]x[/]", Cell(text="\x1b[31m7", notes=("1 to 9",)))),
    )
    out = shown(Report(title="T", evidence=("\x1b[0m",), blocks=(table,)), capsys).out
    assert "\x1b" not in out
    assert "[b]x[/]" in out
    assert "\\x1b[31m7 (1 to 9)" in out
    assert "Group" in out


def test_redacted_texts_name_the_option_that_shows_them(diff, capsys):
    run = results.run_of(diff([["Rosalind", " hides"]]))
    for show_secrets in (False, True):
        printed = shown(report_of(run, show_secrets=show_secrets), capsys)
        assert ("Rosalind" in printed.out) == show_secrets
        assert ("--show-secrets" in printed.err) != show_secrets


def test_evidence_has_at_most_three_lines():
    with pytest.raises(ValueError, match="at most 3 lines"):
        Report(title="T", evidence=("1", "2", "3", "4"))
