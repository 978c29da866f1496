"""The page of a training shows its warnings, its statement and its curve."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from vestige import results
from vestige.errors import RunError
from vestige.reports.report import report_of

TERMS = {
    "guarantee": "No guarantee for any of the 9 documents: <script>alert(1)</script>",
    "earlier trainings": "Half were read before.",
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
def shown(tmp_path):
    """The report of a training."""

    def report(training, terms=None):
        run = {} if terms is None else {"privacy": terms}
        results.save(training, tmp_path / "run", run=run)
        return report_of(results.load(tmp_path / "run"), show_secrets=False)

    return report


def test_the_statement_begins_with_its_number(shown):
    more = {"word_frequency_perplexity": 50.0, "vocabulary_made_of": "own"}
    found = shown(DefendedTraining(more), TERMS)
    assert found.evidence[0] == TERMS["guarantee"]
    assert found.notices == (TERMS["earlier trainings"], TERMS["vocabulary"])
    promise, curve = found.tables
    assert dict(promise.rows) == TERMS
    assert curve.rows == (("1", "10", "60.0", "60.0"), ("2", "20", "40.0", "40.0"))
    assert found.figures[0].svg.count("<svg") == 2


def test_a_useless_model_gives_a_notice(shown):
    more = {"word_frequency_perplexity": 30.0, "vocabulary_made_of": "other"}
    [warning] = shown(DefendedTraining(more), {"guarantee": "ε = 1."}).notices
    assert "no better than word frequencies: perplexity 40.0, word frequencies 30.0" in warning


def test_the_report_states_a_missing_guarantee(shown):
    found = shown(DefendedTraining())
    assert "No defence with a guarantee" in found.evidence[0]
    assert len(found.tables) == 1


@pytest.mark.slow
@pytest.mark.parametrize("last", [None, 1e300, 0.0, -1.0])
def test_infinite_perplexities_are_left_out_of_the_chart(shown, last):
    found = shown(DefendedTraining(last=last))
    assert len(found.figures) == 1
    assert "NaN" not in found.figures[0].svg


@pytest.mark.parametrize(
    ("training", "lede", "columns"),
    [
        (IntentSlotTraining(), "and intent accuracy 0.9.", ("intent accuracy", "slot F1")),
        (PairTraining(), "and BLEU 0.25.", ("BLEU",)),
    ],
)
def test_scores_of_a_task_are_listed_with_the_perplexity(shown, training, lede, columns):
    found = shown(training)
    assert found.evidence[0].startswith(f"Perplexity 40.0 on the validation text {lede}")
    assert found.evidence[0].endswith("This does not measure what the model reveals.")
    assert found.tables[0].columns[4:] == columns
    assert {len(row) for row in found.tables[0].rows} == {len(found.tables[0].columns)}


def test_a_damaged_statement_is_refused(shown):
    with pytest.raises(RunError, match="not a complete DefendedTraining run"):
        shown(DefendedTraining(), ["no", "terms"])
