"""A release passes, fails or cannot be told: from run directories, by exit code and by file."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as Xml

import jsonschema
import pytest
import yaml

from tests.docs.documents import REPOSITORY
from vestige import results
from vestige.cli.main import app
from vestige.errors import RunError
from vestige.release.gate import gate
from vestige.reports.quantities import QUANTITIES
from vestige.reports.verdicts import VERDICTS, summary_schema

PHRASES = ("the gate opens at nine", "the code is red")


def made(out: Path, kind: str, phrases=(), **summary):
    """A run directory of a kind of result."""
    rows = [{"kind": "phrase", "found": True, "phrase": one} for one in phrases] or [{"kind": "-"}]
    made_of = {"summary": lambda self: summary, "rows": lambda self: rows}
    results.save(type(kind, (), made_of)(), out, run={})
    return out


def diffed(out, *phrases, nulls=19, complete=True):
    verdict = "found" if phrases else "nothing found"
    return made(
        out, "UpdateDiff", phrases, complete=complete,
        verdict=verdict if nulls >= 19 else "not decided",
        found=len(phrases) if nulls >= 19 else None,
    )  # fmt: skip


def exposed(out, value, low, high, *, bound=False):
    return made(
        out, "CanaryExposure", verdict="leaks", sentence="…", references=128,
        exposure_planted=value, exposure_planted_low=low, exposure_planted_high=high,
        exposure_planted_is_bound=bound,
    )  # fmt: skip


def audited(out, verdict="used", least=3, most=None):
    return made(out, "TextAudit", verdict=verdict, at_least=least, at_most=most)


SITUATIONS = {
    "nothing found among null models": (0, lambda at: [diffed(at / "d")], ["found=0"]),
    "phrases found": (1, lambda at: [diffed(at / "d", *PHRASES)], ["found=0"]),
    "fewer found than the limit": (0, lambda at: [diffed(at / "d", *PHRASES)], ["found=2"]),
    "no null models": (2, lambda at: [diffed(at / "d", nulls=0)], ["found=0"]),
    "a search that was stopped": (2, lambda at: [diffed(at / "d", complete=False)], ["found=0"]),
    "exposure below": (0, lambda at: [exposed(at / "e", 4.0, 2.0, 6.0)], ["exposure=8"]),
    "exposure above": (1, lambda at: [exposed(at / "e", 9.0, 7.0, 9.5)], ["exposure=8"]),
    "an interval beyond": (2, lambda at: [exposed(at / "e", 6.0, 3.0, 9.0)], ["exposure=8"]),
    "no interval": (2, lambda at: [exposed(at / "e", 6.0, None, None)], ["exposure=8"]),
    "at the ceiling": (2, lambda at: [exposed(at / "e", 7, 5, 7, bound=True)], ["exposure=8"]),
    "no run measures it": (2, lambda at: [diffed(at / "d")], ["exposure=8"]),
    "no bound above": (2, lambda at: [audited(at / "t", least=0)], ["used=2"]),
    "bounded above": (0, lambda at: [audited(at / "t", least=0, most=2)], ["used=2"]),
    "a verdict without a limit": (1, lambda at: [audited(at / "t")], []),
    "no leak by its verdict": (0, lambda at: [audited(at / "t", "not shown", 0)], []),
    "an open verdict": (2, lambda at: [audited(at / "t", "not decided", 0)], []),
    "above and open": (
        1, lambda at: [diffed(at / "d", *PHRASES), exposed(at / "e", 6.0, 3.0, 9.0)],
        ["found=0", "exposure=8"],
    ),
    "a limit for one, a verdict for the other": (
        1, lambda at: [diffed(at / "d"), audited(at / "t")], ["found=0"],
    ),
}  # fmt: skip


RESULTS = ("failure", "error", "skipped", "system-out")
SCHEMA = {
    "testsuites": ({"name"}, {"tests", "failures", "errors"}, ("testsuite",)),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"skipped"}, ("testcase",)),
    "testcase": ({"name"}, {"classname"}, RESULTS),
    **dict.fromkeys(RESULTS[:3], (set(), {"type", "message"}, ())),
    "system-out": (set(), set(), ()),
}
"""What Jenkins' junit-10.xsd asks of an element, of what a gate writes: attributes that it must
have, others that it may have, and elements inside. Documents were held to the schema itself, too.
"""


def assert_fits_the_schema(element):
    must, may, inside = SCHEMA[element.tag]
    assert must <= set(element.attrib) <= must | may, element.tag
    for child in element:
        assert child.tag in inside
        assert_fits_the_schema(child)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_exit_codes_and_what_a_pipeline_shows(tmp_path, capsys, situation):
    code, runs, limits = SITUATIONS[situation]
    words = ["gate", *map(str, runs(tmp_path)), f"--junit={tmp_path / 'gate.xml'}"]
    words += [f"--fail-above={limit}" for limit in limits] + [f"--markdown={tmp_path / 'gate.md'}"]
    assert app(words) == code
    assert capsys.readouterr().out.startswith("Passed" if code == 0 else "Failed")
    root = Xml.parse(tmp_path / "gate.xml").getroot()
    assert_fits_the_schema(root)
    suite = root[0]
    count = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    for name, element in (("failures", "failure"), ("errors", "error"), ("tests", "testcase")):
        assert count[name] == len(list(suite.iter(element)))
    assert code == (1 if count["failures"] else 2 if count["errors"] else 0)
    table = (tmp_path / "gate.md").read_text()
    assert len(table.splitlines()) == 4 + count["tests"]
    assert app([*words, "--allow-open", "--json"]) == (code if code == 1 else 0)
    assert json.loads(capsys.readouterr().out)["code"] == (code if code == 1 else 0)


def test_what_was_accepted_passes_and_what_is_new_fails(tmp_path):
    file = tmp_path / "accepted.json"
    first = [diffed(tmp_path / "1" / "d", *PHRASES), exposed(tmp_path / "1" / "e", 9.0, 7.0, 9.5)]
    limits = ["found=0", "exposure=8"]
    assert gate(first, fail_above=limits, write_baseline=file).code == 1
    assert gate(first, fail_above=limits, baseline=file).code == 0
    assert not any(phrase in file.read_text() for phrase in PHRASES)
    assert file.stat().st_mode & 0o077 == 0
    fewer = [diffed(tmp_path / "2" / "d", PHRASES[1]), exposed(tmp_path / "2" / "e", 8.5, 7.0, 9.0)]
    assert gate(fewer, fail_above=limits, baseline=file).code == 0
    other = [diffed(tmp_path / "3" / "d", "a new phrase"), first[1]]
    found = gate(other, fail_above=limits, baseline=file)
    assert [check.state for check in found.checks] == ["above", "known"]
    assert "1 of them new" in found.checks[0].sentence
    more = [first[0], exposed(tmp_path / "4" / "e", 9.5, 9.0, 10.0)]
    assert [one.state for one in gate(more, fail_above=limits, baseline=file).checks] == [
        "known", "above"
    ]  # fmt: skip
    by_verdict = tmp_path / "verdicts.json"
    assert gate(first[0], write_baseline=by_verdict).code == 1
    assert gate(fewer[0], baseline=by_verdict).code == 0
    assert gate(other[0], baseline=by_verdict).code == 1


def test_no_phrase_stands_in_what_is_written(tmp_path, capsys):
    run = diffed(tmp_path / "d", *PHRASES)
    out = {f"--{name}={tmp_path / name}" for name in ("junit", "markdown", "write-baseline")}
    app(["gate", str(run), *sorted(out)])
    files = [tmp_path / name for name in ("junit", "markdown", "write-baseline")]
    written = capsys.readouterr().out + "".join(map(Path.read_text, files))
    assert not any(phrase in written for phrase in PHRASES)


def test_names_of_runs_are_no_markup(tmp_path):
    run = audited(tmp_path / "<b>|`x`\u202e")
    gate(run, junit=tmp_path / "g.xml", markdown=tmp_path / "g.md")
    [case] = Xml.parse(tmp_path / "g.xml").getroot().iter("testcase")
    assert case.attrib["classname"] == "<b>|`x`?"
    assert r"\<b\>\|\`x\`?" in (tmp_path / "g.md").read_text()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (["leaks=1"], r"must begin with one of exposure.* got 'leaks=1'$"),
        (["exposures=1"], "did you mean exposure"),
        (["memorised=1"], "did you mean memorized"),
        (["found"], "must end with =NUMBER"),
        (["found=inf"], "must end with =NUMBER"),
        (["found=1", "found=2"], "must name found once"),
    ],
)
def test_limits_that_are_none_are_refused(tmp_path, limits, message):
    with pytest.raises(ValueError, match=message):
        gate(diffed(tmp_path / "d"), fail_above=limits)


def test_runs_that_cannot_be_judged_are_refused(tmp_path):
    with pytest.raises(RunError, match="two run directories are called d"):
        gate([diffed(tmp_path / "1" / "d"), diffed(tmp_path / "2" / "d")])
    with pytest.raises(RunError, match="none of these runs has a verdict"):
        gate(made(tmp_path / "r", "DifferentialRank", score=1.0))
    with pytest.raises(RunError, match="no verdict that a UpdateDiff has"):
        gate(made(tmp_path / "old", "UpdateDiff", found=3))
    (tmp_path / "b.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=re.escape(str(tmp_path / "b.json"))):
        gate(diffed(tmp_path / "d"), baseline=tmp_path / "b.json")


DAMAGED = {
    "a summary that is cut off": ("summary.json", '{"found": 0', "is not JSON"),
    "a summary that is no object": ("summary.json", "[]", "holds a list, not an object"),
    "a summary that nobody may read": ("summary.json", None, "has no summary.json"),
    "a newer format": ("run.json", '{"format": 99, "result": "UpdateDiff"}', "has format 99"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_run_that_cannot_be_read_does_not_pass(tmp_path, capsys, damage):
    name, content, message = DAMAGED[damage]
    file = diffed(tmp_path / "d") / name
    file.unlink()
    if content is None:
        file.mkdir()  # what root may not read, either
    else:
        file.write_text(content)
    words = ["gate", str(tmp_path / "d"), "--fail-above=found=0", "--allow-open"]
    assert app([*words, f"--junit={tmp_path / 'gate.xml'}"]) == 2
    told = capsys.readouterr().err
    assert str(file if content else file.parent) in told
    assert re.search(message, told)
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "gate.xml").exists()


def test_what_a_baseline_accepts_of_a_run_that_is_not_there_is_named_and_decides_nothing(tmp_path):
    file = tmp_path / "accepted.json"
    was = [diffed(tmp_path / "old-diff\u202e", *PHRASES), exposed(tmp_path / "e", 9.0, 7.0, 9.5)]
    gate(was, fail_above=["found=0", "exposure=8"], write_baseline=file)
    found = gate(was[1], fail_above=["exposure=8"], baseline=file, markdown=tmp_path / "gate.md")
    assert (found.code, found.absent) == (0, (r"old-diff\u202e/found",))
    assert found.answer.endswith(r"also accepts old-diff\u202e/found: no such run is here.")
    assert "no such run is here" in (tmp_path / "gate.md").read_text()
    renamed = gate(diffed(tmp_path / "d", *PHRASES), fail_above=["found=0"], baseline=file)
    assert (renamed.code, len(renamed.absent)) == (1, 2)
    assert gate(was, fail_above=["found=0", "exposure=8"], baseline=file).absent == ()


MODULES = {
    "UpdateDiff": "attacks.update.null_searches",
    "CanaryExposure": "attacks.exposure.exposure_result",
    "Completion": "attacks.exposure.completion",
    "SecretCompletion": "attacks.exposure.secret_completion",
    "SecretRank": "attacks.exposure.secret_result",
    "SecretExposure": "attacks.exposure.secret_result",
    "SecretAudit": "attacks.extraction.secret_audit",
    "UserAudit": "attacks.membership.user_audit",
    "TextAudit": "attacks.texts.text_audit",
    "TextMemorization": "attacks.texts.text_memorization",
    "Deletion": "attacks.texts.deletion",
}


def test_verdicts_are_those_of_the_results():
    assert set(MODULES) == set(VERDICTS)
    for result, module in MODULES.items():
        module = import_module(f"vestige.{module}")
        assert set(get_args(module.Verdict)) == set(VERDICTS[result]), result


def test_the_schema_that_is_published_is_that_of_the_verdicts():
    published = REPOSITORY / "docs" / "summary.schema.json"
    assert json.loads(published.read_text()) == summary_schema()
    jsonschema.Draft202012Validator.check_schema(summary_schema())


def test_summaries_of_results_fit_their_schema():
    from tests.reports.made_runs import RESULTS

    seen = set()
    for name in set(RESULTS) & set(VERDICTS):
        run = results.run_of(RESULTS[name]())
        if "tests." in type(RESULTS[name]()).__module__:
            continue  # a stand-in
        schema = summary_schema()
        jsonschema.validate(run.summary, {**schema, "$ref": f"#/$defs/{run.result}"})
        seen.add(name)
        for quantity in QUANTITIES.values():
            if name in quantity.of:
                quantity.of[name](run.summary)
    assert len(seen) >= 6


WORKFLOW = re.compile(r"```yaml\n(jobs:.*?)```", re.S)


STAND_IN = """#!/bin/bash
echo "$*" >> calls.txt
if [ "$1" = gate ] || [ "$1" = report ]; then exec "{python}" -m vestige "$@"; fi
test -d "${{@: -1}}"
"""
"""What gates and reports is the program itself; what measures has run before."""


@pytest.fixture
def runner(tmp_path):
    """Take the steps of the guide's workflow in a shell, as a runner does; what failed."""
    guide = (REPOSITORY / "docs" / "gate-a-release.md").read_text()
    job = yaml.safe_load(WORKFLOW.search(guide)[1])["jobs"]["privacy"]
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vestige"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "bin" / "pip").symlink_to("/bin/true")
    own = {name: str(tmp_path / Path(value).name) for name, value in job["env"].items()}
    told = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": "summary.md"}
    told["PYTHONPATH"] = os.pathsep.join(sys.path)

    def run(checkout: Path) -> list[int]:
        failed: list[int] = []
        for step in job["steps"]:
            if "run" not in step or (failed and step.get("if") != "always()"):
                continue
            command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=checkout, env=os.environ | told | own, check=False)
            failed += [done.returncode] * bool(done.returncode)
        return failed

    return run


def checked_out(folder: Path, phrases, bits: float) -> Path:
    """A checkout in which the workflow's audits have run."""
    from tests.reports.conftest import UpdateDiff
    from tests.reports.made_runs import CanaryExposure, canary

    folder.mkdir()
    results.save(UpdateDiff(phrases, threshold=2.0), folder / "diff-run", run={})
    canaries = *(canary(3, bits + n / 10) for n in range(9)), canary(0, 1.0), canary(0, 2.0)
    exposure = CanaryExposure(canaries=canaries, words=50, fit_distance=0.01, seed=4)
    results.save(exposure, folder / "exposure-run", run={})
    gate(audited(folder / "t"), write_baseline=folder / "accepted.json")
    return folder


def test_the_workflow_of_the_guide_passes_compares_and_fails_as_its_gate_does(tmp_path, runner):
    first = checked_out(tmp_path / "first", [], 5.0)
    assert runner(first) == []
    assert "--since" not in (first / "calls.txt").read_text()
    assert "What changed" not in (first / "card.md").read_text()
    second = checked_out(tmp_path / "second", [], 2.0)
    assert runner(second) == []
    rows = re.findall(
        r"^\|.*\| (better|worse|no change shown) \|.*$", (second / "card.md").read_text(), re.M
    )
    assert rows == ["no change shown", "better"]
    assert (second / "summary.md").read_text().startswith("**Passed")
    kept = (tmp_path / "last-release" / "exposure-run" / "summary.json").read_text()
    assert json.loads(kept)["exposure_planted"] == 2.4
    third = checked_out(tmp_path / "third", [["the", " code"]], 3.0)
    assert runner(third) == [1]
    assert (third / "summary.md").read_text().startswith("**Failed")
    assert (tmp_path / "last-release" / "exposure-run" / "summary.json").read_text() == kept
    assert_fits_the_schema(Xml.parse(third / "gate.xml").getroot())
