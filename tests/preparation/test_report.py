"""The page of a training shows its notices, its guarantee and its curve."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from vestige import results
from vestige.errors import RunError
from vestige.reports.report import report_of

TERMS = {
    "guarantee": "No guarantee for any of the 9 documents: <script>alert(1)</script>",
    "earlier trainings": "Half were used before.",
    "vocabulary": "It was made of this text.",
    "steps": "20 steps.",
}


@dataclass(frozen=True)
class DefendedTraining:
    """Two evaluations."""

    more: dict = field(default_factory=dict)
    last: float | None = 40.0
    scores: ClassVar[dict] = {}

    def summary(self):
        return {
            "validation_perplexity": self.last, "defence": "dp-sgd", **self.more, **self.scores
        }  # fmt: skip

    def rows(self):
        for epoch, perplexity in ((1, 60.0), (2, self.last)):
            both = {"perplexity": perplexity, "validation_perplexity": perplexity}
            yield {"epoch": epoch, "step": 10 * epoch, **both, **self.scores}


class IntentSlotTraining(DefendedTraining):
    """Of utterances."""

    scores: ClassVar[dict] = {"intent_accuracy": 0.9, "slot_f1": None}


class PairTraining(DefendedTraining):
    """Of pairs of texts."""

    scores: ClassVar[dict] = {"bleu": 0.25}


@pytest.fixture
def report(tmp_path):
    """Makes the report of a training."""

    def report(training, terms=None):
        run = {} if terms is None else {"privacy": terms}
        results.save(training, tmp_path / "run", run=run)
        return report_of(results.load(tmp_path / "run"), show_secrets=False)

    return report


def test_the_report_begins_with_the_guarantee(report):
    result = report(
        DefendedTraining({"word_frequency_perplexity": 50.0, "vocabulary_made_of": "own"}), TERMS
    )
    assert result.evidence[0] == TERMS["guarantee"]
    assert result.notices == (TERMS["earlier trainings"], TERMS["vocabulary"])
    guarantee, curve = result.tables
    assert dict(guarantee.rows) == TERMS
    assert curve.rows == (("1", "10", "60.0", "60.0"), ("2", "20", "40.0", "40.0"))
    assert result.figures[0].svg.count("<svg") == 2


def test_a_useless_model_gives_a_notice(report):
    summary = {"word_frequency_perplexity": 30.0, "vocabulary_made_of": "other"}
    [notice] = report(DefendedTraining(summary), {"guarantee": "ε = 1."}).notices
    assert "no better than word frequencies: perplexity 40.0, word frequencies 30.0" in notice


def test_the_report_states_a_missing_guarantee(report):
    result = report(DefendedTraining())
    assert "No defence with a guarantee" in result.evidence[0]
    assert len(result.tables) == 1


@pytest.mark.slow
@pytest.mark.parametrize("last", [None, 1e300, 0.0, -1.0])
def test_perplexities_that_have_no_logarithm_are_left_out_of_the_chart(report, last):
    result = report(DefendedTraining(last=last))
    assert len(result.figures) == 1
    assert "NaN" not in result.figures[0].svg


@pytest.mark.parametrize(
    ("training", "scores", "columns"),
    [
        (IntentSlotTraining(), "and intent accuracy 0.9.", ("intent accuracy", "slot F1")),
        (PairTraining(), "and BLEU 0.25.", ("BLEU",)),
    ],
)
def test_scores_of_a_task_are_listed_with_the_perplexity(report, training, scores, columns):
    result = report(training)
    assert result.evidence[0].startswith(f"Perplexity 40.0 on the validation text {scores}")
    assert result.evidence[0].endswith("This does not measure what the model reveals.")
    assert result.tables[0].columns[4:] == columns
    assert {len(row) for row in result.tables[0].rows} == {len(result.tables[0].columns)}


def test_a_damaged_statement_is_refused(report):
    with pytest.raises(RunError, match="not a complete DefendedTraining run"):
        report(DefendedTraining(), ["no", "terms"])
