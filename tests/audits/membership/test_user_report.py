"""One person's page and an owner's say what the audit found, and what it did not."""

import numpy as np
import pytest

from tests.audits.membership.made_users import queries_of, words_of
from tests.reports.made_audits import KNOWN, audit_of, checks_of, uniform
from vestige.audits.membership.ranked_words import score_words
from vestige.audits.membership.report import LISTED, UNDECIDED_SENTENCE
from vestige.audits.membership.user_audit import judge_users
from vestige.errors import RunError
from vestige.reports.charts import sorted_p_values, svg_of
from vestige.reports.page import render
from vestige.reports.report import report_of
from vestige.results import run_of

NULL = [0.12, 0.4, 0.55, 0.97]


def shown(saved, audit, *, show_secrets=False, **run):
    return report_of(saved(audit, **run), show_secrets=show_secrets)


def test_a_person_is_told_how_many_non_members_score_as_high(saved):
    page = shown(saved, audit_of([0.2], null=NULL))
    assert page.title == "Was my text used?"
    assert page.evidence[1:] == (
        "0 of 134 non-members score as high over as many words (p = 0.0074).",
    )
    assert page.headline[0] == "LEAK  This user's texts are recognized as training data."
    assert not page.notices
    middle = shown(saved, audit_of([0.0], null=NULL), name="middle")
    reached = sum(score >= 0 for score in KNOWN)
    assert middle.evidence[1].startswith(f"{reached} of 134 non-members score as high")
    assert middle.headline[0] == (
        "NO LEAK SHOWN  This user's texts are not recognized as training data."
    )


@pytest.mark.parametrize("name", ["comparable", "alive"])
def test_a_failed_check_leaves_the_verdict_open(saved, name):
    checks = checks_of(**{name: "The texts differ."})
    page = shown(saved, audit_of([0.2], null=NULL, checks=checks))
    assert page.headline[0] == f"UNDECIDED  {UNDECIDED_SENTENCE}"
    assert "The scores alone would say: “This user's texts are recognized" in page.evidence[1]
    assert page.verdict.failed == ("The texts differ.",)
    many = shown(saved, audit_of([0.2] * 30, checks=checks), name="many")
    assert many.verdict.word == "UNDECIDED"


def test_somebody_of_whom_nothing_was_queried_has_a_page(saved):
    page = shown(saved, audit_of([None]))
    assert page.headline[0] == "UNDECIDED  No word of these texts could be queried."
    assert page.figures == []


def test_words_beyond_what_others_have_do_not_count(saved):
    page = shown(saved, audit_of([0.2], null=NULL, compared=90))
    assert page.evidence[2] == (
        "Only 90 of the user's 240 words are compared: few non-members have more."
    )


def test_an_owner_learns_how_many_users_are_flagged_and_the_error_rate(saved):
    scores = [0.2] * 30 + np.linspace(-0.05, 0.05, 70).tolist()
    page = shown(saved, audit_of(scores, null=uniform(400)))
    assert page.title == "Whose text was used?"
    assert page.headline[0] == (
        "LEAK  The texts of 30 of 100 users are recognized as training data (false discovery rate "
        "5%)."
    )
    assert float(dict(page.facts)["p-value"]) == pytest.approx(0.049, abs=0.001)
    assert not page.notices


def test_an_owner_without_flagged_users_learns_how_sharp_the_audit_was(saved):
    page = shown(saved, audit_of(np.linspace(-0.05, 0.05, 100).tolist(), known=KNOWN[:40]))
    assert page.headline[0] == "NO LEAK SHOWN  No user's texts are recognized as training data."
    assert page.evidence[1] == "How many of the 100 users were used is not bounded."
    # The least p-value is 1 / 41, and 49 / 100 * 0.05 is the first multiple above it.
    assert "none is flagged unless 49 score above all of them" in page.notices[0]


def test_a_list_that_stands_out_without_a_single_user_is_a_leak_of_some():
    page = report_of(run_of(audit_of([0.05] * 5, p=0.01)), show_secrets=False)
    assert page.headline[0] == (
        "LEAK  Texts of some of 5 users were used for training, but no single user is recognized."
    )


def test_the_most_exposed_users_stand_in_a_table_without_their_names(saved):
    audit = audit_of([0.2, *np.linspace(-0.1, 0.05, 39).tolist()])
    [listing] = shown(saved, audit).tables
    assert listing.title == f"Smallest p-values ({40 - LISTED} more in the run folder)"
    assert listing.rows[0] == ("1 · ▪▪▪", "no", "0.0074", "0 of 134", "0.200", "240")
    assert len(listing.rows) == LISTED
    open_page = shown(saved, audit, show_secrets=True, name="open")
    assert open_page.tables[0].rows[0][0] == "1 · Rosalind 0"


@pytest.mark.parametrize("scores", [[0.2], [0.2] * 5])
def test_no_name_is_on_the_page_unless_it_is_wanted(saved, scores):
    run = saved(
        audit_of(scores, null=NULL),
        configuration={"person": "Rosalind"},
        command=["vestige", "membership", "m", "--person", "Rosalind"],
    )
    assert "Rosalind" not in render([run], show_secrets=False)
    assert "Rosalind" in render([run], show_secrets=True)


def test_questions_without_an_answer_are_counted_and_many_are_a_warning(saved):
    asked = {"queries": 900, "budget": 1000, "words_asked": 1000, "failures": 0}
    page = shown(saved, audit_of([0.2], null=NULL, words_unanswered=20, **asked))
    facts = dict(page.facts)
    assert facts["queries"] == "900"
    assert facts["words unanswered"] == "20"
    assert "failures" not in facts
    assert not page.notices
    other = shown(saved, audit_of([0.2], null=NULL, words_unanswered=200, **asked), name="other")
    assert other.notices[0].startswith("200 of 1,000 queries have no answer")


def test_many_users_are_a_line():
    users = sorted_p_values(uniform(5000), [False] * 5000, uniform(20000))
    assert len(svg_of(users)) < 60_000


def test_a_chart_is_drawn_for_a_broad_page_and_for_a_slim_one(saved):
    for figure in shown(saved, audit_of([0.2] * 3, null=NULL * 3)).figures:
        assert figure.svg.count("<svg") == 2
        assert 'class="broad"' in figure.svg
        assert 'class="slim"' in figure.svg


def test_an_audit_of_made_up_answers_becomes_a_page(saved):
    words = words_of(queries_of(80, texts=4), np.arange(10), gain=1.0)
    scores = score_words(words, range(20, 40))
    judged = judge_users(words.queries, scores, range(20), range(40, 80))
    audit = judged.result(checks_of(), {"k": words.k, "vocab_size": words.vocab_size})
    page = shown(saved, audit)
    called = audit.summary["called"]
    assert called >= 10
    assert page.answer.startswith(f"The texts of {called} of 20 users are recognized")
    assert str(audit.summary["calibrated_on"]) in dict(page.facts)["calibrated on"]


def test_a_run_without_anybody_audited_is_refused(saved):
    class Hollow:
        def summary(self):
            return {}

        def rows(self):
            return [{"kind": "null"}]

    Hollow.__name__ = "UserAudit"
    with pytest.raises(RunError, match="not a complete UserAudit run"):
        report_of(saved(Hollow()), show_secrets=False)
