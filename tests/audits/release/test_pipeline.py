"""The published schema of summaries, and the workflow in the pipeline guide."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Xml

import jsonschema
import pytest
import yaml

from tests.audits.release.made import assert_valid_junit, save_text_audit
from tests.docs.documents import REPOSITORY
from tests.reports.conftest import UpdateDiff
from tests.reports.made_claims import made_claim, with_claim
from tests.reports.made_runs import RESULTS, CanaryExposure, canary
from vestige import results
from vestige.audits.release.release import report
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, VERDICTS
from vestige.reports.quantities import QUANTITIES
from vestige.reports.verdicts import VERBS

PUBLISHED = json.loads((REPOSITORY / "docs" / "summary.schema.json").read_text())


def test_the_published_schema_lists_verdicts_and_verbs():
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    kinds = dict(PUBLISHED["$defs"])
    claim = kinds.pop("claim")
    assert kinds == {
        kind: {
            "type": "object",
            "required": ["verdict", "claim"],
            "properties": {
                "verdict": {"enum": list(VERDICTS)},
                "claim": {
                    "$ref": "#/$defs/claim",
                    "properties": {"verb": {"pattern": f"^({'|'.join(verbs)})( |$)"}},
                },
            },
        }
        for kind, verbs in VERBS.items()
    }
    summary = results.plain(made_claim("diff", LEAK).summary()["claim"])
    for fields, schema in (
        (summary, claim),
        (summary["test"], claim["properties"]["test"]["anyOf"][0]),
        (summary["estimate"], claim["properties"]["estimate"]["anyOf"][0]),
        (summary["checks"][0], claim["properties"]["checks"]["items"]),
    ):
        assert list(fields) == schema["required"] == list(schema["properties"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", VERBS)
@pytest.mark.parametrize("verdict", VERDICTS)
def test_summaries_validate_against_the_schema(kind, verdict):
    schema = {**PUBLISHED, "$ref": f"#/$defs/{kind}"}
    for verb in VERBS[kind]:
        summary = results.plain(made_claim(verb, verdict).summary())
        jsonschema.validate(summary, schema)
    untested = results.plain(made_claim("diff", UNDECIDED, test=None).summary())
    jsonschema.validate(untested, {**schema, "$ref": "#/$defs/UpdateDiff"})
    for invalid in ({**summary, "verdict": "found"}, {"verdict": verdict}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(invalid, schema)


@pytest.mark.slow
def test_quantities_can_be_read_from_summaries():
    for name in set(RESULTS) & set(VERBS):
        summary = results.run_of(RESULTS[name]()).summary
        for quantity in QUANTITIES.values():
            if name in quantity.of:
                quantity.of[name](summary)


WORKFLOW = re.compile(r"```yaml\n(jobs:.*?)```", re.S)
FAKE_PROGRAM = """#!/bin/bash
echo "$*" >> calls.txt
if [ "$1" = report ]; then exec "{python}" -m vestige "$@"; fi
test -d "${{@: -1}}"
"""
"""Runs `report` for real; other commands only check that their run folder exists."""


@pytest.fixture
def runner(tmp_path):
    """Runs the steps of the guide's workflow in a shell and returns the failed exit codes."""
    guide = (REPOSITORY / "docs" / "guides" / "pipeline.md").read_text()
    job = yaml.safe_load(WORKFLOW.search(guide)[1])["jobs"]["privacy"]
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "vestige").write_text(FAKE_PROGRAM.format(python=sys.executable))
    (bin_folder / "vestige").chmod(0o755)
    (bin_folder / "pip").symlink_to("/bin/true")
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": "summary.md",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **{name: str(tmp_path / Path(value).name) for name, value in job["env"].items()},
    }

    def run(checkout):
        failed = []
        for step in job["steps"]:
            if "run" not in step or (failed and step.get("if") != "always()"):
                continue
            command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=checkout, env=environment, check=False)
            failed += [done.returncode] * bool(done.returncode)
        return failed

    return run


def make_checkout(folder, phrases, bits):
    """A checkout in which the audits of the workflow have finished."""
    folder.mkdir()
    claim = made_claim("diff", LEAK if phrases else NO_LEAK)
    diff = with_claim(UpdateDiff(phrases, threshold=2.0), claim)
    results.save(diff, folder / "diff-run", run={})
    canaries = *(canary(3, bits + n / 10) for n in range(9)), canary(0, 1.0), canary(0, 2.0)
    exposure = CanaryExposure(canaries=canaries, words=50, seed=4)
    exposure = with_claim(exposure, made_claim("exposure"))
    results.save(exposure, folder / "exposure-run", run={})
    report(save_text_audit(folder / "t"), write_baseline=folder / "accepted.json")
    return folder


@pytest.mark.slow
def test_the_workflow_passes_compares_and_fails_like_its_report(tmp_path, runner):
    first = make_checkout(tmp_path / "first", [], 5.0)
    assert runner(first) == []
    assert "--since" not in (first / "calls.txt").read_text()
    assert "What changed" not in (first / "card.md").read_text()
    second = make_checkout(tmp_path / "second", [], 2.0)
    assert runner(second) == []
    row = r"^\|.*\| (better|worse|no change shown) \|.*$"
    changes = re.findall(row, (second / "card.md").read_text(), re.M)
    assert changes == ["no change shown", "better"]
    assert (second / "summary.md").read_text().startswith("**PASSED")
    released = tmp_path / "last-release" / "exposure-run" / "summary.json"
    assert json.loads(released.read_text())["exposure_planted"] == 2.4
    third = make_checkout(tmp_path / "third", [["the", " code"]], 3.0)
    assert runner(third) == [1]
    assert (third / "summary.md").read_text().startswith("**FAILED")
    assert json.loads(released.read_text())["exposure_planted"] == 2.4
    assert_valid_junit(Xml.parse(third / "report.xml").getroot())
