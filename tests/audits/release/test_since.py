"""What changed since earlier runs: `vestige report --since`."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.shell import invoke
from tests.reports.made_claims import made_claim, on_run
from tests.reports.made_runs import RESULTS
from tests.reports.test_overview import run
from vestige import results
from vestige.audits.release.release import report
from vestige.audits.release.report import changes_table
from vestige.audits.release.since import changes, difference_of
from vestige.claims import LEAK
from vestige.errors import RunError
from vestige.reports.page import render
from vestige.reports.quantities import Measured
from vestige.reports.verdicts import VERBS


def with_verdict(any_run):
    """A run whose verdict lets its numbers be compared."""
    verbs = VERBS.get(any_run.result)
    return on_run(any_run, made_claim(verbs[0], LEAK)) if verbs else any_run


def exposure_run(value, low, high, **more):
    summary = {"": value, "_low": low, "_high": high, "_is_bound": False}
    summary = {f"exposure_planted{end}": number for end, number in summary.items()}
    return with_verdict(run("CanaryExposure", "canaries", **{**summary, **more}))


def single_change(current, earlier):
    [change] = changes([current], [earlier])
    return change


def numbers_of(change):
    return [change[name] for name in ("difference", "low", "high")]


@pytest.mark.parametrize(
    ("current", "earlier", "verdict", "reverse_verdict"),
    [
        ((5.0, 4.0, 7.0), (2.0, 1.0, 2.5), "worse", "better"),
        ((3.0, 2.0, 4.0), (2.5, 1.0, 5.0), "no change shown", "no change shown"),
    ],
)
def test_margins_of_differences_add_as_variances(current, earlier, verdict, reverse_verdict):
    runs = exposure_run(*current), exposure_run(*earlier)
    forward, reverse = single_change(*runs), single_change(*reversed(runs))
    below = math.hypot(current[0] - current[1], earlier[2] - earlier[0])
    above = math.hypot(current[2] - current[0], earlier[0] - earlier[1])
    value = current[0] - earlier[0]
    assert numbers_of(forward) == pytest.approx([value, value - below, value + above])
    assert numbers_of(reverse) == pytest.approx([-value, -value - above, -value + below])
    assert (forward["verdict"], reverse["verdict"]) == (verdict, reverse_verdict)


def test_an_unknown_bound_leaves_that_side_infinite():
    ceiling = Measured(7.0, 6.0, None)
    difference = difference_of(ceiling, Measured(2.0, 1.0, 3.0))
    assert difference == (5.0, pytest.approx(5 - math.sqrt(2)), math.inf)
    assert difference_of(Measured(7.0, None, None), ceiling)[1:] == (-math.inf, math.inf)
    change = single_change(
        exposure_run(7.0, 6.0, None, exposure_planted_is_bound=True), exposure_run(6.9, 6.0, 7.5)
    )
    assert (change["verdict"], change["high"]) == ("no change shown", None)
    assert "a lower bound" in change["why"]


def test_counts_are_compared_exactly():
    fewer, more = (run("UserAudit", "users", called=number) for number in (2, 3))
    increase = single_change(more, fewer)
    assert (increase["verdict"], increase["difference"]) == ("worse", 1)
    assert single_change(fewer, more)["verdict"] == "better"
    assert single_change(fewer, fewer)["verdict"] == "no change shown"


# Numbers are compared only if their settings are equal.

NOW = {"search": {"name": "beam", "width": 4}, "question": None, "references": 4, "queries": None}
TEXTS = {letter: {"validation": {"sha256": letter * 64}} for letter in "ab"}
WORDS = {letter: {"trained": {"vocabulary": letter * 64}} for letter in "ab"}


def changed(kind, *, summary=None, configuration=None, **record):
    """Two runs of a kind; the earlier one has other settings."""
    current = with_verdict(run(kind, "r"))
    shared = {"configuration": NOW, "models": WORDS["a"], "data": TEXTS["a"], "seed": 0}
    current = replace(current, run={**current.run, **shared})
    earlier_run = {**current.run, **record, "configuration": NOW | (configuration or {})}
    return current, replace(
        current, summary={**current.summary, **(summary or {})}, run=earlier_run
    )


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        ("CanaryExposure", {"summary": {"references": 1}}, "references 1 then and"),
        ("TextMemorization", {"summary": {"prefix_tokens": 50}}, "prefix tokens 50 then"),
        ("TextMemorization", {"summary": {"sampled_difference": None}}, "reference texts"),
        ("UpdateDiff", {"summary": {"null_searches": 99}}, "null searches 99 then and 19"),
        ("UpdateDiff", {"configuration": {"search": {"name": "beam", "width": 9}}}, "search"),
        ("SecretRank", {"configuration": {"question": "And the code?"}}, "question"),
        ("SecretExposure", {"configuration": {"references": 9}}, "references 9 then and 4 now"),
        ("UserAudit", {"configuration": {"queries": 9}}, "queries"),
        ("PairTraining", {"models": WORDS["b"]}, "vocabulary"),
        ("PairTraining", {"data": TEXTS["b"]}, "validation text"),
    ],
)
def test_different_settings_make_numbers_incomparable(kind, settings, reason):
    current, earlier = changed(kind, **settings)
    assert single_change(current, current)["verdict"] != "not comparable"
    change = single_change(current, earlier)
    assert (change["verdict"], change["difference"]) == ("not comparable", None)
    assert change["why"].startswith("measured with other settings: ")
    assert reason in change["why"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("CanaryExposure", {"seed": 7}),
        ("CanaryExposure", {"summary": {"references": None}}),  # unknown
        ("SecretExposure", {"configuration": {"secrets": "elsewhere/codes.txt"}}),
        ("Completion", {"configuration": {"beam": 99}}),
        ("UpdateDiff", {"configuration": {"search": {"name": "beam", "width": 4, "seed": 7}}}),
        ("UpdateDiff", {"configuration": {"seconds": 9.0, "plan": "as long as it takes"}}),
    ],
)
def test_irrelevant_settings_do_not_prevent_a_comparison(kind, settings):
    assert single_change(*changed(kind, **settings))["verdict"] != "not comparable"


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_of_run_is_matched_new_and_gone(kind):
    first = run(kind, "one")
    for change in changes([first], [first]):
        assert change["verdict"] in ("no change shown", "not comparable")
    other = replace(first, directory=Path("other"))
    verdicts = [change["verdict"] for change in changes([first], [other])]
    assert verdicts[:: len(changes([first], []))] == ["new", "gone"]


def test_two_runs_of_one_name_and_kind_are_refused():
    users = run("UserAudit", "same")
    with pytest.raises(RunError, match="two runs of one kind are named same"):
        changes([], [users, users])
    assert len(changes([users, run("TextAudit", "same")], [users])) == 2


@pytest.mark.slow
def test_hostile_names_are_escaped():
    name = "<b>|\u202ex"
    runs = [run("TextAudit", name)]
    table = changes_table(changes(runs, [run("Deletion", name), *runs]))
    page = render(runs, show_secrets=False, first=[table])
    assert "<b>" not in page
    assert "\u202e" not in page


# Folders of an earlier release.


@pytest.fixture
def folders(tmp_path):
    for side, kinds in (("old", ("TextAudit", "Deletion")), ("new", ("TextAudit", "UserAudit"))):
        for kind in kinds:
            results.save(RESULTS[kind](), tmp_path / side / kind, run={})
    return tmp_path


def verdicts_of(result):
    return {change["run"]: change["verdict"] for change in result.changes}


def test_a_page_and_a_card_show_the_changes(folders):
    current = [folders / "new" / "TextAudit", folders / "new" / "UserAudit"]
    page, card = folders / "page.html", folders / "card.md"
    result = report(current, out=page, since=folders / "old")
    expected = {"TextAudit": "no change shown", "UserAudit": "new", "Deletion": "gone"}
    assert verdicts_of(result) == expected
    assert list(result.summary["changes"]) == list(result.changes)
    for text in ("What changed since the last release", "no longer measured"):
        assert text in page.read_text("utf-8")
    report(current, out=card, since=[folders / "old" / "TextAudit"])
    assert "### What changed since the last release" in card.read_text("utf-8")
    rows = [line for line in card.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert sum("no change shown" in row for row in rows) == 1


def test_the_command_refuses_empty_folders_and_folders_of_several_runs(folders):
    new, old, out = folders / "new", folders / "old", folders / "p.html"
    completed = invoke(["report", new / "TextAudit", "--since", old, "--out", out, "--json"])
    assert completed.exit_code == 1, completed.stderr
    assert len(json.loads(completed.stdout)["changes"]) == 2
    (folders / "empty").mkdir()
    several = "is not a run folder and contains 2: "
    for arguments, message in (
        ([new / "TextAudit", "--since", folders / "empty"], "holds none"),
        ([new], several),
        ([new / "TextAudit", "--since", folders], several),
    ):
        completed = invoke(["report", *arguments, "--out", folders / "q.html"])
        assert (completed.exit_code, message in completed.stderr) == (2, True)
        assert message != several or "TextAudit" in completed.stderr
    assert not (folders / "q.html").exists()


@pytest.mark.slow
def test_a_run_in_a_subfolder_has_the_name_of_its_folder(folders):
    for side in ("old", "new"):
        results.save(RESULTS["UserAudit"](), folders / side / "audit" / "run", run={})
    current = [folders / "new" / "audit", folders / "new" / "TextAudit"]
    for number, since in enumerate((folders / "old", [folders / "old" / "audit"])):
        result = report(current, out=folders / f"{number}.html", since=since)
        assert verdicts_of(result)["audit"] == "no change shown"
    inner = [folders / side / "audit" / "run" for side in ("new", "old")]
    result = report(inner[0], out=folders / "inner.html", since=inner[1])
    assert verdicts_of(result) == {"run": "no change shown"}
    assert "<bdi>audit</bdi>" in (folders / "0.html").read_text("utf-8")  # At a glance
    deep = results.save(RESULTS["TextAudit"](), folders / "deep" / "seed-0" / "run", run={})
    assert (results.find(folders / "deep").directory, results.find(folders / "deep").name) == (
        deep, "deep",
    )  # fmt: skip
