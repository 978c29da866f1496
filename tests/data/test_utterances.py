"""Labelled utterances, and their ids."""

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
    """A well-formed utterance: slots laid side by side, then cut into tags."""
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
def test_an_utterance_made_of_whole_slots_has_no_fault(said):
    assert fault(said) is None


@pytest.mark.parametrize(
    ("tokens", "tags", "intent", "says"),
    [
        ((), (), "x", "no words"),
        (("a", "b"), ("O",), "x", "2 words and 1 tags"),
        (("a",), ("O", "O"), "x", "1 words and 2 tags"),
        (("a",), ("O",), "", "no intent"),
        (("a b",), ("O",), "x", "word 1 is empty or contains a blank"),
        (("a", ""), ("O", "O"), "x", "word 2 is empty or contains a blank"),
        (("a", "\n"), ("O", "O"), "x", "word 2"),
        (("a",), ("X",), "x", "tag 1 is not O"),
        (("a",), ("B-",), "x", "is not O, B-name or I-name"),
        (("a",), ("B",), "x", "is not O, B-name or I-name"),
        (("a",), ("b-city",), "x", "is not O, B-name or I-name"),
        (("a",), ("S-city",), "x", "is not O, B-name or I-name"),
        (("a",), ("",), "x", "is not O, B-name or I-name"),
        (("a",), ("I-city",), "x", "continues a slot"),
        (("a", "b"), ("B-city", "I-town"), "x", "tag 2 continues a slot"),
        (("a", "b", "c"), ("B-city", "O", "I-city"), "x", "tag 3"),
    ],
)
def test_a_fault_is_said_with_its_place(tokens, tags, intent, says):
    assert says in (fault(Utterance(tokens, tags, intent)) or "")


def test_a_faulty_utterance_is_counted_from_one():
    with pytest.raises(DataError, match=r"utterance 2: .*2 words and 1 tags.* Give every word"):
        Utterances.of([JAZZ, Utterance(("a", "b"), ("O",), "x")])


def test_what_goes_in_comes_out_in_order():
    said = Utterances.of([PIN, JAZZ, RAIN])
    assert list(said) == [PIN, JAZZ, RAIN]
    assert said.intents == ["PinIntent", "PlayMusic", "GetWeather"]
    assert list(said + said) == [PIN, JAZZ, RAIN] * 2
    assert said.table.schema == SCHEMA


def test_as_documents_they_keep_text_and_intent():
    corpus = Utterances.of([PIN, JAZZ]).corpus()
    assert list(corpus) == ["my pin is 4 2", "play jazz"]
    assert corpus.labels == ["PinIntent", "PlayMusic"]


def test_the_fingerprint_sees_content_and_not_chunks():
    said = Utterances.of([PIN, JAZZ, RAIN])
    chunked = Utterances(pa.concat_tables([said.table[:1], said.table[1:]]))
    assert chunked.fingerprint() == said.fingerprint()
    others = [
        [JAZZ, PIN, RAIN],
        [PIN, JAZZ],
        [PIN, JAZZ, RAIN._replace(intent="Other")],
        [PIN, JAZZ, RAIN._replace(tags=("O", "O", "O"))],
        [PIN, JAZZ, RAIN._replace(tokens=("rain", "in", "leeds"))],
    ]
    prints = {Utterances.of(other).fingerprint() for other in others}
    assert len(prints | {said.fingerprint()}) == 6


def test_the_fingerprint_sees_where_an_utterance_ends():
    one = Utterances.of([Utterance(("a", "b"), ("O", "O"), "x"), Utterance(("c",), ("O",), "x")])
    two = Utterances.of([Utterance(("a",), ("O",), "x"), Utterance(("b", "c"), ("O", "O"), "x")])
    assert one.fingerprint() != two.fingerprint()


def test_labels_that_hold_separators_have_fingerprints_of_their_own():
    one, other = (
        Utterances.of([Utterance(("go",), ("O",), first), Utterance(("go",), ("O",), second)])
        for first, second in (("A\x1eB", "C"), ("A", "B\x1eC"))
    )
    assert one.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    "row",
    [
        Utterance(("go", "new york"), ("O", "O"), "Go"),
        Utterance(("go", "far"), ("O", "secret-word"), "Go"),
        Utterance(("go", "far"), ("O", "I-secret"), "Go"),
    ],
)
def test_a_fault_of_an_utterance_quotes_no_word_and_no_label(row):
    said = fault(row)
    assert said
    assert "york" not in said
    assert "secret" not in said


# Utterances as ids.

LABELS = Labels(("Ask", "Fly"), ("O", "B-city", "I-city"))
TOKENS = [[4, 5], [6, 7, 8], [9], [1, 2]]
TAGS = [["O", "B-city"], ["B-city", None, "I-city"], ["B-time"], ["O", "O"]]
INTENTS = ["Fly", "Ask", "Fly", "Call"]


@pytest.fixture
def data():
    return EncodedUtterances.of(TOKENS, TAGS, INTENTS, LABELS)


def test_ids_stand_one_utterance_after_the_other(data):
    assert len(data) == 4
    assert data.tokens.tolist() == [4, 5, 6, 7, 8, 9, 1, 2]
    assert data.tags.tolist() == [0, 1, 1, IGNORED, 2, UNKNOWN, 0, 0]
    assert data.intents.tolist() == [1, 0, 1, UNKNOWN]
    assert data.offsets.tolist() == [0, 2, 5, 6, 8]
    assert data.lengths.tolist() == [2, 3, 1, 2]


def test_an_unknown_tag_or_intent_makes_an_utterance_unknown(data):
    assert data.known.tolist() == [True, True, False, False]


def test_sums_count_tokens_of_each_utterance(data):
    assert data.sums(data.tags != IGNORED).tolist() == [2, 2, 1, 2]
    assert data.sums(data.tokens > 5).tolist() == [0, 3, 1, 0]


def test_rows_of_one_length_are_the_utterances_asked_for(data):
    tokens, tags, intents = data.rows(np.array([3, 0]))
    assert tokens.tolist() == [[1, 2], [4, 5]]
    assert tags.tolist() == [[0, 0], [0, 1]]
    assert intents.tolist() == [UNKNOWN, 1]
    assert {part.dtype for part in (tokens, tags, intents)} == {np.dtype(np.int64)}


def test_no_utterances_are_none():
    empty = EncodedUtterances.of([], [], [], LABELS)
    assert len(empty) == 0
    assert empty.known.shape == empty.lengths.shape == (0,)


def test_labels_are_those_used_and_those_asked_for():
    said = [
        Utterance(("to", "new", "york"), ("O", "B-city", "I-city"), "Fly"),
        Utterance(("now",), ("B-at",), "Ask"),
    ]
    labels = Labels.of(Utterances.of(said), intents=["Call", "Ask"], tags=["B-pin", "O"])
    assert labels.intents == ("Ask", "Call", "Fly")
    assert labels.tags == ("O", "B-at", "I-at", "B-city", "I-city", "B-pin", "I-pin")


def test_the_fingerprint_covers_ids_and_labels(data):
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
