"""The page of an anatomy: answer, charts and tables."""

import math
import re

import pytest

from vestige.audits.anatomy.findings import RowIndex, sentences_of, unit_findings, word_findings
from vestige.audits.anatomy.report import RANKS, SILENCED, WORDS, accuracy, log_probabilities, ranks
from vestige.errors import RunError
from vestige.reports.charts import svg_of
from vestige.reports.page import render
from vestige.reports.report import report_of
from vestige.results import Result

NONE = float("nan")
WORD_GROUPS = ("all", "frequent", "rest", "frequent, same words", "rest, same words")
SILENT = (0.0, 0.5)


def anatomy(*, frequent=0.1, rest=0.7, margin=0.05, ablation=True):
    """A result with these gaps in log rank for the same words, all intervals of one margin."""
    rows = []

    def add(key, span, value, margin=margin):
        names = ("figure", "text", "words", "measure", "start", "stop", "value", "low", "high")
        numbers = (*map(float, span), value, value - margin, value + margin)
        values = (None if math.isnan(number) else number for number in numbers)
        rows.append({**dict(zip(names, (*key, *values), strict=True)), "n": 100})

    for words in ("frequent", "rest"):
        for text in ("seen", "unseen"):
            for cell in range(4):
                key = ("log-probabilities", text, words, "share")
                add(key, (cell - 4, cell - 3), 0.25, margin=NONE)
    for words in WORD_GROUPS:
        gap = rest if words.startswith("rest") else frequent
        for text, value in (("seen", -5.0), ("unseen", -5.5), ("gap", gap), ("null", 0.01)):
            add(("means", text, words, "log_prob"), (1, 100), value)
        for text, value in (("gap", -gap), ("null", 0.0)):
            add(("means", text, words, "log_rank"), (1, 100), value)
        add(("means", "seen", words, "share"), (1, 100), 0.5)
    for start in (1, 51):
        for text in ("seen", "unseen"):
            add(("ranks", text, "bin", "rank"), (start, start + 49), 40.0 * start, margin=5)
        for text in ("gap", "null"):
            add(("ranks", text, "bin", "log_rank"), (start, start + 49), -0.2)
    for silent in SILENT if ablation else ():
        for text in ("seen", "unseen", "gap", "null"):
            for words in ("frequent", "rest", "frequent - rest"):
                for measure, value in (("accuracy", 0.3), ("kept", 0.9), ("log_rank_lost", 0.4)):
                    add(("ablation", text, words, measure), (silent, silent), value)
    sizes = {"units": (30, 31), "texts": (300, 310), "words": (3000, 3100)}
    return Result(
        kind="Anatomy",
        rows=rows,
        summary={
            "unit": "users",
            **{f"seen_{name}": seen for name, (seen, _) in sizes.items()},
            **{f"unseen_{name}": unseen for name, (_, unseen) in sizes.items()},
            "texts_in_both": 0,
            "table_words": 100,
            "counted": "seen text",
            "frequent": 0.2,
            **word_findings(RowIndex(rows)),
            "orders": 5 if ablation else 0,
            "hidden_units": 128 if ablation else None,
            "ablated_frequent": 0.1,
            **unit_findings(RowIndex(rows)),
            "confidence": 0.95,
        },
    )


@pytest.mark.parametrize(
    ("gaps", "answer"),
    [
        ({}, "The model memorized frequent and rarer words, the rarer ones more."),
        ({"frequent": 0.7}, "The model memorized frequent and rarer words."),
        ({"frequent": 0.01}, "The model memorized the rarer words only."),
        ({"rest": 0.01}, "The model memorized frequent words only."),
        ({"frequent": 0.0, "rest": -0.2}, "No memorization shown: the same words rank no higher"),
        ({"margin": NONE}, "There is too little text for an answer."),
    ],
)
def test_the_answer_follows_from_intervals_for_the_same_words(gaps, answer):
    assert sentences_of(anatomy(**gaps).summary)[0].startswith(answer)


def test_sentences_have_ratios_with_intervals():
    text = " ".join(sentences_of({**anatomy().summary, "texts_in_both": 7}))
    for part in (
        "Perplexity is 148 on seen and 245 on unseen text, 1.11 times (1.05 to 1.16).",
        "frequent ones 1.11 times (1.05 to 1.16), others 2.01 times (1.92 to 2.12)",
        "With 50% of the hidden units silent, the frequent words of seen text",
        "rank 1.49 times (1.42 to 1.57) lower",
        "90% of the accuracy on frequent words and 90% of the accuracy on others",
        "7 of 310 unseen texts are also in the seen text",
    ):
        assert part in text


def test_the_page_has_charts_and_tables(saved):
    report = report_of(saved(anatomy()), show_secrets=False)
    assert report.title == "Which words does the model memorize?"
    assert len(report.figures) == 3
    assert [table.columns for table in report.tables] == [WORDS, RANKS, SILENCED, SILENCED]
    assert [len(table.rows) for table in report.tables] == [5, 2, 2, 1]
    assert all(len(row) == len(table.columns) for table in report.tables for row in table.rows)
    assert report.tables[1].rows[0][:3] == ("1 to 50", "100", "40 (35 to 45)")
    assert "resample whole users" in report.blocks[-1].lines[0]


def test_a_page_without_an_ablation_does_not_mention_units(saved):
    report = report_of(saved(anatomy(ablation=False)), show_secrets=False)
    assert (len(report.figures), len(report.tables)) == (2, 2)
    assert "silent" not in report.evidence[0] + report.evidence[1] + repr(report.blocks[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "title", "width"),
    [
        (log_probabilities, "share of words", 270),
        (ranks, "mean rank in the predictions", 700),
        (accuracy, "accuracy", 700),
    ],
)
def test_charts_name_their_axes_and_draw_both_texts(draw, title, width):
    svg = svg_of(draw(anatomy().rows, width=width))
    assert re.search(rf">{title}</text>", svg)
    assert "#222222" in svg
    assert "#111111" in svg
    assert "NaN" not in svg


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"margin": NONE}, {"ablation": False}])
def test_missing_numbers_are_not_shown_as_nan(saved, options):
    page = render([saved(anatomy(**options))], show_secrets=False)
    assert "<svg" in page
    assert "nan" not in re.sub(r"<[^>]*>", " ", page).lower().split()
    assert "NaN" not in page


def test_a_run_with_a_missing_number_is_refused(saved):
    result = anatomy()
    del result.summary["perplexity_ratio"]
    with pytest.raises(RunError, match="not a complete Anatomy run"):
        report_of(saved(result), show_secrets=False)
