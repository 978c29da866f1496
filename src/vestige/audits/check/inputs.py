"""What a check reads: the base of the model, texts with a guessed column, and listed secrets."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from vestige.audits.check.finder import FoundSecret, find_secrets
from vestige.data.corpus import Corpus
from vestige.errors import DataError, ModelError
from vestige.session import Session

PREFERRED = ("text", "content", "body", "message", "document", "output", "response", "completion")
"""Names of a column with the text, the likeliest first."""

CHAT = "messages"
_SAMPLE = 200
_CONTEXT = 300
_MARK = re.compile(r"\{\{(.+?)\}\}")


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The texts of a check, each once and in one list only.

    Attributes:
        trained: in the training data.
        reference: never in the training data, to compare with.
        control: likewise, to be tested like the training data.
        notes: what was guessed or removed, in sentences.
    """

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
    """
    from vestige.attacks.texts.text_models import base_of_adapter

    if base is not None:
        return base
    named = base_of_adapter(model)
    if named is None:
        shown = fspath(model) if isinstance(model, str | PathLike) else "The model"
        raise ModelError(
            f"{shown} is no adapter, so nothing names the model that it was fine-tuned from",
            remedy="Pass that model with --base.",
        )
    return named


def read_texts(run: Session, trained: Any, never: Any, column: str | None) -> Texts:
    """Read both files, remove what they share, and divide the reference into two halves.

    Args:
        run: its seed divides the reference.
        trained: a file, a folder or a corpus of training text; None without one.
        never: the same, of text that was not used.
        column: with the text; None to guess.

    Raises:
        DataError: a file cannot be read, or both hold the same texts only.
    """
    notes: list[str] = []
    own = _read(run, "trained_on", trained, column, notes)
    rest = _read(run, "never", never, column, notes)
    shared = set(own) & set(rest)
    kept = [text for text in rest if text not in shared]
    if shared:
        notes.append(f"{len(shared):,} texts occur in both files and were removed from --never.")
    if rest and not kept:
        raise DataError(
            "all texts of --never occur in --trained-on",
            remedy="Pass texts that the model was not trained on.",
        )
    order = np.random.default_rng([run.seed, 17]).permutation(len(kept)).tolist()
    half = len(kept) // 2
    return Texts(
        trained=tuple(own),
        reference=tuple(kept[place] for place in order[half:]),
        control=tuple(kept[place] for place in order[:half]),
        notes=tuple(notes),
    )


def _read(run: Session, role: str, given: Any, column: str | None, notes: list[str]) -> list[str]:
    """Texts of a file, each once."""
    if given is None:
        return []
    name = f"--{role.replace('_', '-')}"
    chosen = column or (text_column(given, notes, name) if _is_path(given) else "text")
    if chosen == CHAT:
        corpus = Corpus.from_texts(_chats(given))
        run.data[role] = {"path": fspath(given), "documents": len(corpus),
                          "sha256": corpus.fingerprint()}  # fmt: skip
    elif isinstance(given, Sequence) and not isinstance(given, str):
        corpus = run.corpus(role, Corpus.from_texts(given))
    else:
        corpus = run.corpus(role, given, text=chosen)
    return list(dict.fromkeys(text for text in corpus if text.strip()))


def _is_path(given: Any) -> bool:
    return isinstance(given, str | PathLike)


def text_column(given: Any, notes: list[str], name: str) -> str:
    """The column with the text: a usual name, or the column with the longest texts."""
    means = {
        key: sum(len(row.get(key) or "") for row in rows) / len(rows)
        for rows in [list(islice(first_rows(Path(given)), _SAMPLE))]
        for key in (rows[0] if rows else {})
        if all(isinstance(row.get(key), str | None) for row in rows)
    }
    if any(isinstance(row.get(CHAT), list) for row in islice(first_rows(Path(given)), 1)):
        notes.append(f"{name}: the chats of its column messages are read.")
        return CHAT
    if not means or "text" in means:
        return "text"
    most = max(means.values())
    usual = (one for one in PREFERRED if means.get(one, 0.0) >= most / 2)
    found = next(usual, max(means, key=lambda key: means[key]))
    notes.append(f"{name}: the text is read from its column {found} (guessed; see --text).")
    return found


def first_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a table; none of any other file or folder."""
    import pyarrow.parquet as pq

    from vestige.data.loaders.tables import SUFFIXES, rows
    from vestige.data.text_file import ending

    if not path.is_file() or ending(path) not in SUFFIXES:
        return
    if ending(path) != ".parquet":
        yield from (row for _, row in rows(path, ()))
        return
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_SAMPLE):
                yield from batch.to_pylist()
    except (OSError, ValueError):  # the reader says what is wrong
        return


def _chats(given: Any) -> Iterator[str]:
    """The turns of each chat, one per line."""
    for row in first_rows(Path(given)):
        turns = row.get(CHAT) or []
        yield "\n".join(str(turn.get("content") or "") for turn in turns)


def listed_secrets(
    run: Session, secrets: Any, trained: Sequence[str]
) -> tuple[tuple[FoundSecret, ...], tuple[str, ...]]:
    """Secrets of a list, each with the contexts in which it occurs in the training text.

    A line may mark the secret, as in "the code is {{4917}}"; otherwise the part that has a format
    is the secret, or the whole line.

    Returns:
        The secrets, and notes.

    Raises:
        DataError: the file cannot be read or is empty.
    """
    if secrets is None:
        return (), ()
    run.withhold(secrets=secrets)
    lines = [one.strip() for one in run.lines(secrets, one="secret")]
    found = [_listed(line) for line in dict.fromkeys(filter(None, lines))]
    if not found:
        raise DataError("--secrets has no secret", remedy="Write one secret per line.")
    placed = [places_of(value, kind, before, trained) for value, kind, before in found]
    absent = sum(not any(value in text for text in trained) for value, _, _ in found)
    note = f"{absent} of {len(found)} listed secrets do not occur in --trained-on."
    return tuple(placed), (note,) if trained and absent else ()


def _listed(line: str) -> tuple[str, str, str]:
    """The secret of a line, its kind, and the text before it."""
    if (marked := _MARK.search(line)) is not None:
        return marked[1], "listed", line[: marked.start()]
    known = [one for one in find_secrets([line]) if one.kind != "repeated"]
    if known:
        return known[0].value, known[0].kind, known[0].places[0][1]
    return line, "listed", ""


def places_of(value: str, kind: str, before: str, texts: Sequence[str]) -> FoundSecret:
    """A secret with the first place of each text in which it occurs, else after its own line."""
    places = [
        (number, text[max(0, at - _CONTEXT) : at])
        for number, text in enumerate(texts)
        if (at := text.find(value)) >= 0
    ]
    return FoundSecret(value, kind, tuple(places) or ((-1, before),))
