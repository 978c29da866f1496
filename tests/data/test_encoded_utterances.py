"""Utterances as ids say what they said, and what a model cannot answer is marked."""

import numpy as np
import pytest

from vestige.data.utterances import (
    IGNORED,
    UNKNOWN,
    EncodedUtterances,
    Labels,
    Utterance,
    Utterances,
)

LABELS = Labels(("Ask", "Fly"), ("O", "B-city", "I-city"))
TOKENS = [[4, 5], [6, 7, 8], [9], [1, 2]]
TAGS = [["O", "B-city"], ["B-city", None, "I-city"], ["B-time"], ["O", "O"]]
INTENTS = ["Fly", "Ask", "Fly", "Call"]


@pytest.fixture
def data() -> EncodedUtterances:
    return EncodedUtterances.of(TOKENS, TAGS, INTENTS, LABELS)


def test_ids_stand_one_utterance_after_the_other(data: EncodedUtterances) -> None:
    assert len(data) == 4
    assert data.tokens.tolist() == [4, 5, 6, 7, 8, 9, 1, 2]
    assert data.tags.tolist() == [0, 1, 1, IGNORED, 2, UNKNOWN, 0, 0]
    assert data.intents.tolist() == [1, 0, 1, UNKNOWN]
    assert data.offsets.tolist() == [0, 2, 5, 6, 8]
    assert data.lengths.tolist() == [2, 3, 1, 2]


def test_an_unknown_tag_or_intent_makes_an_utterance_unknown(data: EncodedUtterances) -> None:
    assert data.known.tolist() == [True, True, False, False]


def test_sums_count_tokens_of_each_utterance(data: EncodedUtterances) -> None:
    assert data.sums(data.tags != IGNORED).tolist() == [2, 2, 1, 2]
    assert data.sums(data.tokens > 5).tolist() == [0, 3, 1, 0]


def test_rows_of_one_length_are_the_utterances_asked_for(data: EncodedUtterances) -> None:
    tokens, tags, intents = data.rows(np.array([3, 0]))
    assert tokens.tolist() == [[1, 2], [4, 5]]
    assert tags.tolist() == [[0, 0], [0, 1]]
    assert intents.tolist() == [UNKNOWN, 1]
    assert {part.dtype for part in (tokens, tags, intents)} == {np.dtype(np.int64)}


def test_no_utterances_are_none() -> None:
    empty = EncodedUtterances.of([], [], [], LABELS)
    assert len(empty) == 0
    assert empty.known.shape == empty.lengths.shape == (0,)


def test_labels_are_those_used_and_those_asked_for() -> None:
    said = [
        Utterance(("to", "new", "york"), ("O", "B-city", "I-city"), "Fly"),
        Utterance(("now",), ("B-at",), "Ask"),
    ]
    labels = Labels.of(Utterances.of(said), intents=["Call", "Ask"], tags=["B-pin", "O"])
    assert labels.intents == ("Ask", "Call", "Fly")
    assert labels.tags == ("O", "B-at", "I-at", "B-city", "I-city", "B-pin", "I-pin")


def test_the_fingerprint_covers_ids_and_labels(data: EncodedUtterances) -> None:
    again = EncodedUtterances.of(TOKENS, TAGS, INTENTS, LABELS)
    assert again.fingerprint() == data.fingerprint()
    others = [
        EncodedUtterances.of([[4, 6], *TOKENS[1:]], TAGS, INTENTS, LABELS),
        EncodedUtterances.of(TOKENS, [["O", "O"], *TAGS[1:]], INTENTS, LABELS),
        EncodedUtterances.of(TOKENS, TAGS, ["Ask", *INTENTS[1:]], LABELS),
        EncodedUtterances.of(TOKENS, TAGS, INTENTS, Labels(LABELS.intents, LABELS.tags[:2])),
        EncodedUtterances.of(
            [[4], [5, 6, 7, 8], *TOKENS[2:]],
            [["O"], ["B-city", "B-city", None, "I-city"], *TAGS[2:]],
            INTENTS,
            LABELS,
        ),
    ]
    assert len({other.fingerprint() for other in [data, *others]}) == 6
