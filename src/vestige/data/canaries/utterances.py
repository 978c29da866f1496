"""Secrets in labelled utterances, their planting, and its manifest.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 4.2 and appendix A: utterances whose last words are sampled from a small set, with an intent
and a slot of their own. A canary's copies are split between training and validation in a ratio of
9:1.

Differs from the paper: every set has controls, secrets sampled in the same way that are never
planted. Of R copies, R / 10 rounded down go to validation.
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
    AnyCanary,
    SealedManifest,
    format_of,
    inconsistent,
    manifest_file,
    other_corpus,
    require_plantable,
    scatter,
)
from vestige.data.files import Count, Name, Schema, Seed, Sha256, conform
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError, ManifestError

_COPIES_PER_VALIDATION_COPY = 10
_Positions = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class SecretCanary(AnyCanary):
    """An utterance with a secret, and how often it is planted.

    Attributes:
        pattern: its text with unknown words, such as "my pin code is {digit:4}".
        intent: its label.
        slot: the slot that the secret fills.
        candidates: (name, words) of the sets in the pattern; other sets are from `CANDIDATES`.
        secret: the unknown words.
        copies: how often it is planted, validation included; 0 for a control.
        train: positions of its copies in the planted training part.
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
        """The parsed pattern."""
        return _parse(self.pattern, self.intent, self.slot, self.candidates)

    @property
    def utterance(self) -> Utterance:
        """The pattern with the secret as its unknown words."""
        return self.parsed.utterance(self.secret)


@lru_cache(maxsize=64)
def _parse(
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
    """Canaries of one pattern, then the controls, with different secrets.

    Args:
        pattern: text such as "my pin code is {digit:4}"; see `SecretPattern.parse`.
        intent: label of the utterances.
        slot: the slot that the secret fills.
        candidates: further sets of words by name.
        copies: of each planted canary, validation included.
        number: of planted canaries.
        controls: number of controls in all.
        seed: random seed of the secrets, together with the pattern's words.

    Raises:
        ValueError: the pattern cannot be read, or has fewer secrets.
    """
    parsed = SecretPattern.parse(pattern, intent=intent, slot=slot, candidates=candidates)
    if number + controls > parsed.space:
        raise ValueError(
            f"number and controls must be at most {parsed.space} together, the secrets of the "
            f"pattern {pattern!r}, got {number} and {controls}"
        )
    sets = {**CANDIDATES, **(candidates or {})}
    return tuple(
        SecretCanary(
            pattern=pattern,
            intent=intent,
            slot=slot,
            candidates=tuple((name, tuple(sets[name])) for name in named_sets(pattern)),
            secret=secret,
            copies=copies if index < number else 0,
        )
        for index, secret in enumerate(draw_secrets(parsed, number=number + controls, seed=seed))
    )


class _Entry(Schema):
    """A canary in the file; its candidates are names of sets in the file."""

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
    """Content of the file, without its format and seal."""

    seed: Seed
    train: _Part
    validation: _Part
    candidates: dict[Name, list[Name]]
    canaries: list[_Entry]


@dataclass(frozen=True, kw_only=True)
class SecretManifest(SealedManifest):
    """Record of secrets planted in labelled utterances.

    Attributes:
        canaries: planted ones and controls.
        seed: random seed of the positions.
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
        """For each canary, positions of its copies in the training part."""
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
        """All words that a canary could have, in alphabetical order.

        A vocabulary with only the planted candidates would reveal them.
        """
        fixed = {word for pattern in self.patterns for word in pattern.words if word is not None}
        candidates = (words for pattern in self.patterns for words in pattern.candidates)
        return tuple(sorted(fixed.union(*candidates)))

    @property
    def intents(self) -> tuple[str, ...]:
        """The different intents of the canaries, in order."""
        return tuple(dict.fromkeys(canary.intent for canary in self.canaries))

    @property
    def tags(self) -> tuple[str, ...]:
        """The different tags of the canaries' words, in order."""
        return tuple(dict.fromkeys(tag for pattern in self.patterns for tag in pattern.tags))

    def content(self) -> dict[str, Any]:
        """The content of the manifest's file, without the seal."""
        return {
            "format": self.FORMAT,
            "seed": self.seed,
            "train": {"before": self.before[0], "after": self.after[0]},
            "validation": {"before": self.before[1], "after": self.after[1]},
            "candidates": _candidate_sets(self.canaries),
            "canaries": [
                {**vars(canary), "candidates": [name for name, _ in canary.candidates]}
                for canary in self.canaries
            ],
        }

    @classmethod
    def _from_content(cls, content: dict[str, Any], path: Path) -> Self:
        file = conform(content, _File, path, error=ManifestError, remedy=REMEDY)
        canaries = []
        for number, entry in enumerate(file.canaries, 1):
            if not set(entry.candidates) <= file.candidates.keys():
                raise inconsistent(
                    path, f"canary {number} uses candidates that the record does not list"
                )
            try:
                canary = SecretCanary(
                    pattern=entry.pattern,
                    intent=entry.intent,
                    slot=entry.slot,
                    candidates=tuple(
                        (name, tuple(file.candidates[name])) for name in entry.candidates
                    ),
                    secret=tuple(entry.secret),
                    copies=entry.copies,
                    train=tuple(entry.train),
                    validation=tuple(entry.validation),
                )
            except ValueError as error:  # its message may have words of the secret
                raise inconsistent(
                    path, f"the pattern of canary {number} is invalid, or does not fit its secret"
                ) from error
            canaries.append(canary)
        return cls(
            canaries=tuple(canaries),
            seed=file.seed,
            before=(file.train.before, file.validation.before),
            after=(file.train.after, file.validation.after),
        )

    def _positions_by_part(self) -> tuple[_Positions, ...]:
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
        for part_name, part, positions in parts:
            indices: dict[str, list[int]] = {}
            for index, utterance in enumerate(part):
                indices.setdefault(utterance.text.casefold(), []).append(index)
            pairs = zip(self.canaries, positions, strict=True)
            for number, (canary, expected) in enumerate(pairs, 1):
                name = f"{canary.name} {number}"
                actual = indices.get(canary.utterance.text.casefold(), [])
                if len(actual) != len(expected):
                    raise other_corpus(
                        f"{name} occurs {len(actual)} times in the {part_name} part, not "
                        f"{len(expected)} times"
                    )
                if actual != list(expected):
                    raise other_corpus(f"{name} is not at its positions in the {part_name} part")
                if any(copy != canary.utterance for copy in part.take(actual)):
                    raise other_corpus(
                        f"{name} has other words, tags or intent in the {part_name} part"
                    )


def plant_secrets(
    train: Utterances, validation: Utterances, canaries: Sequence[SecretCanary], *, seed: int
) -> tuple[Utterances, Utterances, SecretManifest]:
    """Insert copies of canaries at random positions of two parts of a corpus.

    Returns:
        (training with copies, validation with copies, their manifest).

    Raises:
        ValueError: nothing to plant, an utterance twice, or two sets of candidates with one name.
        DataError: the corpus already holds one of the utterances, or lacks a part for copies.
    """
    texts = [canary.utterance.text for canary in canaries]
    require_plantable(canaries, texts, (train + validation).corpus(), what="utterance")
    _candidate_sets(canaries)
    rng = np.random.default_rng(seed)
    validation_copies = [canary.copies // _COPIES_PER_VALIDATION_COPY for canary in canaries]
    train_copies = [
        canary.copies - copies for canary, copies in zip(canaries, validation_copies, strict=True)
    ]
    utterances = Utterances.of(canary.utterance for canary in canaries)
    parts, positions = [], []
    for name, part, copies in (
        ("training", train, train_copies),
        ("validation", validation, validation_copies),
    ):
        if sum(copies) and not len(part):
            raise DataError(
                f"the {name} part is empty; it needs {sum(copies)} copies of canaries",
                remedy="Pass utterances for it, or hold out fewer of the others.",
            )
        order, part_positions = scatter(len(part), copies, rng)
        parts.append((part + utterances).take(order))
        positions.append(part_positions)
    manifest = SecretManifest(
        canaries=tuple(
            replace(canary, train=in_train, validation=in_validation)
            for canary, in_train, in_validation in zip(canaries, *positions, strict=True)
        ),
        seed=seed,
        before=(train.fingerprint(), validation.fingerprint()),
        after=(parts[0].fingerprint(), parts[1].fingerprint()),
    )
    return parts[0], parts[1], manifest


def load_secrets(manifest: str | PathLike[str] | SecretManifest) -> SecretManifest:
    """A manifest of secrets in labelled utterances.

    Args:
        manifest: a manifest, its file, or a directory of `vestige plant --task nlu`.

    Raises:
        ManifestError: it is missing, malformed, was changed, or describes running text.
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


def _candidate_sets(canaries: Sequence[SecretCanary]) -> dict[str, tuple[str, ...]]:
    """The sets of candidates by name; ValueError for two sets of one name."""
    sets: dict[str, tuple[str, ...]] = {}
    for name, words in (pair for canary in canaries for pair in canary.candidates):
        if sets.setdefault(name, words) != words:
            raise ValueError(f"candidates must be one set for each name, got two called {name!r}")
    return sets
