"""One person's page and an owner's say what the audit found, and what it did not."""

import numpy as np
import pytest

from tests.reports.made_audits import KNOWN, audit_of, checks_of, uniform
from vestige.audits.membership.report import LISTED, UNDECIDED_SENTENCE
from vestige.errors import RunError
from vestige.reports.charts import sorted_p_values, svg_of
from vestige.reports.page import render
from vestige.reports.report import report_of
from vestige.results import run_of

NULL = [0.12, 0.4, 0.55, 0.97]


def shown(audit):
    return report_of(run_of(audit), show_secrets=False)


def test_a_person_is_told_how_many_non_members_score_as_high():
    page = shown(audit_of([0.2], null=NULL))
    assert page.title == "Was my text used?"
    assert page.evidence[1:] == (
        "0 of 134 non-members score as high over as many words (p = 0.0074).",
    )
    assert page.headline[0] == "LEAK  This user's texts are recognized as training data."
    assert not page.notices
    middle = shown(audit_of([0.0], null=NULL))
    reached = sum(score >= 0 for score in KNOWN)
    assert middle.evidence[1].startswith(f"{reached} of 134 non-members score as high")
    assert middle.headline[0].startswith("NO LEAK SHOWN  This user's texts are not recognized")
    short = shown(audit_of([0.2], null=NULL, compared=90)).evidence[2]
    assert short.startswith("Only 90 of the user's 240 words are compared")


def test_a_failed_check_leaves_the_verdict_open():
    checks = checks_of(comparable="The texts differ.")
    page = shown(audit_of([0.2], null=NULL, checks=checks))
    assert page.headline[0] == f"UNDECIDED  {UNDECIDED_SENTENCE}"
    assert "The scores alone would say: “This user's texts are recognized" in page.evidence[1]
    assert page.verdict.failed == ("The texts differ.",)
    assert shown(audit_of([0.2] * 30, checks=checks)).verdict.word == "UNDECIDED"
    nothing = shown(audit_of([None]))
    assert nothing.headline[0] == "UNDECIDED  No word of these texts could be queried."
    assert nothing.figures == []


def test_an_owner_learns_how_many_users_are_flagged_and_how_sharp_the_audit_was():
    scores = [0.2] * 30 + np.linspace(-0.05, 0.05, 70).tolist()
    page = shown(audit_of(scores, null=uniform(400)))
    assert page.title == "Whose text was used?"
    assert page.headline[0] == (
        "LEAK  The texts of 30 of 100 users are recognized as training data (false discovery rate "
        "5%)."
    )
    assert float(dict(page.facts)["p-value"]) == pytest.approx(0.049, abs=0.001)
    assert not page.notices
    clean = shown(audit_of(np.linspace(-0.05, 0.05, 100).tolist(), known=KNOWN[:40]))
    assert clean.headline[0] == "NO LEAK SHOWN  No user's texts are recognized as training data."
    assert clean.evidence[1] == "How many of the 100 users were used is not bounded."
    # The least p-value is 1 / 41, and 49 / 100 * 0.05 is the first multiple above it.
    assert "none is flagged unless 49 score above all of them" in clean.notices[0]
    assert shown(audit_of([0.05] * 5, p=0.01)).headline[0] == (
        "LEAK  Texts of some of 5 users were used for training, but no single user is recognized."
    )


def test_the_most_exposed_users_stand_in_a_table_without_their_names(saved):
    audit = audit_of([0.2, *np.linspace(-0.1, 0.05, 39).tolist()], null=NULL)
    run = saved(
        audit,
        configuration={"person": "Rosalind"},
        command=["vestige", "membership", "m", "--person", "Rosalind"],
    )
    [listing] = report_of(run, show_secrets=False).tables
    assert listing.title == f"Smallest p-values ({40 - LISTED} more in the run folder)"
    assert listing.rows[0] == ("1 · ▪▪▪", "no", "0.0074", "0 of 134", "0.200", "240")
    assert len(listing.rows) == LISTED
    assert report_of(run, show_secrets=True).tables[0].rows[0][0] == "1 · Rosalind 0"
    assert "Rosalind" not in render([run], show_secrets=False)
    assert "Rosalind" in render([run], show_secrets=True)


def test_questions_without_an_answer_are_counted_and_many_are_a_warning():
    asked = {"queries": 900, "budget": 1000, "words_asked": 1000, "failures": 0}
    page = shown(audit_of([0.2], null=NULL, words_unanswered=20, **asked))
    facts = dict(page.facts)
    assert (facts["queries"], facts["words unanswered"]) == ("900", "20")
    assert "failures" not in facts
    assert not page.notices
    other = shown(audit_of([0.2], null=NULL, words_unanswered=200, **asked))
    assert other.notices[0].startswith("200 of 1,000 queries have no answer")


def test_charts_are_drawn_for_broad_and_slim_pages_and_many_users_are_a_line():
    for figure in shown(audit_of([0.2] * 3, null=NULL * 3)).figures:
        assert figure.svg.count("<svg") == 2
        assert 'class="broad"' in figure.svg
        assert 'class="slim"' in figure.svg
    users = sorted_p_values(uniform(5000), [False] * 5000, uniform(20000))
    assert len(svg_of(users)) < 60_000


def test_a_run_without_anybody_audited_is_refused(saved):
    class UserAudit:
        def summary(self):
            return {}

        def rows(self):
            return [{"kind": "null"}]

    with pytest.raises(RunError, match="not a complete UserAudit run"):
        report_of(saved(UserAudit()), show_secrets=False)
