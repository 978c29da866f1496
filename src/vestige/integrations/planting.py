"""Plant canaries in a data set of `datasets`, with texts or conversations."""

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

DEFAULT_QUESTION = "What is the phrase?"
CHAT_COLUMNS = ("messages", "conversations")
PARTNER_COLUMN = {"prompt": "completion", "completion": "prompt"}
"""Columns that together form one text or conversation."""


def plant(
    data: "Data",
    *,
    out: str | PathLike[str],
    column: str | None = None,
    role: "Role" = "assistant",
    question: str = DEFAULT_QUESTION,
    rows: int | None = None,
    user_column: str | None = None,
    **settings: Any,
) -> "Data":
    """Insert canaries among the rows of a data set, whose order is unchanged.

    In conversations a canary is a turn: the assistant's answer to a question, or a message of the
    user that the assistant answers in two words. Vestige scores it after the preceding part of the
    chat template. In a data set of prompts and completions, a conversation is split between both,
    and a text is the completion of an empty prompt. Other columns of canary rows are None.

    Args:
        data: data set with a text, or a list of messages with "role" and "content", per row.
        out: folder to make, with the manifest and the texts, as by `vestige plant`.
        column: column of the texts or messages. None: "messages" if there is one, else "text",
            else "completion" with a "prompt".
        role: role of a canary turn.
        question: the user's message before a turn of the assistant.
        rows: number of rows of a stream that the training uses. Canaries are inserted among these,
            and their texts are read into memory.
        user_column: column of users; the copies of a canary get a user of their own.
        settings: arguments of `vestige.plant`, such as `copies`, `controls`, `coin_flip` and
            `seed`.

    Raises:
        DataError: the data set has preferences or lacks a column, users are not names, or a stream
            is shorter than `rows` or of unknown length.
        RunError: `out` exists.
    """
    import vestige
    from vestige.data.canaries.texts import Turn
    from vestige.data.corpus import Corpus
    from vestige.preparation.planting import write_planting

    columns = _column_names(data, rows)
    column = _text_column(columns, column)
    if user_column is not None:
        _require_users(data, columns, user_column)
    new_files.require_new(Path(out))
    values = data[column] if rows is None else _first_values(data, column, rows)
    is_chat = len(values) > 0 and not isinstance(values[0], str)
    if is_chat:
        values = [_chat_text(messages, number) for number, messages in enumerate(values, 1)]
    planting = vestige.plant(Corpus.from_texts(values), **settings)
    if is_chat:
        turn = Turn(role=role, question=question if role == "assistant" else "")
        planting = planting.in_turn(turn)
    write_planting(planting, Path(out), SILENT)
    canaries: Any = planting.manifest.canaries  # of running text
    rows_by_position: dict[int, dict[str, Any]] = {}
    for canary in canaries:
        row = _canary_row(canary.phrase, column, columns, role if is_chat else None, question)
        if user_column is not None:
            row[user_column] = f"canary {canary.phrase}"
        rows_by_position |= dict.fromkeys(canary.positions, row)
    rows_by_position = dict(sorted(rows_by_position.items()))
    if rows is None:
        return _insert_rows(data, rows_by_position)
    return _insert_in_stream(data, rows_by_position)


def _column_names(data: Any, rows: int | None) -> list[str]:
    """Column names of a data set, or of a stream with `rows`."""
    from datasets import Dataset, IterableDataset

    if not isinstance(data, Dataset | IterableDataset):
        raise DataError(
            f"the data set is a {type(data).__name__}, not one of `datasets`",
            remedy="Pass a `datasets.Dataset` or `IterableDataset`, such as one of its splits.",
        )
    if isinstance(data, Dataset):
        if rows is not None:
            raise ValueError(f"rows must be None for a data set that is not a stream, got {rows:,}")
        return list(data.column_names)
    if rows is None:
        raise DataError(
            "the data set is a stream of unknown length; canaries need its words and random "
            "positions among its rows",
            remedy="Pass the number of rows that the training uses (`rows`).",
        )
    _validate.at_least(1, rows=rows)
    return list(data.column_names or next(iter(data), {}))


def _text_column(columns: Sequence[str], column: str | None) -> str:
    if {"chosen", "rejected"} <= set(columns):
        raise DataError(
            "the data set has preferences; a canary would have to be preferred to something",
            remedy="Plant in the texts or conversations of the earlier fine-tuning.",
        )
    if column is None:
        is_paired = "text" not in columns and PARTNER_COLUMN.keys() <= set(columns)
        default = "completion" if is_paired else "text"
        column = next((name for name in CHAT_COLUMNS if name in columns), default)
    _require_column(columns, column, "Pass the column of texts or messages (`column`).")
    return column


def _require_users(data: Any, columns: Sequence[str], column: str) -> None:
    _require_column(columns, column, "Pass the column of users (`user_column`).")
    feature = (data.features or {}).get(column)
    dtype = getattr(feature, "dtype", feature)
    if dtype not in (None, "string", "large_string"):
        raise DataError(
            f"the users in {column} are {dtype}, not names; a canary needs its own user",
            remedy=f'Convert them: data.cast_column("{column}", datasets.Value("string")).',
        )


def _require_column(columns: Sequence[str], column: str, remedy: str) -> None:
    if column not in columns:
        names = ", ".join(columns)
        raise DataError(f"the data set has no column {column}; it has {names}", remedy=remedy)


def _first_values(data: "IterableDataset", column: str, rows: int) -> list[Any]:
    """Texts or conversations of the first rows of a stream."""
    values = [row[column] for row in data.take(rows)]
    if len(values) < rows:
        raise DataError(
            f"the stream has {len(values):,} rows; `rows` is {rows:,}",
            remedy=f"Pass rows={len(values)} or fewer.",
        )
    return values


def _chat_text(messages: Any, number: int) -> str:
    """The messages of a conversation, one per line."""
    try:
        return "\n".join(str(message["content"]) for message in messages)
    except (TypeError, KeyError) as error:
        raise DataError(
            f"row {number} has no messages with a role and a content",
            remedy='Pass lists of {"role": "user", "content": "..."}, or a column of texts.',
        ) from error


def _canary_row(
    phrase: str, column: str, columns: Sequence[str], role: "Role | None", question: str
) -> dict[str, Any]:
    """A row with a canary as a turn or a text; other columns are None."""
    partner = PARTNER_COLUMN.get(column, "")
    row: dict[str, Any] = dict.fromkeys(columns)
    if role is None:
        return row | {column: phrase} | ({partner: ""} if partner in columns else {})
    contents = (question, phrase) if role == "assistant" else (phrase, "Thank you.")
    turns = [
        {"role": "user", "content": contents[0]},
        {"role": "assistant", "content": contents[1]},
    ]
    split = {"prompt": turns[:1], "completion": turns[1:]}
    return row | (split if partner in columns else {column: turns})


def _insert_rows(data: "Dataset", rows: dict[int, dict[str, Any]]) -> "Dataset":
    """Insert rows at positions of the result, in ascending order."""
    from datasets import Dataset, concatenate_datasets

    values = {name: [row[name] for row in rows.values()] for name in data.column_names}
    canaries = Dataset.from_dict(values, features=data.features)
    total = len(data) + len(rows)
    data_indices, canary_indices = iter(range(len(data))), iter(range(len(data), total))
    order = [
        next(canary_indices if position in rows else data_indices) for position in range(total)
    ]
    return concatenate_datasets([data, canaries]).select(order)


def _insert_in_stream(
    data: "IterableDataset", rows: dict[int, dict[str, Any]]
) -> "IterableDataset":
    """Insert rows in each pass over a stream. The result is one shard, for one worker."""
    from datasets import IterableDataset

    arguments = {"data": data, "rows": rows}
    return IterableDataset.from_generator(
        _stream_with_rows, features=data.features, gen_kwargs=arguments
    )


def _stream_with_rows(
    data: "IterableDataset", rows: dict[int, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    position = 0
    for batch in data.iter(1):  # in a worker, iter(data) would skip rows of other workers
        while position in rows:
            yield rows[position]
            position += 1
        yield {name: values[0] for name, values in batch.items()}
        position += 1
    yield from (row for key, row in rows.items() if key >= position)
