"""Canaries planted in a `datasets.Dataset`: of texts, or of conversations."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.errors import DataError
from vestige.monitor import SILENT

if TYPE_CHECKING:
    from datasets import Dataset

    from vestige.data.manifest import Role

QUESTION = "What is the phrase?"
MESSAGES = ("messages", "conversations")


def plant(
    data: "Dataset",
    *,
    out: str | PathLike[str],
    column: str | None = None,
    role: "Role" = "assistant",
    question: str = QUESTION,
    **settings: Any,
) -> "Dataset":
    """A copy of a data set with canaries among its rows.

    Other columns of a row with a canary are None. Rows stay in their order. In a data set of
    conversations a canary is a turn: the assistant's answer to a question, or what a user says,
    which the assistant answers in two words. It is asked for where it stands, behind what the chat
    template says before that turn.

    Args:
        data: texts, or lists of messages with "role" and "content", a row each.
        out: directory to make, with the manifest and the texts, as `vestige plant` makes it.
        column: of the texts or messages; None: "messages" where there is one, else "text".
        role: whose turn a canary is.
        question: what the user says before it, where it is the assistant's.
        settings: of `vestige.plant`, such as `copies`, `controls`, `coin_flip` and `seed`.

    Raises:
        DataError: the data set is a stream, or has no such column of texts or messages.
        RunError: there is something at `out`.
    """
    import vestige
    from vestige import results
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest, Turn
    from vestige.workflows.plant import write_planting

    column = _column(data, column)
    results.require_new(Path(out))
    values = data[column]
    talked = len(values) > 0 and not isinstance(values[0], str)
    texts = [_said(value, number) for number, value in enumerate(values, 1)] if talked else values
    planting = vestige.plant(Corpus.from_texts(texts), **settings)
    manifest = planting.manifest
    assert isinstance(manifest, Manifest)  # of running text
    if talked:
        turn = Turn(role=role, question=question if role == "assistant" else "")
        planting = replace(planting, manifest=replace(manifest, turn=turn))
    write_planting(planting, Path(out), SILENT)
    planted, places = list(planting.corpus), manifest.places
    canaries: list[Any] = [
        _conversation(str(planted[place]), role, question) if talked else planted[place]
        for place in places
    ]
    return _among(data, column, canaries, places)


def _column(data: "Dataset", column: str | None) -> str:
    names = getattr(data, "column_names", None)
    if names is None or not hasattr(data, "__len__"):
        raise DataError(
            "the data set is a stream: canaries are drawn by its words, and stand at random places",
            remedy="Give a `datasets.Dataset`, such as the part of the stream that is trained on.",
        )
    if column is None:
        column = next((name for name in MESSAGES if name in names), "text")
    if column not in names:
        raise DataError(
            f"the data set has no column {column}; it has {', '.join(names)}",
            remedy="Name the one with the texts or messages (`column`).",
        )
    return column


def _said(messages: Any, number: int) -> str:
    """What a conversation says, a line a message."""
    try:
        return "\n".join(str(message["content"]) for message in messages)
    except (TypeError, KeyError) as error:
        raise DataError(
            f"row {number} holds no messages with a role and a content",
            remedy='Give lists of {"role": "user", "content": "..."}, or a column of texts.',
        ) from error


def _conversation(phrase: str, role: "Role", question: str) -> list[dict[str, str]]:
    said = (question, phrase) if role == "assistant" else (phrase, "Thank you.")
    return [
        {"role": name, "content": content}
        for name, content in zip(("user", "assistant"), said, strict=True)
    ]


def _among(
    data: "Dataset", column: str, canaries: Sequence[Any], places: Sequence[int]
) -> "Dataset":
    """The rows in their order, with canaries at their places."""
    from datasets import Dataset, concatenate_datasets

    features, number = data.features, len(data) + len(canaries)
    rows = Dataset.from_dict(
        {
            name: canaries if name == column else [None] * len(canaries)
            for name in data.column_names
        },
        features=features,
    )
    old, new = iter(range(len(data))), iter(range(len(data), number))
    taken = set(places)
    order = [next(new if place in taken else old) for place in range(number)]
    return concatenate_datasets([data, rows]).select(order)
