"""Encoded utterances: words by a vocabulary, intents and tags by their labels."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige.data.utterances import OUTSIDE, Utterances

UNKNOWN, IGNORED = -1, -100
"""The ids of a label that the model does not have, and of the tag of what begins no word."""


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
        """Labels of some utterances, with additional ones.

        Example:
            >>> from vestige.data.utterances import Utterance
            >>> said = Utterance(("to", "york"), ("O", "B-city"), "Fly")
            >>> Labels.of(Utterances.of([said]), intents=["Call"])
            Labels(intents=('Call', 'Fly'), tags=('O', 'B-city', 'I-city'))
        """
        used = {tag for utterance in utterances for tag in utterance.tags} | set(tags)
        slots = sorted({tag[2:] for tag in used if tag != OUTSIDE})
        both = [f"{kind}-{slot}" for slot in slots for kind in "BI"]
        return cls(tuple(sorted({*utterances.intents, *intents})), (OUTSIDE, *both))


@dataclass(frozen=True)
class EncodedUtterances:
    """u utterances of n tokens in all, as ids.

    Attributes:
        tokens: int32 (n,) words or parts of words, one utterance after the other.
        tags: int32 (n,) their tags; UNKNOWN for one that the labels lack, IGNORED for a token
            that begins no word.
        offsets: int64 (u + 1,) where each utterance begins, and the end of the last.
        intents: int32 (u,); UNKNOWN for one that the labels lack.
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
        """Encoded utterances from ids.

        Args:
            tokens: the ids of each utterance.
            tags: a tag for each id; None for one that begins no word.
            intents: the intent of each utterance.
            labels: of the model.
        """
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
        """(u,) tokens of each utterance."""
        return np.diff(self.offsets)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(u,) whether the intent and all tags are among the labels."""
        known: NDArray[np.bool_] = self.intents != UNKNOWN
        known &= self.sums(self.tags == UNKNOWN) == 0
        return known

    def sums(self, of_tokens: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(u,) sum of a token property, given as (n,), per utterance."""
        before = np.concatenate([[0], np.cumsum(of_tokens)])
        return np.diff(before[self.offsets])

    def rows(
        self, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Tokens (b, t), tags (b, t) and intents (b,) of b utterances of one length."""
        length = int(self.lengths[chosen[0]])
        places = self.offsets[chosen][:, None] + np.arange(length)
        return (
            self.tokens[places].astype(np.int64),
            self.tags[places].astype(np.int64),
            self.intents[chosen].astype(np.int64),
        )

    def fingerprint(self) -> str:
        """SHA-256 (hex) over ids and labels."""
        digest = hashlib.sha256(repr(self.labels).encode())
        for array in (self.tokens, self.tags, self.offsets, self.intents):
            digest.update(array.data)
        return digest.hexdigest()
