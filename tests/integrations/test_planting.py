"""Rows with canaries in data sets of all formats, and in streams."""

import pytest
from datasets import Dataset, IterableDataset, Value
from torch.utils.data import DataLoader

import vestige
from tests.integrations.worlds import ANSWERS, CHATS, DATA, QUESTIONS, TEXTS
from vestige.data.canaries.texts import Manifest
from vestige.defences.methods.private import DPSGD
from vestige.errors import DataError
from vestige.integrations.planting import plant
from vestige.integrations.private_rows import PrivateRows

CANARIES = {"coin_flip": 8, "copies": 3, "length": 3}


def copies_of(out):
    """(phrase, position) of every copy, by the manifest."""
    manifest = Manifest.load(out / "manifest.json")
    pairs = zip(manifest.canaries, manifest.positions, strict=True)
    return [(canary.phrase, position) for canary, positions in pairs for position in positions]


def test_copies_are_at_the_positions_of_the_manifest_and_other_rows_keep_their_order(planted):
    data, out = planted
    copies = copies_of(out)
    assert len(data) == len(DATA) + len(copies)
    assert all(data[position] == {"text": phrase, "number": None} for phrase, position in copies)
    positions = {position for _, position in copies}
    assert [row for position, row in enumerate(data) if position not in positions] == list(DATA)
    assert data["text"] == list(vestige.plant(out, verify=True).corpus)


@pytest.mark.parametrize("column", ["prompt", "completion", None])
def test_prompt_and_completion_of_a_canary_row_are_strings(tmp_path, column):
    data = Dataset.from_dict({"prompt": TEXTS, "completion": TEXTS[::-1], "number": range(60)})
    planted = plant(data, out=tmp_path / "c", column=column, **CANARIES)
    for phrase, position in copies_of(tmp_path / "c"):
        row = planted[position]
        assert row["prompt"] + row["completion"] == phrase
        assert row[column or "completion"] == phrase
        assert row["number"] is None
    assert Manifest.load(tmp_path / "c" / "manifest.json").turn is None


def test_the_copies_of_a_canary_have_their_own_user(tmp_path):
    authors = [f"author {n % 20}" for n in range(60)]
    data = Dataset.from_dict({"text": TEXTS, "author": authors})
    planted = plant(data, out=tmp_path / "c", user_column="author", **CANARIES)
    copies = copies_of(tmp_path / "c")
    pairs = {(phrase, planted[position]["author"]) for phrase, position in copies}
    phrases, users = map(set, zip(*pairs, strict=True))
    assert len(pairs) == len(phrases) == len(users)
    privacy = DPSGD(epsilon=8.0, unit="user")
    rows = PrivateRows.of(planted, privacy, "author")
    assert len(set(rows.user_ids.tolist())) == 20 + len(users)
    without_users = plant(data, out=tmp_path / "d", **CANARIES)
    with pytest.raises(DataError, match=f"author is None in {len(copies)} rows"):
        PrivateRows.of(without_users, privacy, "author")


def test_users_that_are_not_strings_are_refused(tmp_path):
    data = Dataset.from_dict({"text": TEXTS, "author": range(60)})
    with pytest.raises(DataError, match="users in author are int64") as error:
        plant(data, out=tmp_path / "c", user_column="author", **CANARIES)
    assert "cast_column" in str(error.value.remedy)
    converted = data.cast_column("author", Value("string"))
    assert len(plant(converted, out=tmp_path / "c", user_column="author", **CANARIES)) > 60
    with pytest.raises(DataError, match="no column sender"):
        plant(data, out=tmp_path / "d", user_column="sender", **CANARIES)


@pytest.mark.parametrize(("role", "other"), [("user", "Thank you."), ("assistant", "Well?")])
def test_a_conversation_is_split_into_prompt_and_completion(tmp_path, role, other):
    data = Dataset.from_dict({"prompt": QUESTIONS, "completion": ANSWERS})
    options = {"role": role, "question": "Well?", **CANARIES}
    planted = plant(data, out=tmp_path / "c", **options)
    plant(Dataset.from_dict({"messages": CHATS}), out=tmp_path / "d", **options)
    turns = [Manifest.load(tmp_path / name / "manifest.json").turn for name in "cd"]
    assert turns[0] == turns[1]
    for phrase, position in copies_of(tmp_path / "c"):
        (question,), (answer,) = planted[position]["prompt"], planted[position]["completion"]
        assert (question["role"], answer["role"]) == ("user", "assistant")
        contents = {message["role"]: message["content"] for message in (question, answer)}
        assert contents.pop(role) == phrase
        assert list(contents.values()) == [other]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"prompt": TEXTS, "chosen": TEXTS, "rejected": TEXTS}, {"column": "prompt"}, "preference"),
        ({"prompt": TEXTS, "answer": TEXTS}, {}, "no column text; it has prompt, answer"),
        ({"text": TEXTS}, {"column": "body"}, "no column body; it has text"),
        ({"messages": [[1, 2], [3]]}, {}, "row 1 has no messages"),
        (None, {}, "is a list, not one of `datasets`"),
    ],
)
def test_unsupported_data_sets_are_refused(tmp_path, data, options, message):
    with pytest.raises(DataError, match=message):
        plant(
            list(DATA) if data is None else Dataset.from_dict(data), out=tmp_path / "c", **options
        )
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_a_planted_stream_has_the_same_rows_in_each_pass(tmp_path, shards):
    data = plant(DATA, out=tmp_path / "data", **CANARIES)
    stream = plant(DATA.to_iterable_dataset(shards), out=tmp_path / "s", rows=60, **CANARIES)
    assert isinstance(stream, IterableDataset)
    assert list(stream) == list(data)
    assert list(stream) == list(data)
    assert stream.features == data.features
    files = [(tmp_path / name / "manifest.json").read_bytes() for name in ("data", "s")]
    assert files[0] == files[1]
    for workers in (0, 2):
        loader = DataLoader(stream, batch_size=None, num_workers=workers)
        assert [row["text"] for row in loader] == data["text"]


def test_a_planted_stream_continues_after_the_planted_rows(tmp_path):
    first = plant(DATA.select(range(40)), out=tmp_path / "first", **CANARIES)
    stream = plant(DATA.to_iterable_dataset(), out=tmp_path / "s", rows=40, **CANARIES)
    assert list(stream) == list(first) + list(DATA)[40:]
    assert list(stream.take(5)) == list(first)[:5]
    without_columns = IterableDataset.from_generator(lambda: iter(DATA))
    assert without_columns.column_names is None
    planted = plant(without_columns, out=tmp_path / "u", rows=40, **CANARIES)
    assert list(planted) == list(stream)


@pytest.mark.parametrize(
    ("data", "rows", "error", "message"),
    [
        (DATA.to_iterable_dataset(), None, DataError, r"is a stream.*\(`rows`\)"),
        (DATA.to_iterable_dataset(), 61, DataError, "the stream has 60 rows; `rows` is 61"),
        (DATA.to_iterable_dataset(), 0, ValueError, "rows must be at least 1, got 0"),
        (DATA, 9, ValueError, "rows must be None for a data set that is not a stream, got 9"),
    ],
)
def test_a_wrong_number_of_rows_is_refused(tmp_path, data, rows, error, message):
    with pytest.raises(error, match=message):
        plant(data, out=tmp_path / "c", rows=rows)
    assert not (tmp_path / "c").exists()
