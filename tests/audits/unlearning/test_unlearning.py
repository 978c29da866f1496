"""`unlearning` end to end: verdicts, units, caching, the command line and refusals."""

import numpy as np
import pytest

from tests.audits.chains import Chain
from vestige import results
from vestige.audits.unlearning.unlearning import unlearning
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.cli.app import run as command
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.reports.report import report_of

CHAIN = Chain(60, 0.3)


def texts(count, seed):
    return CHAIN.texts([25] * count, np.random.default_rng(seed))


RETAINED, DELETED, REFERENCE = texts(60, 1), texts(40, 2), texts(80, 3)
BEFORE = CHAIN.counted((RETAINED, 1), (DELETED, 1))
RETRAINED = CHAIN.counted((texts(60, 4), 1))
HALF = CHAIN.counted((RETAINED, 1), (DELETED, 0.5))
LISTS = {"deleted": Corpus.from_texts(DELETED), "reference": Corpus.from_texts(REFERENCE)}


def verify(after, before=BEFORE, **options):
    return unlearning(before, after, **{**LISTS, **options})


def failed(result):
    """Names of the checks that failed."""
    return {check.name for check in result.claim.checks if check.state == "failed"}


def sentence_of(result):
    return report_of(results.run_of(result), show_secrets=False).verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "verdict", "finding", "answer"),
    [
        (BEFORE, LEAK, "still known", "100% of what BEFORE knew remains (95% CI 100% to 100%)."),
        (HALF, LEAK, "still known", "% of what BEFORE knew remains"),
        (RETRAINED, NO_LEAK, None, "% of what BEFORE knew remains"),
        (CHAIN.counted((RETAINED, 1), (DELETED, -0.25)), LEAK, "suppressed",
         "AFTER knows the 40 deleted texts less than the 80 reference texts"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_the_models(after, verdict, finding, answer):
    result = verify(after)
    assert answer in sentence_of(result)
    assert (result.verdict, result.summary["finding"]) == (verdict, finding)
    if after is BEFORE:
        assert result.summary["left"] == pytest.approx(1.0)
        assert "different" in failed(result)
    if verdict == NO_LEAK:
        assert result.summary["left_low"] < 0 < result.summary["left_high"] < 0.25


@pytest.mark.slow
def test_a_retrained_model_narrows_the_remaining_share_and_must_be_another_model():
    after = CHAIN.counted((RETAINED, 1), (DELETED, 0.3))
    without = verify(after).summary
    compared = verify(after, retrained=CHAIN.counted((RETAINED, 1))).summary
    widths = [summary["left_high"] - summary["left_low"] for summary in (without, compared)]
    assert widths[1] < widths[0]
    assert compared["retrained_knows_low"] < 0 < compared["retrained_knows_high"]
    same = verify(RETRAINED, retrained=RETRAINED)
    assert (same.verdict, "different" in failed(same)) == (UNDECIDED, True)
    assert sentence_of(same).startswith("A check failed")


def test_texts_that_before_does_not_know_are_undecided():
    result = verify(RETRAINED, RETRAINED)
    assert result.verdict == UNDECIDED
    assert sentence_of(result).startswith("BEFORE is not shown to know the 40 deleted texts")
    # There is no remaining share, so the estimate is what AFTER knows.
    estimate, summary = result.claim.estimate, result.summary
    assert estimate.value == summary["after_knows"]
    assert estimate.interval == (summary["after_knows_low"], summary["after_knows_high"])


@pytest.mark.slow
@pytest.mark.parametrize("retrained", [None, CHAIN.counted((texts(60, 6), 1))])
def test_a_reference_with_other_words_is_undecided(retrained):
    words = np.random.default_rng(5).integers(30, 60, (40, 25))
    other = Corpus.from_texts([" ".join(CHAIN.words[word] for word in text) for text in words])
    result = verify(RETRAINED, retrained=retrained, reference=other)
    assert (result.verdict, "comparable" in failed(result)) == (UNDECIDED, True)


@pytest.mark.slow
def test_near_duplicates_are_one_unit_and_those_in_the_reference_are_dropped():
    once, four = verify(RETRAINED), verify(
        RETRAINED, deleted=Corpus.from_texts(DELETED * 4),
        reference=Corpus.from_texts([*REFERENCE, *REFERENCE, f"{DELETED[0]} {CHAIN.words[0]}"]),
    )  # fmt: skip
    assert (four.summary["deleted_units"], four.summary["reference_units"]) == (40, 80)
    for name in ("p_value", "left_low", "left_high"):
        assert four.summary[name] == pytest.approx(once.summary[name], abs=0.02)


def test_texts_of_one_author_are_one_unit():
    def by_author(rows, name):
        return Corpus.from_texts(rows, users=[f"{name} {n // 8}" for n in range(len(rows))])

    lists = {"deleted": by_author(DELETED, "a"), "reference": by_author(REFERENCE, "b")}
    result = verify(BEFORE, author="author", **lists)
    assert result.summary["deleted_units"] == 5
    assert (result.verdict, "independent" in failed(result)) == (UNDECIDED, True)


@pytest.mark.slow
def test_a_second_command_uses_the_cached_outputs(monkeypatch, tmp_path):
    first = verify(HALF, statistics=tmp_path)

    def fail(*arguments, **options):
        pytest.fail("the texts are scored again")

    monkeypatch.setattr(statistics_module, "token_statistics", fail)
    assert verify(HALF, statistics=tmp_path).summary == first.summary


@pytest.mark.slow
def test_the_command_line_begins_with_the_verdict_and_redacts_texts(tmp_path, capsys):
    words = ["unlearning", str(tmp_path / "before"), str(tmp_path / "after")]
    for name, model in (("before", BEFORE), ("after", HALF)):
        save_model(model, tmp_path / name)
    for name, rows in (("deleted", DELETED), ("reference", REFERENCE)):
        (tmp_path / f"{name}.txt").write_text("\n".join(rows))
        words.append(f"--{name}={tmp_path / name}.txt")
    out, page = tmp_path / "run", tmp_path / "page.html"
    command([*words, f"--out={out}"])
    terminal = capsys.readouterr().out
    assert terminal.startswith("LEAK  ")
    assert "% of what BEFORE knew remains (95% CI" in terminal.splitlines()[0]
    assert DELETED[0][:12] not in terminal
    assert set(results.load(out).run["models"]) == {"before", "after"}
    assert command(["report", str(out), f"--out={page}"]) == 1
    assert "Are these texts gone?" in page.read_text()
    assert DELETED[0][:12] not in page.read_text()
    command([*words, f"--out={tmp_path / 'shown'}", "--show-secrets"])
    shown = capsys.readouterr().out
    assert sum(text[:20] in shown for text in DELETED) == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"author": "by"}, "`deleted` has no authors"),
        ({"reference": Corpus.from_texts([f"{text} w0" for text in DELETED])},
         "every text of `reference` is a near-duplicate"),
        ({"reference": Corpus.from_texts([*REFERENCE, *DELETED[:2]])}, "2 texts are in both"),
        ({"alpha": 0.0}, "`alpha` must be greater than 0"),
    ],
)  # fmt: skip
def test_lists_that_cannot_be_compared_are_refused(change, message):
    with pytest.raises((DataError, ValueError), match=message):
        verify(BEFORE, **change)
