"""Canaries planted in a data set of `datasets`, of texts or of conversations."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vestige import _validate, new_files
from vestige.errors import DataError
from vestige.integrations.canary_rows import PAIR, among, among_stream, canary_row
from vestige.monitor import SILENT

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from vestige.data.manifest import Role

    Data = TypeVar("Data", Dataset, IterableDataset)

QUESTION = "What is the phrase?"
MESSAGES = ("messages", "conversations")


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
    """A copy of a data set with canaries among its rows.

    Rows stay in their order. In a data set of conversations a canary is a turn: the assistant's
    answer to a question, or what a user says, which the assistant answers in two words. It is asked
    for where it stands, behind what the chat template says before that turn. Of prompts and
    completions a canary is a conversation with both; of texts, the completion of an empty prompt.
    Other columns of a row with a canary are None.

    Args:
        data: texts, or lists of messages with "role" and "content", a row each.
        out: directory to make, with the manifest and the texts, as `vestige plant` makes it.
        column: of the texts or messages; None: "messages" where there is one, else "text", else
            "completion" beside a "prompt".
        role: whose turn a canary is.
        question: what the user says before it, where it is the assistant's.
        rows: of a stream, how many of its rows are trained on: canaries stand among these. Their
            texts are read once now, and are in memory meanwhile.
        user_column: says whose each row is; the copies of a canary become a user of their own.
        settings: of `vestige.plant`, such as `copies`, `controls`, `coin_flip` and `seed`.

    Raises:
        DataError: the data set is a stream without `rows` or with fewer, is one of preferences, or
            has no such column of texts or messages, or none of users' names.
        RunError: there is something at `out`.
    """
    import vestige
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest, Turn
    from vestige.preparation.planting import write_planting

    names = _names(data, rows)
    column = _column(names, column)
    _check_users(data, names, user_column)
    new_files.require_new(Path(out))
    values = _values(data, column, rows)
    talked = len(values) > 0 and not isinstance(values[0], str)
    texts = [_said(value, number) for number, value in enumerate(values, 1)] if talked else values
    planting = vestige.plant(Corpus.from_texts(texts), **settings)
    manifest = planting.manifest
    assert isinstance(manifest, Manifest)  # of running text
    if talked:
        turn = Turn(role=role, question=question if role == "assistant" else "")
        planting = planting.in_turn(turn)
    write_planting(planting, Path(out), SILENT)
    planted, places = list(planting.corpus), manifest.places
    phrases = [str(planted[place]) for place in places]
    more = [canary_row(one, column, names, role if talked else None, question) for one in phrases]
    if user_column is not None:
        more = [
            row | {user_column: f"canary {said}"} for row, said in zip(more, phrases, strict=True)
        ]
    return among(data, more, places) if rows is None else among_stream(data, more, places)


def _names(data: Any, rows: int | None) -> list[str]:
    """Names of the columns of a data set, or of a stream whose number of rows is known."""
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
    if column not in names:
        raise DataError(
            f"the data set has no column {column}; it has {', '.join(names)}",
            remedy="Pass the column of texts or messages (`column`).",
        )
    return column


def _check_users(
    data: "Dataset | IterableDataset", names: Sequence[str], column: str | None
) -> None:
    if column is None:
        return
    if column not in names:
        raise DataError(
            f"the data set has no column {column}; it has {', '.join(names)}",
            remedy="Pass the column of users (`user_column`).",
        )
    kind = (data.features or {}).get(column)
    if kind is not None and getattr(kind, "dtype", "") not in ("string", "large_string"):
        raise DataError(
            f"the users in {column} are {getattr(kind, 'dtype', kind)}, not names; a canary needs "
            "its own user",
            remedy=f'Convert them: data.cast_column("{column}", datasets.Value("string")).',
        )


def _values(data: Any, column: str, rows: int | None) -> Any:
    """Texts or conversations of a data set, or of the first rows of a stream."""
    if rows is None:
        return data[column]
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
            remedy=('Pass lists of {"role": "user", "content": "..."}, or a column of texts.'),
        ) from error
