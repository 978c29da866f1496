"""The section of a comparison of defences."""

import re

import pytest

from tests.reports.made_claims import made_claim, with_claim
from vestige.claims import LEAK
from vestige.reports.page import render
from vestige.reports.report import report_of
from vestige.reports.words import NOTHING

NAMES = ["plain", "gold", "triplet"]


@pytest.fixture
def shown(saved, comparison):
    return report_of(saved(comparison(NAMES, notes=["no users"])), show_secrets=False)


def test_the_finding_comes_before_its_reasons(saved, comparison):
    leak = with_claim(comparison(NAMES), made_claim("compare", LEAK))
    shown = report_of(saved(leak), show_secrets=False)
    assert shown.title == "Which defence should I use?"
    assert shown.verdict.line == "LEAK  gold leaks less."
    assert shown.evidence[-1] == "It helps."
    unchecked = report_of(saved(comparison(NAMES), "old"), show_secrets=False)
    assert unchecked.evidence == ("gold leaks less.", "It helps.")


def test_each_training_has_a_row_with_leakage_utility_fairness_guarantee_and_cost(shown):
    table = shown.tables[0]
    assert [row[0].text for row in table.rows] == NAMES
    assert table.marked == 1
    texts = [cell.text for cell in table.rows[1]]
    assert texts == ["gold", "7.0 bits", "101.0", "+0.5 points", "ε = 4.93", "800 steps"]
    notes = [cell.notes for cell in table.rows[1]]
    assert notes[0] == ("goldfish", "recommended: leaks less")
    assert notes[1] == ("1 of 4 (0 to 60%) completed",)
    assert notes[2] == ("+1.0% · 25.0% right",)
    assert notes[4] == ("δ = 1e-5 per sequence", "measured ≥ 0.70")
    assert notes[5] == ("18,000 tokens read", "2 s", "memory × 1.00")


def test_bars_share_their_scale_and_the_baseline_has_no_difference_bar(shown):
    bars = [row[1].bar for row in shown.tables[0].rows]
    assert bars[0].middle > bars[1].middle > bars[2].middle
    assert {bar.reference for bar in bars} == {bars[0].middle}
    for bar in bars:
        assert 0 <= bar.low <= bar.middle <= bar.high <= 100
    assert shown.tables[0].rows[0][2].bar is None
    assert shown.tables[0].rows[1][2].bar.band is not None


def test_the_last_table_has_all_numbers_with_intervals(shown):
    table = {row[0]: row[1:] for row in shown.tables[-1].rows if len(row) > 1}
    assert table["exposure"][1] == "7 (6.5 to 7.5) bits"
    assert table["exposure, planted 5 ×"][0] == "10 (9.5 to 10.5)"
    assert table["p-value"] == ("0.0004",) * 3
    assert table["test accuracy"][0] == "25%"
    assert table["completed, planted 1 ×"][1] == "1 of 4 (0 to 60%)"


def test_notes_and_both_charts_are_on_the_page(shown):
    [notes] = [block for block in shown.blocks if block.template == "prose"]
    assert notes.lines == ("no users",)
    assert len(shown.figures) == 2
    for figure in shown.figures:
        for name in NAMES:
            assert f">{name}</text>" in figure.svg


def test_missing_values_are_dashes_without_bars(saved, comparison):
    keys = ("exposure", "test_perplexity", "test_accuracy", "gap", "epsilon", "steps")
    none = dict.fromkeys([*keys, "empirical_epsilon"], None) | {"by_copies": []}
    shown = report_of(saved(comparison(NAMES, changes=none)), show_secrets=False)
    assert [cell.text for cell in shown.tables[0].rows[1][1:]] == [NOTHING] * 3 + ["none", NOTHING]
    assert shown.figures == []


def test_missing_ratios_and_intervals_are_left_out(saved, comparison):
    ratios = [f"perplexity_ratio{end}" for end in ("", "_low", "_high")]
    changes = dict.fromkeys([*ratios, "exposure_low", "exposure_high"])
    shown = report_of(saved(comparison(NAMES, changes=changes)), show_secrets=False)
    assert [row[2].notes for row in shown.tables[0].rows] == [("25.0% right",)] * 3
    assert shown.tables[0].rows[1][1].text == "7.0 bits"
    assert shown.tables[0].rows[1][1].bar is None
    assert len(shown.figures) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["</text><script>x</script>", "\u202eabc", "\x1b[31m", "{{ 7*7 }}"]
)
def test_hostile_names_are_escaped(saved, comparison, name):
    page = render([saved(comparison(["plain", name, "other"]))], show_secrets=False)
    assert "<script>" not in page
    assert not re.search("[\x1b\u202e]", page)
    assert "49 leaks less" not in page
