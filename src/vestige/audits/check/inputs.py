"""Inputs of a check: the base of the model, and texts in guessed columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from vestige.audits.check.verdict import counted
from vestige.claims import near_duplicates
from vestige.data.chat_template import whole_chats
from vestige.data.corpus import Corpus
from vestige.data.formats.dialogue import PAIRS, TURNS, Chat, chats, joined
from vestige.data.formats.reading import table_files
from vestige.data.formats.tables import first_rows
from vestige.data.sources import MANIFEST
from vestige.errors import AccessDenied, DataError, ModelError
from vestige.models.folders import corpus_record
from vestige.models.lora import weight_change
from vestige.models.prefix import template_of
from vestige.models.protocols import LanguageModel
from vestige.models.remote.options import is_endpoint
from vestige.models.snapshots import base_of_adapter
from vestige.reports.words import listed
from vestige.session import Session

PREFERRED = ("text", "content", "body", "message", "document", "output", "response", "completion")
"""Usual names of a column with text, the most probable first."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The texts of a check.

    Attributes:
        documents: all rows of the training file, also blank ones and copies.
        trained: distinct texts of the training file.
        reference: half of the texts that were not used for training, to compare with.
        control: the other half, tested like the training text.
        notes: sentences on what was guessed or removed.
    """

    documents: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def never(self) -> tuple[str, ...]:
        """Texts that were not used for training: both halves."""
        return (*self.reference, *self.control)


def base_of(model: Any, base: Any) -> Any:
    """The base: `base`, or the model that the folder of an adapter names.

    Raises:
        ModelError: there is no `base`, and the model is no adapter or its base is missing.
        AccessDenied: the model is a server.
    """
    for name in (model, base):
        if is_endpoint(name):
            raise AccessDenied(
                f"{name} is a server: secrets in context, the update search and the controls "
                "need weights",
                remedy="Pass the model's folder, or test texts with vestige extract MODEL DATA "
                "--reference DATA and vestige membership MODEL --texts DATA --reference DATA.",
            )
    if base is not None:
        return base
    remedy = "Pass the model that it was fine-tuned from with --base."
    try:
        adapter_base = base_of_adapter(model)
    except ModelError as error:
        raise ModelError(error.problem, remedy=f"{remedy} {error.remedy}") from error
    if adapter_base is None:
        shown = fspath(model) if isinstance(model, str | PathLike) else "The model"
        raise ModelError(f"{shown} is no adapter and names no base", remedy=remedy)
    return adapter_base


def reject_equal(provenance: Mapping[str, Any], models: Mapping[str, LanguageModel]) -> None:
    """Raise ModelError if the model has the weights of its base, or its adapter adds nothing.

    `provenance` and `models` have the keys "before" and "after".
    """
    before, after = (provenance[role].get("sha256") for role in ("before", "after"))
    remedy = "Pass the fine-tuned model, and the model before fine-tuning as --base."
    if before is not None and before == after:
        raise ModelError("MODEL and its base have the same weights", remedy=remedy)
    if models["after"].adapted and weight_change(models["before"], models["after"]) == 0:
        raise ModelError("the adapter adds nothing to its base: its matrices are 0", remedy=remedy)


def read_texts(
    run: Session, trained: Any, never: Any, column: str | None, model: LanguageModel
) -> Texts:
    """Read both files, remove shared texts, and divide the reference into two halves.

    Near-duplicates of a training text are removed from the reference. Near-duplicates of each other
    are in the same half.

    Args:
        run: its seed divides the reference.
        trained: a file, a folder or a corpus of training text, or None.
        never: the same for text that was not used for training.
        column: with the text; None to guess.
        model: its chat template renders chats.

    Raises:
        DataError: a file cannot be read, or every reference text is a near-duplicate of a training
            text.
    """
    notes: list[str] = []
    documents = _read(run, "trained_on", trained, column, model, notes.append)
    trained_texts = _distinct(documents)
    unused = _distinct(_read(run, "never", never, column, model, notes.append))
    new = [text for words, text in unused.items() if words not in trained_texts]
    group_ids = near_duplicates([*trained_texts.values(), *new]).tolist()
    trained_groups = set(group_ids[: len(trained_texts)])
    groups: dict[int, list[str]] = {}
    for text, group_id in zip(new, group_ids[len(trained_texts) :], strict=True):
        if group_id not in trained_groups:
            groups.setdefault(group_id, []).append(text)
    if unused and not groups:
        raise DataError(
            f"{_name_of(never, 'never')} has no text that differs from those of --trained-on",
            remedy="Pass texts that the model was not trained on.",
        )
    for removed, reason in (
        (len(unused) - len(new), "that --trained-on has, too"),
        (len(new) - sum(map(len, groups.values())), "very similar to one of --trained-on"),
    ):
        if removed:
            notes.append(f"Removed from --never: {counted(removed, 'text')} {reason}.")
    halves: tuple[list[str], list[str]] = ([], [])
    in_order = [*groups.values()]
    for index in np.random.default_rng([run.seed, 17]).permutation(len(in_order)).tolist():
        min(halves, key=len).extend(in_order[index])
    reference, control = sorted(halves, key=len, reverse=True)
    return Texts(
        documents=tuple(documents), trained=tuple(trained_texts.values()),
        reference=tuple(reference), control=tuple(control), notes=tuple(notes),
    )  # fmt: skip


def _distinct(texts: Sequence[str]) -> dict[str, str]:
    """Texts that differ in more than white space, by their words; none is blank."""
    distinct: dict[str, str] = {}
    for text in texts:
        if words := " ".join(text.split()):
            distinct.setdefault(words, text)
    return distinct


def _name_of(source: Any, role: str) -> str:
    return fspath(source) if isinstance(source, str | PathLike) else f"`{role}`"


def _read(
    run: Session, role: str, source: Any, column: str | None, model: LanguageModel,
    log: Callable[[str], None],
) -> list[str]:  # fmt: skip
    """All texts in order; DataError if all are blank. `log` receives the guesses as sentences."""
    if source is None:
        return []
    run.withhold(**{role: source})
    if isinstance(source, str | PathLike):
        texts = list(_read_file(run, role, source, column, model, log))
    else:
        corpus = source if isinstance(source, Corpus) else Corpus.from_texts(source)
        texts = list(run.corpus(role, corpus))
    if not any(map(str.strip, texts)):
        remedy = "Pass a file or folder with documents."
        raise DataError(f"{_name_of(source, role)} has no text", remedy=remedy)
    return texts


def _read_file(
    run: Session, role: str, path: str | PathLike[str], column: str | None, model: LanguageModel,
    log: Callable[[str], None],
) -> Corpus:  # fmt: skip
    """The texts of a file or folder: of `column`, or of guessed columns."""
    files = [] if (Path(path) / MANIFEST).is_file() else table_files(fspath(path))
    rows = first_rows(files[0]) if files else []
    columns = text_columns(rows) if column is None else (column,)
    option = f"--{role.replace('_', '-')}"
    if column is None and columns != ("text",):
        names = f"column{'s' * (len(columns) > 1)} {listed(columns)}"
        log(f"{option} is read from {names} (guessed; --text names another).")
    if any(isinstance(row.get(columns[0]), list) for row in rows):
        turns = [chat for file in files for chat in chats(file, columns[0])]
        texts, sentence = rendered(turns, model)
        log(f"{option}: {sentence}")
    elif len(columns) > 1:
        texts = [text for file in files for text in joined(file, columns)]
    else:
        return run.corpus(role, path, text=columns[0])
    corpus = Corpus.from_texts(texts)
    run.data[role] = corpus_record(path, corpus)
    return corpus


def text_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Columns of a table with the text.

    In this order: "text"; the turns of chats; a prompt and its answer; a usual name; the column
    with the longest texts.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    mean_lengths = {
        name: sum(len(row.get(name) or "") for row in rows) / len(rows)
        for name in names
        if all(isinstance(row.get(name), str | None) for row in rows)
    }
    if mean_lengths.get("text"):
        return ("text",)
    for name in TURNS:
        if any(isinstance(row.get(name), list) for row in rows):
            return (name,)
    for pair in PAIRS:
        if all(name in mean_lengths for name in pair) and mean_lengths[pair[-1]]:
            return pair
    longest = max(mean_lengths.values(), default=0.0)
    if not longest:
        return ("text",)
    usual = (name for name in PREFERRED if mean_lengths.get(name, 0.0) >= longest / 2)
    return (next(usual, max(mean_lengths, key=lambda name: mean_lengths[name])),)


def rendered(turns: Sequence[Chat], model: LanguageModel) -> tuple[list[str], str]:
    """Chats as texts, and a sentence on how they were made.

    The model's chat template renders them. Without a template, or if it refuses a chat, the
    contents of the turns are joined by line ends.
    """
    joined_turns = ["\n".join(turn["content"] for turn in chat) for chat in turns]
    template = template_of(model)
    if template is None:
        return joined_turns, "the turns of chats are joined: the tokenizer has no chat template."
    first = template[1].get("bos_token", "")
    if model.vocabulary.encode(first) != [model.first_token]:
        first = ""
    chat_texts = whole_chats(*template, turns)
    texts = [
        contents if text is None or not contents.strip() else text.removeprefix(first)
        for text, contents in zip(chat_texts, joined_turns, strict=True)
    ]
    sentence = "chats are rendered with the chat template of the model."
    if refused := sum(text is None for text in chat_texts):
        sentence += f" It refuses {refused:,} of {len(chat_texts):,}, whose turns are joined."
    return texts, sentence
