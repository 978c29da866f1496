"""Canaries planted in a data set of `datasets`, of texts or of conversations."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vestige import _validate, new_files
from vestige.errors import DataError
from vestige.monitor import SILENT

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from vestige.data.canaries.texts import Role

    Data = TypeVar("Data", Dataset, IterableDataset)

QUESTION = "What is the phrase?"
MESSAGES = ("messages", "conversations")
PAIR = {"prompt": "completion", "completion": "prompt"}
"""Columns that are read as one text or conversation."""


def plant(
    data: "Data",
    *,
    out: str | PathLike[str],
    column: str | None = None,
    role: "Role" = "assistant",
    question: str = QUESTION,
    rows: int | None = None,
    user_column: str | None = None,
    **settings: Any,
) -> "Data":
    """A copy of a data set with canaries among its rows, which keep their order.

    In conversations a canary is a turn: the assistant's answer to a question, or a message of the
    user, which the assistant answers in two words. Vestige scores it after what the chat template
    puts before that turn. In a set of prompts and completions, a conversation is split between
    both, and a text is the completion of an empty prompt. Other columns of a canary's row are None.

    Args:
        data: one text, or list of messages with "role" and "content", per row.
        out: folder to make, with the manifest and the texts, as of `vestige plant`.
        column: of the texts or messages; None: "messages" if there is one, else "text", else
            "completion" with a "prompt".
        role: whose turn a canary is.
        question: the user's message before a turn of the assistant.
        rows: of a stream, how many of its rows are trained on: canaries are put among these. Their
            texts are read once now, into memory.
        user_column: has the user of each row; the copies of a canary become a user of their own.
        settings: of `vestige.plant`, such as `copies`, `controls`, `coin_flip` and `seed`.

    Raises:
        DataError: the data set has preferences or no such column, is a stream that is shorter than
            `rows` or of unknown length, or its users are no names.
        RunError: `out` exists.
    """
    import vestige
    from vestige.data.canaries.texts import Turn
    from vestige.data.corpus import Corpus
    from vestige.preparation.planting import write_planting

    names = _names(data, rows)
    column = _column(names, column)
    if user_column is not None:
        _require_users(data, names, user_column)
    new_files.require_new(Path(out))
    values = data[column] if rows is None else _first_values(data, column, rows)
    talk = len(values) > 0 and not isinstance(values[0], str)
    texts = [_said(value, number) for number, value in enumerate(values, 1)] if talk else values
    planting = vestige.plant(Corpus.from_texts(texts), **settings)
    if talk:
        asked = question if role == "assistant" else ""
        planting = planting.in_turn(Turn(role=role, question=asked))
    write_planting(planting, Path(out), SILENT)
    canaries: Any = planting.manifest.canaries  # of running text
    more = {}
    for place, phrase in sorted((place, one.phrase) for one in canaries for place in one.positions):
        row = _row(phrase, column, names, role if talk else None, question)
        more[place] = row if user_column is None else row | {user_column: f"canary {phrase}"}
    return _among(data, more) if rows is None else _among_stream(data, more)


def _names(data: Any, rows: int | None) -> list[str]:
    """Columns of a data set, or of a stream with a number of rows."""
    from datasets import Dataset, IterableDataset

    if not isinstance(data, Dataset | IterableDataset):
        raise DataError(
            f"the data set is a {type(data).__name__}, not one of `datasets`",
            remedy="Pass a `datasets.Dataset` or `IterableDataset`, such as one of its splits.",
        )
    if isinstance(data, Dataset):
        if rows is not None:
            raise ValueError(f"rows must be None for what is no stream, got {rows:,}")
        return list(data.column_names)
    if rows is None:
        raise DataError(
            "the data set is a stream of unknown length; canaries need its words and random "
            "positions among its rows",
            remedy="Pass the number of rows that the training uses (`rows`).",
        )
    _validate.at_least(1, rows=rows)
    return list(data.column_names or next(iter(data), {}))


def _column(names: Sequence[str], column: str | None) -> str:
    if {"chosen", "rejected"} <= set(names):
        raise DataError(
            "the data set has preferences; a canary would have to be preferred to something",
            remedy="Plant in the texts or conversations of the earlier fine-tuning.",
        )
    if column is None:
        paired = "text" not in names and PAIR.keys() <= set(names)
        usual = "completion" if paired else "text"
        column = next((name for name in MESSAGES if name in names), usual)
    _require_column(names, column, "Pass the column of texts or messages (`column`).")
    return column


def _require_users(data: Any, names: Sequence[str], column: str) -> None:
    _require_column(names, column, "Pass the column of users (`user_column`).")
    kind = (data.features or {}).get(column)
    named = getattr(kind, "dtype", kind)
    if named not in (None, "string", "large_string"):
        raise DataError(
            f"the users in {column} are {named}, not names; a canary needs its own user",
            remedy=f'Convert them: data.cast_column("{column}", datasets.Value("string")).',
        )


def _require_column(names: Sequence[str], column: str, remedy: str) -> None:
    if column not in names:
        found = ", ".join(names)
        raise DataError(f"the data set has no column {column}; it has {found}", remedy=remedy)


def _first_values(data: "IterableDataset", column: str, rows: int) -> list[Any]:
    """Texts or conversations of the first rows of a stream."""
    found = [row[column] for row in data.take(rows)]
    if len(found) < rows:
        raise DataError(
            f"the stream has {len(found):,} rows; `rows` is {rows:,}",
            remedy=f"Pass rows={len(found)} or fewer.",
        )
    return found


def _said(messages: Any, number: int) -> str:
    """What a conversation says, a line a message."""
    try:
        return "\n".join(str(message["content"]) for message in messages)
    except (TypeError, KeyError) as error:
        raise DataError(
            f"row {number} has no messages with a role and a content",
            remedy='Pass lists of {"role": "user", "content": "..."}, or a column of texts.',
        ) from error


def _row(
    phrase: str, column: str, names: Sequence[str], role: "Role | None", question: str
) -> dict[str, Any]:
    """A row with a canary as somebody's turn, or as a text; other columns are None."""
    other = PAIR.get(column, "")
    row: dict[str, Any] = dict.fromkeys(names)
    if role is None:
        return row | {column: phrase} | ({other: ""} if other in names else {})
    said = (question, phrase) if role == "assistant" else (phrase, "Thank you.")
    turns = [{"role": "user", "content": said[0]}, {"role": "assistant", "content": said[1]}]
    paired = {"prompt": turns[:1], "completion": turns[1:]}
    return row | (paired if other in names else {column: turns})


def _among(data: "Dataset", rows: dict[int, dict[str, Any]]) -> "Dataset":
    """A data set with rows at these places of the result, ascending."""
    from datasets import Dataset, concatenate_datasets

    columns = {name: [row[name] for row in rows.values()] for name in data.column_names}
    more = Dataset.from_dict(columns, features=data.features)
    old, new = iter(range(len(data))), iter(range(len(data), len(data) + len(rows)))
    order = [next(new if place in rows else old) for place in range(len(data) + len(rows))]
    return concatenate_datasets([data, more]).select(order)


def _among_stream(data: "IterableDataset", rows: dict[int, dict[str, Any]]) -> "IterableDataset":
    """As `_among`, in each pass; it is one shard, which one worker of a data loader reads."""
    from datasets import IterableDataset

    given = {"data": data, "rows": rows}
    return IterableDataset.from_generator(_passed_on, features=data.features, gen_kwargs=given)


def _passed_on(
    data: "IterableDataset", rows: dict[int, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    place = 0
    for batch in data.iter(1):  # in a worker, iter(data) would leave out what is not the worker's
        while place in rows:
            yield rows[place]
            place += 1
        yield {name: values[0] for name, values in batch.items()}
        place += 1
    yield from (row for later, row in rows.items() if later >= place)
