"""The page of an audit of texts: bounds, notices, a note for officers, redaction."""

from dataclasses import replace

import numpy as np
import pytest

from tests.audits.membership.made_texts import PASSED, cut_scores
from vestige.audits.membership.report import LIMITS, TEXTS, UNDECIDED_SENTENCE, texts_finding
from vestige.audits.membership.text_audit import ScoredTexts, audit_scores
from vestige.claims import Check
from vestige.reports.page import render
from vestige.reports.report import report_of
from vestige.results import run_of

FACTS = {"score": "log-ratio", "texts_tokens": 60.0, "reference_tokens": 55.0}


def made(used, unused, *, gain=3.0, known=0, reference=200, checks=PASSED):
    """An audit of used and unused texts with hostile excerpts."""
    rng = np.random.default_rng(0)
    parts = [cut_scores(n, g, rng) for n, g in ((used, gain), (unused, 0.0)) if n]
    texts = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    excerpts = [f"<b>Rosalind {n}</b> \x1b[31m" for n in range(used + unused)]
    return audit_scores(
        ScoredTexts(texts),
        ScoredTexts(cut_scores(reference, 0.0, rng)),
        ScoredTexts(cut_scores(known, gain, rng)) if known else None,
        checks=checks,
        text_columns={"length": texts.lengths.tolist(), "text": excerpts},
        facts=FACTS,
    )


@pytest.fixture(scope="module")
def known_members():
    return made(12, 28, known=40)


def notices_of(result):
    return " ".join(report_of(run_of(result), show_secrets=False).notices)


def test_used_texts_are_bounded_or_the_missing_bound_is_explained(known_members):
    summary = known_members.summary
    least, most, flags = (summary[name] for name in ("at_least", "at_most", "named"))
    assert texts_finding(summary) == (
        f"{least} to {most} of 40 texts were used for training (95% confidence each).",
        f"{flags} flagged (false discovery rate 5%).",
    )
    assert not notices_of(known_members)
    authors = texts_finding({**summary, "units": "authors"})
    assert "of 40 texts, one of each author, were used" in authors[0]
    result = made(12, 28)
    first, _, missing = texts_finding(result.summary)
    assert first.startswith(f"At least {result.summary['at_least']} of 40 texts were used")
    assert "needs some twenty texts that are known to have been used (--used)" in missing
    headline = report_of(run_of(result), show_secrets=False).headline
    assert headline[0] == f"LEAK  {first}"
    assert headline[1].startswith("AUC: ")


def test_unused_texts_are_bounded_or_nothing_is_claimed():
    summary = made(0, 40, known=20, gain=1.5).summary
    assert 1 < summary["at_most"] < 30
    assert texts_finding(summary)[0].startswith(f"At most {summary['at_most']} of 40 texts")
    for known, reason in ((0, "--used"), (20, "20 known members do not score")):
        finding = texts_finding(made(0, 40, known=known, gain=0.0).summary)
        assert finding[0].startswith("The model does not know these 40 texts better than texts")
        assert finding[1] == "This does not prove that they were not used."
        assert reason in finding[2]


def test_a_failed_check_comes_before_the_finding(known_members):
    check = Check("comparable", "failed", "The texts differ from the reference in length.")
    first, second, _ = texts_finding(made(12, 28, known=40, checks=(*PASSED, check)).summary)
    assert first == UNDECIDED_SENTENCE
    assert f"The scores alone would say: “{texts_finding(known_members.summary)[0]}" in second


def test_notices_name_contradictory_bounds_and_a_small_reference(known_members):
    changed = {"at_least": 12, "at_most": 3, "consistent": False}
    contradictory = replace(known_members, summary={**known_members.summary, **changed})
    assert texts_finding(contradictory.summary)[0].startswith("At least 12 of 40 texts were used")
    assert "contradict each other" in notices_of(contradictory)
    small = made(1, 39, reference=60)
    compared = [row["compared_with"] for row in small.rows if row["kind"] == "audited"]
    # The nth smallest p-value must be at most n / 40 of the rate.
    least_p_values = sorted(1 / (1 + count) for count in compared)
    least = next(n for n, p in enumerate(least_p_values, 1) if p <= 0.05 * n / 40)
    assert (
        f"With 60 reference texts, none is flagged unless {least} score above all of them; "
        "flagging a single one needs 799 reference texts." in notices_of(small)
    )


@pytest.mark.slow
def test_the_page_has_a_note_for_an_officer_and_shows_texts_only_on_request(known_members, saved):
    run = saved(known_members)
    hidden, shown = (render([run], show_secrets=show) for show in (False, True))
    assert "Rosalind" not in hidden
    assert "&lt;b&gt;Rosalind" in shown
    assert "<b>Rosalind" not in shown
    assert "\x1b" not in shown
    note = hidden.partition("For a data-protection officer")[2].partition("<h3>Method")[0]
    first = texts_finding(known_members.summary)[0]
    assert all(line in note for line in (first, *LIMITS, *TEXTS.limits))
    assert hidden.index(first) < hidden.index("</figure>") < hidden.index(note)
    single = render([saved(made(1, 0), name="single")], show_secrets=False)
    assert "Whether this text was in the training data of a model (a membership" in single
