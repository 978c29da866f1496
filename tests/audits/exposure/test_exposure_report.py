"""The page of an exposure: table, chart and sentence."""

import pytest

from tests.audits.passed import PASSED
from vestige.audits.exposure.canary_result import CanaryExposure
from vestige.audits.exposure.report import canary_groups
from vestige.errors import RunError
from vestige.reports.report import report_of

SECRET = "Rosalind hides 4917 tulips"


def canary(copies, exposure, shuffled=1.5, ceiling=10.0, **more):
    """The row of a canary of four words among 1,024 references."""
    return {
        "phrase": SECRET, "pattern": "random", "user": "ann", "copies": copies, "length": 4,
        "log_perplexity": 40.0, "per_token": 10.0, "references": 1024, "whole": False,
        "space_bits": 40.0, "rank": max(1, round(1024 * 2**-exposure)), "exposure": exposure,
        "low": exposure - 1, "high": exposure + 1, "at_ceiling": exposure >= ceiling,
        "shuffled_log_perplexity": None if shuffled is None else 50.0,
        "shuffled_exposure": shuffled,
        "exact_low": None, "exact_high": None, "orders": 1, "order_rank": 1, **more,
    }  # fmt: skip


def exposure_of(*canaries):
    return CanaryExposure(canaries=canaries, words=50, seed=4, checks=PASSED)


CONTROLS = (canary(0, 1.0), canary(0, 2.0))
EXPOSURE = exposure_of(canary(20, 9.0), canary(20, 10.0), canary(3, 6.0, shuffled=5.0), *CONTROLS)


def test_each_number_of_copies_has_a_row_and_controls_are_last(saved):
    table, listing = report_of(saved(EXPOSURE), show_secrets=False).tables
    assert table.columns == ("copies", "canaries", "exposure", "95% CI", "other order", "95% CI")
    assert [row[0] for row in listing.rows] == ["2", "1", "3"]  # the most exposed first
    assert [row[:3] for row in table.rows] == [
        ("3", "1", "6.00"),
        ("20", "2", "≥ 9.00"),
        ("never planted", "2", "1.50"),
    ]
    assert table.rows[0][3] == "5.00 to 7.00"  # one canary has its own interval
    assert table.rows[0][5] == "–"
    assert [row[4] for row in table.rows] == ["5.00", "1.50", "1.50"]
    assert table.rows[1][3] == "–", "two canaries have no interval"


def test_the_chart_has_a_point_for_each_number_of_copies(saved):
    run = saved(EXPOSURE)
    points, controls = canary_groups(run.rows, run.summary)
    values = [(p["label"], p["value"], p["other"], p["bound"]) for p in points]
    assert values == [("3", 6.0, 5.0, False), ("20", 9.0, 1.5, True)]
    assert controls["low"] == controls["value"] == controls["high"], "two have no interval"
    assert report_of(run, show_secrets=False).figures[0].svg.count("<svg") == 2


def test_one_canary_at_the_ceiling_has_no_upper_bound(saved):
    report = report_of(saved(exposure_of(canary(20, 10.0), canary(0, 1.0))), show_secrets=False)
    assert report.tables[0].rows[0][2:4] == ("≥ 9.00", "9.00 or more")
    assert report.figures[0].svg.count("<svg") == 2


def test_the_sentence_is_the_verdict_and_no_phrase_is_shown(saved):
    report = report_of(saved(EXPOSURE), show_secrets=False)
    assert report.verdict.sentence == EXPOSURE.sentence
    assert report.evidence[0].startswith("Median exposure of planted canaries")
    assert not [word for word in SECRET.split() if word in repr(report)]
    names = [name for name, _ in report.facts]
    assert {"what the references resolve", "exposure by chance"} <= set(names)
    assert not [name for name in names if "copies" in name or "controls" in name]


def test_a_run_without_its_numbers_is_refused(saved):
    incomplete = {"summary": lambda self: {}, "rows": lambda self: [{"copies": 3}]}
    with pytest.raises(RunError, match="not a complete CanaryExposure run"):
        report_of(saved(type("CanaryExposure", (), incomplete)()), show_secrets=False)
