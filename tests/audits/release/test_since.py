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

EVIL = "<b>|\u202ex"


def exposed(value, low, high, **more):
    ends = {"exposure_planted_low": low, "exposure_planted_high": high}
    more = {"exposure_planted_is_bound": False, **more}
    return decided(run("CanaryExposure", "canaries", exposure_planted=value, **ends, **more))


def decided(one):
    """A run whose verdict lets its numbers be compared."""
    verbs = VERBS.get(one.result)
    return on_run(one, made_claim(verbs[0], LEAK)) if verbs else one


def only(now, then):
    [found] = changes([now], [then])
    return found


@pytest.mark.parametrize(
    ("now", "then"),
    [((5.0, 4.0, 7.0), (2.0, 1.0, 2.5)), ((3.0, 2.0, 4.0), (2.5, 1.0, 5.0))],
)
def test_a_difference_has_the_margins_of_both_added_as_variances(now, then):
    found = only(exposed(*now), exposed(*then))
    back = only(exposed(*then), exposed(*now))
    below = math.sqrt((now[0] - now[1]) ** 2 + (then[2] - then[0]) ** 2)
    above = math.sqrt((now[2] - now[0]) ** 2 + (then[0] - then[1]) ** 2)
    middle = now[0] - then[0]
    expected = (middle, middle - below, middle + above)
    assert (found["difference"], found["low"], found["high"]) == pytest.approx(expected)
    assert (back["difference"], back["low"], back["high"]) == pytest.approx(
        (-expected[0], -expected[2], -expected[1])
    )
    words = {"worse": "better", "no change shown": "no change shown"}
    assert found["verdict"] == ("worse" if expected[1] > 0 else "no change shown")
    assert back["verdict"] == words[found["verdict"]]


def test_an_unknown_end_leaves_that_side_open():
    ceiling = Measured(7.0, 6.0, None)
    low = difference_of(ceiling, Measured(2.0, 1.0, 3.0))
    assert low == (5.0, pytest.approx(5 - math.sqrt(2)), math.inf)
    assert difference_of(Measured(7.0, None, None), ceiling)[1:] == (-math.inf, math.inf)
    found = only(exposed(7.0, 6.0, None, exposure_planted_is_bound=True), exposed(6.9, 6.0, 7.5))
    assert (found["verdict"], found["high"]) == ("no change shown", None)
    assert "a lower bound" in found["why"]


def test_counts_are_compared_as_they_are():
    then = run("UserAudit", "users", called=2)
    more = run("UserAudit", "users", called=3)
    assert (only(more, then)["verdict"], only(more, then)["difference"]) == ("worse", 1)
    assert only(then, more)["verdict"] == "better"
    assert only(then, then)["verdict"] == "no change shown"


def test_other_settings_are_not_compared_and_said():
    found = only(exposed(5.0, 4.0, 6.0, references=600), exposed(2.0, 1.0, 3.0, references=100))
    assert (found["verdict"], found["difference"]) == ("not comparable", None)
    assert found["why"] == "measured with other settings: references 100 then and 600 now"


def test_a_seed_and_a_setting_that_is_not_known_forbid_nothing():
    now, then = exposed(5.0, 4.0, 6.0, references=100), exposed(2.0, 1.0, 2.5, references=100)
    del then.summary["references"]
    assert only(replace(now, run={**now.run, "seed": 7}), then)["verdict"] == "worse"


def asked(one, **configuration):
    return replace(one, run={**one.run, "configuration": configuration})


OTHER = {
    "a longer prefix": ("TextMemorization", {"prefix_tokens": 50}, {}, "prefix tokens 50 then"),
    "no reference texts": (
        "TextMemorization",
        {"sampled_difference": None},
        {},
        "reference texts",
    ),
    "more null models": ("UpdateDiff", {"null_searches": 99}, {}, "null searches 99 then and 19"),
    "a wider search": ("UpdateDiff", {}, {"search": {"name": "beam", "width": 9}}, "search"),
    "a question": ("SecretRank", {}, {"question": "And the code?"}, "question"),
    "more references": ("SecretExposure", {}, {"references": 9}, "references 9 then and 4 now"),
    "more queries": ("UserAudit", {}, {"queries": 9}, "queries"),
    "another vocabulary": ("PairTraining", {}, {}, "vocabulary"),
}
NOW = {"search": {"name": "beam", "width": 4}, "question": None, "references": 4, "queries": None}


@pytest.mark.parametrize("setting", OTHER)
def test_what_decides_a_number_forbids_its_comparison(setting):
    kind, summary, configuration, why = OTHER[setting]
    now = asked(decided(run(kind, "r")), **NOW)
    words = {"models": {"trained": {"vocabulary": "a" * 64}}}
    now = replace(now, run={**now.run, **words})
    then = replace(now, summary={**now.summary, **summary})
    then = asked(then, **(NOW | configuration))
    if setting == "another vocabulary":
        then.run["models"] = {"trained": {"vocabulary": "b" * 64}}
    assert "not comparable" not in only(now, now)["verdict"]
    found = only(now, then)
    assert (found["verdict"], found["difference"]) == ("not comparable", None)
    assert why in found["why"].removeprefix("measured with other settings: ")


@pytest.mark.parametrize(
    ("kind", "configuration"),
    [
        ("SecretExposure", {"secrets": "elsewhere/codes.txt"}),
        ("Completion", {"beam": 99}),
        ("UpdateDiff", {"search": {"name": "beam", "width": 4, "seed": 7}}),
        ("UpdateDiff", {"seconds": 9.0, "plan": "as long as it takes"}),
    ],
)
def test_what_does_not_decide_it_forbids_nothing(kind, configuration):
    now = asked(decided(run(kind, "r")), **NOW, seconds=1.0)
    assert only(now, asked(now, **(NOW | configuration)))["verdict"] != "not comparable"


def test_perplexity_of_another_text_is_not_compared():
    then = run("PairTraining", "t")
    texts = [{"validation": {"sha256": letter * 64}} for letter in "ab"]
    before, after = (replace(then, run={**then.run, "data": one}) for one in texts)
    assert only(after, before)["verdict"] == "not comparable"
    assert "validation text" in only(after, before)["why"]
    assert only(after, after)["verdict"] == "no change shown"


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_of_run_is_matched_new_and_gone(kind):
    one = run(kind, "one")
    assert {found["verdict"] for found in changes([one], [one])} <= {
        "no change shown", "not comparable",
    }  # fmt: skip
    other = replace(one, directory=Path("other"))
    assert [found["verdict"] for found in changes([one], [other])][:: len(changes([one], []))] == [
        "new", "gone",
    ]  # fmt: skip


def test_two_of_one_name_and_kind_are_refused_and_of_two_kinds_are_not():
    users = run("UserAudit", "same")
    with pytest.raises(RunError, match="two runs of one kind are named same"):
        changes([], [users, users])
    assert len(changes([users, run("TextAudit", "same")], [users])) == 2


@pytest.mark.slow
def test_hostile_names_are_escaped():
    runs = [run("TextAudit", EVIL)]
    page = render(
        runs,
        show_secrets=False,
        first=[changes_table(changes(runs, [run("Deletion", EVIL), *runs]))],
    )
    assert "<b>" not in page
    assert "\u202e" not in page


@pytest.fixture
def folders(tmp_path):
    for side, kinds in (("old", ("TextAudit", "Deletion")), ("new", ("TextAudit", "UserAudit"))):
        for kind in kinds:
            results.save(RESULTS[kind](), tmp_path / side / kind, run={})
    return tmp_path


def test_a_page_and_a_card_show_the_changes(folders):
    now = [folders / "new" / "TextAudit", folders / "new" / "UserAudit"]
    page = report(now, out=folders / "page.html", since=folders / "old")
    told = page.summary["changes"]
    assert [(one["run"], one["verdict"]) for one in told] == [
        ("TextAudit", "no change shown"), ("UserAudit", "new"), ("Deletion", "gone"),
    ]  # fmt: skip
    text = (folders / "page.html").read_text("utf-8")
    assert "What changed since the last release" in text
    assert "no longer measured" in text
    report(now, out=folders / "card.md", since=[folders / "old" / "TextAudit"])
    card = (folders / "card.md").read_text("utf-8")
    assert "### What changed since the last release" in card
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    assert sum("no change shown" in row for row in rows) == 1


def test_the_command_line_takes_folders_and_refuses_empty_ones(folders):
    now, old = folders / "new" / "TextAudit", folders / "old"
    done = invoke(["report", now, "--since", old, "--out", folders / "p.html", "--json"])
    assert done.exit_code == 1, done.stderr
    assert (folders / "p.html").exists()
    assert len(json.loads(done.stdout)["changes"]) == 2
    (folders / "empty").mkdir()
    done = invoke(["report", now, "--since", folders / "empty", "--out", folders / "q.html"])
    assert (done.exit_code, "holds none" in done.stderr) == (2, True)
    assert not (folders / "q.html").exists()


@pytest.mark.slow
def test_a_run_inside_a_folder_has_the_folders_name(folders):
    for side in ("old", "new"):
        results.save(RESULTS["UserAudit"](), folders / side / "audit" / "run", run={})
    now = [folders / "new" / "audit", folders / "new" / "TextAudit"]
    for place, since in enumerate((folders / "old", [folders / "old" / "audit"])):
        page = report(now, out=folders / f"{place}.html", since=since)
        told = {one["run"]: one["verdict"] for one in page.changes}
        assert told["audit"] == "no change shown"
    since, out = folders / "old" / "audit" / "run", folders / "inner.html"
    [one] = report(folders / "new" / "audit" / "run", out=out, since=since).changes
    assert (one["run"], one["verdict"]) == ("run", "no change shown")
    assert "<bdi>audit</bdi>" in (folders / "0.html").read_text("utf-8")  # At a glance


def test_a_folder_of_several_runs_is_refused_and_they_are_named(folders):
    for words in (
        ["report", folders / "new", "--out", folders / "p.html"],
        ["report", folders / "new"],
        ["report", folders / "new" / "TextAudit", "--since", folders, "--out", folders / "p.html"],
    ):
        done = invoke(words)
        assert done.exit_code == 2
        assert "is not a run folder and holds 2: " in done.stderr
        assert "TextAudit" in done.stderr
    (folders / "deep").mkdir()
    results.save(RESULTS["TextAudit"](), folders / "deep" / "seed-0" / "run", run={})
    assert results.find(folders / "deep").directory == folders / "deep" / "seed-0" / "run"
    assert results.find(folders / "deep").name == "deep"
