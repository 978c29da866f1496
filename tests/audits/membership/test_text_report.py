"""The report of an audit of texts begins with its answer, and never says more than its numbers."""

from dataclasses import replace

import numpy as np

from tests.audits.membership.made_texts import PASSED, cut_scores
from vestige.audits.membership.report import LIMITS, TEXTS, UNDECIDED_SENTENCE, texts_finding
from vestige.audits.membership.text_audit import Scored, audit_scores
from vestige.claims import Check
from vestige.reports.page import render
from vestige.reports.report import report_of
from vestige.results import run_of

TOLD = {"score": "log-ratio", "texts_tokens": 60.0, "reference_tokens": 55.0}


def made(used, never, *, gain=3.0, known=0, reference=200, checks=PASSED):
    chance = np.random.default_rng(0)
    parts = [cut_scores(n, g, chance) for n, g in ((used, gain), (never, 0.0)) if n]
    texts = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    count = used + never
    excerpts = [f"<b>Rosalind {n}</b> \x1b[31m" for n in range(count)]
    return audit_scores(
        Scored(texts),
        Scored(cut_scores(reference, 0.0, chance)),
        Scored(cut_scores(known, gain, chance)) if known else None,
        checks=checks,
        more_columns={"length": texts.lengths.tolist(), "text": excerpts},
        facts=TOLD,
    )


def notices_of(found):
    return report_of(run_of(found), show_secrets=False).notices


def test_used_texts_are_counted_from_both_sides_first():
    found = made(12, 28, known=40)
    summary = found.summary
    least, most, named = (summary[name] for name in ("at_least", "at_most", "named"))
    assert texts_finding(summary) == (
        f"{least} to {most} of 40 texts were used for training (95% confidence each).",
        f"{named} flagged (false discovery rate 5%).",
    )
    assert not notices_of(found)


def test_the_line_of_the_verdict_is_the_finding():
    found = made(12, 28)
    report = report_of(run_of(found), show_secrets=False)
    least = found.summary["at_least"]
    assert report.headline[0] == (
        f"LEAK  At least {least} of 40 texts were used for training (95% confidence)."
    )
    assert report.headline[1].startswith("AUC: ")


def test_without_known_members_the_upper_bound_is_refused_with_what_is_missing():
    first, _, missing = texts_finding(made(12, 28).summary)
    assert first.startswith("At least ")
    assert " to " not in first
    assert "needs some twenty texts that are known to have been used (--used)" in missing


def test_not_used_is_a_claim_with_a_number():
    summary = made(0, 40, known=20, gain=1.5).summary
    assert 1 < summary["at_most"] < 30
    assert texts_finding(summary) == (
        f"At most {summary['at_most']} of 40 texts were used for training (95% confidence).",
        "The bound holds for texts that were used like the 20 known members.",
    )


def test_where_nothing_bounds_it_nothing_is_shown_and_nothing_excluded():
    for known in (0, 20):
        summary = made(0, 40, known=known, gain=0.0).summary
        first, open_, missing = texts_finding(summary)
        assert (
            first == "The model does not know these 40 texts better than texts that it never saw."
        )
        assert open_ == "This does not prove that they were not used."
        assert ("--used" if not known else "20 known members do not score") in missing


def test_where_a_check_did_not_pass_nothing_is_said_before_that():
    found = made(12, 28, known=40)
    unlike = Check("comparable", "failed", "The texts differ from the reference in length.")
    undecided = made(12, 28, known=40, checks=(*PASSED, unlike))
    first, because, _ = texts_finding(undecided.summary)
    assert first == UNDECIDED_SENTENCE
    assert f"The scores alone would say: “{texts_finding(found.summary)[0]}" in because


def test_bounds_that_contradict_each_other_are_told_of():
    found = made(12, 28, known=40)
    changed = {"at_least": 12, "at_most": 3, "consistent": False}
    odd = replace(found, summary={**found.summary, **changed})
    assert texts_finding(odd.summary)[0] == (
        "At least 12 of 40 texts were used for training (95% confidence)."
    )
    assert "contradict each other" in " ".join(notices_of(odd))


def test_texts_of_authors_are_counted_one_of_each():
    summary = {**made(12, 28).summary, "units": "authors"}
    assert "of 40 texts, one of each author, were used" in texts_finding(summary)[0]


def test_few_texts_of_reference_say_how_many_it_takes():
    found = made(1, 39, reference=60)
    others = [row["compared_with"] for row in found.rows if row["kind"] == "audited"]
    # Of n texts above all others, the nth smallest p-value must be at most n / 40 of the rate.
    lowest = sorted(1 / (1 + count) for count in others)
    least = next(n for n, p in enumerate(lowest, 1) if p <= 0.05 * n / 40)
    assert (
        f"With 60 reference texts, none is flagged unless {least} score above all of them; "
        "flagging a single one needs 799 reference texts." in notices_of(found)
    )


def test_the_page_shows_texts_only_when_asked_to_and_never_as_markup(saved):
    run = saved(made(12, 28, known=40))
    hidden = render([run], show_secrets=False)
    shown = render([run], show_secrets=True)
    assert "Rosalind" not in hidden
    assert "&lt;b&gt;Rosalind" in shown
    assert "<b>Rosalind" not in shown
    assert "\x1b" not in shown


def test_the_box_for_an_officer_has_the_answer_and_what_it_does_not_say(saved):
    found = made(12, 28, known=40)
    page = render([saved(found)], show_secrets=False)
    box = page.partition("For a data-protection officer")[2].partition("<h3>Method")[0]
    assert "Whether these 40 texts were in the training data" in box
    first = texts_finding(found.summary)[0]
    assert first in box
    assert all(limit in box for limit in (*LIMITS, *TEXTS.limits))
    assert page.index(first) < page.index("</figure>") < page.index(box)


def test_of_one_text_the_question_is_whether_it_was_used(saved):
    page = render([saved(made(1, 0))], show_secrets=False)
    assert "Whether this text was in the training data of a model (a membership" in page
