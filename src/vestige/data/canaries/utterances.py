"""Secrets in labelled utterances, their planting, and the record of it.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 4.2 and appendix A: utterances whose last words are drawn at random from a small set, with
an intent and a slot of their own. A canary's copies are split between training and validation in a
ratio of 9:1.

Differs from the paper: every set has controls, secrets drawn alike that are never planted. Of R
copies, R / 10 rounded down go to validation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from vestige.data.canaries.patterns import CANDIDATES, SecretPattern, draw_secrets, named_sets
from vestige.data.canaries.planting import (
    REMEDY,
    Copied,
    Record,
    format_of,
    inconsistent,
    manifest_file,
    not_there,
    require_plantable,
    scatter,
)
from vestige.data.files import Count, Name, Schema, Seed, Sha256, conform
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError, ManifestError

_VALIDATED = 10  # one copy of so many goes to validation
_Positions = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class SecretCanary(Copied):
    """An utterance with a secret in it, and how often it is planted.

    Attributes:
        pattern: its text with places for the secret, such as "my pin code is {digit:4}".
        intent: what it is labelled with.
        slot: the slot that the secret fills.
        candidates: the sets of words that the pattern names, by name; where one is missing, it
            is that of `CANDIDATES`.
        secret: the words for those places.
        copies: how often it is planted, validation included; 0 for a control.
        train: which utterances of the planted training part are its copies.
        validation: likewise for validation.

    Raises:
        ValueError: the pattern cannot be read, or cannot have this secret.

    Example:
        >>> canary = SecretCanary(
        ...     pattern="call {digit:3}", intent="Call", slot="number", secret=("4", "2", "1"),
        ...     copies=10,
        ... )
        >>> canary.utterance.text, canary.utterance.tags
        ('call 4 2 1', ('O', 'B-number', 'I-number', 'I-number'))
    """

    pattern: str
    intent: str
    slot: str
    candidates: tuple[tuple[str, tuple[str, ...]], ...] = ()
    secret: tuple[str, ...]
    copies: int
    train: tuple[int, ...] = field(default=(), compare=False)
    validation: tuple[int, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        self.parsed.check(self.secret)

    @property
    def parsed(self) -> SecretPattern:
        """The pattern, read."""
        return _parsed(self.pattern, self.intent, self.slot, self.candidates)

    @property
    def utterance(self) -> Utterance:
        """The pattern with the secret in its places."""
        return self.parsed.utterance(self.secret)


@lru_cache(maxsize=64)
def _parsed(
    pattern: str, intent: str, slot: str, sets: tuple[tuple[str, tuple[str, ...]], ...]
) -> SecretPattern:
    return SecretPattern.parse(pattern, intent=intent, slot=slot, candidates=dict(sets))


def secret_canaries(
    pattern: str,
    *,
    intent: str,
    slot: str = "canary",
    candidates: Mapping[str, Sequence[str]] | None = None,
    copies: int,
    number: int = 1,
    controls: int = 1,
    seed: int,
) -> tuple[SecretCanary, ...]:
    """Canaries of one pattern, then the controls; no secret comes twice.

    Args:
        pattern: text such as "my pin code is {digit:4}"; see `SecretPattern.parse`.
        intent: what the utterances are labelled with.
        slot: the slot that the secret fills.
        candidates: further sets of words by name.
        copies: how often each is to be planted, validation included.
        number: how many to plant.
        controls: how many never to plant, in all.
        seed: decides the secrets, together with the pattern's words.

    Raises:
        ValueError: the pattern cannot be read, or has fewer secrets.
    """
    parsed = SecretPattern.parse(pattern, intent=intent, slot=slot, candidates=candidates)
    if number + controls > parsed.space:
        raise ValueError(
            f"number and controls must be at most {parsed.space} together, the secrets of the "
            f"pattern {pattern!r}, got {number} and {controls}"
        )
    known = {**CANDIDATES, **(candidates or {})}
    used = tuple((name, tuple(known[name])) for name in named_sets(pattern))
    shared: dict[str, Any] = {"pattern": pattern, "intent": intent, "slot": slot}
    return tuple(
        SecretCanary(**shared, secret=secret, copies=copies * (n < number), candidates=used)
        for n, secret in enumerate(draw_secrets(parsed, number=number + controls, seed=seed))
    )


class _Entry(Schema):
    """A canary as a record has it."""

    pattern: Name
    intent: Name
    slot: Name
    candidates: list[Name]
    secret: list[Name]
    copies: Count
    train: list[Count]
    validation: list[Count]


class _Part(Schema):
    """Fingerprints of a part of the corpus, without and with its canaries."""

    before: Sha256
    after: Sha256


class _File(Schema):
    """A record in its file, without its format and seal."""

    seed: Seed
    train: _Part
    validation: _Part
    candidates: dict[Name, list[Name]]
    canaries: list[_Entry]


@dataclass(frozen=True, kw_only=True)
class SecretManifest(Record):
    """The record of secrets planted in labelled utterances: all that an attack needs to know.

    Attributes:
        canaries: all of them, controls too.
        seed: what decided the positions.
        before: fingerprints of (training, validation) before planting.
        after: fingerprints of both with the canaries.
    """

    canaries: tuple[SecretCanary, ...]
    seed: int
    before: tuple[str, str]
    after: tuple[str, str]

    FORMAT = "vestige-secrets-1"

    @property
    def train_positions(self) -> _Positions:
        """For each canary, which utterances of the training part are its copies."""
        return tuple(canary.train for canary in self.canaries)

    @property
    def validation_positions(self) -> _Positions:
        """Likewise for validation."""
        return tuple(canary.validation for canary in self.canaries)

    @property
    def patterns(self) -> tuple[SecretPattern, ...]:
        """The different patterns of the canaries, in order."""
        return tuple(dict.fromkeys(canary.parsed for canary in self.canaries))

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that a canary could have, in order of the alphabet.

        A vocabulary that lacked the candidates that were not planted would give the planted
        ones away.
        """
        known = {word for pattern in self.patterns for word in pattern.words if word is not None}
        sets = {place for pattern in self.patterns for place in pattern.candidates}
        return tuple(sorted(known.union(*sets)))

    @property
    def intents(self) -> tuple[str, ...]:
        """The intents of the canaries, each once, in order."""
        return tuple(dict.fromkeys(canary.intent for canary in self.canaries))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the canaries' words, each once, in order."""
        return tuple(dict.fromkeys(tag for pattern in self.patterns for tag in pattern.tags))

    def content(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        entries = [
            {**vars(canary), "candidates": [name for name, _ in canary.candidates]}
            for canary in self.canaries
        ]
        parts = zip(("train", "validation"), self.before, self.after, strict=True)
        return {
            "format": self.FORMAT,
            "seed": self.seed,
            **{name: {"before": before, "after": after} for name, before, after in parts},
            "candidates": _sets(self.canaries),
            "canaries": entries,
        }

    @classmethod
    def _of(cls, content: dict[str, Any], path: Path) -> Self:
        file = conform(content, _File, path, error=ManifestError, remedy=REMEDY)
        sets = {name: tuple(words) for name, words in file.candidates.items()}
        canaries = []
        for number, entry in enumerate(file.canaries, 1):
            if not set(entry.candidates) <= sets.keys():
                raise inconsistent(
                    path, f"canary {number} uses candidates that the record does not list"
                )
            values: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in entry
            }
            values["candidates"] = tuple((name, sets[name]) for name in entry.candidates)
            try:
                canaries.append(SecretCanary(**values))
            except ValueError as error:  # whose message may hold words of the secret
                raise inconsistent(
                    path, f"the pattern of canary {number} is invalid, or does not fit its secret"
                ) from error
        return cls(
            canaries=tuple(canaries),
            seed=file.seed,
            before=(file.train.before, file.validation.before),
            after=(file.train.after, file.validation.after),
        )

    def _parts(self) -> tuple[_Positions, ...]:
        return self.train_positions, self.validation_positions

    def verify(self, train: Utterances, validation: Utterances) -> None:
        """Check that copies occur at their positions only, with their labels, controls nowhere.

        Raises:
            ManifestError: naming the canary by its number.
        """
        parts = (
            ("training", train, self.train_positions),
            ("validation", validation, self.validation_positions),
        )
        for name, part, positions in parts:
            places: dict[str, list[int]] = {}
            for place, utterance in enumerate(part):
                places.setdefault(utterance.text.casefold(), []).append(place)
            for number, (canary, own) in enumerate(zip(self.canaries, positions, strict=True), 1):
                said, who = canary.utterance, f"{canary.name} {number}"
                found = places.get(said.text.casefold(), [])
                if len(found) != len(own):
                    raise not_there(
                        f"{who} occurs {len(found)} times in the {name} part, not {len(own)} times"
                    )
                if found != list(own):
                    raise not_there(f"{who} is not at its positions in the {name} part")
                if any(other != said for other in part.take(found)):
                    raise not_there(f"{who} has other words, tags or intent in the {name} part")


def plant_secrets(
    train: Utterances, validation: Utterances, canaries: Sequence[SecretCanary], *, seed: int
) -> tuple[Utterances, Utterances, SecretManifest]:
    """Put copies of canaries at random positions of two parts of a corpus; these stay as they are.

    Returns:
        (training with copies, validation with copies, the record).

    Raises:
        ValueError: nothing to plant, an utterance twice, or two sets of candidates with one name.
        DataError: the corpus already holds one of the utterances, or lacks a part for copies.
    """
    texts = [canary.utterance.text for canary in canaries]
    require_plantable(canaries, texts, (train + validation).corpus(), what="utterance")
    _sets(canaries)
    generator = np.random.default_rng(seed)
    held = [canary.copies // _VALIDATED for canary in canaries]
    kept = [canary.copies - other for canary, other in zip(canaries, held, strict=True)]
    own = Utterances.of(canary.utterance for canary in canaries)
    parts, places = [], []
    for name, part, copies in (("training", train, kept), ("validation", validation, held)):
        if sum(copies) and not len(part):
            raise DataError(
                f"the {name} part is empty; it needs {sum(copies)} copies of canaries",
                remedy="Pass utterances for it, or hold out fewer of the others.",
            )
        order, positions = scatter(len(part), copies, generator)
        parts.append((part + own).take(order))
        places.append(positions)
    manifest = SecretManifest(
        canaries=tuple(
            replace(canary, train=first, validation=second)
            for canary, first, second in zip(canaries, *places, strict=True)
        ),
        seed=seed,
        before=(train.fingerprint(), validation.fingerprint()),
        after=(parts[0].fingerprint(), parts[1].fingerprint()),
    )
    return parts[0], parts[1], manifest


def load_secrets(manifest: str | PathLike[str] | SecretManifest) -> SecretManifest:
    """A manifest of secrets in labelled utterances.

    Args:
        manifest: itself, its file, or the directory of `vestige plant --task nlu`.

    Raises:
        ManifestError: it is missing, malformed, was changed, or is one of running text.
    """
    if isinstance(manifest, SecretManifest):
        return manifest
    file = manifest_file(manifest)
    if file.is_file() and format_of(file) not in (SecretManifest.FORMAT, None):
        raise ManifestError(
            f"{file} has canaries in text, not in labelled utterances",
            remedy="Plant with `vestige plant --task nlu`, or pass a language model.",
        )
    return SecretManifest.load(file)


def _sets(canaries: Sequence[SecretCanary]) -> dict[str, tuple[str, ...]]:
    """The sets of candidates by name."""
    found: dict[str, tuple[str, ...]] = {}
    for name, words in (pair for canary in canaries for pair in canary.candidates):
        if found.setdefault(name, words) != words:
            raise ValueError(f"candidates must be one set for each name, got two called {name!r}")
    return found
