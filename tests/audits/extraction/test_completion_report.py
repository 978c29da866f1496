"""The report of a completion: its table, chart and sentences, and redacted phrases."""

import re

import pytest

from tests.audits.passed import PASSED
from vestige.audits.extraction.canaries import Completion
from vestige.metrics.estimates import clopper_pearson
from vestige.reports.report import report_of

PHRASE = "Rosalind hides 4917 tulips"


def attempt(kind, copies, greedy, needed, best=False, kept=False):
    return {
        "kind": kind, "canary": 1, "copies": copies, "pattern": "random", "user": "ann",
        "phrase": PHRASE, "tokens": [4, 5, 6, 7], "greedy": greedy, "beam_best": best,
        "beam_kept": kept, "beam_place": None, "prefix_needed": needed, "log_prob": -3.0,
        "chance": 1.0,
    }  # fmt: skip


CONTROL = attempt("control", 0, False, None)


@pytest.fixture
def completion():
    attempts = (
        attempt("canary", 20, True, 1, best=True, kept=True),
        attempt("canary", 20, True, 0, best=True, kept=True),
        attempt("canary", 3, False, 2, kept=True),
        attempt("canary", 3, False, None),
        attempt("canary", 3, True, 1),
        CONTROL,
        attempt("shuffled", 20, False, 3),
        attempt("shuffled", 3, False, None),
    )
    return Completion(attempts=attempts, prefix=1, beam=4, checks=PASSED)


def test_each_number_of_copies_has_a_row_and_a_bar(saved, completion):
    report = report_of(saved(completion), show_secrets=False)
    table, completed = report.tables
    assert table.columns[:3] == ("copies", "canaries", "greedy")
    assert len(completed.rows) == 3
    assert [row[:3] for row in table.rows] == [
        ("3", "3", "33.3%"),
        ("20", "2", "100%"),
        ("never planted", "1", "0%"),
        ("in another order", "2", "0%"),
    ]
    low, high = clopper_pearson(1, 3)
    assert table.rows[0][3] == f"{100 * low:.1f} to {100 * high:.1f}%"
    assert [row[4] for row in table.rows] == ["0%", "100%", "0%", "0%"]
    assert [row[5] for row in table.rows] == ["2 of 4", "0 of 4", "4 of 4", "3 of 4"]
    [figure] = report.figures
    for label in ("3", "20", "never planted", "in another order"):
        assert re.search(rf">{label}</text>", figure.svg)


def test_the_sentences_state_the_rate_its_interval_and_the_controls(saved, completion):
    report = report_of(saved(completion), show_secrets=False)
    assert report.verdict.sentence == "Given 1 token, greedy decoding completes 3 of 5 canaries."
    assert report.evidence == (
        "Completed share of planted canaries: 60% (95% CI 14.7% to 94.7%); "
        "p = 0.5 compared with unplanted canaries or guesses (level 0.05).",
        "Controls: 0 of 1 never planted and 0 of 2 in another order.",
    )
    alone = Completion(attempts=(CONTROL,), prefix=2, beam=1, checks=PASSED)
    report = report_of(saved(alone, name="alone"), show_secrets=False)
    assert report.verdict.sentence == "No canary was planted."
    assert report.evidence == ("Controls: 0 of 1 never planted.",)


def test_a_phrase_is_shown_only_with_show_secrets(saved, completion):
    run = saved(completion, command=["vestige", "extract", "m", "planted", "--prefix", "2"])
    assert PHRASE in repr(report_of(run, show_secrets=True))
    report = report_of(run, show_secrets=False)
    assert not [word for word in PHRASE.split() if word in repr(report)]
    assert report.command.endswith("--prefix 2")
    assert any("can still leak" in limit for limit in report.limits)
