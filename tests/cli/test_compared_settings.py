"""Settings by which runs are compared are written by the verbs, under the names they have there."""

import pytest

from tests.cli.secret_cases import AUDITED, PIN, TINY, TWO, filled
from vestige import results
from vestige.audits.release.since import CONFIGURATION, SUMMARY
from vestige.reports.quantities import QUANTITIES

LINES = {
    "CanaryExposure": "exposure W/after W/planted-known --references 100",
    "Completion": "extract W/after W/planted-known --prefix 1",
    "DefendedTraining": f"train W/corpus.jsonl {TINY}",
    "Deletion": "unlearning W/before W/after --deleted W/deleted.txt --reference "
    "W/corpus.jsonl",
    "Extraction": f"extract {TWO} {PIN} --candidates n=SET --truth TRUTH",
    "PairTraining": f"train W/corpus.jsonl --task translation --source who {TINY}",
    "SecretAudit": "extract W/trained-nlu W/planted-nlu",
    "SecretCompletion": "extract W/after W/choices.txt",
    "SecretExposure": "exposure W/after W/choices.txt --references 200",
    "SecretRank": "exposure W/after W/choices.txt --before W/before --references 200",
    "TextAudit": "membership W/after --base W/before --texts W/unknown.txt --reference "
    "W/corpus.jsonl",
    "TextMemorization": "extract W/after W/unknown.txt --as texts --reference W/corpus.jsonl "
    "--prefix 1 --suffix 2",
    "UpdateDiff": "diff W/before W/after --length 3 --size 0.2",
    "UserAudit": f"membership W/after --unit user {AUDITED}",
}  # fmt: skip


def test_every_kind_that_is_compared_has_settings():
    compared = {name for one in QUANTITIES.values() for name in one.of}
    nothing = {"IntentSlotTraining"}  # but its text, and its words
    assert set(SUMMARY) | set(CONFIGURATION) == set(LINES) == compared - nothing


@pytest.mark.parametrize("kind", LINES)
def test_compared_settings_are_written(marked, shell, tmp_path, kind):
    done = shell(*filled(LINES[kind], marked, tmp_path), "--out", tmp_path / "out")
    assert done.finished, (done.stderr, done.exception)
    run = results.find(tmp_path / "out")
    assert run.result == kind
    assert set(SUMMARY.get(kind, ())) <= set(run.summary)
    assert set(CONFIGURATION.get(kind, ())) <= set(run.run["configuration"])
    if kind in QUANTITIES["perplexity"].of:
        assert run.run["data"]["validation"]["sha256"]
        assert run.run["models"]["trained"]["vocabulary"]
    if kind == "TextMemorization":
        assert "sampled_difference" in run.summary
    if kind == "Completion":
        assert {"kind", "copies"} <= set(run.rows[0])
