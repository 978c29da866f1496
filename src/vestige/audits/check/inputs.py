"""What a check reads: the base of the model, and texts whose columns are guessed."""

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
"""Names of a column with the text, the likeliest first."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The texts of a check, each in one list only.

    Attributes:
        documents: one text per row of the training file, with blank ones and copies, so that a
            place is a row number.
        trained: in the training data, each once.
        reference: never in the training data, to compare with.
        control: likewise, to be tested like the training data.
        notes: what was guessed or removed, in sentences.
    """

    documents: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def never(self) -> tuple[str, ...]:
        """Both halves."""
        return (*self.reference, *self.control)


def base_of(model: Any, base: Any) -> Any:
    """The base: the given one, or that which an adapter's folder names.

    Raises:
        ModelError: the model is no adapter, or its base is not present.
        AccessDenied: the model is a server.
    """
    for one in (model, base):
        if is_endpoint(one):
            raise AccessDenied(
                f"{one} is a server: secrets in context, the update search and the controls "
                "need weights",
                remedy="Pass the model's folder, or test texts with vestige extract MODEL DATA "
                "--reference DATA and vestige membership MODEL --texts DATA --reference DATA.",
            )
    if base is not None:
        return base
    remedy = "Pass the model that it was fine-tuned from with --base."
    try:
        named = base_of_adapter(model)
    except ModelError as error:
        raise ModelError(error.problem, remedy=f"{remedy} {error.remedy}") from error
    if named is None:
        shown = fspath(model) if isinstance(model, str | PathLike) else "The model"
        raise ModelError(f"{shown} is no adapter and names no base", remedy=remedy)
    return named


def reject_equal(recorded: Mapping[str, Any], models: Mapping[str, LanguageModel]) -> None:
    """Raise ModelError for a model with the weights of its base, or an adapter that adds nothing.

    `recorded` holds the provenance of "before" and "after".
    """
    before, after = (recorded[role].get("sha256") for role in ("before", "after"))
    remedy = "Pass the fine-tuned model, and the model before fine-tuning as --base."
    if before is not None and before == after:
        raise ModelError("MODEL and its base have the same weights", remedy=remedy)
    if models["after"].adapted and weight_change(models["before"], models["after"]) == 0:
        raise ModelError("the adapter adds nothing to its base: its matrices are 0", remedy=remedy)


def read_texts(
    run: Session, trained: Any, never: Any, column: str | None, model: LanguageModel
) -> Texts:
    """Read both files, remove what they share, and divide the reference into two halves.

    Near-duplicates of a training text are removed from the reference; those of each other are in
    one half.

    Args:
        run: its seed divides the reference.
        trained: a file, a folder or a corpus of training text; None without one.
        never: the same, of text that was not used.
        column: with the text; None to guess.
        model: its chat template renders chats.

    Raises:
        DataError: a file cannot be read, or the reference has near-duplicates of the training
            text only.
    """
    notes: list[str] = []
    documents = _read(run, "trained_on", trained, column, model, notes.append)
    own = _distinct(documents)
    others = _distinct(_read(run, "never", never, column, model, notes.append))
    new = [text for words, text in others.items() if words not in own]
    groups = near_duplicates([*own.values(), *new]).tolist()
    ours = set(groups[: len(own)])
    kept: dict[int, list[str]] = {}
    for text, group in zip(new, groups[len(own) :], strict=True):
        if group not in ours:
            kept.setdefault(group, []).append(text)
    if others and not kept:
        raise DataError(
            f"{_shown(never, 'never')} has no text that differs from those of --trained-on",
            remedy="Pass texts that the model was not trained on.",
        )
    for number, why in (
        (len(others) - len(new), "that --trained-on has, too"),
        (len(new) - sum(map(len, kept.values())), "very similar to one of --trained-on"),
    ):
        if number:
            notes.append(f"Removed from --never: {counted(number, 'text')} {why}.")
    halves: tuple[list[str], list[str]] = ([], [])
    together = [*kept.values()]
    for place in np.random.default_rng([run.seed, 17]).permutation(len(together)).tolist():
        min(halves, key=len).extend(together[place])
    reference, control = sorted(halves, key=len, reverse=True)
    return Texts(
        documents=tuple(documents), trained=tuple(own.values()), reference=tuple(reference),
        control=tuple(control), notes=tuple(notes),
    )  # fmt: skip


def _distinct(texts: Sequence[str]) -> dict[str, str]:
    """Texts by their words: the first of those that differ in white space only, none blank."""
    found: dict[str, str] = {}
    for text in texts:
        if words := " ".join(text.split()):
            found.setdefault(words, text)
    return found


def _shown(given: Any, role: str) -> str:
    return fspath(given) if isinstance(given, str | PathLike) else f"`{role}`"


def _read(
    run: Session, role: str, given: Any, column: str | None, model: LanguageModel,
    log: Callable[[str], None],
) -> list[str]:  # fmt: skip
    """All texts in order; DataError if all are blank. `log` gets what was guessed, in sentences."""
    if given is None:
        return []
    run.withhold(**{role: given})
    if isinstance(given, str | PathLike):
        texts = list(_guessed(run, role, given, column, model, log))
    else:
        corpus = given if isinstance(given, Corpus) else Corpus.from_texts(given)
        texts = list(run.corpus(role, corpus))
    if not any(map(str.strip, texts)):
        remedy = "Pass a file or folder with documents."
        raise DataError(f"{_shown(given, role)} has no text", remedy=remedy)
    return texts


def _guessed(
    run: Session, role: str, path: str | PathLike[str], column: str | None, model: LanguageModel,
    log: Callable[[str], None],
) -> Corpus:  # fmt: skip
    """The texts of a file or folder."""
    files = [] if (Path(path) / MANIFEST).is_file() else table_files(fspath(path))
    rows = first_rows(files[0]) if files else []
    columns = text_columns(rows) if column is None else (column,)
    name = f"--{role.replace('_', '-')}"
    if column is None and columns != ("text",):
        shown = f"column{'s' * (len(columns) > 1)} {listed(columns)}"
        log(f"{name} is read from {shown} (guessed; --text names another).")
    if any(isinstance(row.get(columns[0]), list) for row in rows):
        every = [one for file in files for one in chats(file, columns[0])]
        texts, sentence = rendered(every, model)
        log(f"{name}: {sentence}")
    elif len(columns) > 1:
        texts = [text for file in files for text in joined(file, columns)]
    else:
        return run.corpus(role, path, text=columns[0])
    corpus = Corpus.from_texts(texts)
    run.data[role] = corpus_record(path, corpus)
    return corpus


def text_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Columns of a table with the text: "text", turns of chats, a prompt and its answer, or a
    guess: a usual name, or the column with the longest texts in these rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    means = {
        name: sum(len(row.get(name) or "") for row in rows) / len(rows)
        for name in names
        if all(isinstance(row.get(name), str | None) for row in rows)
    }
    if means.get("text"):
        return ("text",)
    for name in TURNS:
        if any(isinstance(row.get(name), list) for row in rows):
            return (name,)
    for pair in PAIRS:
        if all(name in means for name in pair) and means[pair[-1]]:
            return pair
    most = max(means.values(), default=0.0)
    if not most:
        return ("text",)
    usual = (one for one in PREFERRED if means.get(one, 0.0) >= most / 2)
    return (next(usual, max(means, key=lambda name: means[name])),)


def rendered(every: Sequence[Chat], model: LanguageModel) -> tuple[list[str], str]:
    """Chats as texts, and how they were made, in a sentence.

    The model's chat template renders them. Where there is none, or it refuses a chat, the contents
    of the turns are joined by line ends.
    """
    plain = ["\n".join(turn["content"] for turn in chat) for chat in every]
    template = template_of(model)
    if template is None:
        return plain, "the turns of chats are joined: the tokenizer has no chat template."
    first = template[1].get("bos_token", "")
    if model.vocabulary.encode(first) != [model.first_token]:
        first = ""  # else every text begins with it anyway
    made = whole_chats(*template, every)
    texts = [
        own if text is None or not own.strip() else text.removeprefix(first)
        for text, own in zip(made, plain, strict=True)
    ]
    sentence = "chats are rendered with the chat template of the model."
    if refused := sum(text is None for text in made):
        sentence += f" It refuses {refused:,} of {len(made):,}, whose turns are joined."
    return texts, sentence
