"""`report` called from Python."""

import pytest

from tests.reports.made_claims import made_checks, made_claim, with_claim
from vestige import results
from vestige.audits.release.release import report
from vestige.claims import UNDECIDED
from vestige.errors import RunError


class Found:
    """A result that any page can show."""

    def summary(self):
        return {"search": "beam", "score": "smoothed", "phrases": 0, "threshold": None}

    def rows(self):
        return []


@pytest.fixture
def run(tmp_path):
    made = type("Other", (Found,), {})()
    return results.save(made, tmp_path / "run", run={"command": []})


def test_one_run_or_several_become_a_page(run, tmp_path):
    page = report(run, out=tmp_path / "one.html")
    assert (tmp_path / "one.html").read_text("utf-8").count("<article") == 1
    assert page.summary == {
        "verdict": "fine",
        "code": 0,
        "runs": 1,
        "absent": [],
        "checks": [],
        "page": str(tmp_path / "one.html"),
        "show_secrets": False,
    }
    several = report([run, str(run)], out=str(tmp_path / "two.html"), show_secrets=True)
    assert (len(several.runs), several.summary["show_secrets"]) == (2, True)
    assert several.page.read_text("utf-8").count("<article") == 2


def test_no_run_is_no_page(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        report([], out=tmp_path / "page.html")
    with pytest.raises(RunError, match="not a run folder"):
        report(tmp_path, out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", ["page.html", "card.md"])
def test_a_page_in_a_run_directory_is_refused(tmp_path, diff, name):
    folder = results.save(diff([["a"]]), tmp_path / "run", run={})
    before = sorted(folder.iterdir())
    with pytest.raises(RunError, match="lies in the run folder"):
        report(folder, out=folder / name)
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
def test_a_card_has_what_a_page_says_and_no_phrase(tmp_path):
    from tests.reports.made_runs import RESULTS
    from tests.reports.test_overview import run as made

    kinds = ("CanaryExposure", "TextAudit", "PairTraining", "SecretExposure")
    made_of = {kind: RESULTS[kind]() for kind in kinds}
    made_of["CanaryExposure"] = with_claim(
        made_of["CanaryExposure"],
        made_claim("exposure", UNDECIDED, checks=made_checks("exposure", failing=("alive",))),
    )
    folders = [results.save(one, tmp_path / kind, run={}) for kind, one in made_of.items()]
    report(folders, out=tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text("utf-8")
    assert text.startswith("## Privacy\n")
    assert "| How exposed are the canaries? | undecided | not known" in text
    assert "**UNDECIDED" in text
    assert "Exposure: 7.5 bits" in text
    assert "- ✗ The check “alive” of exposure failed." in text
    assert text.count("### ") == len(kinds)
    for kind, folder in zip(kinds, folders, strict=True):
        assert str(folder) not in text
        for row in made(kind).rows:
            phrase = row.get("phrase") or ""
            assert len(phrase) < 5 or phrase not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {4}
    with pytest.raises(ValueError, match="`show_secrets` must be left out with a card"):
        report(folders, out=tmp_path / "other.md", show_secrets=True)
    assert not (tmp_path / "other.md").exists()
