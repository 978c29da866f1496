"""Files beside the run of a check: a page, a card for the model, and two files for pipelines."""

from collections.abc import Mapping
from typing import Any

from vestige.audits.check.stage import SHARES
from vestige.audits.check.verdict import TITLES
from vestige.claims import LEAK, UNDECIDED, Claim
from vestige.reports.disclosure import printable
from vestige.reports.junit import Case, End, junit
from vestige.results import Run, to_json

SUITE = "vestige check"
EXIT_CODES = {LEAK: 1, UNDECIDED: 3}
"""Of a verdict; 0 for no leak shown."""


def files(run: Run) -> dict[str, str]:
    """Text by name of file; none of them holds text of a corpus or model."""
    from vestige.reports.page import card, render

    claim = Claim.from_summary(run.summary)
    return {
        "page.html": render([run], show_secrets=False),
        "card.md": card([run]),
        "check.json": to_json(facts(run.summary, claim)) + "\n",
        "junit.xml": junit(SUITE, cases(run.summary, claim)),
    }


def facts(summary: Mapping[str, Any], claim: Claim) -> dict[str, Any]:
    """The verdict, its stages and controls for programs."""
    found = summary["positive"] or {}
    keys = ("name", "state", "sentence", "seconds")
    stages = [
        {
            **{key: one[key] for key in keys},
            "p": summary[f"p_{one['name']}"],
            "controls": {
                "negative": {"passed": one["passed"], "sentence": one["negative"]},
                "positive": {"passed": found.get(one["name"])},
            },
        }
        for one in summary["stages"]
    ]
    return {
        "verdict": claim.verdict,
        "exit_code": EXIT_CODES.get(claim.verdict, 0),
        "reasons": list(claim.reasons),
        "stages": stages,
        "checks": [
            {"name": one.name, "state": one.state, "sentence": one.sentence}
            for one in claim.checks
            if one.name not in SHARES
        ],
        "notes": summary["notes"],
    }


def cases(summary: Mapping[str, Any], claim: Claim) -> list[Case]:
    """One case per stage, control and check of the models: failures only for a leak."""
    leaks = claim.verdict == LEAK
    stages: dict[str, End] = {"clear": "system-out", "not run": "skipped", "open": "error"}
    stages["leak"] = "failure" if leaks else "error"
    checks: dict[str, End] = {"passed": "system-out", "failed": "error"}
    checks["could not run"] = "skipped" if leaks else "error"
    found = [
        Case(SUITE, TITLES[one["name"]], stages[one["state"]], one["sentence"], one["state"])
        for one in summary["stages"]
    ]
    found += [
        Case(SUITE, one.name, checks[one.state], one.sentence, one.state)
        for one in claim.checks
        if one.name not in SHARES
    ]
    return [case._replace(sentence=printable(case.sentence)) for case in found]
