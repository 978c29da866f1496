"""The overview table of a page with several runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports.made_claims import made_claim, on_run, without_claim
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.claims import LEAK, UNDECIDED
from vestige.errors import RunError
from vestige.reports.page import overview, render
from vestige.reports.report import report_of


def run(kind, name="run", **summary):
    original = results.run_of(RESULTS[kind]())
    models = {"before": {"path": "/m/base"}, "after": {"path": "/m/new"}}
    record = {**original.run, "models": models}
    return replace(
        original, directory=Path(name), run=record, summary={**original.summary, **summary}
    )


def cells(*runs):
    sections = [report_of(run, show_secrets=False) for run in runs]
    return [[getattr(cell, "text", cell) for cell in row] for row in overview(runs, sections).rows]


@pytest.mark.slow
def test_a_row_has_question_verdict_and_estimate():
    exposure = on_run(run("CanaryExposure", "a"), made_claim("exposure", LEAK))
    rows = cells(exposure, without_claim(run("TextAudit", "b")), run("PairTraining", "c"))
    assert rows == [
        ["How exposed are the canaries?", "leak", "7.5 bits"],
        ["Were these texts used?", "not checked", "at least 10 texts"],
        ["How well did this model learn?", "–", "perplexity 40"],
    ]
    [_, deletion] = overview(
        [run("TextAudit"), run("Deletion")], [report_of(run("Deletion"), show_secrets=False)] * 2
    ).rows
    assert deletion[2].notes == ("0.03071 to 0.3754",)
    assert deletion[0].notes == ("run", "base, new")


def test_an_undecided_run_has_no_number():
    undecided = on_run(run("CanaryExposure", "a"), made_claim("exposure", UNDECIDED))
    assert cells(undecided, run("PairTraining", "c"))[0][1:3] == ["undecided", "not known"]


def with_weights(any_run, weights):
    return replace(
        any_run, run={**any_run.run, "models": {"model": {"path": "/m", "sha256": weights}}}
    )


@pytest.mark.slow
def test_a_page_states_whether_its_runs_audited_one_model():
    runs = [run("CanaryExposure", "a"), run("TextAudit", "b")]
    same = render([with_weights(run, "a" * 64) for run in runs], show_secrets=False)
    assert "All runs measured the same model." in same
    different = [with_weights(each, weight * 64) for each, weight in zip(runs, "ab", strict=True)]
    page = render(different, show_secrets=False)
    assert "The runs measured 2 different models. There is no joint verdict." in page


def test_the_error_of_a_damaged_summary_names_its_directory():
    sections = [report_of(run("UserAudit"), show_secrets=False)] * 2
    damaged = run("UserAudit", "broken")
    del damaged.summary["called"]
    with pytest.raises(RunError, match="broken is not a complete UserAudit run"):
        overview([damaged, damaged], sections)


@pytest.mark.slow
@pytest.mark.usefixtures("no_charts")
def test_one_run_has_no_overview_and_directory_names_are_escaped():
    assert "At a glance" not in render([run("TextAudit")], show_secrets=False)
    page = render([run("TextAudit", "<b>\u202ex"), run("Deletion")], show_secrets=False)
    assert "<b>" not in page
    assert "\u202e" not in page
