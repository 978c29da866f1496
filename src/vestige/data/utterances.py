"""Labelled utterances: words, slot tags, intent, and their ids.

Utterances are in an Arrow table, like a corpus's documents. Slots have BIO tags (Ramshaw and Marcus
1995, "Text Chunking using Transformation-Based Learning"): "B-city" begins a slot, "I-city"
continues it, "O" is outside of all slots.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.corpus import Corpus, Rows
from vestige.data.writing import write_text
from vestige.errors import DataError

_WORDS = pa.large_list(pa.large_string())
SCHEMA = pa.schema([("tokens", _WORDS), ("tags", _WORDS), ("intent", pa.large_string())])
OUTSIDE = "O"
UNKNOWN, IGNORED = -1, -100
"""Ids of a label that the model lacks, and of the tag of a token that begins no word."""
_SEPARATORS = {ord(separator): f"\x1d{n}" for n, separator in enumerate("\x1d\x1e\x1f")}
"""Escapes of the separators in a fingerprint."""


class Utterance(NamedTuple):
    """One labelled utterance: its words (at least one), a BIO tag for each, and its intent."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    intent: str

    @property
    def text(self) -> str:
        """The words, separated by blanks."""
        return " ".join(self.tokens)


@dataclass(frozen=True)
class Utterances(Rows):
    """Labelled utterances in order; `Utterances.of` makes them.

    Attributes:
        table: columns `tokens` and `tags` (lists of text) and `intent` (text).

    Example:
        >>> utterance = Utterance(("play", "some", "jazz"), ("O", "O", "B-genre"), "PlayMusic")
        >>> utterances = Utterances.of([utterance])
        >>> len(utterances), utterances.intents, next(iter(utterances)).text
        (1, ['PlayMusic'], 'play some jazz')
    """

    table: pa.Table

    @classmethod
    def of(cls, utterances: Iterable[Utterance]) -> Self:
        """Checked utterances from an iterable; DataError gives the number of a faulty one."""
        rows = list(utterances)
        for number, row in enumerate(rows, 1):
            problem = fault(row)
            if problem is not None:
                raise DataError(
                    f"utterance {number}: {problem}",
                    remedy="Give every word one tag: O, B-name, or I-name after B-name or I-name.",
                )
        columns = {name: [row[n] for row in rows] for n, name in enumerate(SCHEMA.names)}
        return cls(pa.table(columns, schema=SCHEMA))

    def __iter__(self) -> Iterator[Utterance]:
        for batch in self.table.to_batches(max_chunksize=1000):
            columns = (batch.column(name).to_pylist() for name in SCHEMA.names)
            for tokens, tags, intent in zip(*columns, strict=True):
                yield Utterance(tuple(tokens), tuple(tags), intent)

    def __add__(self, other: "Utterances") -> "Utterances":
        return Utterances(pa.concat_tables([self.table, other.table]))

    @property
    def intents(self) -> list[str]:
        """The intent of each utterance."""
        intents: list[str] = self.table["intent"].to_pylist()
        return intents

    def corpus(self) -> Corpus:
        """The utterances as plain documents, their intents as labels."""
        return Corpus.from_texts((utterance.text for utterance in self), labels=self.intents)

    def fingerprint(self) -> str:
        """SHA-256 (hex) over the content, however the table is chunked."""
        digest = hashlib.sha256(b"vestige utterances 1")
        for column in self.table.combine_chunks().columns:
            for text in column.to_pylist():
                parts = [text] if isinstance(text, str) else [str(len(text)), *text]
                escaped = [part.translate(_SEPARATORS) for part in parts]
                digest.update("\x1f".join(escaped).encode() + b"\x1e")
        return digest.hexdigest()


def fault(utterance: Utterance) -> str | None:
    """Fault of an utterance's words, tags or intent, or None.

    Example:
        >>> fault(Utterance(("to", "york"), ("O", "I-city"), "Fly"))
        'tag 2 continues a slot that does not begin before it'
    """
    tokens, tags, intent = utterance
    if not tokens:
        return "it has no words"
    if len(tags) != len(tokens):
        return f"it has {len(tokens)} words and {len(tags)} tags"
    if not intent:
        return "it has no intent"
    for number, word in enumerate(tokens, 1):
        if not word or word.split() != [word]:
            return f"word {number} is empty or contains a blank"
    previous = OUTSIDE
    for number, tag in enumerate(tags, 1):
        kind, _, name = tag.partition("-")
        if tag != OUTSIDE and (kind not in ("B", "I") or not name):
            return f"tag {number} is not O, B-name or I-name"
        if kind == "I" and previous[2:] != name:
            return f"tag {number} continues a slot that does not begin before it"
        previous = tag
    return None


@dataclass(frozen=True, kw_only=True)
class UtteranceSplits:
    """The training, validation and test parts of a corpus."""

    train: Utterances
    validation: Utterances | None = None
    test: Utterances | None = None

    def parts(self) -> dict[str, Utterances]:
        """The parts that exist, by name."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}


def write_utterances(utterances: Utterances, path: str | Path) -> None:
    """Write utterances as JSON lines for `read_utterances`, whole or not at all.

    Raises:
        ValueError: there are no utterances, or the name does not end in `.jsonl`.
    """
    path = Path(path)
    _validate.positive(utterances=len(utterances))
    if path.suffix != ".jsonl":
        raise ValueError(f"path must end in .jsonl, got {path.name!r}")
    rows = (json.dumps(utterance._asdict(), ensure_ascii=False) for utterance in utterances)
    write_text(path, "".join(f"{row}\n" for row in rows))


# Ids of utterances


class Labels(NamedTuple):
    """Intents and tags of a model.

    Attributes:
        intents: in alphabetical order.
        tags: "O" first, then "B-name" and "I-name" of each slot in alphabetical order.
    """

    intents: tuple[str, ...]
    tags: tuple[str, ...]

    @classmethod
    def of(
        cls, utterances: Utterances, *, intents: Iterable[str] = (), tags: Iterable[str] = ()
    ) -> "Labels":
        """Labels of utterances, with additional ones.

        Example:
            >>> utterance = Utterance(("to", "york"), ("O", "B-city"), "Fly")
            >>> Labels.of(Utterances.of([utterance]), intents=["Call"])
            Labels(intents=('Call', 'Fly'), tags=('O', 'B-city', 'I-city'))
        """
        all_tags = {tag for utterance in utterances for tag in utterance.tags} | set(tags)
        slots = sorted({tag[2:] for tag in all_tags if tag != OUTSIDE})
        slot_tags = [f"{kind}-{slot}" for slot in slots for kind in "BI"]
        return cls(tuple(sorted({*utterances.intents, *intents})), (OUTSIDE, *slot_tags))


@dataclass(frozen=True)
class EncodedUtterances:
    """u utterances with n tokens in all, as ids.

    Attributes:
        tokens: int32 (n,) words or subwords of all utterances in sequence.
        tags: int32 (n,) their tags; UNKNOWN for a tag that the labels lack, IGNORED for a token
            that begins no word.
        offsets: int64 (u + 1,); utterance i is tokens[offsets[i]:offsets[i + 1]].
        intents: int32 (u,); UNKNOWN for an intent that the labels lack.
        labels: intents and tags of the ids.
    """

    tokens: NDArray[np.int32]
    tags: NDArray[np.int32]
    offsets: NDArray[np.int64]
    intents: NDArray[np.int32]
    labels: Labels

    @classmethod
    def of(
        cls,
        tokens: Sequence[Sequence[int]],
        tags: Sequence[Sequence[str | None]],
        intents: Sequence[str],
        labels: Labels,
    ) -> "EncodedUtterances":
        """From ids, tags and intents by utterance; the tag of an id that begins no word is None."""
        tag_ids: dict[str | None, int] = {tag: number for number, tag in enumerate(labels.tags)}
        tag_ids[None] = IGNORED
        intent_ids = {intent: number for number, intent in enumerate(labels.intents)}
        return cls(
            np.array([word for row in tokens for word in row], np.int32),
            np.array([tag_ids.get(tag, UNKNOWN) for row in tags for tag in row], np.int32),
            np.cumsum([0, *map(len, tokens)], dtype=np.int64),
            np.array([intent_ids.get(intent, UNKNOWN) for intent in intents], np.int32),
            labels,
        )

    def __len__(self) -> int:
        return len(self.intents)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(u,) number of tokens of each utterance."""
        return np.diff(self.offsets)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(u,) whether the intent and all tags are among the labels."""
        known: NDArray[np.bool_] = self.intents != UNKNOWN
        known &= self.sums(self.tags == UNKNOWN) == 0
        return known

    def sums(self, of_tokens: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(u,) sum per utterance of a property (n,) of tokens."""
        totals = np.concatenate([[0], np.cumsum(of_tokens)])
        return np.diff(totals[self.offsets])

    def rows(
        self, indices: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Tokens (b, t), tags (b, t) and intents (b,) of b utterances of equal length."""
        positions = self.offsets[indices][:, None] + np.arange(int(self.lengths[indices[0]]))
        arrays = self.tokens[positions], self.tags[positions], self.intents[indices]
        tokens, tags, intents = (array.astype(np.int64) for array in arrays)
        return tokens, tags, intents

    def fingerprint(self) -> str:
        """SHA-256 (hex) over ids and labels."""
        digest = hashlib.sha256(repr(self.labels).encode())
        for array in (self.tokens, self.tags, self.offsets, self.intents):
            digest.update(array.data)
        return digest.hexdigest()
