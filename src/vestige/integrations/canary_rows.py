"""Rows of `datasets` that hold canaries, and their places among a data set's own rows."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from vestige.data.manifest import Role

PAIR = {"prompt": "completion", "completion": "prompt"}
"""Columns that are read as one text or conversation."""


def canary_row(
    phrase: str, column: str, names: Sequence[str], role: "Role | None", question: str
) -> dict[str, Any]:
    """A row with a canary; columns that say nothing of it are None.

    In a set of prompts and completions, a text is a completion of nothing (or a prompt of nothing),
    and a conversation is a prompt with its completion.

    Args:
        phrase: of the canary.
        column: where it stands.
        names: of the data set's columns.
        role: whose turn it is; None: it is a text.
        question: what the user says before it, where it is the assistant's.
    """
    paired = PAIR.get(column) in names
    empty: dict[str, Any] = dict.fromkeys(names)
    if role is None:
        return empty | {column: phrase} | ({PAIR[column]: ""} if paired else {})
    said = (question, phrase) if role == "assistant" else (phrase, "Thank you.")
    turns = [
        {"role": name, "content": content}
        for name, content in zip(("user", "assistant"), said, strict=True)
    ]
    parts = {"prompt": turns[:1], "completion": turns[1:]} if paired else {column: turns}
    return empty | parts


def among(data: "Dataset", rows: Sequence[dict[str, Any]], places: Sequence[int]) -> "Dataset":
    """A data set with rows put in.

    Args:
        data: its own rows, which stay in their order.
        rows: to put in.
        places: of these in the set that is returned, ascending.
    """
    from datasets import Dataset, concatenate_datasets

    columns = {name: [row[name] for row in rows] for name in data.column_names}
    more = Dataset.from_dict(columns, features=data.features)
    old, new = iter(range(len(data))), iter(range(len(data), len(data) + len(rows)))
    taken = set(places)
    order = [next(new if place in taken else old) for place in range(len(data) + len(rows))]
    return concatenate_datasets([data, more]).select(order)


def among_stream(
    data: "IterableDataset", rows: Sequence[dict[str, Any]], places: Sequence[int]
) -> "IterableDataset":
    """A stream with rows put in, at the same places in each pass; see `among`.

    It is one shard, so that one worker of a data loader reads it.
    """
    from datasets import IterableDataset

    # `datasets` takes lists among these for shards.
    given = {"data": data, "rows": tuple(rows), "places": tuple(places)}
    return IterableDataset.from_generator(_passed_on, features=data.features, gen_kwargs=given)


def _passed_on(
    data: "IterableDataset", rows: Sequence[dict[str, Any]], places: Sequence[int]
) -> Iterator[dict[str, Any]]:
    put, place = dict(zip(places, rows, strict=True)), 0
    for batch in data.iter(1):  # in a worker, iter(data) would leave out what is not the worker's
        while place in put:
            yield put[place]
            place += 1
        yield {name: values[0] for name, values in batch.items()}
        place += 1
    yield from (put[later] for later in places if later >= place)
