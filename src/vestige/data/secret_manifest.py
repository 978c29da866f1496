"""Sealed record of secrets that were planted in labelled utterances.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
appendix A: a canary's copies are split between training and validation in a ratio of 9:1.

Differs from the paper: of R copies, R / 10 rounded down go to validation, so that a canary said
fewer than ten times stands in the training part only. The record is sealed as
`vestige.data.manifest` says, and holds all that an attack needs to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from vestige.data.files import Count, Name, Schema, Seed, Sha256, conform
from vestige.data.manifest import (
    REMEDY,
    Sealed,
    format_of,
    malformed,
    manifest_file,
    not_there,
    read_sealed,
)
from vestige.data.planting import occurrences, scatter
from vestige.data.secret_canaries import SecretCanary
from vestige.data.secret_pattern import SecretPattern
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError, ManifestError

FORMAT = "vestige-secrets-1"
_VALIDATED = 10  # one copy of so many goes to validation
_Places = tuple[tuple[int, ...], ...]


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


class _Record(Schema):
    """A record in its file, without its format and seals."""

    seed: Seed
    train: _Part
    validation: _Part
    candidates: dict[Name, list[Name]]
    canaries: list[_Entry]


@dataclass(frozen=True, kw_only=True)
class SecretManifest(Sealed):
    """The record of one planting.

    Attributes:
        canaries: all of them, controls too.
        train_positions: for each canary, which utterances of the training part are its copies.
        validation_positions: likewise for validation.
        seed: what decided the places.
        before: fingerprints of (training, validation) before planting.
        after: fingerprints of both with the canaries.
    """

    canaries: tuple[SecretCanary, ...]
    train_positions: _Places
    validation_positions: _Places
    seed: int
    before: tuple[str, str]
    after: tuple[str, str]

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

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record and check its seals.

        Raises:
            ManifestError: the file is missing, malformed, or was changed (naming what).
        """
        path = Path(path)
        content = read_sealed(path, format=FORMAT)
        record = conform(content, _Record, path, error=ManifestError, remedy=REMEDY)
        entries = record.canaries
        return cls(
            canaries=tuple(
                _canary(path, number, entry, record.candidates)
                for number, entry in enumerate(entries, 1)
            ),
            train_positions=_places(path, [entry.train for entry in entries]),
            validation_positions=_places(path, [entry.validation for entry in entries]),
            seed=record.seed,
            before=(record.train.before, record.validation.before),
            after=(record.train.after, record.validation.after),
        )

    def verify(self, train: Utterances, validation: Utterances) -> None:
        """Check that two parts hold what the record says.

        Every copy stands at its place with its intent and tags and nowhere else, and no control
        stands anywhere.

        Raises:
            ManifestError: naming the canary by its number.
        """
        parts = {
            "training": (train, self.train_positions),
            "validation": (validation, self.validation_positions),
        }
        for name, (part, positions) in parts.items():
            places = _places_by_text(part)
            for number, (canary, own) in enumerate(zip(self.canaries, positions, strict=True), 1):
                found = places.get(_key(canary.utterance), [])
                who = f"{'control' if canary.control else 'canary'} {number}"
                if len(found) != len(own):
                    raise not_there(
                        f"{who} occurs {len(found)} times in the {name} part, not {len(own)} times"
                    )
                if found != list(own):
                    raise not_there(f"{who} is not at its positions in the {name} part")
                if any(said != canary.utterance for said in part.take(found)):
                    raise not_there(f"{who} has other words, tags or intent in the {name} part")

    def _content(self) -> dict[str, Any]:
        rows = zip(self.canaries, self.train_positions, self.validation_positions, strict=True)
        return {
            "format": FORMAT,
            "seed": self.seed,
            "train": {"before": self.before[0], "after": self.after[0]},
            "validation": {"before": self.before[1], "after": self.after[1]},
            "candidates": {name: list(words) for name, words in _sets(self.canaries).items()},
            "canaries": [
                {
                    "pattern": canary.pattern,
                    "intent": canary.intent,
                    "slot": canary.slot,
                    "candidates": [name for name, _ in canary.candidates],
                    "secret": list(canary.secret),
                    "copies": canary.copies,
                    "train": list(train),
                    "validation": list(validation),
                }
                for canary, train, validation in rows
            ],
        }


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
    if file.is_file() and format_of(file) not in (FORMAT, None):
        raise ManifestError(
            f"{file} has canaries in text, not in labelled utterances",
            remedy="Plant with `vestige plant --task nlu`, or pass a language model.",
        )
    return SecretManifest.load(file)


def plant_secrets(
    train: Utterances,
    validation: Utterances,
    canaries: Sequence[SecretCanary],
    *,
    seed: int,
) -> tuple[Utterances, Utterances, SecretManifest]:
    """Put each canary's copies at random places of two parts of a corpus.

    Of R copies, R / 10 rounded down go to validation and the rest to training.

    Args:
        train: the utterances to train on; they stay as they are.
        validation: those to stop by or to measure on; they stay as they are.
        canaries: planted ones and controls, of as many patterns as wanted.
        seed: decides the places.

    Returns:
        (training with copies, validation with copies, the record).

    Raises:
        ValueError: there is nothing to plant, an utterance comes twice, or one name stands for
            two sets of candidates.
        DataError: the corpus already holds one of the utterances, or a part is empty that
            copies belong to.
    """
    _check_plantable(train, validation, canaries)
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
        canaries=tuple(canaries),
        train_positions=places[0],
        validation_positions=places[1],
        seed=seed,
        before=(train.fingerprint(), validation.fingerprint()),
        after=(parts[0].fingerprint(), parts[1].fingerprint()),
    )
    return parts[0], parts[1], manifest


def _check_plantable(
    train: Utterances, validation: Utterances, canaries: Sequence[SecretCanary]
) -> None:
    if not any(canary.planted for canary in canaries):
        raise ValueError(f"canaries must hold one with copies, got {len(canaries)} without")
    texts = [canary.utterance.text for canary in canaries]
    keys = [_key(canary.utterance) for canary in canaries]
    if len(set(keys)) < len(keys):
        twice = next(number for number, text in enumerate(keys) if text in keys[:number])
        raise ValueError(f"canaries must be all different, got number {twice + 1} a second time")
    _sets(canaries)
    counts = occurrences((train + validation).corpus(), texts)
    for number, count in enumerate(counts, 1):
        if count:
            raise DataError(
                f"the corpus already contains the utterance of canary {number} ({count} times)",
                remedy="Pass another --seed, or remove that utterance from the corpus.",
            )


def _sets(canaries: Sequence[SecretCanary]) -> dict[str, tuple[str, ...]]:
    """The sets of candidates by name."""
    found: dict[str, tuple[str, ...]] = {}
    for name, words in (pair for canary in canaries for pair in canary.candidates):
        if found.setdefault(name, words) != words:
            raise ValueError(f"candidates must be one set for each name, got two called {name!r}")
    return found


def _places_by_text(part: Utterances) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, utterance in enumerate(part):
        places.setdefault(_key(utterance), []).append(place)
    return places


def _key(utterance: Utterance) -> str:
    """The text without case: equal keys may be one utterance to a model."""
    return utterance.text.casefold()


def _canary(path: Path, number: int, entry: _Entry, sets: dict[str, list[str]]) -> SecretCanary:
    places = len(entry.train) + len(entry.validation)
    if places != entry.copies:
        raise malformed(path, f"canary {number} has {entry.copies} copies and {places} positions")
    if not set(entry.candidates) <= sets.keys():
        raise malformed(path, f"canary {number} uses candidates that the record does not list")
    try:
        return SecretCanary(
            pattern=entry.pattern,
            intent=entry.intent,
            slot=entry.slot,
            secret=tuple(entry.secret),
            copies=entry.copies,
            candidates=tuple((name, tuple(sets[name])) for name in entry.candidates),
        )
    except ValueError as error:  # whose message may hold candidates, the secret's words among them
        raise malformed(
            path, f"the pattern of canary {number} is invalid, or does not fit its secret"
        ) from error


def _places(path: Path, places: list[list[int]]) -> _Places:
    every = [place for own in places for place in own]
    if len(set(every)) < len(every):
        raise malformed(path, "two copies have one position")
    return tuple(tuple(own) for own in places)
