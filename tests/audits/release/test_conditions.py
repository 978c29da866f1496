"""Reports of run folders pass, fail or are undecided: exit codes, files, baselines."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.audits.release.made import (
    assert_valid_junit,
    save_deletion,
    save_diff,
    save_exposure,
    save_run,
    save_secrets,
    save_text_audit,
)
from tests.reports.made_claims import made_claim, with_claim
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.audits.release.release import report
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Estimate
from vestige.cli.app import run as run_command
from vestige.errors import RunError

PHRASES = ("the gate opens at nine", "the code is red")
PASS, FAIL, OPEN = 0, 1, 3
ANSWERS = {PASS: "PASSED", FAIL: "FAILED", OPEN: "UNDECIDED"}


def saver(save, *values, **options):
    """A function that saves a run in a folder."""
    return lambda folder: save(folder, *values, **options)


REVEALED = saver(save_diff, *PHRASES)
UNSURE = saver(save_exposure, 6.0, 3.0, 9.0)
UNDECIDED_EXPOSURE = saver(save_exposure, 9.0, 8.5, 9.5, verdict=UNDECIDED)
USERS = saver(save_run, "UserAudit", NO_LEAK, called=0)
SITUATIONS = {
    "no phrase above the null models": (PASS, [save_diff], ["found=0"]),
    "phrases revealed": (FAIL, [REVEALED], ["found=0"]),
    "a leak below its limit": (FAIL, [REVEALED], ["found=2"]),
    "an undecided search": (OPEN, [saver(save_diff, verdict=UNDECIDED)], ["found=0"]),
    "a stopped search": (OPEN, [saver(save_diff, complete=False)], ["found=0"]),
    "exposure below": (PASS, [saver(save_exposure, 4.0, 2.0, 6.0)], ["exposure=8"]),
    "exposure above": (FAIL, [saver(save_exposure, 9.0, 7.0, 9.5)], ["exposure=8"]),
    "an interval across the limit": (OPEN, [UNSURE], ["exposure=8"]),
    "no interval": (OPEN, [saver(save_exposure, 6.0, None, None)], ["exposure=8"]),
    "at the ceiling": (OPEN, [saver(save_exposure, 7, 5, 7, bound=True)], ["exposure=8"]),
    "no run measures it": (OPEN, [save_diff], ["exposure=8"]),
    "no bound above": (OPEN, [saver(save_text_audit, NO_LEAK, 0)], ["used=2"]),
    "bounded above": (PASS, [saver(save_text_audit, NO_LEAK, 0, 2)], ["used=2"]),
    "users without a bound": (OPEN, [USERS], ["members=0"]),
    "a verdict without a limit": (FAIL, [save_text_audit], []),
    "no leak by its verdict": (PASS, [saver(save_text_audit, NO_LEAK, 0)], []),
    "an undecided verdict": (OPEN, [saver(save_text_audit, UNDECIDED, 0)], []),
    "above and undecided": (FAIL, [REVEALED, UNSURE], ["found=0", "exposure=8"]),
    "a limit for one, a verdict for the other": (FAIL, [save_diff, save_text_audit], ["found=0"]),
    "a verified deletion": (PASS, [saver(save_deletion, NO_LEAK)], ["left=0.2"]),
    "all secrets in part": (OPEN, [saver(save_secrets, verdict=NO_LEAK, in_part=30)], ["found=0"]),
    "an undecided run above a limit": (OPEN, [UNDECIDED_EXPOSURE], ["exposure=8"]),
    "an older run without a claim": (OPEN, [saver(save_run, "UpdateDiff", found=0)], ["found=0"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_exit_codes_match_the_junit_and_markdown_files(tmp_path, capsys, situation):
    code, savers, limits = SITUATIONS[situation]
    runs = [save(tmp_path / str(number)) for number, save in enumerate(savers)]
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"
    arguments = ["report", *map(str, runs), f"--junit={junit}", f"--markdown={markdown}"]
    arguments += [f"--fail-above={limit}" for limit in limits]
    assert run_command(arguments) == code
    assert capsys.readouterr().out.startswith(ANSWERS[code])
    root = Xml.parse(junit).getroot()
    assert_valid_junit(root)
    counts = {name: int(root[0].attrib[name]) for name in ("tests", "failures", "errors")}
    for name, element in (("failures", "failure"), ("errors", "error"), ("tests", "testcase")):
        assert counts[name] == len(list(root[0].iter(element)))
    assert code == (1 if counts["failures"] else 3 if counts["errors"] else 0)
    assert len(markdown.read_text().splitlines()) == 4 + counts["tests"]
    expected = code if code == FAIL else PASS
    assert run_command([*arguments, "--allow-undecided", "--json"]) == expected
    assert json.loads(capsys.readouterr().out)["code"] == expected


def test_reports_without_limits_accept_any_runs(tmp_path, capsys):
    same_name = [
        save_run(tmp_path / folder / "r", "DifferentialRank", score=1.0) for folder in "12"
    ]
    assert report(same_name).exit_code == PASS
    other_models = [
        save_exposure(tmp_path / folder / "e", 4.0, 2.0, 6.0, run=of_model(folder))
        for folder in "12"
    ]
    assert report(other_models).exit_code == OPEN, "the runs are of two models"
    leak = with_claim(RESULTS["UpdateDiff"](), made_claim("diff", LEAK))
    assert run_command(["report", str(results.save(leak, tmp_path / "d", run={}))]) == FAIL
    assert capsys.readouterr().out.startswith("LEAK")


# Baselines: accepted findings pass and new ones fail.


def states_of(result):
    return [row["state"] for row in result.rows]


def test_the_same_phrases_and_lower_numbers_are_accepted(tmp_path):
    file, limits = tmp_path / "accepted.json", ["found=0", "exposure=8"]

    def exposure(release, value):
        return save_exposure(tmp_path / release / "e", value, value - 1, value + 0.5, verdict=LEAK)

    first = [save_diff(tmp_path / "1" / "d", *PHRASES), exposure("1", 9.0)]
    assert report(first, fail_above=limits, write_baseline=file).exit_code == FAIL
    assert report(first, fail_above=limits, baseline=file).exit_code == PASS
    assert not any(phrase in file.read_text() for phrase in PHRASES)
    assert file.stat().st_mode & 0o077 == 0
    fewer = [save_diff(tmp_path / "2" / "d", PHRASES[1]), exposure("2", 8.5)]
    assert report(fewer, fail_above=limits, baseline=file).exit_code == PASS
    changed = [save_diff(tmp_path / "3" / "d", "a new phrase"), first[1]]
    result = report(changed, fail_above=limits, baseline=file)
    assert states_of(result) == ["above", "above", "known", "known"]
    assert "1 not accepted before" in result.rows[0]["sentence"]
    higher = report([first[0], exposure("4", 9.5)], fail_above=limits, baseline=file)
    assert states_of(higher) == ["known", "known", "known", "above"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accepted", "later", "new"),
    [
        (["a"], ["a"], 0),
        (["a", "b"], ["a", "c"], 1),
        (["a", "b"], ["a", "a"], 1),  # twice instead of once
        (["the code is 4917"], [f"the code is {number}" for number in range(15)], 15),
    ],
)
def test_secrets_that_were_not_accepted_fail(tmp_path, accepted, later, new):
    file = tmp_path / "accepted.json"
    report(save_secrets(tmp_path / "1" / "s", *accepted), write_baseline=file)
    result = report(save_secrets(tmp_path / "2" / "s", *later), baseline=file)
    assert result.exit_code == (FAIL if new else PASS)
    assert not new or f"{new} not accepted before" in result.rows[0]["sentence"]


def test_an_accepted_leak_passes_below_its_limit_and_not_above(tmp_path):
    file = tmp_path / "accepted.json"

    def save(release, value):
        claim = made_claim("exposure", LEAK, estimate=Estimate("exposure", value))
        bounds = (value, value - 1, value + 1)
        return save_exposure(tmp_path / release / "e", *bounds, verdict=LEAK, claim=claim)

    report(save("1", 4.0), write_baseline=file)
    for release, (value, limits, code) in enumerate(
        [(5.0, [], FAIL), (5.0, ["exposure=8"], PASS), (9.0, ["exposure=8"], FAIL)], 2
    ):
        assert report(save(str(release), value), baseline=file, fail_above=limits).exit_code == code


def test_accepted_runs_that_are_absent_are_listed_and_do_not_fail(tmp_path):
    file, markdown = tmp_path / "accepted.json", tmp_path / "gate.md"
    earlier = [
        save_diff(tmp_path / "old-diff\u202e", *PHRASES),
        save_exposure(tmp_path / "e", 9.0, 7.0, 9.5),
    ]
    limits = ["found=0", "exposure=8"]
    report(earlier, fail_above=limits, write_baseline=file)
    result = report(earlier[1], fail_above=limits[1:], baseline=file, markdown=markdown)
    absent = [rf"old-diff\u202e/{name}" for name in ("found", "verdict")]
    assert (result.exit_code, result.summary["absent"]) == (PASS, absent)
    sentence = f"also accepts {', '.join(absent)}: no such run is here."
    assert result.report().verdict.sentence.endswith(sentence)
    assert "no such run is here" in markdown.read_text()
    renamed = report(save_diff(tmp_path / "d", *PHRASES), fail_above=limits[:1], baseline=file)
    assert (renamed.exit_code, len(renamed.summary["absent"])) == (FAIL, 3)
    assert report(earlier, fail_above=limits, baseline=file).summary["absent"] == []


# Runs must measure one model and be unchanged.


def of_model(weights, manifest="m"):
    model = {"path": "/m", "sha256": weights}
    return {"models": {"model": model}, "data": {"manifest": manifest}}


NO_PATH = {"models": {"model": {"path": None, "sha256": "a"}}}


@pytest.mark.parametrize(
    ("record", "code", "sentence"),
    [
        (of_model("a"), PASS, "All runs measured the same model."),
        (of_model("b"), OPEN, "The runs measured 2 different models."),
        (of_model("a", "n"), OPEN, "2 different manifests"),
        (NO_PATH, OPEN, "Not all runs have a hash"),
        ({"models": {"after": {"path": "/m", "sha256": "a"}}}, PASS, "the same model"),
    ],
)
def test_runs_of_different_models_or_manifests_are_undecided(tmp_path, record, code, sentence):
    exposure = save_exposure(tmp_path / "e", 4.0, 2.0, 6.0, run=of_model("a"))
    result = report([exposure, save_diff(tmp_path / "d", run=record)])
    assert (result.exit_code, result.rows[0]["quantity"]) == (code, "one model")
    assert sentence in result.rows[0]["sentence"]


def test_an_edited_run_is_rejected(tmp_path, capsys):
    folder = save_exposure(tmp_path / "e", 9.0, 8.0, 9.5, verdict=LEAK)
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    file.write_text(json.dumps({**summary, "exposure_planted": 1.0}))
    assert run_command(["report", str(folder)]) == 2
    assert "was changed after the run" in capsys.readouterr().err
    run = json.loads((folder / "run.json").read_text())
    del run["files"]  # as of an older version
    (folder / "run.json").write_text(json.dumps(run))
    assert run_command(["report", str(folder), "--junit", str(tmp_path / "x.xml")]) == OPEN
    file.write_text(json.dumps({**summary, "verdict": NO_LEAK}))
    assert run_command(["report", str(folder)]) == 2
    assert "allow the verdict “leak” only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", '{"found": 0', "is not JSON"),
        ("summary.json", "[]", "is a list, not an object"),
        ("summary.json", None, "has no summary.json"),  # a folder, which root cannot read either
        ("run.json", '{"format": 99, "result": "UpdateDiff"}', "has format 99"),
    ],
)
def test_unreadable_runs_are_refused(tmp_path, capsys, name, content, message):
    file, junit = save_diff(tmp_path / "d") / name, tmp_path / "gate.xml"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    arguments = ["report", str(tmp_path / "d"), "--fail-above=found=0", "--allow-undecided"]
    assert run_command([*arguments, f"--junit={junit}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert str(file if content else file.parent) in line
    assert re.search(message, line)
    assert not junit.exists()


# Refusals and escaping.


@pytest.mark.parametrize("option", ["junit", "markdown", "write_baseline", "out"])
def test_outputs_inside_a_run_folder_are_refused(tmp_path, option):
    folder = save_diff(tmp_path / "d", *PHRASES)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    (tmp_path / "link").symlink_to(folder / "summary.json")
    for path in (folder / "new.html", folder / "summary.json", folder / "deep" / "new.xml",
                 tmp_path / "link"):  # fmt: skip
        with pytest.raises(RunError, match="is in the run folder"):
            report(folder, **{option: path})
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_outputs_contain_no_phrases_and_escape_names(tmp_path, capsys):
    run = save_diff(tmp_path / "<b>|`x`\u202e", *PHRASES)
    files = {name: tmp_path / name for name in ("junit", "markdown", "write-baseline")}
    run_command(["report", str(run), *(f"--{name}={path}" for name, path in files.items())])
    output = capsys.readouterr().out + "".join(map(Path.read_text, files.values()))
    assert not any(phrase in output for phrase in PHRASES)
    [case] = Xml.parse(files["junit"]).getroot().iter("testcase")
    assert case.attrib["classname"] == "<b>|`x`?"
    assert r"\<b\>\|\`x\`?" in files["markdown"].read_text()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (["leaks=1"], r"unknown quantity. Choose exposure, .*perplexity\.$"),
        (["exposures=1"], "Did you mean exposure"),
        (["memorised=1"], "Did you mean memorized"),
        (["found"], "must be NAME=NUMBER"),
        (["found=inf"], "must be NAME=NUMBER"),
        (["found=1", "found=2"], "two limits for found"),
    ],
)
def test_invalid_limits_are_refused(tmp_path, limits, message):
    with pytest.raises(ValueError, match=message):
        report(save_diff(tmp_path / "d"), fail_above=limits)


def test_runs_that_cannot_be_judged_are_refused(tmp_path):
    diff = save_diff(tmp_path / "d")
    with pytest.raises(RunError, match="two runs are named d"):
        report([diff, save_diff(tmp_path / "2" / "d")], fail_above=["found=0"])
    with pytest.raises(RunError, match="none of these runs has a verdict"):
        report(save_run(tmp_path / "r", "DifferentialRank", score=1.0), junit=tmp_path / "x")
    with pytest.raises(RunError, match="the verdict of another verb"):
        report(save_diff(tmp_path / "o", claim=made_claim("report", NO_LEAK)))
    (tmp_path / "b.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=re.escape(str(tmp_path / "b.json"))):
        report(diff, baseline=tmp_path / "b.json")
    with pytest.raises(ValueError, match="`markdown` and `junit` must be different files"):
        report(diff, junit=tmp_path / "x", markdown=tmp_path / "x")
    with pytest.raises(ValueError, match="at least one run"):
        report([], out=tmp_path / "page.html")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="not a run folder"):
        report(tmp_path / "empty", out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
