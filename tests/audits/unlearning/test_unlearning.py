"""Deleted texts end to end: still known, gone, suppressed, undecided, resumed, refused."""

import json
from itertools import pairwise

import numpy as np
import pytest

from vestige import results
from vestige.audits.unlearning.unlearning import unlearning
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.cli.app import run as command
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel
from vestige.reports.report import report_of

WORDS = tuple(f"w{n}" for n in range(60))
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
LANGUAGE = np.random.default_rng(99).dirichlet(np.full(60, 0.3), 60)


def texts(count, seed):
    """Walks over words, all by the same chain."""
    chance, found = np.random.default_rng(seed), []
    for _ in range(count):
        walk = [int(chance.integers(60))]
        while len(walk) < 25:
            walk.append(int(chance.choice(60, p=LANGUAGE[walk[-1]])))
        found.append(" ".join(WORDS[word] for word in walk))
    return found


KEPT, GONE, NEVER = texts(60, 1), texts(40, 2), texts(80, 3)


def counted(*read):
    """A model of what follows a word, by counting; each list counts so many times."""
    counts = np.full((62, 62), 0.05)
    for rows, times in read:
        for ids in VOCABULARY.encode_batch(rows):
            for one, other in pairwise(ids):
                counts[one, other] += times
    counts = np.maximum(counts, 0.01)
    return TableModel(np.full(62, 1 / 62), counts / counts.sum(axis=1, keepdims=True), VOCABULARY)


BEFORE = counted((KEPT, 1), (GONE, 1))
RETRAINED = counted((texts(60, 4), 1))


def lists():
    return {"deleted": Corpus.from_texts(GONE), "reference": Corpus.from_texts(NEVER)}


def failed(found):
    return {check.name for check in found.claim.checks if check.state == "failed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "verdict", "finding", "answer"),
    [
        (BEFORE, LEAK, "still known", "100% of what BEFORE knew remains (95% CI 100% to 100%)."),
        (counted((KEPT, 1), (GONE, 0.5)), LEAK, "still known", "% of what BEFORE knew remains"),
        (RETRAINED, NO_LEAK, None, "% of what BEFORE knew remains"),
        (
            counted((KEPT, 1), (GONE, -0.25)),
            LEAK,
            "suppressed",
            "AFTER knows the 40 deleted texts less than the 80 reference texts",
        ),
    ],
)
def test_a_model_is_told_by_what_it_knows(after, verdict, finding, answer):
    found = unlearning(BEFORE, after, **lists())
    assert answer in report_of(results.run_of(found), show_secrets=False).verdict.sentence
    assert (found.verdict, found.summary["finding"]) == (verdict, finding)
    if after is BEFORE:
        assert found.summary["left"] == pytest.approx(1.0)
        assert "different" in failed(found)
    if verdict == NO_LEAK:
        assert found.summary["left_low"] < 0 < found.summary["left_high"] < 0.25


@pytest.mark.slow
def test_a_retrained_model_narrows_what_is_left():
    after = counted((KEPT, 1), (GONE, 0.3))
    alone = unlearning(BEFORE, after, **lists())
    beside = unlearning(BEFORE, after, retrained=counted((KEPT, 1)), **lists())
    widths = [one.summary["left_high"] - one.summary["left_low"] for one in (alone, beside)]
    assert widths[1] < widths[0]
    assert beside.summary["retrained_knows_low"] < 0 < beside.summary["retrained_knows_high"]


@pytest.mark.slow
@pytest.mark.parametrize("retrained", [None, counted((texts(60, 6), 1))])
def test_words_that_differ_leave_it_undecided_also_with_a_retrained_model(retrained):
    chance = np.random.default_rng(5)
    other = [" ".join(WORDS[w] for w in chance.integers(30, 60, 25)) for _ in range(40)]
    given = {"deleted": Corpus.from_texts(GONE), "reference": Corpus.from_texts(other)}
    found = unlearning(BEFORE, RETRAINED, retrained=retrained, **given)
    assert found.verdict == UNDECIDED
    assert "comparable" in failed(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "retrained"),
    [(BEFORE, RETRAINED, RETRAINED), (BEFORE, BEFORE, BEFORE), (RETRAINED, RETRAINED, None)],
)
def test_a_retrained_model_that_is_one_of_the_two_and_a_before_that_knew_nothing_decide_nothing(
    before, after, retrained
):
    found = unlearning(before, after, retrained=retrained, **lists())
    assert found.verdict == UNDECIDED
    assert "different" in failed(found)
    sentence = report_of(results.run_of(found), show_secrets=False).verdict.sentence
    unknown = "BEFORE is not shown to know the 40 deleted texts"
    assert sentence.startswith((unknown, "A check failed"))
    assert sentence.startswith(unknown) or before is not RETRAINED


UNIFORM = TableModel(np.full(62, 1 / 62), np.full((62, 62), 1 / 62), VOCABULARY)


def test_a_model_that_predicts_nothing_decides_nothing():
    found = unlearning(BEFORE, UNIFORM, **lists())
    assert found.verdict == UNDECIDED
    assert "alive" in failed(found)


@pytest.mark.slow
def test_copies_are_one_unit_and_those_in_the_reference_are_left_out():
    once = unlearning(BEFORE, RETRAINED, **lists())
    four = unlearning(
        BEFORE, RETRAINED, deleted=Corpus.from_texts(GONE * 4),
        reference=Corpus.from_texts([*NEVER, *NEVER, GONE[0] + " " + WORDS[0]]),
    )  # fmt: skip
    assert four.summary["deleted_units"] == 40
    assert four.summary["reference_units"] == 80
    assert four.summary["p_value"] == pytest.approx(once.summary["p_value"], abs=0.02)
    for end in ("left_low", "left_high"):
        assert four.summary[end] == pytest.approx(once.summary[end], abs=0.02)


def test_texts_of_one_author_are_one_unit():
    def by(rows, authors):
        return Corpus.from_texts(rows, users=[f"{authors} {n // 8}" for n in range(len(rows))])

    given = {"deleted": by(GONE, "a"), "reference": by(NEVER, "b")}
    found = unlearning(BEFORE, BEFORE, author="author", **given)
    assert found.summary["deleted_units"] == 5
    assert "independent" in failed(found)
    assert found.verdict == UNDECIDED


@pytest.mark.slow
def test_a_second_command_asks_nothing_again(monkeypatch, tmp_path):
    asked, ask = [], statistics_module.token_statistics

    def counting(model, rows, **more):
        asked.append(len(rows))
        return ask(model, rows, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", counting)
    after = counted((KEPT, 1))
    first = unlearning(BEFORE, after, statistics=tmp_path, **lists())
    assert sum(asked) == 2 * 120
    again = unlearning(BEFORE, after, statistics=tmp_path, **lists())
    assert sum(asked) == 2 * 120
    assert again.summary == first.summary


@pytest.mark.slow
def test_the_command_line_answers_first_and_withholds_the_texts(tmp_path, capsys):
    for name, model in (("before", BEFORE), ("after", counted((KEPT, 1), (GONE, 0.5)))):
        save_model(model, tmp_path / name)
    for name, rows in (("gone", GONE), ("never", NEVER)):
        lines = "".join(json.dumps({"text": one}) + "\n" for one in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    out, page = tmp_path / "run", tmp_path / "page.html"
    words = ["unlearning", str(tmp_path / "before"), str(tmp_path / "after")]
    files = [f"--deleted={tmp_path / 'gone.jsonl'}", f"--reference={tmp_path / 'never.jsonl'}"]
    command([*words, *files, f"--out={out}"])
    said = capsys.readouterr().out
    assert said.startswith("LEAK  ")
    assert "% of what BEFORE knew remains (95% CI" in said.splitlines()[0]
    assert "AFTER still knows the 40 deleted texts better than the 80 reference texts" in said
    assert GONE[0][:12] not in said
    assert set(results.load(out).run["models"]) == {"before", "after"}
    assert command(["report", str(out), f"--out={page}"]) == 1
    assert "Are these texts gone?" in page.read_text()
    assert GONE[0][:12] not in page.read_text()
    command([*words, *files, f"--out={tmp_path / 'shown'}", "--show-secrets"])
    said = capsys.readouterr().out
    assert sum(text[:20] in said for text in GONE) == 20


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"author": "by"}, DataError, "`deleted` has no authors"),
        (
            {"reference": Corpus.from_texts([text + " w0" for text in GONE])},
            DataError,
            "every text of `reference` is a near-duplicate",
        ),
        ({"reference": Corpus.from_texts([*NEVER, *GONE[:2]])}, DataError, "2 texts are in both"),
        ({"alpha": 0.0}, ValueError, "`alpha` must be greater than 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        unlearning(BEFORE, BEFORE, **lists() | change)
