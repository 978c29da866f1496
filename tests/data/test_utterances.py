"""Labelled utterances, and their encoding as ids."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.utterances import (
    IGNORED,
    SCHEMA,
    UNKNOWN,
    EncodedUtterances,
    Labels,
    Utterance,
    Utterances,
    fault,
)
from vestige.errors import DataError

PIN = Utterance(("my", "pin", "is", "4", "2"), ("O", "O", "O", "B-canary", "I-canary"), "PinIntent")
JAZZ = Utterance(("play", "jazz"), ("O", "B-genre"), "PlayMusic")
RAIN = Utterance(("rain", "in", "york"), ("O", "O", "B-city"), "GetWeather")


@st.composite
def utterances(draw):
    """A well-formed utterance, made of slots."""
    slots = draw(
        st.lists(st.tuples(st.sampled_from(["", "city", "a-b"]), st.integers(1, 3)), min_size=1)
    )
    tags = []
    for name, length in slots:
        tags += [f"B-{name}"] + [f"I-{name}"] * (length - 1) if name else ["O"] * length
    words = st.text(min_size=1).filter(lambda word: word.split() == [word])
    tokens = draw(st.lists(words, min_size=len(tags), max_size=len(tags)))
    return Utterance(tuple(tokens), tuple(tags), draw(st.sampled_from(["Pin", "Play"])))


@pytest.mark.slow
@given(utterances())
def test_an_utterance_of_complete_slots_has_no_fault(utterance):
    assert fault(utterance) is None


@pytest.mark.parametrize(
    ("tokens", "tags", "intent", "message"),
    [
        ((), (), "x", "no words"),
        (("secret", "b"), ("O",), "x", "2 words and 1 tags"),
        (("a",), ("O", "O"), "x", "1 words and 2 tags"),
        (("a",), ("O",), "", "no intent"),
        (("a secret",), ("O",), "x", "word 1 is empty or contains a blank"),
        (("a", ""), ("O", "O"), "x", "word 2 is empty or contains a blank"),
        *(
            (("a",), (tag,), "x", "tag 1 is not O, B-name or I-name")
            for tag in ("X", "B-", "B", "b-city", "S-city", "", "secret-word")
        ),
        (("a",), ("I-secret",), "x", "continues a slot"),
        (("a", "b"), ("B-city", "I-town"), "x", "tag 2 continues a slot"),
        (("a", "b", "c"), ("B-city", "O", "I-city"), "x", "tag 3"),
    ],
)
def test_a_fault_gives_its_position_and_quotes_no_text(tokens, tags, intent, message):
    problem = fault(Utterance(tokens, tags, intent))
    assert message in (problem or "")
    assert "secret" not in problem


def test_utterances_are_stored_in_order_and_become_documents():
    utterances = Utterances.of([PIN, JAZZ, RAIN])
    assert list(utterances) == [PIN, JAZZ, RAIN]
    assert utterances.intents == ["PinIntent", "PlayMusic", "GetWeather"]
    assert list(utterances + utterances) == [PIN, JAZZ, RAIN] * 2
    assert utterances.table.schema == SCHEMA
    corpus = utterances.take([0, 1]).corpus()
    assert list(corpus) == ["my pin is 4 2", "play jazz"]
    assert corpus.labels == ["PinIntent", "PlayMusic"]
    with pytest.raises(DataError, match=r"utterance 2: .*2 words and 1 tags.* Give every word"):
        Utterances.of([JAZZ, Utterance(("a", "b"), ("O",), "x")])


def test_the_fingerprint_depends_on_content_not_on_chunks():
    def of(*rows):
        return Utterances.of([Utterance(tuple(w), ("O",) * len(w), intent) for w, intent in rows])

    utterances = Utterances.of([PIN, JAZZ, RAIN])
    chunked = Utterances(pa.concat_tables([utterances.table[:1], utterances.table[1:]]))
    assert chunked.fingerprint() == utterances.fingerprint()
    different = [
        Utterances.of([JAZZ, PIN, RAIN]),
        Utterances.of([PIN, JAZZ]),
        Utterances.of([PIN, JAZZ, RAIN._replace(intent="Other")]),
        Utterances.of([PIN, JAZZ, RAIN._replace(tags=("O", "O", "O"))]),
        Utterances.of([PIN, JAZZ, RAIN._replace(tokens=("rain", "in", "leeds"))]),
        of(("ab", "x"), ("c", "x")),
        of(("a", "x"), ("bc", "x")),
        of(("g", "A\x1eB"), ("g", "C")),  # labels that contain separators
        of(("g", "A"), ("g", "B\x1eC")),
    ]
    assert len({rows.fingerprint() for rows in [utterances, *different]}) == 10


# Utterances as ids

LABELS = Labels(("Ask", "Fly"), ("O", "B-city", "I-city"))
TOKENS = [[4, 5], [6, 7, 8], [9], [1, 2]]
TAGS = [["O", "B-city"], ["B-city", None, "I-city"], ["B-time"], ["O", "O"]]
INTENTS = ["Fly", "Ask", "Fly", "Call"]


def test_ids_of_utterances_are_concatenated():
    data = EncodedUtterances.of(TOKENS, TAGS, INTENTS, LABELS)
    assert len(data) == 4
    assert data.tokens.tolist() == [4, 5, 6, 7, 8, 9, 1, 2]
    assert data.tags.tolist() == [0, 1, 1, IGNORED, 2, UNKNOWN, 0, 0]
    assert data.intents.tolist() == [1, 0, 1, UNKNOWN]
    assert data.offsets.tolist() == [0, 2, 5, 6, 8]
    assert data.lengths.tolist() == [2, 3, 1, 2]
    assert data.known.tolist() == [True, True, False, False]  # an unknown tag, an unknown intent
    assert data.sums(data.tags != IGNORED).tolist() == [2, 2, 1, 2]
    assert data.sums(data.tokens > 5).tolist() == [0, 3, 1, 0]
    tokens, tags, intents = data.rows(np.array([3, 0]))
    assert tokens.tolist() == [[1, 2], [4, 5]]
    assert tags.tolist() == [[0, 0], [0, 1]]
    assert intents.tolist() == [UNKNOWN, 1]
    assert {part.dtype for part in (tokens, tags, intents)} == {np.dtype(np.int64)}
    empty = EncodedUtterances.of([], [], [], LABELS)
    assert len(empty) == 0
    assert empty.known.shape == empty.lengths.shape == (0,)


def test_labels_are_those_of_the_utterances_and_any_additional_ones():
    utterances = [
        Utterance(("to", "new", "york"), ("O", "B-city", "I-city"), "Fly"),
        Utterance(("now",), ("B-at",), "Ask"),
    ]
    labels = Labels.of(Utterances.of(utterances), intents=["Call", "Ask"], tags=["B-pin", "O"])
    assert labels.intents == ("Ask", "Call", "Fly")
    assert labels.tags == ("O", "B-at", "I-at", "B-city", "I-city", "B-pin", "I-pin")


def test_the_fingerprint_covers_ids_and_labels():
    def of(tokens=TOKENS, tags=TAGS, intents=INTENTS, labels=LABELS):
        return EncodedUtterances.of(tokens, tags, intents, labels).fingerprint()

    moved = [["O"], ["B-city", "B-city", None, "I-city"], *TAGS[2:]]
    others = {
        of(tokens=[[4, 6], *TOKENS[1:]]),
        of(tags=[["O", "O"], *TAGS[1:]]),
        of(intents=["Ask", *INTENTS[1:]]),
        of(labels=Labels(LABELS.intents, LABELS.tags[:2])),
        of(tokens=[[4], [5, 6, 7, 8], *TOKENS[2:]], tags=moved),
    }
    assert of() == of()
    assert len(others | {of()}) == 6
