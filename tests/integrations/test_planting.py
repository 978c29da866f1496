"""Rows with canaries in data sets of all formats, and in streams."""

import pytest
from datasets import Dataset, IterableDataset, Value
from torch.utils.data import DataLoader

from tests.integrations.worlds import ANSWERED, ASKED, CHATS, DATA, TEXTS
from vestige.data.canaries.texts import Manifest
from vestige.defences.methods.private import DPSGD
from vestige.errors import DataError
from vestige.integrations.planting import plant
from vestige.integrations.private_rows import PrivateRows

CANARIES = {"coin_flip": 8, "copies": 3, "length": 3}


def copies_of(out):
    """(phrase, place) of every copy, by the manifest."""
    sealed = Manifest.load(out / "manifest.json")
    pairs = zip(sealed.canaries, sealed.positions, strict=True)
    return [(canary.phrase, place) for canary, places in pairs for place in places]


@pytest.mark.parametrize("column", ["prompt", "completion", None])
def test_a_canary_row_of_prompts_or_completions(tmp_path, column):
    """A trainer joins both, and None is no text."""
    data = Dataset.from_dict({"prompt": TEXTS, "completion": TEXTS[::-1], "number": range(60)})
    planted = plant(data, out=tmp_path / "c", column=column, **CANARIES)
    for phrase, place in copies_of(tmp_path / "c"):
        row = planted[place]
        assert row["prompt"] + row["completion"] == phrase
        assert row[column or "completion"] == phrase
        assert row["number"] is None
    assert Manifest.load(tmp_path / "c" / "manifest.json").turn is None


def test_the_copies_of_a_canary_have_their_own_user(tmp_path):
    """As in a private training by user, where rows of nobody would be one user's."""
    authors = [f"author {n % 20}" for n in range(60)]
    data = Dataset.from_dict({"text": TEXTS, "author": authors})
    planted = plant(data, out=tmp_path / "c", user_column="author", **CANARIES)
    copies = copies_of(tmp_path / "c")
    whose = {phrase: {planted[place]["author"] for place in places_of(copies, phrase)}
             for phrase, _ in copies}  # fmt: skip
    assert {len(names) for names in whose.values()} == {1}
    assert len({name for names in whose.values() for name in names}) == len(whose)
    privacy = DPSGD(epsilon=8.0, unit="user")
    rows = PrivateRows.of(planted, privacy, "author")
    assert len(set(rows.user_ids.tolist())) == 20 + len(whose)
    nobodys = plant(data, out=tmp_path / "d", **CANARIES)
    with pytest.raises(DataError, match=f"author is None in {len(copies)} rows"):
        PrivateRows.of(nobodys, privacy, "author")


def places_of(copies, phrase):
    return [place for one, place in copies if one == phrase]


def test_users_that_are_not_strings_are_refused(tmp_path):
    data = Dataset.from_dict({"text": TEXTS, "author": range(60)})
    with pytest.raises(DataError, match="users in author are int64") as refused:
        plant(data, out=tmp_path / "c", user_column="author", **CANARIES)
    named = data.cast_column("author", Value("string"))
    assert "cast_column" in str(refused.value.remedy)
    assert len(plant(named, out=tmp_path / "c", user_column="author", **CANARIES)) > 60
    with pytest.raises(DataError, match="no column sender"):
        plant(data, out=tmp_path / "d", user_column="sender", **CANARIES)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_conversation_is_split_into_prompt_and_completion(tmp_path, role):
    data = Dataset.from_dict({"prompt": ASKED, "completion": ANSWERED})
    planted = plant(data, out=tmp_path / "c", role=role, question="Well?", **CANARIES)
    plant(
        Dataset.from_dict({"messages": CHATS}),
        out=tmp_path / "d",
        role=role,
        question="Well?",
        **CANARIES,
    )
    turns = [Manifest.load(tmp_path / name / "manifest.json").turn for name in "cd"]
    assert turns[0] == turns[1]
    told = {"Thank you."} if role == "user" else {"Well?"}
    for phrase, place in copies_of(tmp_path / "c"):
        (asked,), (answered,) = planted[place]["prompt"], planted[place]["completion"]
        assert (asked["role"], answered["role"]) == ("user", "assistant")
        said = {asked["role"]: asked["content"], answered["role"]: answered["content"]}
        assert said.pop(role) == phrase
        assert set(said.values()) == told


@pytest.mark.parametrize(
    ("data", "settings", "told"),
    [
        ({"prompt": TEXTS, "chosen": TEXTS, "rejected": TEXTS}, {"column": "prompt"}, "preference"),
        ({"prompt": TEXTS, "answer": TEXTS}, {}, "no column text; it has prompt, answer"),
        ({"text": TEXTS}, {"column": "body"}, "no column body; it has text"),
        ({"messages": [[1, 2], [3]]}, {}, "row 1 has no messages"),
    ],
)
def test_unsupported_data_sets_are_refused(tmp_path, data, settings, told):
    with pytest.raises(DataError, match=told):
        plant(Dataset.from_dict(data), out=tmp_path / "c", **settings)
    with pytest.raises(DataError, match="is a list, not one of `datasets`"):
        plant(list(DATA), out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_a_planted_stream_has_the_same_rows_in_each_pass(tmp_path, shards):
    whole = plant(DATA, out=tmp_path / "whole", **CANARIES)
    streamed = plant(DATA.to_iterable_dataset(shards), out=tmp_path / "s", rows=60, **CANARIES)
    assert isinstance(streamed, IterableDataset)
    assert list(streamed) == list(whole)
    assert list(streamed) == list(whole)
    assert streamed.features == whole.features
    files = [(tmp_path / name / "manifest.json").read_bytes() for name in ("whole", "s")]
    assert files[0] == files[1]
    for workers in (0, 2):
        loader = DataLoader(streamed, batch_size=None, num_workers=workers)
        assert [row["text"] for row in loader] == whole["text"]


def test_a_planted_stream_continues_after_the_planted_rows(tmp_path):
    first = plant(DATA.select(range(40)), out=tmp_path / "first", **CANARIES)
    streamed = plant(DATA.to_iterable_dataset(), out=tmp_path / "s", rows=40, **CANARIES)
    assert list(streamed) == list(first) + list(DATA)[40:]
    assert list(streamed.take(5)) == list(first)[:5]
    unnamed = IterableDataset.from_generator(lambda: iter(DATA))
    assert unnamed.column_names is None
    assert list(plant(unnamed, out=tmp_path / "u", rows=40, **CANARIES)) == list(streamed)


def test_a_stream_of_unknown_or_other_length_is_refused(tmp_path):
    stream = DATA.to_iterable_dataset()
    with pytest.raises(DataError, match=r"is a stream.*\(`rows`\)"):
        plant(stream, out=tmp_path / "c")
    with pytest.raises(DataError, match="the stream has 60 rows; `rows` is 61"):
        plant(stream, out=tmp_path / "c", rows=61)
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        plant(stream, out=tmp_path / "c", rows=0)
    with pytest.raises(
        ValueError, match="rows must be None for a data set that is not a stream, got 9"
    ):
        plant(DATA, out=tmp_path / "c", rows=9)
    assert not (tmp_path / "c").exists()
