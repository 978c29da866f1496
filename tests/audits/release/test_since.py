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


def decided(one):
    """A run whose verdict lets its numbers be compared."""
    verbs = VERBS.get(one.result)
    return on_run(one, made_claim(verbs[0], LEAK)) if verbs else one


def exposed(value, low, high, **more):
    numbers = {"": value, "_low": low, "_high": high, "_is_bound": False}
    numbers = {f"exposure_planted{end}": number for end, number in numbers.items()}
    return decided(run("CanaryExposure", "canaries", **{**numbers, **more}))


def only(now, then):
    [found] = changes([now], [then])
    return found


def numbers(found):
    return [found[name] for name in ("difference", "low", "high")]


@pytest.mark.parametrize(
    ("now", "then", "verdict", "back"),
    [
        ((5.0, 4.0, 7.0), (2.0, 1.0, 2.5), "worse", "better"),
        ((3.0, 2.0, 4.0), (2.5, 1.0, 5.0), "no change shown", "no change shown"),
    ],
)
def test_a_difference_has_the_margins_of_both_added_as_variances(now, then, verdict, back):
    forth, reverse = only(exposed(*now), exposed(*then)), only(exposed(*then), exposed(*now))
    below = math.hypot(now[0] - now[1], then[2] - then[0])
    above = math.hypot(now[2] - now[0], then[0] - then[1])
    value = now[0] - then[0]
    assert numbers(forth) == pytest.approx([value, value - below, value + above])
    assert numbers(reverse) == pytest.approx([-value, -value - above, -value + below])
    assert (forth["verdict"], reverse["verdict"]) == (verdict, back)


def test_an_unknown_end_leaves_that_side_open():
    ceiling = Measured(7.0, 6.0, None)
    low = difference_of(ceiling, Measured(2.0, 1.0, 3.0))
    assert low == (5.0, pytest.approx(5 - math.sqrt(2)), math.inf)
    assert difference_of(Measured(7.0, None, None), ceiling)[1:] == (-math.inf, math.inf)
    found = only(exposed(7.0, 6.0, None, exposure_planted_is_bound=True), exposed(6.9, 6.0, 7.5))
    assert (found["verdict"], found["high"]) == ("no change shown", None)
    assert "a lower bound" in found["why"]


def test_counts_are_compared_as_they_are():
    then, more = (run("UserAudit", "users", called=number) for number in (2, 3))
    assert (only(more, then)["verdict"], only(more, then)["difference"]) == ("worse", 1)
    assert only(then, more)["verdict"] == "better"
    assert only(then, then)["verdict"] == "no change shown"


# Numbers are compared only where what decides them is equal.

NOW = {"search": {"name": "beam", "width": 4}, "question": None, "references": 4, "queries": None}
TEXTS = {letter: {"validation": {"sha256": letter * 64}} for letter in "ab"}
WORDS = {letter: {"trained": {"vocabulary": letter * 64}} for letter in "ab"}


def changed(kind, *, summary=None, configuration=None, **record):
    """Two runs of a kind, the earlier with other settings."""
    now = decided(run(kind, "r"))
    own = {**now.run, "configuration": NOW, "models": WORDS["a"], "data": TEXTS["a"], "seed": 0}
    now = replace(now, run=own)
    then = {**own, **record, "configuration": NOW | (configuration or {})}
    return now, replace(now, summary={**now.summary, **(summary or {})}, run=then)


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
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
def test_what_decides_a_number_forbids_its_comparison(kind, settings, why):
    now, then = changed(kind, **settings)
    assert only(now, now)["verdict"] != "not comparable"
    found = only(now, then)
    assert (found["verdict"], found["difference"]) == ("not comparable", None)
    assert found["why"].startswith("measured with other settings: ")
    assert why in found["why"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("CanaryExposure", {"seed": 7}),
        ("CanaryExposure", {"summary": {"references": None}}),  # not known
        ("SecretExposure", {"configuration": {"secrets": "elsewhere/codes.txt"}}),
        ("Completion", {"configuration": {"beam": 99}}),
        ("UpdateDiff", {"configuration": {"search": {"name": "beam", "width": 4, "seed": 7}}}),
        ("UpdateDiff", {"configuration": {"seconds": 9.0, "plan": "as long as it takes"}}),
    ],
)
def test_what_does_not_decide_it_forbids_nothing(kind, settings):
    assert only(*changed(kind, **settings))["verdict"] != "not comparable"


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_of_run_is_matched_new_and_gone(kind):
    one = run(kind, "one")
    verdicts = {found["verdict"] for found in changes([one], [one])}
    assert verdicts <= {"no change shown", "not comparable"}
    both = [found["verdict"] for found in changes([one], [replace(one, directory=Path("other"))])]
    assert both[:: len(changes([one], []))] == ["new", "gone"]


def test_two_of_one_name_and_kind_are_refused_and_of_two_kinds_are_not():
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


def verdicts(found):
    return {one["run"]: one["verdict"] for one in found.changes}


def test_a_page_and_a_card_show_the_changes(folders):
    now = [folders / "new" / "TextAudit", folders / "new" / "UserAudit"]
    page, card = folders / "page.html", folders / "card.md"
    found = report(now, out=page, since=folders / "old")
    expected = {"TextAudit": "no change shown", "UserAudit": "new", "Deletion": "gone"}
    assert verdicts(found) == expected
    assert list(found.summary["changes"]) == list(found.changes)
    for words in ("What changed since the last release", "no longer measured"):
        assert words in page.read_text("utf-8")
    report(now, out=card, since=[folders / "old" / "TextAudit"])
    assert "### What changed since the last release" in card.read_text("utf-8")
    rows = [line for line in card.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert sum("no change shown" in row for row in rows) == 1


def test_the_command_takes_folders_and_refuses_empty_ones_and_those_of_several_runs(folders):
    new, old, out = folders / "new", folders / "old", folders / "p.html"
    done = invoke(["report", new / "TextAudit", "--since", old, "--out", out, "--json"])
    assert done.exit_code == 1, done.stderr
    assert len(json.loads(done.stdout)["changes"]) == 2
    (folders / "empty").mkdir()
    several = "is not a run folder and contains 2: "
    for words, message in (
        ([new / "TextAudit", "--since", folders / "empty"], "holds none"),
        ([new], several),
        ([new / "TextAudit", "--since", folders], several),
    ):
        done = invoke(["report", *words, "--out", folders / "q.html"])
        assert (done.exit_code, message in done.stderr) == (2, True)
        assert message != several or "TextAudit" in done.stderr
    assert not (folders / "q.html").exists()


@pytest.mark.slow
def test_a_run_inside_a_folder_has_the_folders_name(folders):
    for side in ("old", "new"):
        results.save(RESULTS["UserAudit"](), folders / side / "audit" / "run", run={})
    now = [folders / "new" / "audit", folders / "new" / "TextAudit"]
    for place, since in enumerate((folders / "old", [folders / "old" / "audit"])):
        found = report(now, out=folders / f"{place}.html", since=since)
        assert verdicts(found)["audit"] == "no change shown"
    inner = [folders / side / "audit" / "run" for side in ("new", "old")]
    found = report(inner[0], out=folders / "inner.html", since=inner[1])
    assert verdicts(found) == {"run": "no change shown"}
    assert "<bdi>audit</bdi>" in (folders / "0.html").read_text("utf-8")  # At a glance
    deep = results.save(RESULTS["TextAudit"](), folders / "deep" / "seed-0" / "run", run={})
    assert (results.find(folders / "deep").directory, results.find(folders / "deep").name) == (
        deep, "deep",
    )  # fmt: skip
