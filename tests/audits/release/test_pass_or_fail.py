"""A release passes, fails or is undecided: from run folders, by exit code and by file."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.reports.made_claims import made_claim, with_claim
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.audits.release.release import report
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Estimate
from vestige.cli.app import run as command
from vestige.errors import RunError

PHRASES = ("the gate opens at nine", "the code is red")


VERBS_OF = {
    "UpdateDiff": "diff",
    "CanaryExposure": "exposure",
    "TextAudit": "membership",
    "Deletion": "unlearning",
    "SecretExposure": "exposure secrets",
    "UserAudit": "membership",
}


def made(out: Path, kind: str, verdict=None, phrases=(), *, run=None, claim=None, **summary):
    """A run folder of a kind of result; without a verdict it has no claim."""
    rows = [{"kind": "phrase", "found": True, "phrase": one} for one in phrases] or [{"kind": "-"}]
    if verdict is not None:
        summary |= (claim or made_claim(VERBS_OF[kind], verdict)).summary()
    made_of = {"summary": lambda self: summary, "rows": lambda self: rows}
    results.save(type(kind, (), made_of)(), out, run=run or {})
    return out


def diffed(out, *phrases, verdict=None, complete=True, **more):
    verdict = verdict or (LEAK if phrases else NO_LEAK)
    return made(
        out, "UpdateDiff", verdict, phrases, complete=complete, found=len(phrases), **more
    )  # fmt: skip


def exposed(out, value, low, high, *, bound=False, verdict=NO_LEAK, **more):
    return made(
        out, "CanaryExposure", verdict, sentence="…", references=128,
        exposure_planted=value, exposure_planted_low=low, exposure_planted_high=high,
        exposure_planted_is_bound=bound, **more,
    )  # fmt: skip


def audited(out, verdict=LEAK, least=3, most=None, **more):
    return made(out, "TextAudit", verdict, at_least=least, at_most=most, **more)


def deleted(out, verdict, left=0.1, low=0.0, high=0.15):
    return made(out, "Deletion", verdict, left=left, left_low=low, left_high=high)


def with_secrets(out, verdict, *, found=(), in_part=0, possible=True, **more):
    return made(
        out, "SecretExposure", verdict, found, found=len(found), in_part=in_part,
        possible=possible, **more,
    )  # fmt: skip


def flagged(out, verdict, called=0, **more):
    return made(out, "UserAudit", verdict, called=called, **more)


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
    "users without a bound": (OPEN, lambda at: [flagged(at / "u", NO_LEAK)], ["members=0"]),
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
    "texts still known below the limit": (
        ABOVE, lambda at: [deleted(at / "v", LEAK)], ["left=0.2"],
    ),
    "a deletion check that could not have shown one": (
        OPEN, lambda at: [deleted(at / "v", UNDECIDED)], ["left=0.2"],
    ),
    "a deletion": (FINE, lambda at: [deleted(at / "v", NO_LEAK)], ["left=0.2"]),
    "all secrets in part": (
        OPEN, lambda at: [with_secrets(at / "s", NO_LEAK, in_part=30)], ["found=0"],
    ),
    "a broken model above a limit": (
        OPEN, lambda at: [exposed(at / "e", 9.0, 8.5, 9.5, verdict=UNDECIDED)], ["exposure=8"],
    ),
    "an older run without a claim": (
        OPEN, lambda at: [made(at / "d", "UpdateDiff", found=0)], ["found=0"],
    ),
}  # fmt: skip


ENDS = ("failure", "error", "skipped", "system-out")


SCHEMA = {
    "testsuites": ({"name"}, {"tests", "failures", "errors"}, ("testsuite",)),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"skipped"}, ("testcase",)),
    "testcase": ({"name"}, {"classname"}, ENDS),
    **dict.fromkeys(ENDS[:3], (set(), {"type", "message"}, ())),
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


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_exit_codes_and_what_a_pipeline_shows(tmp_path, capsys, situation):
    code, runs, limits = SITUATIONS[situation]
    words = ["report", *map(str, runs(tmp_path)), f"--junit={tmp_path / 'gate.xml'}"]
    words += [f"--fail-above={limit}" for limit in limits] + [f"--markdown={tmp_path / 'gate.md'}"]
    assert command(words) == code
    assert capsys.readouterr().out.startswith(ANSWERS[code])
    root = Xml.parse(tmp_path / "gate.xml").getroot()
    assert_fits_the_schema(root)
    suite = root[0]
    count = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    for name, element in (("failures", "failure"), ("errors", "error"), ("tests", "testcase")):
        assert count[name] == len(list(suite.iter(element)))
    assert code == (1 if count["failures"] else 3 if count["errors"] else 0)
    table = (tmp_path / "gate.md").read_text()
    assert len(table.splitlines()) == 4 + count["tests"]
    assert command([*words, "--allow-undecided", "--json"]) == (code if code == 1 else 0)
    assert json.loads(capsys.readouterr().out)["code"] == (code if code == 1 else 0)


def test_without_options_that_judge_runs_of_any_kind_and_name_are_shown(tmp_path, capsys):
    twice = [made(tmp_path / at / "r", "DifferentialRank", score=1.0) for at in "12"]
    assert report(twice).exit_code == FINE
    other = [exposed(tmp_path / at / "e", 4.0, 2.0, 6.0, run=models(at)) for at in "12"]
    assert report(other).exit_code == OPEN, "of two models"
    found = with_claim(RESULTS["UpdateDiff"](), made_claim("diff", LEAK))
    assert command(["report", str(results.save(found, tmp_path / "d", run={}))]) == ABOVE
    assert capsys.readouterr().out.startswith("LEAK")


def test_what_was_accepted_passes_and_what_is_new_fails(tmp_path):
    file = tmp_path / "accepted.json"

    def exposure(at, value):
        return exposed(tmp_path / at / "e", value, value - 1, value + 0.5, verdict=LEAK)

    first = [diffed(tmp_path / "1" / "d", *PHRASES), exposure("1", 9.0)]
    limits = ["found=0", "exposure=8"]
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


def states(found):
    return [row["state"] for row in found.rows]


@pytest.mark.slow
def test_fifteen_new_secrets_fail_where_one_was_accepted(tmp_path):
    file = tmp_path / "accepted.json"
    one = with_secrets(tmp_path / "1" / "s", LEAK, found=["the code is 4917"])
    report(one, write_baseline=file)
    assert report(one, baseline=file).exit_code == FINE
    many = [f"the code is {number}" for number in range(15)]
    found = report(with_secrets(tmp_path / "2" / "s", LEAK, found=many), baseline=file)
    assert found.exit_code == ABOVE
    assert "15 not accepted before" in found.rows[0]["sentence"]


def test_another_secret_and_one_found_more_often_are_new(tmp_path):
    file = tmp_path / "accepted.json"
    report(with_secrets(tmp_path / "1" / "s", LEAK, found=["a", "b"]), write_baseline=file)
    for place, found in ((2, ["a", "c"]), (3, ["a", "a"])):
        later = with_secrets(tmp_path / str(place) / "s", LEAK, found=found)
        assert report(later, baseline=file).exit_code == ABOVE


def test_an_accepted_leak_passes_below_its_limit_and_not_above(tmp_path):
    file = tmp_path / "accepted.json"

    def run(at, value):
        claim = made_claim("exposure", LEAK, estimate=Estimate("exposure", value))
        bounds = (value, value - 1, value + 1)
        return exposed(tmp_path / at / "e", *bounds, verdict=LEAK, claim=claim)

    report(run("1", 4.0), write_baseline=file)
    assert report(run("2", 5.0), baseline=file).exit_code == ABOVE
    assert report(run("3", 5.0), baseline=file, fail_above=["exposure=8"]).exit_code == FINE
    assert report(run("4", 9.0), baseline=file, fail_above=["exposure=8"]).exit_code == ABOVE


def models(weights, manifest="m"):
    return {
        "models": {"model": {"path": "/m", "sha256": weights}}, "data": {"manifest": manifest}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("other", "code", "sentence"),
    [
        (models("a"), FINE, "All runs measured the same model."),
        (models("b"), OPEN, "The runs measured 2 different models."),
        (models("a", "n"), OPEN, "2 different manifests"),
        ({"models": {"model": {"path": None, "sha256": "a"}}}, OPEN, "Not all runs have a hash"),
        ({"models": {"after": {"path": "/m", "sha256": "a"}}}, FINE, "the same model"),
    ],
)
def test_runs_of_other_weights_or_another_manifest_are_undecided(tmp_path, other, code, sentence):
    runs = [
        exposed(tmp_path / "e", 4.0, 2.0, 6.0, run=models("a")),
        diffed(tmp_path / "d", run=other),
    ]
    found = report(runs)
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


def test_the_verdict_of_another_verb_is_rejected(tmp_path):
    claim = made_claim("report", NO_LEAK)
    with pytest.raises(RunError, match="the verdict of another verb"):
        report(diffed(tmp_path / "d", claim=claim))


@pytest.mark.parametrize("option", ["junit", "markdown", "write_baseline"])
def test_an_output_in_a_run_directory_is_refused_and_changes_nothing(tmp_path, option):
    folder = diffed(tmp_path / "d", *PHRASES)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    (tmp_path / "link").symlink_to(folder / "summary.json")
    for path in (folder / "summary.json", folder / "deep" / "new.xml", tmp_path / "link"):
        with pytest.raises(RunError, match="lies in the run folder"):
            report(folder, **{option: path})
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_two_outputs_must_be_different_files(tmp_path):
    with pytest.raises(ValueError, match="`markdown` and `junit` must be different files"):
        report(diffed(tmp_path / "d"), junit=tmp_path / "x", markdown=tmp_path / "x")


def test_no_phrase_stands_in_what_is_written(tmp_path, capsys):
    run = diffed(tmp_path / "d", *PHRASES)
    out = {f"--{name}={tmp_path / name}" for name in ("junit", "markdown", "write-baseline")}
    command(["report", str(run), *sorted(out)])
    files = [tmp_path / name for name in ("junit", "markdown", "write-baseline")]
    written = capsys.readouterr().out + "".join(map(Path.read_text, files))
    assert not any(phrase in written for phrase in PHRASES)


def test_names_of_runs_are_no_markup(tmp_path):
    run = audited(tmp_path / "<b>|`x`\u202e")
    report(run, junit=tmp_path / "g.xml", markdown=tmp_path / "g.md")
    [case] = Xml.parse(tmp_path / "g.xml").getroot().iter("testcase")
    assert case.attrib["classname"] == "<b>|`x`?"
    assert r"\<b\>\|\`x\`?" in (tmp_path / "g.md").read_text()


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
    with pytest.raises(RunError, match="two runs are named d"):
        report([diffed(tmp_path / "1" / "d"), diffed(tmp_path / "2" / "d")], fail_above=["found=0"])
    with pytest.raises(RunError, match="none of these runs has a verdict"):
        report(made(tmp_path / "r", "DifferentialRank", score=1.0), junit=tmp_path / "x")
    (tmp_path / "b.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=re.escape(str(tmp_path / "b.json"))):
        report(diffed(tmp_path / "d"), baseline=tmp_path / "b.json")


DAMAGED = {
    "a summary that is cut off": ("summary.json", '{"found": 0', "is not JSON"),
    "a summary that is no object": ("summary.json", "[]", "is a list, not an object"),
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
    words = ["report", str(tmp_path / "d"), "--fail-above=found=0", "--allow-undecided"]
    assert command([*words, f"--junit={tmp_path / 'gate.xml'}"]) == 2
    told = capsys.readouterr().err
    assert str(file if content else file.parent) in told
    assert re.search(message, told)
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "gate.xml").exists()


def test_what_a_baseline_accepts_of_a_run_that_is_not_there_is_named_and_decides_nothing(tmp_path):
    file = tmp_path / "accepted.json"
    was = [diffed(tmp_path / "old-diff\u202e", *PHRASES), exposed(tmp_path / "e", 9.0, 7.0, 9.5)]
    report(was, fail_above=["found=0", "exposure=8"], write_baseline=file)
    found = report(was[1], fail_above=["exposure=8"], baseline=file, markdown=tmp_path / "gate.md")
    absent = tuple(rf"old-diff\u202e/{name}" for name in ("found", "verdict"))
    assert (found.exit_code, found.summary["absent"]) == (FINE, list(absent))
    answer = found.report().verdict.sentence
    assert answer.endswith(f"also accepts {', '.join(absent)}: no such run is here.")
    assert "no such run is here" in (tmp_path / "gate.md").read_text()
    renamed = report(diffed(tmp_path / "d", *PHRASES), fail_above=["found=0"], baseline=file)
    assert (renamed.exit_code, len(renamed.summary["absent"])) == (ABOVE, 3)
    assert report(was, fail_above=["found=0", "exposure=8"], baseline=file).summary["absent"] == []
