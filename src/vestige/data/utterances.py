"""Labelled utterances: words, slot tags, intent.

Utterances live in an Arrow table, as a corpus's documents do. Slots are tagged in the BIO scheme
(Ramshaw and Marcus 1995, "Text Chunking using Transformation-Based Learning"): "B-city" begins
a slot, "I-city" goes on with it, "O" is outside of all slots.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from vestige import _validate
from vestige.data.corpus import Corpus, Rows
from vestige.errors import DataError

_WORDS = pa.large_list(pa.large_string())
SCHEMA = pa.schema([("tokens", _WORDS), ("tags", _WORDS), ("intent", pa.large_string())])
OUTSIDE = "O"


class Utterance(NamedTuple):
    """One labelled utterance.

    Attributes:
        tokens: its words, at least one.
        tags: a BIO tag for each word.
        intent: of the utterance.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    intent: str

    @property
    def text(self) -> str:
        """The words with a blank between them."""
        return " ".join(self.tokens)


_SEPARATORS = {ord(one): f"\x1d{n}" for n, one in enumerate("\x1d\x1e\x1f")}
"""Escapes of the separators in a fingerprint."""


@dataclass(frozen=True)
class Utterances(Rows):
    """Labelled utterances in order; `Utterances.of` makes them.

    Attributes:
        table: columns `tokens` and `tags` (lists of text) and `intent` (text).

    Example:
        >>> said = Utterance(("play", "some", "jazz"), ("O", "O", "B-genre"), "PlayMusic")
        >>> utterances = Utterances.of([said])
        >>> len(utterances), utterances.intents, next(iter(utterances)).text
        (1, ['PlayMusic'], 'play some jazz')
    """

    table: pa.Table

    @classmethod
    def of(cls, utterances: Iterable[Utterance]) -> Self:
        """Utterances from any iterable, each checked.

        Raises:
            DataError: an utterance has no words, or its tags are not well formed (saying which).
        """
        rows = list(utterances)
        for number, row in enumerate(rows, 1):
            problem = fault(row)
            if problem is not None:
                raise DataError(
                    f"utterance {number}: {problem}",
                    remedy="Give every word one tag: O, B-name, or I-name after B-name or I-name.",
                )
        columns = {
            "tokens": [row.tokens for row in rows],
            "tags": [row.tags for row in rows],
            "intent": [row.intent for row in rows],
        }
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
        found: list[str] = self.table["intent"].to_pylist()
        return found

    def corpus(self) -> Corpus:
        """The utterances as plain documents, their intents as labels."""
        return Corpus.from_texts((u.text for u in self), labels=self.intents)

    def split(
        self, fraction: float, *, seed: int, keep: Sequence[int] = ()
    ) -> tuple["Utterances", "Utterances"]:
        """Hold out a random part; both parts keep the order.

        Args:
            fraction: share to hold out, in [0, 1).
            seed: decides which.
            keep: places of utterances that are never held out, such as planted canaries.

        Returns:
            (the rest, the part held out).

        Raises:
            ValueError: the fraction is out of range, or a place lies outside.
        """
        _validate.fraction(fraction=fraction)
        held = np.zeros(len(self), dtype=bool)
        drawn = np.random.default_rng(seed).permutation(len(self))
        held[drawn[: round(fraction * len(self))]] = True
        return self._parted(held, keep)

    def fingerprint(self) -> str:
        """SHA-256 (hex) over all that is in them, however the table is chunked."""
        whole = self.table.combine_chunks()
        digest = hashlib.sha256(b"vestige utterances 1")
        for column in whole.columns:
            for array in column.chunks:
                for text in array.to_pylist():
                    parts = [text] if isinstance(text, str) else [str(len(text)), *text]
                    # Separators inside a text are told from ours.
                    plain = [part.translate(_SEPARATORS) for part in parts]
                    digest.update("\x1f".join(plain).encode() + b"\x1e")
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
    return _fault_of_tags(tags)


def _fault_of_tags(tags: Sequence[str]) -> str | None:
    before = OUTSIDE
    for number, tag in enumerate(tags, 1):
        kind, _, name = tag.partition("-")
        if tag != OUTSIDE and (kind not in ("B", "I") or not name):
            return f"tag {number} is not O, B-name or I-name"
        if kind == "I" and before[2:] != name:
            return f"tag {number} continues a slot that does not begin before it"
        before = tag
    return None


@dataclass(frozen=True, kw_only=True)
class UtteranceSplits:
    """Training, validation and test parts of a corpus.

    Attributes:
        train: the part to train on; all there is, where the corpus has no parts.
        validation: the part to stop and choose by, or None.
        test: the part to report on, or None.
    """

    train: Utterances
    validation: Utterances | None = None
    test: Utterances | None = None

    def parts(self) -> dict[str, Utterances]:
        """Parts that exist, by name, in order."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}
