"""Canaries in running text, their planting in a corpus, and its manifest."""

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
    AnyCanary,
    SealedManifest,
    manifest_file,
    occurrences,
    other_corpus,
    require_plantable,
    scatter,
)
from vestige.data.corpus import Corpus
from vestige.data.files import Count, Name, Schema, Seed, Sha256, conform
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError, IncompatibleModels, ManifestError
from vestige.monitor import SILENT, Monitor

COIN_FLIP = "coin-flip"
"""Pattern of canaries that a fair coin planted or left out."""

RANDOM_ORDER = ("random", COIN_FLIP)
"""Patterns whose words have a random order."""

_ORDERS = 100  # random orders that `shuffled` tries

Role = Literal["assistant", "user"]
"""The author of a turn in a conversation."""


@dataclass(frozen=True)
class Canary(AnyCanary):
    """A phrase that only a model trained on it has a reason to know.

    Attributes:
        phrase: its words, a blank between them.
        pattern: a frequency pattern ("all-low", "low-to-high", "mixed", "high-to-low"),
            "random", "coin-flip" or "given".
        frequencies: how often each of its words occurs in the corpus before planting.
        copies: how often it is planted; 0 for a control.
        ids: its tokens, if it is planted for a vocabulary.
        positions: of its copies among the documents of the planted corpus.
        user: the user of its copies; empty if it has none.
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
    """The turn of a conversation that contains a canary, and the user's question before it."""

    role: Role
    question: str = ""


@dataclass(frozen=True, kw_only=True)
class Manifest(SealedManifest):
    """Record of canaries planted in running text.

    Attributes:
        seed: random seed of the positions.
        corpus: fingerprint of the corpus before planting.
        planted: fingerprint of the corpus with the canaries.
        vocabulary: fingerprint of the vocabulary of the canaries' ids, or None.
        turn: the turn of a conversation that contains a copy; None: a copy is a text.
        canaries: planted ones and controls.
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
        """For each canary, positions of its copies in the planted corpus."""
        return tuple(canary.positions for canary in self.canaries)

    @property
    def copy_positions(self) -> tuple[int, ...]:
        """Positions of all copies in the planted corpus, in order."""
        return tuple(sorted(position for copies in self.positions for position in copies))

    def content(self) -> dict[str, Any]:
        """The content of the manifest's file, without the seal."""
        return {
            "format": self.FORMAT,
            "seed": self.seed,
            "corpus": self.corpus,
            "planted": self.planted,
            "vocabulary": self.vocabulary,
            **({} if self.turn is None else {"turn": self.turn.model_dump()}),
            "canaries": [
                {name: value for name, value in vars(canary).items() if value != ""}
                for canary in self.canaries
            ],
        }

    @classmethod
    def _from_content(cls, content: dict[str, Any], path: Path) -> Self:
        return conform(content, cls, path, error=ManifestError, remedy=REMEDY)

    def _positions_by_part(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
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
            ManifestError: naming the canary by its number, and both numbers of copies.
        """
        counts = occurrences(corpus, [canary.phrase for canary in self.canaries])
        for number, (canary, count) in enumerate(zip(self.canaries, counts, strict=True), 1):
            name = f"{canary.name} {number}"
            if count != canary.copies:
                raise other_corpus(
                    f"{name} occurs {count} times in the corpus, not {canary.copies} times"
                )
            texts = corpus.take([index for index in canary.positions if index < len(corpus)])
            if list(texts) != [canary.phrase] * canary.copies:
                raise other_corpus(f"the copies of {name} are not at their positions")


def plant(
    corpus: Corpus,
    canaries: Sequence[Canary],
    *,
    seed: int,
    vocabulary: Vocabulary | None = None,
    user: str = "",
) -> tuple[Corpus, Manifest]:
    """Insert the copies of canaries into a corpus, one document per copy.

    Args:
        corpus: is not changed.
        canaries: planted ones and controls with different phrases.
        seed: random seed of the positions.
        vocabulary: to record the canaries' ids.
        user: of the copies of a canary without a user, in a corpus with users.

    Returns:
        (the corpus with the copies, its manifest).

    Raises:
        ValueError: there is nothing to plant, or a phrase occurs twice.
        DataError: the corpus already holds one of the phrases, or the vocabulary lacks a word.
    """
    phrases = [canary.phrase for canary in canaries]
    require_plantable(canaries, phrases, corpus, what="phrase")
    copies = [canary.copies for canary in canaries]
    order, positions = scatter(len(corpus), copies, np.random.default_rng(seed))
    recorded = []
    for number, (canary, copy_positions) in enumerate(zip(canaries, positions, strict=True), 1):
        ids: tuple[int, ...] = canary.ids
        if vocabulary is not None:
            ids = tuple(vocabulary.encode(canary.phrase))
            require_known_words(ids, f"canary {number}", vocabulary)
        recorded.append(replace(canary, ids=ids, positions=copy_positions))
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

    Controls with words that the vocabulary lacks are left out and counted in the log: the
    vocabulary may be made after the controls.

    Args:
        manifest: a `Manifest`, its file, or a directory of `vestige plant`.

    Raises:
        ManifestError: it is missing, malformed, was changed, or has no canary.
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
    unreadable = [_has_unknown(row, vocabulary) for canary, row in pairs if canary.control]
    left_out = 0 if all(unreadable) else sum(unreadable)  # if all are, the error names the first
    if left_out:
        monitor.log(
            f"{left_out} of {len(unreadable)} controls left out: the model lacks their words"
        )
    canaries = []
    for number, (canary, row) in enumerate(pairs, 1):
        if not (left_out and canary.control and _has_unknown(row, vocabulary)):
            require_known_words(row, f"canary {number} of {where}", vocabulary)
            canaries.append(replace(canary, ids=row))
    return sealed, tuple(canaries)


def canary_ids(number: int, canary: Canary, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The token ids of a canary. Errors give its number, since its words are secret.

    Raises:
        DataError: the vocabulary lacks a word of it.
        IncompatibleModels: it was planted for another vocabulary.
    """
    ids = tuple(vocabulary.encode(canary.phrase))
    require_known_words(ids, f"canary {number}", vocabulary)
    if canary.ids and canary.ids != ids:
        raise IncompatibleModels(
            f"canary {number} was planted for another vocabulary",
            remedy="Pass the manifest of the model's own training text.",
        )
    return ids


def require_known_words(ids: Sequence[int], what: str, vocabulary: Vocabulary) -> None:
    """Raise DataError if the vocabulary lacks a word; `what` names the text, which is secret."""
    if _has_unknown(ids, vocabulary):
        unknown = [str(number) for number, id in enumerate(ids, 1) if id == vocabulary.unk_id]
        raise DataError(
            f"{what} has words that the model's vocabulary of {len(vocabulary)} tokens lacks: "
            f"{', '.join(unknown)} of {len(ids)}",
            remedy="Pass the model trained on this text, or plant with --vocabulary MODEL, with "
            "other words, or with a subword vocabulary.",
        )


def _has_unknown(ids: Sequence[int], vocabulary: Vocabulary) -> bool:
    return not ids or vocabulary.unk_id in ids


def shuffled(tokens: Sequence[int]) -> tuple[int, ...] | None:
    """The tokens (ids) in another order: a control for memory of the order; None if all are equal.

    Of 100 random orders, the one with the fewest adjacent pairs of the original; among equals, one
    with another first token. The tokens are the seed, so that a phrase has one such order.

    Example:
        >>> shuffled([4, 5]), shuffled([7, 7, 7])
        ((5, 4), None)
    """
    original = tuple(int(token) for token in tokens)
    if len(set(original)) < 2:
        return None
    rng = np.random.default_rng(original)
    original_pairs = set(pairwise(original))

    def similarity(order: tuple[int, ...]) -> tuple[bool, int, bool]:
        shared = sum(pair in original_pairs for pair in pairwise(order))
        return order == original, shared, order[0] == original[0]

    orders = [
        tuple(original[index] for index in rng.permutation(len(original))) for _ in range(_ORDERS)
    ]
    return min([*orders, original[::-1], original[1:] + original[:1]], key=similarity)
