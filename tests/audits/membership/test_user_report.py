"""The page of an audit of users: for one person and for a data owner."""

import numpy as np
import pytest

from tests.reports.made_audits import KNOWN, audit_of, checks_of
from vestige.audits.membership.report import MAX_LISTED, UNDECIDED_SENTENCE
from vestige.errors import RunError
from vestige.reports.page import render
from vestige.reports.report import report_of
from vestige.results import run_of

NULL = [0.12, 0.4, 0.55, 0.97]
EVEN = np.linspace(-0.05, 0.05, 100).tolist()
DIFFERENT = checks_of(comparable="The texts differ.")


def page_of(scores, **options):
    null = [] if scores == [None] else NULL
    return report_of(run_of(audit_of(scores, null=null, **options)), show_secrets=False)


@pytest.mark.parametrize(
    ("scores", "options", "headline"),
    [
        ([0.2], {}, "LEAK  This user's texts are recognized as training data."),
        ([0.0], {}, "NO LEAK SHOWN  This user's texts are not recognized as training data."),
        ([0.2], {"checks": DIFFERENT}, f"UNDECIDED  {UNDECIDED_SENTENCE}"),
        ([0.2] * 30, {"checks": DIFFERENT}, f"UNDECIDED  {UNDECIDED_SENTENCE}"),
        ([None], {}, "UNDECIDED  No word of these texts could be queried."),
        ([0.2] * 30 + EVEN[:70], {}, "LEAK  The texts of 30 of 100 users are recognized as "
         "training data (false discovery rate 5%)."),
        (EVEN, {"known": KNOWN[:40]},
         "NO LEAK SHOWN  No user's texts are recognized as training data."),
        ([0.05] * 5, {"p": 0.01}, "LEAK  Texts of some of 5 users were used for training, but no "
         "single user is recognized."),
    ],
)  # fmt: skip
def test_the_headline_has_the_verdict_and_its_sentence(scores, options, headline):
    assert page_of(scores, **options).headline[0] == headline


def test_the_page_of_one_person_counts_non_members_who_score_as_high():
    page = page_of([0.2])
    assert page.title == "Was my text used?"
    assert page.evidence[1:] == (
        "0 of 134 non-members score as high over as many words (p = 0.0074).",
    )
    assert not page.notices
    above = sum(score >= 0 for score in KNOWN)
    assert page_of([0.0]).evidence[1].startswith(f"{above} of 134 non-members score as high")
    short = page_of([0.2], compared=90).evidence[2]
    assert short.startswith("Only 90 of the user's 240 words are compared")
    undecided = page_of([0.2], checks=DIFFERENT)
    assert "The scores alone would say: “This user's texts are recognized" in undecided.evidence[1]
    assert undecided.verdict.failed == ("The texts differ.",)
    assert page_of([None]).figures == []


def test_the_page_of_a_data_owner_names_what_is_not_bounded():
    page = page_of([0.2] * 30 + EVEN[:70])
    assert page.title == "Whose text was used?"
    assert float(dict(page.facts)["p-value"]) == pytest.approx(0.049, abs=0.001)
    assert not page.notices
    clean = page_of(EVEN, known=KNOWN[:40])
    assert clean.evidence[1] == "How many of the 100 users were used is not bounded."
    # The least p-value is 1 / 41, and 49 / 100 * 0.05 is the first multiple above it.
    assert "none is flagged unless 49 score above all of them" in clean.notices[0]


def test_the_table_of_users_has_names_only_on_request(saved):
    command = ["vestige", "membership", "m", "--person", "Rosalind"]
    audit = audit_of([0.2, *np.linspace(-0.1, 0.05, 39).tolist()], null=NULL)
    run = saved(audit, configuration={"person": "Rosalind"}, command=command)
    [listing] = report_of(run, show_secrets=False).tables
    assert listing.title == f"Smallest p-values ({40 - MAX_LISTED} more in the run folder)"
    assert listing.rows[0] == ("1 · ▪▪▪", "no", "0.0074", "0 of 134", "0.200", "240")
    assert len(listing.rows) == MAX_LISTED
    assert report_of(run, show_secrets=True).tables[0].rows[0][0] == "1 · Rosalind 0"
    assert "Rosalind" not in render([run], show_secrets=False)
    assert "Rosalind" in render([run], show_secrets=True)


def test_unanswered_queries_are_counted_and_many_are_noticed():
    queries = {"queries": 900, "budget": 1000, "words_asked": 1000, "failures": 0}
    page = page_of([0.2], words_unanswered=20, **queries)
    facts = dict(page.facts)
    assert (facts["queries"], facts["words unanswered"]) == ("900", "20")
    assert "failures" not in facts
    assert not page.notices
    [notice] = page_of([0.2], words_unanswered=200, **queries).notices
    assert notice.startswith("200 of 1,000 queries have no answer")


def test_a_run_without_an_audited_user_is_refused(saved):
    incomplete = {"summary": lambda self: {}, "rows": lambda self: [{"kind": "null"}]}
    with pytest.raises(RunError, match="not a complete UserAudit run"):
        report_of(saved(type("UserAudit", (), incomplete)()), show_secrets=False)
