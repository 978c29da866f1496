"""A release passes, fails or is undecided: from run folders, by exit code and by file."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.audits.release.made import (
    assert_fits_the_schema,
    audited,
    deleted,
    diffed,
    exposed,
    made,
    with_secrets,
)
from tests.reports.made_claims import made_claim, with_claim
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.audits.release.release import report
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Estimate
from vestige.cli.app import run as command
from vestige.errors import RunError

PHRASES = ("the gate opens at nine", "the code is red")
FINE, ABOVE, OPEN = 0, 1, 3
ANSWERS = {FINE: "PASSED", ABOVE: "FAILED", OPEN: "UNDECIDED"}

SITUATIONS = {
    "nothing found among null models": (FINE, lambda at: [diffed(at / "d")], ["found=0"]),
    "phrases revealed": (ABOVE, lambda at: [diffed(at / "d", *PHRASES)], ["found=0"]),
    "a leak below its limit": (ABOVE, lambda at: [diffed(at / "d", *PHRASES)], ["found=2"]),
    "an undecided search": (OPEN, lambda at: [diffed(at / "d", verdict=UNDECIDED)], ["found=0"]),
    "a stopped search": (OPEN, lambda at: [diffed(at / "d", complete=False)], ["found=0"]),
    "exposure below": (FINE, lambda at: [exposed(at / "e", 4.0, 2.0, 6.0)], ["exposure=8"]),
    "exposure above": (ABOVE, lambda at: [exposed(at / "e", 9.0, 7.0, 9.5)], ["exposure=8"]),
    "an interval beyond": (OPEN, lambda at: [exposed(at / "e", 6.0, 3.0, 9.0)], ["exposure=8"]),
    "no interval": (OPEN, lambda at: [exposed(at / "e", 6.0, None, None)], ["exposure=8"]),
    "at the ceiling": (OPEN, lambda at: [exposed(at / "e", 7, 5, 7, bound=True)], ["exposure=8"]),
    "no run measures it": (OPEN, lambda at: [diffed(at / "d")], ["exposure=8"]),
    "no bound above": (OPEN, lambda at: [audited(at / "t", NO_LEAK, 0)], ["used=2"]),
    "bounded above": (FINE, lambda at: [audited(at / "t", NO_LEAK, 0, 2)], ["used=2"]),
    "users without a bound": (
        OPEN, lambda at: [made(at / "u", "UserAudit", NO_LEAK, called=0)], ["members=0"],
    ),
    "a verdict without a limit": (ABOVE, lambda at: [audited(at / "t")], []),
    "no leak by its verdict": (FINE, lambda at: [audited(at / "t", NO_LEAK, 0)], []),
    "an undecided verdict": (OPEN, lambda at: [audited(at / "t", UNDECIDED, 0)], []),
    "above and undecided": (
        ABOVE, lambda at: [diffed(at / "d", *PHRASES), exposed(at / "e", 6.0, 3.0, 9.0)],
        ["found=0", "exposure=8"],
    ),
    "a limit for one, a verdict for the other": (
        ABOVE, lambda at: [diffed(at / "d"), audited(at / "t")], ["found=0"],
    ),
    "texts still known below it": (ABOVE, lambda at: [deleted(at / "v", LEAK)], ["left=0.2"]),
    "a deletion check that could show none": (
        OPEN, lambda at: [deleted(at / "v", UNDECIDED)], ["left=0.2"],
    ),
    "a deletion": (FINE, lambda at: [deleted(at / "v", NO_LEAK)], ["left=0.2"]),
    "all secrets in part": (
        OPEN, lambda at: [with_secrets(at / "s", verdict=NO_LEAK, in_part=30)], ["found=0"],
    ),
    "a broken model above a limit": (
        OPEN, lambda at: [exposed(at / "e", 9.0, 8.5, 9.5, verdict=UNDECIDED)], ["exposure=8"],
    ),
    "an older run without a claim": (
        OPEN, lambda at: [made(at / "d", "UpdateDiff", found=0)], ["found=0"],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_exit_codes_and_what_a_pipeline_shows(tmp_path, capsys, situation):
    code, runs, limits = SITUATIONS[situation]
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"
    words = ["report", *map(str, runs(tmp_path)), f"--junit={junit}", f"--markdown={markdown}"]
    words += [f"--fail-above={limit}" for limit in limits]
    assert command(words) == code
    assert capsys.readouterr().out.startswith(ANSWERS[code])
    root = Xml.parse(junit).getroot()
    assert_fits_the_schema(root)
    count = {name: int(root[0].attrib[name]) for name in ("tests", "failures", "errors")}
    for name, element in (("failures", "failure"), ("errors", "error"), ("tests", "testcase")):
        assert count[name] == len(list(root[0].iter(element)))
    assert code == (1 if count["failures"] else 3 if count["errors"] else 0)
    assert len(markdown.read_text().splitlines()) == 4 + count["tests"]
    allowed = code if code == ABOVE else FINE
    assert command([*words, "--allow-undecided", "--json"]) == allowed
    assert json.loads(capsys.readouterr().out)["code"] == allowed


def test_without_limits_runs_of_any_kind_and_name_are_shown(tmp_path, capsys):
    twice = [made(tmp_path / at / "r", "DifferentialRank", score=1.0) for at in "12"]
    assert report(twice).exit_code == FINE
    other = [exposed(tmp_path / at / "e", 4.0, 2.0, 6.0, run=of_model(at)) for at in "12"]
    assert report(other).exit_code == OPEN, "of two models"
    found = with_claim(RESULTS["UpdateDiff"](), made_claim("diff", LEAK))
    assert command(["report", str(results.save(found, tmp_path / "d", run={}))]) == ABOVE
    assert capsys.readouterr().out.startswith("LEAK")


# What was accepted passes, and what is new fails.


def states(found):
    return [row["state"] for row in found.rows]


def test_the_same_phrases_and_lower_numbers_are_accepted(tmp_path):
    file, limits = tmp_path / "accepted.json", ["found=0", "exposure=8"]

    def exposure(at, value):
        return exposed(tmp_path / at / "e", value, value - 1, value + 0.5, verdict=LEAK)

    first = [diffed(tmp_path / "1" / "d", *PHRASES), exposure("1", 9.0)]
    assert report(first, fail_above=limits, write_baseline=file).exit_code == ABOVE
    assert report(first, fail_above=limits, baseline=file).exit_code == FINE
    assert not any(phrase in file.read_text() for phrase in PHRASES)
    assert file.stat().st_mode & 0o077 == 0
    fewer = [diffed(tmp_path / "2" / "d", PHRASES[1]), exposure("2", 8.5)]
    assert report(fewer, fail_above=limits, baseline=file).exit_code == FINE
    other = [diffed(tmp_path / "3" / "d", "a new phrase"), first[1]]
    found = report(other, fail_above=limits, baseline=file)
    assert states(found) == ["above", "above", "known", "known"]
    assert "1 not accepted before" in found.rows[0]["sentence"]
    more = report([first[0], exposure("4", 9.5)], fail_above=limits, baseline=file)
    assert states(more) == ["known", "known", "known", "above"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accepted", "later", "new"),
    [
        (["a"], ["a"], 0),
        (["a", "b"], ["a", "c"], 1),
        (["a", "b"], ["a", "a"], 1),  # found more often
        (["the code is 4917"], [f"the code is {number}" for number in range(15)], 15),
    ],
)
def test_secrets_that_were_not_accepted_fail(tmp_path, accepted, later, new):
    file = tmp_path / "accepted.json"
    report(with_secrets(tmp_path / "1" / "s", *accepted), write_baseline=file)
    found = report(with_secrets(tmp_path / "2" / "s", *later), baseline=file)
    assert found.exit_code == (ABOVE if new else FINE)
    assert not new or f"{new} not accepted before" in found.rows[0]["sentence"]


def test_an_accepted_leak_passes_below_its_limit_and_not_above(tmp_path):
    file = tmp_path / "accepted.json"

    def run(at, value):
        claim = made_claim("exposure", LEAK, estimate=Estimate("exposure", value))
        bounds = (value, value - 1, value + 1)
        return exposed(tmp_path / at / "e", *bounds, verdict=LEAK, claim=claim)

    report(run("1", 4.0), write_baseline=file)
    for at, (value, limits, code) in enumerate(
        [(5.0, [], ABOVE), (5.0, ["exposure=8"], FINE), (9.0, ["exposure=8"], ABOVE)], 2
    ):
        assert report(run(str(at), value), baseline=file, fail_above=limits).exit_code == code


def test_what_a_baseline_accepts_of_a_run_that_is_absent_is_named_and_decides_nothing(tmp_path):
    file, markdown = tmp_path / "accepted.json", tmp_path / "gate.md"
    was = [diffed(tmp_path / "old-diff\u202e", *PHRASES), exposed(tmp_path / "e", 9.0, 7.0, 9.5)]
    limits = ["found=0", "exposure=8"]
    report(was, fail_above=limits, write_baseline=file)
    found = report(was[1], fail_above=limits[1:], baseline=file, markdown=markdown)
    absent = [rf"old-diff\u202e/{name}" for name in ("found", "verdict")]
    assert (found.exit_code, found.summary["absent"]) == (FINE, absent)
    line = f"also accepts {', '.join(absent)}: no such run is here."
    assert found.report().verdict.sentence.endswith(line)
    assert "no such run is here" in markdown.read_text()
    renamed = report(diffed(tmp_path / "d", *PHRASES), fail_above=limits[:1], baseline=file)
    assert (renamed.exit_code, len(renamed.summary["absent"])) == (ABOVE, 3)
    assert report(was, fail_above=limits, baseline=file).summary["absent"] == []


# Runs of one model, unchanged since they were saved.


def of_model(weights, manifest="m"):
    model = {"path": "/m", "sha256": weights}
    return {"models": {"model": model}, "data": {"manifest": manifest}}


@pytest.mark.parametrize(
    ("other", "code", "sentence"),
    [
        (of_model("a"), FINE, "All runs measured the same model."),
        (of_model("b"), OPEN, "The runs measured 2 different models."),
        (of_model("a", "n"), OPEN, "2 different manifests"),
        ({"models": {"model": {"path": None, "sha256": "a"}}}, OPEN, "Not all runs have a hash"),
        ({"models": {"after": {"path": "/m", "sha256": "a"}}}, FINE, "the same model"),
    ],
)
def test_runs_of_other_weights_or_another_manifest_are_undecided(tmp_path, other, code, sentence):
    one = exposed(tmp_path / "e", 4.0, 2.0, 6.0, run=of_model("a"))
    found = report([one, diffed(tmp_path / "d", run=other)])
    assert (found.exit_code, found.rows[0]["quantity"]) == (code, "one model")
    assert sentence in found.rows[0]["sentence"]


def test_an_edited_run_is_rejected(tmp_path, capsys):
    folder = exposed(tmp_path / "e", 9.0, 8.0, 9.5, verdict=LEAK)
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    file.write_text(json.dumps({**summary, "exposure_planted": 1.0}))
    assert command(["report", str(folder)]) == 2
    assert "was changed after the run" in capsys.readouterr().err
    run = json.loads((folder / "run.json").read_text())
    del run["files"]  # as of an older version
    (folder / "run.json").write_text(json.dumps(run))
    assert command(["report", str(folder), "--junit", str(tmp_path / "x.xml")]) == OPEN
    file.write_text(json.dumps({**summary, "verdict": NO_LEAK}))
    assert command(["report", str(folder)]) == 2
    assert "allow the verdict “leak” only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", '{"found": 0', "is not JSON"),
        ("summary.json", "[]", "is a list, not an object"),
        ("summary.json", None, "has no summary.json"),  # a folder: what root may not read, either
        ("run.json", '{"format": 99, "result": "UpdateDiff"}', "has format 99"),
    ],
)
def test_a_run_that_cannot_be_read_does_not_pass(tmp_path, capsys, name, content, message):
    file, junit = diffed(tmp_path / "d") / name, tmp_path / "gate.xml"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    words = ["report", str(tmp_path / "d"), "--fail-above=found=0", "--allow-undecided"]
    assert command([*words, f"--junit={junit}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert str(file if content else file.parent) in line
    assert re.search(message, line)
    assert not junit.exists()


# What is refused, and what is written as text only.


@pytest.mark.parametrize("option", ["junit", "markdown", "write_baseline", "out"])
def test_an_output_in_a_run_folder_is_refused_and_changes_nothing(tmp_path, option):
    folder = diffed(tmp_path / "d", *PHRASES)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    (tmp_path / "link").symlink_to(folder / "summary.json")
    for path in (folder / "new.html", folder / "summary.json", folder / "deep" / "new.xml",
                 tmp_path / "link"):  # fmt: skip
        with pytest.raises(RunError, match="is in the run folder"):
            report(folder, **{option: path})
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_what_is_written_has_no_phrase_and_no_markup_of_a_name(tmp_path, capsys):
    run = diffed(tmp_path / "<b>|`x`\u202e", *PHRASES)
    files = {name: tmp_path / name for name in ("junit", "markdown", "write-baseline")}
    command(["report", str(run), *(f"--{name}={path}" for name, path in files.items())])
    written = capsys.readouterr().out + "".join(map(Path.read_text, files.values()))
    assert not any(phrase in written for phrase in PHRASES)
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
def test_limits_that_are_none_are_refused(tmp_path, limits, message):
    with pytest.raises(ValueError, match=message):
        report(diffed(tmp_path / "d"), fail_above=limits)


def test_runs_that_cannot_be_judged_are_refused(tmp_path):
    diff = diffed(tmp_path / "d")
    with pytest.raises(RunError, match="two runs are named d"):
        report([diff, diffed(tmp_path / "2" / "d")], fail_above=["found=0"])
    with pytest.raises(RunError, match="none of these runs has a verdict"):
        report(made(tmp_path / "r", "DifferentialRank", score=1.0), junit=tmp_path / "x")
    with pytest.raises(RunError, match="the verdict of another verb"):
        report(diffed(tmp_path / "o", claim=made_claim("report", NO_LEAK)))
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
