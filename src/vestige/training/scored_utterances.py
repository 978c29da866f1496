"""Scores of intent-and-slot models with confidence intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from vestige.data.utterances import IGNORED, Utterances
from vestige.metrics.estimates import Interval, clopper_pearson, ratio_of_sums
from vestige.models.white_box import IntentSlotNetwork
from vestige.training.utterances import UtteranceScores, answer, score


@dataclass(frozen=True, kw_only=True)
class ScoredUtterances:
    """Scores of an intent-and-slot model, with 95 % intervals.

    Attributes:
        scores: the numbers.
        intervals: by score: Clopper and Pearson's over utterances; of slots that of a ratio of
            sums, with utterances as clusters, or None where there are no slots, or nothing varies
            between utterances.
    """

    scores: UtteranceScores
    intervals: Mapping[str, Interval | None]

    def summary(self) -> dict[str, float | None]:
        """Scores by name; interval ends as "…_low" and "…_high"."""
        ends: dict[str, float | None] = {}
        for name, interval in self.intervals.items():
            ends[f"{name}_low"], ends[f"{name}_high"] = interval or (None, None)
        return asdict(self.scores) | ends


def score_with_intervals(model: IntentSlotNetwork, utterances: Utterances) -> ScoredUtterances:
    """Score a model on labelled utterances as `evaluate_utterances` does, with intervals.

    Raises:
        TrainingError: there are no utterances.
    """
    data = model.encode(utterances)
    scores = score(model, utterances, data)
    begins = data.tags != IGNORED
    tags = iter(answer(model, data).tags[begins])
    answers = [[data.labels.tags[next(tags)] for _ in said.tags] for said in utterances]
    n = scores.utterances
    return ScoredUtterances(
        scores=scores,
        intervals={
            "intent_accuracy": clopper_pearson(round(scores.intent_accuracy * n), n),
            "slot_f1": slot_f1_interval([said.tags for said in utterances], answers),
            "exact_match": clopper_pearson(round(scores.exact_match * n), n),
        },
    )


def slot_f1_interval(
    expected: Sequence[Sequence[str]], given: Sequence[Sequence[str]]
) -> Interval | None:
    """The 95 % interval of the micro-averaged F1 of whole slots, within [0, 1].

    Args:
        expected: the BIO tags of each utterance.
        given: those that a model answers.

    Returns:
        two fractions, or None where there is no slot or nothing varies between utterances.

    Example:
        >>> truth = [["B-city", "O"], ["O", "B-city"], ["B-city", "B-time"]]
        >>> [round(end, 2) for end in slot_f1_interval(truth, [truth[0], ["O", "O"], truth[2]])]
        [0.05, 1.0]
    """
    from seqeval.metrics.sequence_labeling import get_entities

    parts, wholes = [], []
    for right, said in zip(expected, given, strict=True):
        slots, found = set(get_entities(list(right))), set(get_entities(list(said)))
        parts.append(2 * len(slots & found))
        wholes.append(len(slots) + len(found))
    if not sum(wholes):
        return None
    score = ratio_of_sums(parts, wholes)
    return None if score.low == score.high else score.within(0.0, 1.0).interval
