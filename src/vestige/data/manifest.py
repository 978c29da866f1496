"""Sealed record of canaries that were planted in a corpus.

A manifest is sealed as `vestige.data.checksum` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field

from vestige.data.canary import Canary, occurrences
from vestige.data.checksum import Checksummed, Sealed, malformed, not_there, read_record
from vestige.data.corpus import Corpus
from vestige.data.files import Count, Name, Schema, Seed, Sha256
from vestige.data.insertion_positions import scatter
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError

_FORMAT = "vestige-canaries-1"


Role = Literal["assistant", "user"]
"""Whose turn in a conversation a canary is."""


class Turn(Schema):
    """Where in a conversation the canaries stand.

    Attributes:
        role: whose words they are.
        question: what the user says before, where they are the assistant's.
    """

    role: Role
    question: str = ""


class Sampling(Schema):
    """Where "sampled" canaries come from, planted ones and controls alike.

    Attributes:
        model: path or name of the language model that wrote them; empty for an object.
        weights: SHA-256 of its weights.
        temperature: at which they were drawn.
        length: tokens of each, at most.
        prompts: behind which they were drawn, in turn; where there are none, each began a text.
    """

    model: str
    weights: Sha256
    temperature: Annotated[float, Field(gt=0)]
    length: Count
    prompts: list[str]


class _Entry(Checksummed):
    """A canary as a manifest has it."""

    phrase: Name
    pattern: Name
    frequencies: list[Count]
    copies: Count
    ids: list[Count]
    positions: list[Count]
    user: str = ""
    log_prob: float | None = None


class _Record(Checksummed):
    """A manifest as it stands in its file."""

    format: Literal["vestige-canaries-1"]
    seed: Seed
    corpus: Sha256
    planted: Sha256
    vocabulary: Sha256 | None
    canaries: list[_Entry]
    turn: Turn | None = None
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Manifest(Sealed):
    """The record of one planting.

    Attributes:
        canaries: all of them, controls too.
        positions: for each canary, which documents of the planted corpus are its copies.
        seed: what decided the places.
        corpus: fingerprint of the corpus before planting.
        planted: fingerprint of the corpus with the canaries.
        vocabulary: fingerprint of the vocabulary that the canaries' ids belong to, or None.
        turn: of a conversation, which every copy is; None: each is a text of its own.
        sampling: of canaries from a language model; None: there are none.
    """

    canaries: tuple[Canary, ...]
    positions: tuple[tuple[int, ...], ...]
    seed: int
    corpus: str
    planted: str
    vocabulary: str | None = None
    turn: Turn | None = None
    sampling: Sampling | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of all copies in the planted corpus, in order."""
        return tuple(sorted(place for own in self.positions for place in own))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record and check its seals.

        Raises:
            ManifestError: the file is missing, malformed, or was changed (naming what).
        """
        path = Path(path)
        record = read_record(path, _Record, format=_FORMAT)
        _require_consistent(path, record)
        return cls(
            canaries=tuple(_canary(entry) for entry in record.canaries),
            positions=tuple(tuple(entry.positions) for entry in record.canaries),
            seed=record.seed,
            corpus=record.corpus,
            planted=record.planted,
            vocabulary=record.vocabulary,
            turn=record.turn,
            sampling=record.sampling,
        )

    def verify(self, corpus: Corpus) -> None:
        """Check that a corpus holds what the record says.

        Every planted phrase stands there exactly as often as it was planted, at the recorded
        places, and no control stands there at all.

        Raises:
            ManifestError: naming the canary by its number, what was expected and what was found.
        """
        phrases = [canary.phrase for canary in self.canaries]
        counts = occurrences(corpus, phrases)
        rows = zip(self.canaries, self.positions, counts, strict=True)
        for number, (canary, places, count) in enumerate(rows, 1):
            who = f"{'control' if canary.control else 'canary'} {number}"
            if count != canary.copies:
                raise not_there(
                    f"{who} occurs {count} times in the corpus, not {canary.copies} times"
                )
            inside = [place for place in places if place < len(corpus)]
            texts = list(corpus.take(inside))
            if texts != [canary.phrase] * len(places):
                raise not_there(f"the copies of {who} are not at their positions")

    def _content(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "seed": self.seed,
            "corpus": self.corpus,
            "planted": self.planted,
            "vocabulary": self.vocabulary,
            **({"turn": self.turn.model_dump()} if self.turn else {}),
            **({"sampling": self.sampling.model_dump()} if self.sampling else {}),
            "canaries": [
                {
                    "phrase": canary.phrase,
                    "pattern": canary.pattern,
                    "frequencies": list(canary.frequencies),
                    "copies": canary.copies,
                    "ids": list(canary.ids),
                    "positions": list(places),
                    **({"user": canary.user} if canary.user else {}),
                    **({} if canary.log_prob is None else {"log_prob": canary.log_prob}),
                }
                for canary, places in zip(self.canaries, self.positions, strict=True)
            ],
        }


def plant(
    corpus: Corpus,
    canaries: Sequence[Canary],
    *,
    seed: int,
    vocabulary: Vocabulary | None = None,
    user: str = "",
) -> tuple[Corpus, Manifest]:
    """Put each canary's copies into a corpus, each copy as a document of its own.

    Args:
        corpus: stays as it is.
        canaries: planted ones and controls, no phrase twice.
        seed: decides the places.
        vocabulary: to record the canaries' ids.
        user: whose the copies of a canary without a user are, in a corpus with users.

    Returns:
        (the corpus with the copies at random places, the record).

    Raises:
        ValueError: there is nothing to plant, or a phrase comes twice.
        DataError: the corpus already holds one of the phrases, or the vocabulary lacks a word.
    """
    _check_plantable(corpus, canaries)
    if vocabulary is not None:
        canaries = [_identified(c, number, vocabulary) for number, c in enumerate(canaries, 1)]
    copies = [canary.copies for canary in canaries]
    order, positions = scatter(len(corpus), copies, np.random.default_rng(seed))
    planted = (corpus + _documents(canaries, corpus, user)).take(order)
    named = None if vocabulary is None else vocabulary.fingerprint()
    return planted, Manifest(
        tuple(canaries), positions, seed, corpus.fingerprint(), planted.fingerprint(), named
    )


def _identified(canary: Canary, number: int, vocabulary: Vocabulary) -> Canary:
    ids = tuple(vocabulary.encode(canary.phrase))
    if vocabulary.unk_id in ids:
        raise DataError(
            f"the vocabulary lacks word {ids.index(vocabulary.unk_id) + 1} of canary {number}",
            remedy="Make the canaries with this vocabulary, or choose other phrases.",
        )
    return replace(canary, ids=ids)


def _documents(canaries: Sequence[Canary], like: Corpus, user: str) -> Corpus:
    phrases = [canary.phrase for canary in canaries]
    users = [canary.user or user for canary in canaries]
    unknown = [""] * len(phrases)
    values = {"text": phrases, "user": users, "label": unknown, "source": unknown}
    return Corpus(pa.table({name: values[name] for name in like.table.column_names}))


def _check_plantable(corpus: Corpus, canaries: Sequence[Canary]) -> None:
    phrases = [canary.phrase for canary in canaries]
    if not any(canary.planted for canary in canaries):
        raise ValueError(f"canaries must hold one with copies, got {len(phrases)} without")
    if len(set(phrases)) < len(phrases):
        raise ValueError(
            f"canaries must be all different, got {len(set(phrases))} phrases in {len(phrases)}"
        )
    for number, count in enumerate(occurrences(corpus, phrases), 1):
        if count:
            raise DataError(
                f"the corpus already contains the phrase of canary {number} ({count} times)",
                remedy="Make the canaries for this corpus before planting in it.",
            )


def _canary(entry: _Entry) -> Canary:
    return Canary(
        phrase=entry.phrase,
        pattern=entry.pattern,
        frequencies=tuple(entry.frequencies),
        copies=entry.copies,
        ids=tuple(entry.ids),
        user=entry.user,
        log_prob=entry.log_prob,
    )


def _require_consistent(path: Path, record: _Record) -> None:
    """Each copy has a place of its own, each phrase is there once, ids are of some vocabulary."""
    for number, entry in enumerate(record.canaries, 1):
        if len(entry.positions) != entry.copies:
            raise malformed(
                path,
                (f"canary {number} has {entry.copies} copies and {len(entry.positions)} positions"),
            )
        if (record.vocabulary is None) != (not entry.ids):
            raise malformed(
                path, (f"canary {number} and the record must both have a vocabulary or neither")
            )
    places = [place for entry in record.canaries for place in entry.positions]
    if len(set(places)) < len(places):
        raise malformed(path, "two copies have one position")
    if len({entry.phrase for entry in record.canaries}) < len(record.canaries):
        raise malformed(path, "it lists one phrase twice")
