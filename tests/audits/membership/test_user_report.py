"""One person's page and an owner's say what the audit found, and what it did not."""

from dataclasses import replace

import numpy as np
import pytest

from tests.attacks.made_users import answers_of, asked_of, counts_of
from tests.reports.made_audits import KNOWN, audit_of, checks_of, uniform
from vestige.attacks.membership.non_members import NonMembers
from vestige.attacks.membership.user_membership import membership_audit
from vestige.audits.membership.user_charts import one_among
from vestige.audits.membership.user_report import LISTED, null_share
from vestige.errors import RunError
from vestige.reports.charts import score_edges, sorted_p_values, svg_of
from vestige.reports.page import render
from vestige.reports.report import report_of

NULL = [0.12, 0.4, 0.55, 0.97]


def shown(saved, audit, *, show_secrets=False, **run):
    return report_of(saved(audit, **run), show_secrets=show_secrets)


def test_a_person_is_told_how_many_non_members_score_as_high(saved):
    page = shown(saved, audit_of([0.2], null=NULL))
    assert page.title == "Was my text used?"
    assert page.evidence == ("0 of 134 non-members score as high over as many words (p = 0.0074).",)
    assert page.verdict.word == "LEAK"
    assert not page.notices
    middle = shown(saved, audit_of([0.0], null=NULL), name="middle")
    reached = sum(score >= 0 for score in KNOWN)
    assert middle.evidence[0].startswith(f"{reached} of 134 non-members score as high")
    assert middle.verdict.word == "NO LEAK SHOWN"


@pytest.mark.parametrize("name", ["comparable", "alive"])
def test_a_failed_check_leaves_the_verdict_open(saved, name):
    audit = audit_of([0.2], null=NULL, checks=checks_of(**{name: "The texts differ."}))
    page = shown(saved, audit)
    assert page.verdict.word == "UNDECIDED"
    assert page.verdict.failed == ("The texts differ.",)
    many = shown(saved, replace(audit_of([0.2] * 30), checks=audit.checks), name="many")
    assert many.verdict.word == "UNDECIDED"


def test_somebody_of_whom_nothing_was_queried_has_a_page(saved):
    page = shown(saved, audit_of([None]))
    assert page.evidence[0] == "No word of this text could be queried."
    assert page.figures == []


def test_words_beyond_what_others_have_do_not_count(saved):
    audit = audit_of([0.2], null=NULL)
    [user] = audit.users
    page = shown(saved, replace(audit, users=(replace(user, compared_words=90),)))
    assert "over as many words; 90 of its 240 words: few non-members have more" in page.evidence[0]


def test_an_owner_learns_how_many_users_are_flagged_and_the_error_rate(saved):
    scores = [0.2] * 30 + np.linspace(-0.05, 0.05, 70).tolist()
    page = shown(saved, audit_of(scores, null=uniform(400)))
    assert page.title == "Whose text was used?"
    assert page.evidence[0].startswith("30 of 100 users flagged (false-discovery rate 5%).")
    assert float(dict(page.facts)["p-value"]) == pytest.approx(0.049, abs=0.001)
    assert not page.notices


def test_an_owner_without_flagged_users_learns_how_sharp_the_audit_was(saved):
    page = shown(saved, audit_of(np.linspace(-0.05, 0.05, 100).tolist(), known=KNOWN[:40]))
    assert page.evidence[0] == "No user flagged of 100; how many were used is not bounded."
    # The least p-value is 1 / 41, and 49 / 100 * 0.05 is the first multiple above it.
    assert "flags no one unless 49 users score highest together" in page.evidence[1]


def test_the_share_of_null_p_values_has_an_interval_over_users_not_over_p_values(saved):
    audit = audit_of([0.0] * 10, null=[0.01, *[0.5] * 9] * 4)
    null = [row for row in saved(audit).rows if row["kind"] == "null"]
    share, interval = null_share(null, 0.05)
    assert share == 0.1
    # One of ten users, whatever the number of models.
    margin = 2.262 * np.std([1.0, *[0.0] * 9], ddof=1) / np.sqrt(10)
    assert interval.high == pytest.approx(0.1 + margin, abs=1e-3)


def test_the_most_exposed_users_stand_in_a_table_without_their_names(saved):
    audit = audit_of([0.2, *np.linspace(-0.1, 0.05, 39).tolist()])
    [listing] = shown(saved, audit).tables
    assert listing.title == f"Users ({40 - LISTED} more in the run directory)"
    assert listing.rows[0] == ("1 · ▪▪▪", "no", "0.0074", "0 of 134", "0.200", "12", "240")
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


def test_the_persons_chart_has_a_dot_for_each_known_person_and_one_line():
    svg = svg_of(one_among(KNOWN, 0.05, label="this text"))
    assert svg.count('aria-roledescription="point"') == len(KNOWN)
    assert svg.count('aria-roledescription="rule mark"') >= 1
    assert "this text" in svg


@pytest.mark.parametrize("known", [[0.1], [0.0] * 5, KNOWN, KNOWN * 4])
@pytest.mark.parametrize("own", [-1.0, 0.1, 3.0])
def test_dots_right_of_the_line_are_those_who_score_as_high(known, own):
    edges = score_edges([*known, own], 30, through=own)
    counts = np.histogram(known, edges)[0]
    assert counts.sum() == len(known)
    right = (edges[:-1] + edges[1:]) / 2 > own
    assert counts[right].sum() == sum(score >= own for score in known)


def test_many_people_are_bars_and_many_users_a_line():
    wide = one_among(KNOWN * 4, 0.05, label="this text")
    assert len(svg_of(wide)) < 60_000
    users = sorted_p_values(uniform(5000), [False] * 5000, uniform(20000))
    assert len(svg_of(users)) < 60_000


def test_a_chart_is_drawn_for_a_broad_page_and_for_a_slim_one(saved):
    for figure in shown(saved, audit_of([0.2] * 3, null=NULL * 3)).figures:
        assert figure.svg.count("<svg") == 2
        assert 'class="broad"' in figure.svg
        assert 'class="slim"' in figure.svg


def test_an_audit_of_made_up_answers_becomes_a_page(saved):
    asked = asked_of(80, texts=4)
    audit = membership_audit(
        answers_of(asked, np.arange(10), gain=1.0),
        counts_of(),
        audited=range(20),
        known=NonMembers(fitted=tuple(range(20, 40)), compared=tuple(range(40, 80))),
    )
    audit = replace(audit, checks=checks_of())  # the workflow makes them
    page = shown(saved, audit)
    called = sum(user.called for user in audit.users)
    assert called >= 10
    assert page.evidence[0].startswith(f"{called} of 20 users flagged")
    assert str(audit.calibrated_on) in dict(page.facts)["calibrated on"]


def test_a_run_without_anybody_audited_is_refused(saved):
    class Hollow:
        def summary(self):
            return {}

        def rows(self):
            return [{"kind": "null"}]

    Hollow.__name__ = "UserAudit"
    with pytest.raises(RunError, match="not a complete UserAudit run"):
        report_of(saved(Hollow()), show_secrets=False)
