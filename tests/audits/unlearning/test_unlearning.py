"""Deleted texts end to end: still known, gone, suppressed, undecided, cached, refused."""

import json

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


KEPT, GONE, NEVER = texts(60, 1), texts(40, 2), texts(80, 3)
BEFORE = CHAIN.counted((KEPT, 1), (GONE, 1))
RETRAINED = CHAIN.counted((texts(60, 4), 1))
HALF = CHAIN.counted((KEPT, 1), (GONE, 0.5))
LISTS = {"deleted": Corpus.from_texts(GONE), "reference": Corpus.from_texts(NEVER)}


def verified(after, before=BEFORE, **options):
    return unlearning(before, after, **{**LISTS, **options})


def failed(result):
    return {check.name for check in result.claim.checks if check.state == "failed"}


def answer_of(result):
    return report_of(results.run_of(result), show_secrets=False).verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "verdict", "finding", "answer"),
    [
        (BEFORE, LEAK, "still known", "100% of what BEFORE knew remains (95% CI 100% to 100%)."),
        (HALF, LEAK, "still known", "% of what BEFORE knew remains"),
        (RETRAINED, NO_LEAK, None, "% of what BEFORE knew remains"),
        (CHAIN.counted((KEPT, 1), (GONE, -0.25)), LEAK, "suppressed",
         "AFTER knows the 40 deleted texts less than the 80 reference texts"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_the_models(after, verdict, finding, answer):
    result = verified(after)
    assert answer in answer_of(result)
    assert (result.verdict, result.summary["finding"]) == (verdict, finding)
    if after is BEFORE:
        assert result.summary["left"] == pytest.approx(1.0)
        assert "different" in failed(result)
    if verdict == NO_LEAK:
        assert result.summary["left_low"] < 0 < result.summary["left_high"] < 0.25


@pytest.mark.slow
def test_a_retrained_model_narrows_the_remaining_share_and_must_be_another_model():
    after = CHAIN.counted((KEPT, 1), (GONE, 0.3))
    alone, beside = verified(after), verified(after, retrained=CHAIN.counted((KEPT, 1)))
    widths = [r.summary["left_high"] - r.summary["left_low"] for r in (alone, beside)]
    assert widths[1] < widths[0]
    assert beside.summary["retrained_knows_low"] < 0 < beside.summary["retrained_knows_high"]
    same = verified(RETRAINED, retrained=RETRAINED)
    assert (same.verdict, "different" in failed(same)) == (UNDECIDED, True)
    assert answer_of(same).startswith("A check failed")


def test_nothing_is_decided_if_before_knew_nothing():
    result = verified(RETRAINED, RETRAINED)
    assert result.verdict == UNDECIDED
    assert answer_of(result).startswith("BEFORE is not shown to know the 40 deleted texts")
    # No share is left of nothing: the headline is what AFTER knows.
    headline, summary = result.claim.estimate, result.summary
    assert headline.value == summary["after_knows"]
    assert headline.interval == (summary["after_knows_low"], summary["after_knows_high"])


@pytest.mark.slow
@pytest.mark.parametrize("retrained", [None, CHAIN.counted((texts(60, 6), 1))])
def test_a_reference_with_other_words_is_undecided(retrained):
    words = np.random.default_rng(5).integers(30, 60, (40, 25))
    other = Corpus.from_texts([" ".join(CHAIN.words[word] for word in text) for text in words])
    result = verified(RETRAINED, retrained=retrained, reference=other)
    assert (result.verdict, "comparable" in failed(result)) == (UNDECIDED, True)


@pytest.mark.slow
def test_near_duplicates_are_one_unit_and_those_in_the_reference_are_dropped():
    once, four = verified(RETRAINED), verified(
        RETRAINED, deleted=Corpus.from_texts(GONE * 4),
        reference=Corpus.from_texts([*NEVER, *NEVER, f"{GONE[0]} {CHAIN.words[0]}"]),
    )  # fmt: skip
    assert (four.summary["deleted_units"], four.summary["reference_units"]) == (40, 80)
    for name in ("p_value", "left_low", "left_high"):
        assert four.summary[name] == pytest.approx(once.summary[name], abs=0.02)


def test_texts_of_one_author_are_one_unit():
    def by(rows, authors):
        return Corpus.from_texts(rows, users=[f"{authors} {n // 8}" for n in range(len(rows))])

    result = verified(BEFORE, author="author", deleted=by(GONE, "a"), reference=by(NEVER, "b"))
    assert result.summary["deleted_units"] == 5
    assert (result.verdict, "independent" in failed(result)) == (UNDECIDED, True)


@pytest.mark.slow
def test_a_second_command_uses_the_cached_outputs(monkeypatch, tmp_path):
    calls, ask = [], statistics_module.token_statistics

    def counting(model, rows, **more):
        calls.append(len(rows))
        return ask(model, rows, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    first = verified(HALF, statistics=tmp_path)
    assert sum(calls) == 2 * 120
    assert verified(HALF, statistics=tmp_path).summary == first.summary
    assert sum(calls) == 2 * 120


@pytest.mark.slow
def test_the_command_line_answers_first_and_redacts_the_texts(tmp_path, capsys):
    for name, model in (("before", BEFORE), ("after", HALF)):
        save_model(model, tmp_path / name)
    for name, rows in (("gone", GONE), ("never", NEVER)):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    words = ["unlearning", str(tmp_path / "before"), str(tmp_path / "after")]
    words += [f"--deleted={tmp_path / 'gone.jsonl'}", f"--reference={tmp_path / 'never.jsonl'}"]
    out, page = tmp_path / "run", tmp_path / "page.html"
    command([*words, f"--out={out}"])
    terminal = capsys.readouterr().out
    assert terminal.startswith("LEAK  ")
    assert "% of what BEFORE knew remains (95% CI" in terminal.splitlines()[0]
    assert "AFTER still knows the 40 deleted texts better than the 80 reference texts" in terminal
    assert GONE[0][:12] not in terminal
    assert set(results.load(out).run["models"]) == {"before", "after"}
    assert command(["report", str(out), f"--out={page}"]) == 1
    assert "Are these texts gone?" in page.read_text()
    assert GONE[0][:12] not in page.read_text()
    command([*words, f"--out={tmp_path / 'shown'}", "--show-secrets"])
    shown = capsys.readouterr().out
    assert sum(text[:20] in shown for text in GONE) == 20


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"author": "by"}, DataError, "`deleted` has no authors"),
        ({"reference": Corpus.from_texts([f"{text} w0" for text in GONE])}, DataError,
         "every text of `reference` is a near-duplicate"),
        ({"reference": Corpus.from_texts([*NEVER, *GONE[:2]])}, DataError, "2 texts are in both"),
        ({"alpha": 0.0}, ValueError, "`alpha` must be greater than 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        verified(BEFORE, **change)
