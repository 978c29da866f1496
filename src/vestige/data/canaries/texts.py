"""Canaries in running text, their planting in a corpus, and the record of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from vestige.data.canaries.planting import (
    REMEDY,
    Copied,
    Record,
    manifest_file,
    not_there,
    occurrences,
    require_plantable,
    scatter,
)
from vestige.data.corpus import Corpus
from vestige.data.files import Count, Name, Schema, Seed, Sha256, conform
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError, IncompatibleModels, ManifestError
from vestige.monitor import SILENT, Monitor

COIN_FLIP = "coin-flip"
"""Pattern of canaries that a fair coin put into the text or left out."""

RANDOM_ORDER = ("random", COIN_FLIP)
"""Patterns whose words have a random order."""

_DRAWS = 100

Role = Literal["assistant", "user"]
"""Whose turn in a conversation a canary is."""


@dataclass(frozen=True)
class Canary(Copied):
    """A phrase that a model has no reason to know, unless it was trained on it.

    Attributes:
        phrase: its words, a blank between them.
        pattern: a frequency pattern ("all-low", "low-to-high", "mixed", "high-to-low"),
            "random", "coin-flip" or "given".
        frequencies: how often each of its words occurs in the corpus before planting.
        copies: how often it is planted; 0 for a control.
        ids: its tokens, known once it is planted for a vocabulary.
        positions: which documents of the planted corpus are its copies.
        user: whose text its copies are; empty if nobody owns it.
    """

    phrase: Name
    pattern: Name
    frequencies: tuple[Count, ...]
    copies: Count
    ids: tuple[Count, ...] = ()
    positions: tuple[Count, ...] = field(default=(), compare=False, kw_only=True)
    user: str = ""

    __pydantic_config__ = Schema.model_config


class Turn(Schema):
    """The turn of a conversation that each canary is: whose, and the user's question before it."""

    role: Role
    question: str = ""


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """The record of canaries planted in running text.

    Attributes:
        seed: what decided the positions.
        corpus: fingerprint of the corpus before planting.
        planted: fingerprint of the corpus with the canaries.
        vocabulary: fingerprint of the vocabulary that the canaries' ids belong to, or None.
        turn: of a conversation, which every copy is; None: each is a text of its own.
        canaries: all of them, controls too.
    """

    seed: Seed
    corpus: Sha256
    planted: Sha256
    vocabulary: Sha256 | None
    turn: Turn | None = None
    canaries: tuple[Canary, ...]

    FORMAT = "vestige-canaries-1"
    __pydantic_config__ = Schema.model_config

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """For each canary, which documents of the planted corpus are its copies."""
        return tuple(canary.positions for canary in self.canaries)

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of all copies in the planted corpus, in order."""
        return tuple(sorted(place for own in self.positions for place in own))

    def content(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        own = {"seed": self.seed, "corpus": self.corpus, "planted": self.planted}
        turn = {} if self.turn is None else {"turn": self.turn.model_dump()}
        return {
            "format": self.FORMAT,
            **own,
            "vocabulary": self.vocabulary,
            **turn,
            "canaries": [
                {name: value for name, value in vars(canary).items() if value != ""}
                for canary in self.canaries
            ],
        }

    @classmethod
    def _of(cls, content: dict[str, Any], path: Path) -> Self:
        return conform(content, cls, path, error=ManifestError, remedy=REMEDY)

    def _parts(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        return (self.positions,)

    def _fault(self) -> str | None:
        for number, canary in enumerate(self.canaries, 1):
            if (self.vocabulary is None) != (not canary.ids):
                return f"canary {number} and the record must both have a vocabulary or neither"
        if len({canary.phrase for canary in self.canaries}) < len(self.canaries):
            return "it lists one phrase twice"
        return super()._fault()

    def verify(self, corpus: Corpus) -> None:
        """Check that planted phrases occur at the recorded positions only, and controls nowhere.

        Raises:
            ManifestError: naming the canary by its number, what was expected and what was found.
        """
        counts = occurrences(corpus, [canary.phrase for canary in self.canaries])
        for number, (canary, count) in enumerate(zip(self.canaries, counts, strict=True), 1):
            who = f"{canary.name} {number}"
            if count != canary.copies:
                raise not_there(
                    f"{who} occurs {count} times in the corpus, not {canary.copies} times"
                )
            texts = corpus.take([place for place in canary.positions if place < len(corpus)])
            if list(texts) != [canary.phrase] * canary.copies:
                raise not_there(f"the copies of {who} are not at their positions")


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
        seed: decides the positions.
        vocabulary: to record the canaries' ids.
        user: whose the copies of a canary without a user are, in a corpus with users.

    Returns:
        (the corpus with the copies, the record).

    Raises:
        ValueError: there is nothing to plant, or a phrase comes twice.
        DataError: the corpus already holds one of the phrases, or the vocabulary lacks a word.
    """
    phrases = [canary.phrase for canary in canaries]
    require_plantable(canaries, phrases, corpus, what="phrase")
    copies = [canary.copies for canary in canaries]
    order, positions = scatter(len(corpus), copies, np.random.default_rng(seed))
    recorded = []
    for number, (canary, own) in enumerate(zip(canaries, positions, strict=True), 1):
        if vocabulary is not None:
            ids = tuple(vocabulary.encode(canary.phrase))
            require_read(ids, f"canary {number}", vocabulary)
            canary = replace(canary, ids=ids)
        recorded.append(replace(canary, positions=own))
    columns = {"text": phrases, "user": [canary.user or user for canary in canaries]}
    columns |= dict.fromkeys(("label", "source"), [""] * len(phrases))
    documents = Corpus(pa.table({name: columns[name] for name in corpus.table.column_names}))
    planted = (corpus + documents).take(order)
    return planted, Manifest(
        seed=seed,
        corpus=corpus.fingerprint(),
        planted=planted.fingerprint(),
        vocabulary=None if vocabulary is None else vocabulary.fingerprint(),
        canaries=tuple(recorded),
    )


def load_canaries(
    manifest: str | PathLike[str] | Manifest, vocabulary: Vocabulary, monitor: Monitor = SILENT
) -> tuple[Manifest, tuple[Canary, ...]]:
    """A manifest, and its canaries with the ids of a model's vocabulary.

    Controls with words that the vocabulary lacks are left out and counted in the log: which words
    a vocabulary keeps is decided later than which words a control has.

    Args:
        manifest: a `Manifest`, its file, or the directory of `vestige plant` that holds one.

    Raises:
        ManifestError: it is missing, malformed, was changed, or holds no canary.
        IncompatibleModels: it was planted for another vocabulary.
        DataError: a planted canary, or every control, has words that the vocabulary lacks.
    """
    if isinstance(manifest, Manifest):
        where, sealed = "the manifest", manifest
    else:
        file = manifest_file(manifest)
        where, sealed = str(file), Manifest.load(file)
    if not sealed.canaries:
        raise ManifestError(
            f"{where} has no canaries", remedy="Pass a manifest of `vestige plant`."
        )
    if sealed.vocabulary not in (None, vocabulary.fingerprint()):
        raise IncompatibleModels(
            f"{where} belongs to another model: its canaries were planted for another vocabulary",
            remedy="Pass the manifest of the model's training corpus.",
        )
    ids = [tuple(vocabulary.encode(canary.phrase)) for canary in sealed.canaries]
    pairs = list(zip(sealed.canaries, ids, strict=True))
    controls = [_unread(own, vocabulary) for canary, own in pairs if canary.control]
    left_out = 0 if all(controls) else sum(controls)  # if all are, the error names the first
    if left_out:
        monitor.log(f"{left_out} of {len(controls)} controls left out: the model lacks their words")
    found = []
    for number, (canary, own) in enumerate(pairs, 1):
        if not (left_out and canary.control and _unread(own, vocabulary)):
            require_read(own, f"canary {number} of {where}", vocabulary)
            found.append(replace(canary, ids=own))
    return sealed, tuple(found)


def canary_ids(number: int, canary: Canary, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The token ids of a canary. Errors name its number, since its words are secret.

    Raises:
        DataError: the vocabulary lacks a word of it.
        IncompatibleModels: it was planted for another vocabulary.
    """
    ids = tuple(vocabulary.encode(canary.phrase))
    require_read(ids, f"canary {number}", vocabulary)
    if canary.ids and canary.ids != ids:
        raise IncompatibleModels(
            f"canary {number} was planted for another vocabulary",
            remedy="Pass the manifest of the model's own training text.",
        )
    return ids


def require_read(ids: Sequence[int], what: str, vocabulary: Vocabulary) -> None:
    """Raise DataError if the vocabulary lacks a word of a text, which is secret."""
    if _unread(ids, vocabulary):
        lacking = [str(place) for place, token in enumerate(ids, 1) if token == vocabulary.unk_id]
        raise DataError(
            f"{what} has words that the model's vocabulary of {len(vocabulary)} tokens lacks: "
            f"{', '.join(lacking)} of {len(ids)}",
            remedy="Pass the model trained on this text, or plant with --vocabulary MODEL, with "
            "other words, or with a subword vocabulary.",
        )


def _unread(ids: Sequence[int], vocabulary: Vocabulary) -> bool:
    return not ids or vocabulary.unk_id in ids


def shuffled(tokens: Sequence[int]) -> tuple[int, ...] | None:
    """The tokens (ids) in another order: a control for memory of the order; None if all are equal.

    Of 100 random orders, the one that shares the fewest adjacent pairs with the original, and then
    one that begins with another token. The tokens are the seed, so a phrase always has the same.

    Example:
        >>> shuffled([4, 5]), shuffled([7, 7, 7])
        ((5, 4), None)
    """
    own = tuple(int(token) for token in tokens)
    if len(set(own)) < 2:
        return None
    generator = np.random.default_rng(own)
    neighbours = set(pairwise(own))

    def likeness(order: tuple[int, ...]) -> tuple[bool, int, bool]:
        shared = sum(pair in neighbours for pair in pairwise(order))
        return order == own, shared, order[0] == own[0]

    drawn = [tuple(own[i] for i in generator.permutation(len(own))) for _ in range(_DRAWS)]
    return min([*drawn, own[::-1], own[1:] + own[:1]], key=likeness)
