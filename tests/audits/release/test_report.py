"""`report` writes a page or a card of runs."""

import pytest

from tests.reports.made_claims import made_checks, made_claim, with_claim
from tests.reports.made_runs import RESULTS
from vestige import results
from vestige.audits.release.release import report
from vestige.claims import UNDECIDED


def test_one_or_several_runs_are_written_as_a_page(tmp_path):
    run, page = tmp_path / "run", tmp_path / "one.html"
    results.save(RESULTS["DifferentialRank"](), run, run={"command": []})
    result = report(run, out=page)
    assert page.read_text("utf-8").count("<article") == 1
    assert result.summary == {
        "verdict": "fine", "code": 0, "runs": 1, "absent": [], "checks": [], "page": str(page),
        "show_secrets": False,
    }  # fmt: skip
    several = report([run, str(run)], out=str(tmp_path / "two.html"), show_secrets=True)
    assert (len(several.runs), several.summary["show_secrets"]) == (2, True)
    assert several.page.read_text("utf-8").count("<article") == 2


@pytest.mark.slow
def test_a_card_has_the_content_of_a_page_without_phrases(tmp_path):
    kinds = ("CanaryExposure", "TextAudit", "PairTraining", "SecretExposure")
    made_results = {kind: RESULTS[kind]() for kind in kinds}
    checks = made_checks("exposure", failing=("alive",))
    claim = made_claim("exposure", UNDECIDED, checks=checks)
    made_results["CanaryExposure"] = with_claim(made_results["CanaryExposure"], claim)
    folders = [
        results.save(result, tmp_path / kind, run={}) for kind, result in made_results.items()
    ]
    report(folders, out=tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text("utf-8")
    assert text.startswith("## Privacy\n")
    for line in ("| How exposed are the canaries? | undecided | not known", "**UNDECIDED",
                 "Exposure: 7.5 bits", "- ✗ The check “alive” of exposure failed."):  # fmt: skip
        assert line in text
    assert text.count("### ") == len(kinds)
    rows = [row for folder in folders for row in results.load(folder).rows]
    phrases = [row["phrase"] for row in rows if len(row.get("phrase") or "") >= 5]
    assert phrases
    assert not any(secret in text for secret in (*phrases, *map(str, folders)))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in lines} == {4}
    with pytest.raises(ValueError, match="`show_secrets` must be left out with a card"):
        report(folders, out=tmp_path / "other.md", show_secrets=True)
    assert not (tmp_path / "other.md").exists()
