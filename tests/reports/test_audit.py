"""One person's page and an owner's say what the audit found, and what it did not."""

from dataclasses import replace

import numpy as np
import pytest

from tests.attacks.made_users import answers_of, asked_of, counts_of
from tests.reports.made_audits import KNOWN, audit_of, checks_of, uniform
from vestige.attacks.membership.non_members import NonMembers
from vestige.attacks.membership.user_membership import membership_audit
from vestige.errors import RunError
from vestige.reports.audit import charts as audit_charts
from vestige.reports.audit.section import LISTED
from vestige.reports.audit.words import AuditedRows
from vestige.reports.charts import svg_of
from vestige.reports.page import render
from vestige.reports.report import report_of

NULL = [0.12, 0.4, 0.55, 0.97]


def shown(saved, audit, *, show_secrets=False, **run):
    return report_of(saved(audit, **run), show_secrets=show_secrets)


def test_a_person_who_stands_out_is_told_so_and_how_seldom_chance_does_that(saved):
    page = shown(saved, audit_of([0.2], null=NULL))
    assert page.title == "Was my text used?"
    assert page.evidence[0] == "The model predicts this text better than chance explains."
    assert page.evidence[1] == (
        "Of 134 people whose text was certainly not used, each with as much of it, none scores as "
        "high. Somebody whose text was not used would come this far in 1 of 135 audits, or fewer "
        "(p = 0.0074). That is within the limit of 5 in 100, which was set before."
    )
    assert not page.notices


def test_a_person_amid_the_others_is_told_that_nothing_is_shown(saved):
    page = shown(saved, audit_of([0.0], null=NULL))
    reached = sum(score >= 0 for score in KNOWN)
    assert page.evidence[0] == "The model does not predict this text better than chance explains."
    assert f" {reached} score as high" in page.evidence[1]
    assert f"in {reached + 1} of 135 audits" in page.evidence[1]
    assert page.evidence[1].endswith("That is above the limit of 5 in 100, which was set before.")


@pytest.mark.parametrize("name", ["comparable", "alive"])
def test_a_failed_check_leaves_the_answer_open_and_is_said_by_the_claim(saved, name):
    audit = audit_of([0.2], null=NULL, checks=checks_of(**{name: "The texts differ."}))
    page = shown(saved, audit)
    assert page.evidence[0] == "This audit cannot tell whether this text was used."
    assert dict(page.facts)["answer"] == "undecided"
    assert audit.claim.reasons == ("The texts differ.",)
    many = shown(saved, replace(audit_of([0.2] * 30), checks=audit.checks), name="many")
    assert many.evidence[0] == "This audit cannot tell whether text of the 30 users was used."


def test_somebody_of_whom_nothing_was_asked_has_a_page(saved):
    page = shown(saved, audit_of([None]))
    assert page.evidence[0] == "None of the words could be asked about."
    assert page.figures == []


def test_words_beyond_what_others_have_are_said_not_to_count(saved):
    audit = audit_of([0.2], null=NULL)
    [user] = audit.users
    page = shown(saved, replace(audit, users=(replace(user, compared_words=90),)))
    assert "none scores as high (over 90 of its 240 words: few have more)." in page.evidence[1]


def test_an_owner_is_told_how_many_users_can_be_shown_with_an_interval(saved):
    scores = [0.2] * 30 + np.linspace(-0.05, 0.05, 70).tolist()
    page = shown(saved, audit_of(scores, null=uniform(400)))
    assert page.title == "Audit before release"
    assert (
        page.evidence[0] == "For 30 of 100 users an outsider could show that their text was used."
    )
    assert page.evidence[1].startswith("All users together have p = 0.049 (as a list alone")
    assert "30 users are flagged" in page.evidence[1]
    assert "about 5 in 100 of those flagged" in page.evidence[1]
    assert not page.notices


def test_an_owner_without_called_users_learns_how_sharp_the_audit_was(saved):
    page = shown(saved, audit_of(np.linspace(-0.05, 0.05, 100).tolist(), known=KNOWN[:40]))
    assert (
        page.evidence[0] == "Of none of the 100 users could it be shown that their text was used."
    )
    # The least p-value is 1 / 41, and 49 / 100 * 0.05 is the first multiple above it.
    assert "no one is flagged before 49 users stand out at once" in page.evidence[1]


def test_the_share_of_null_p_values_has_an_interval_over_users_not_over_p_values(saved):
    audit = audit_of([0.0] * 10, null=[0.01, *[0.5] * 9] * 4)
    found = AuditedRows.of(saved(audit).rows)
    share, interval = found.null_share(0.05)
    assert share == 0.1
    # One of ten users, whatever the number of models.
    margin = 2.262 * np.std([1.0, *[0.0] * 9], ddof=1) / np.sqrt(10)
    assert interval.high == pytest.approx(0.1 + margin, abs=1e-3)


def test_the_most_exposed_users_stand_in_a_table_without_their_names(saved):
    audit = audit_of([0.2, *np.linspace(-0.1, 0.05, 39).tolist()])
    [listing] = shown(saved, audit).tables
    assert listing.title == f"The most exposed users ({40 - LISTED} more are not listed)"
    assert listing.rows[0] == ("1 · ▪▪▪", "no", "0.0074", "0 of 134", "0.200", "240")
    assert len(listing.rows) == LISTED
    open_page = shown(saved, audit, show_secrets=True, name="open")
    assert open_page.tables[0].rows[0][0] == "1 · Rosalind 0"


@pytest.mark.parametrize("scores", [[0.2], [0.2] * 5])
def test_no_name_is_on_the_page_unless_it_is_wanted(saved, scores):
    run = saved(
        audit_of(scores, null=NULL),
        configuration={"person": "Rosalind"},
        command=["vestige", "audit-users", "m", "--person", "Rosalind"],
    )
    assert "Rosalind" not in render([run], show_secrets=False)
    assert "Rosalind" in render([run], show_secrets=True)


def test_questions_without_an_answer_are_counted_and_many_are_a_warning(saved):
    asked = {"queries": 900, "budget": 1000, "words_asked": 1000, "failures": 0}
    page = shown(saved, audit_of([0.2], null=NULL, words_unanswered=20, **asked))
    facts = dict(page.facts)
    assert facts["questions sent"] == "900"
    assert facts["words without an answer"] == "20"
    assert "calls that failed" not in facts
    assert not page.notices
    other = shown(saved, audit_of([0.2], null=NULL, words_unanswered=200, **asked), name="other")
    assert other.notices[0].startswith("200 of 1,000 questions stayed without an answer")


def test_the_persons_chart_has_a_dot_for_each_known_person_and_one_line():
    svg = svg_of(audit_charts.person_among(KNOWN, 0.05, label="this text"))
    assert svg.count('aria-roledescription="point"') == len(KNOWN)
    assert svg.count('aria-roledescription="rule mark"') >= 1
    assert "this text" in svg


@pytest.mark.parametrize("known", [[0.1], [0.0] * 5, KNOWN, KNOWN * 4])
@pytest.mark.parametrize("own", [-1.0, 0.1, 3.0])
def test_dots_right_of_the_line_are_those_who_score_as_high(known, own):
    edges = audit_charts._edges([*known, own], 30, through=own)
    counts = np.histogram(known, edges)[0]
    assert counts.sum() == len(known)
    right = (edges[:-1] + edges[1:]) / 2 > own
    assert counts[right].sum() == sum(score >= own for score in known)


def test_many_people_are_bars_and_many_users_a_line():
    wide = audit_charts.person_among(KNOWN * 4, 0.05, label="this text")
    assert len(svg_of(wide)) < 60_000
    users = audit_charts.sorted_p_values(uniform(5000), [False] * 5000, uniform(20000))
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
    assert page.evidence[0].startswith(f"For {called} of 20 users")
    assert f"{audit.calibrated_on} to compare with" in dict(page.facts)["non-members"]


def test_a_run_without_anybody_audited_is_refused(saved):
    class Hollow:
        def summary(self):
            return {}

        def rows(self):
            return [{"kind": "null"}]

    Hollow.__name__ = "UserAudit"
    with pytest.raises(RunError, match="not a complete UserAudit run"):
        report_of(saved(Hollow()), show_secrets=False)
