"""The line of the verdict says the finding in one sentence; a leak of secrets before phrases."""

from pathlib import Path

import pytest

from vestige.audits.update.report import diff_report, searched
from vestige.results import Run

NONE = {"phrases": 0, "null_searches": 19, "found": 0}
SOME = {"phrases": 41, "null_searches": 19, "found": 0, "top_score": 2.1, "top_reached_by": 0}
VERBATIM = "AFTER generates 1 of 3 listed secrets verbatim, and BEFORE does not."
PROMOTED = "The update promoted 2 of 3 listed secrets more than 19 null models did"


@pytest.mark.parametrize(
    ("summary", "answer", "evidence"),
    [
        (NONE, "The search found no promoted phrase.", "use --phrase"),
        ({**SOME, "null_searches": 0}, "41 phrases ranked, no null models: there is no", ""),
        ({**SOME, "found": 7}, "The update reveals 7 of 41 phrases (19 null models).", "most 5%."),
        (
            {**SOME, "null_top_score": 1.0},
            "No score of 19 null models reaches the best score of 41 phrases (2.10 against 1.00).",
            "",
        ),
        (
            {**SOME, "top_reached_by": 3},
            "3 of 19 null models reach the best score of 41 phrases, 2.10.",
            "",
        ),
        ({**SOME, "known": 3, "known_generated": 1}, VERBATIM, "No score of 19 null models"),
        ({**SOME, "known": 3, "known_beyond": 2}, PROMOTED, "None of 3 listed secrets is shown"),
        ({**SOME, "known": 3, "known_beyond": 2, "known_generated": 1}, VERBATIM, PROMOTED),
        (
            {**SOME, "known": 3, "known_beyond": 0},
            "No score of 19 null models",
            "more than 19 null models",
        ),
    ],
)
def test_the_finding_is_one_sentence(summary, answer, evidence):
    run = Run(directory=Path(), run={"result": "UpdateDiff"}, summary=summary, rows=[])
    made = diff_report(run, show_secrets=False)
    assert made.answer.startswith(answer)
    assert ". " not in made.answer
    assert evidence in " ".join(made.evidence)
    assert len(made.evidence) <= 2  # the numbers of the claim come first


def test_a_search_that_ran_out_of_time_says_what_is_done():
    summary = {"forward_tokens": 5_000, "complete": False, "units_done": 1, "units": 5}
    assert searched(summary) == (
        "Searched: 5,000 tokens. Time limit: 1 of 5 steps done. Rerun to resume."
    )
    nulls = {"units_done": 5, "null_searches": 2, "nulls_asked": 19}
    assert searched(summary | nulls) == (
        "Searched: 5,000 tokens. Time limit: 2 of 19 null searches done. Rerun to resume."
    )
