"""Canaries and the sealed record of their planting in a corpus.

A record is JSON, sealed with SHA-256 over its canonical form. Each of its canaries has a seal of
its own, so that an error can name the canary that was changed.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from vestige.data.corpus import Corpus
from vestige.data.files import Count, Name, Schema, Seed, Sha256, conform, read_object
from vestige.data.sources import MANIFEST
from vestige.data.vocabulary import Vocabulary
from vestige.data.writing import write_text
from vestige.errors import DataError, IncompatibleModels, ManifestError
from vestige.monitor import SILENT, Monitor

COIN_FLIP, SAMPLED = "coin-flip", "sampled"
RANDOM_ORDER = ("random", COIN_FLIP)
"""Patterns whose words have a random order."""

BY_COIN = (COIN_FLIP, SAMPLED)
"""Patterns of canaries that a fair coin put into the text or left out."""

REMEDY = "Restore the file of `vestige plant`, or plant again."
_FORMAT = "vestige-canaries-1"
_CHECKSUM, _ENTRIES, _NONE = "sha256", "canaries", ("", None)
_FIELDS = ("phrase", "pattern", "frequencies", "copies", "ids", "positions", "user", "log_prob")
_DRAWS = 100

Role = Literal["assistant", "user"]
"""Whose turn in a conversation a canary is."""

_Counts = tuple[Count, ...]


class Copied:
    """What is planted some number of times; a control never is."""

    copies: int

    @property
    def planted(self) -> bool:
        """Whether it is planted."""
        return self.copies > 0

    @property
    def control(self) -> bool:
        """Whether it is a control, which is never planted."""
        return not self.planted


@dataclass(frozen=True)
class Canary(Copied):
    """A phrase that a model has no reason to know, unless it was trained on it.

    Attributes:
        phrase: its words, a blank between them.
        pattern: a frequency pattern ("all-low", "low-to-high", "mixed", "high-to-low"),
            "random", "coin-flip", "sampled" (by coins, too, from a language model) or "given".
        frequencies: how often each of its words occurs in the corpus before planting.
        copies: how often it is planted; 0 for a control.
        ids: its tokens, known once it is planted for a vocabulary.
        user: whose text its copies are; empty if nobody owns it.
        log_prob: natural log-probability under the language model that wrote it; None of others.
        positions: which documents of the planted corpus are its copies.
    """

    phrase: Name
    pattern: Name
    frequencies: _Counts
    copies: Count
    ids: _Counts = ()
    user: str = ""
    log_prob: float | None = None
    positions: _Counts = field(default=(), compare=False, kw_only=True)

    __pydantic_config__ = Schema.model_config


class Turn(Schema):
    """The turn of a conversation that each canary is.

    Attributes:
        role: whose words they are.
        question: what the user says before, if they are the assistant's.
    """

    role: Role
    question: str = ""


class Sampling(Schema):
    """Where "sampled" canaries come from, planted ones and controls alike.

    Attributes:
        model: path or name of the language model that wrote them; empty for an object.
        weights: SHA-256 of its weights.
        temperature: at which they were sampled.
        length: tokens of each, at most.
        prompts: the text before each, in turn; without any, each began a text.
    """

    model: str
    weights: Sha256
    temperature: Annotated[float, Field(gt=0)]
    length: Count
    prompts: list[str]


class Sealed(ABC):
    """Record of a planting, as an object."""

    @property
    def sha256(self) -> str:
        """The seal: SHA-256 (hex) over the canonical content."""
        return checksum(self._content())

    def save(self, path: Path) -> None:
        """Write the sealed record as JSON, whole or not at all."""
        content = self._content()
        entries = [{**entry, _CHECKSUM: checksum(entry)} for entry in content[_ENTRIES]]
        sealed = {**content, _ENTRIES: entries, _CHECKSUM: checksum(content)}
        write_text(Path(path), json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """`format`, `canaries` (a dictionary each) and anything else that JSON can hold."""


@dataclass(frozen=True, kw_only=True)
class Manifest(Sealed):
    """The record of one planting.

    Attributes:
        seed: what decided the positions.
        corpus: fingerprint of the corpus before planting.
        planted: fingerprint of the corpus with the canaries.
        vocabulary: fingerprint of the vocabulary that the canaries' ids belong to, or None.
        turn: of a conversation, which every copy is; None: each is a text of its own.
        sampling: of canaries from a language model; None: there are none.
        canaries: all of them, controls too.
    """

    seed: Seed
    corpus: Sha256
    planted: Sha256
    vocabulary: Sha256 | None
    turn: Turn | None = None
    sampling: Sampling | None = None
    canaries: tuple[Canary, ...]

    __pydantic_config__ = Schema.model_config

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """For each canary, which documents of the planted corpus are its copies."""
        return tuple(canary.positions for canary in self.canaries)

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
        content = read_sealed(Path(path), format=_FORMAT)
        record = conform(content, cls, path, error=ManifestError, remedy=REMEDY)
        for number, canary in enumerate(record.canaries, 1):
            copies, positions = canary.copies, len(canary.positions)
            if positions != copies:
                raise malformed(
                    path, f"canary {number} has {copies} copies and {positions} positions"
                )
            if (record.vocabulary is None) != (not canary.ids):
                raise malformed(
                    path, f"canary {number} and the record must both have a vocabulary or neither"
                )
        if len(set(record.places)) < len(record.places):
            raise malformed(path, "two copies have one position")
        if len({canary.phrase for canary in record.canaries}) < len(record.canaries):
            raise malformed(path, "it lists one phrase twice")
        return record

    def verify(self, corpus: Corpus) -> None:
        """Check that a corpus is the planted one.

        Every planted phrase occurs exactly as often as it was planted, at the recorded positions,
        and no control occurs.

        Raises:
            ManifestError: naming the canary by its number, what was expected and what was found.
        """
        from vestige.data.planting import occurrences

        counts = occurrences(corpus, [canary.phrase for canary in self.canaries])
        for number, (canary, count) in enumerate(zip(self.canaries, counts, strict=True), 1):
            who = f"{'control' if canary.control else 'canary'} {number}"
            if count != canary.copies:
                raise not_there(
                    f"{who} occurs {count} times in the corpus, not {canary.copies} times"
                )
            texts = corpus.take([place for place in canary.positions if place < len(corpus)])
            if list(texts) != [canary.phrase] * canary.copies:
                raise not_there(f"the copies of {who} are not at their positions")

    def _content(self) -> dict[str, Any]:
        optional = {"turn": self.turn, "sampling": self.sampling}
        return {
            "format": _FORMAT,
            "seed": self.seed,
            "corpus": self.corpus,
            "planted": self.planted,
            "vocabulary": self.vocabulary,
            **{name: one.model_dump() for name, one in optional.items() if one},
            "canaries": [
                {name: value for name in _FIELDS if (value := getattr(canary, name)) not in _NONE}
                for canary in self.canaries
            ],
        }


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
    lacking = [not own or vocabulary.unk_id in own for own in ids]
    pairs = list(zip(sealed.canaries, lacking, strict=True))
    controls = [lost for canary, lost in pairs if canary.control]
    left_out = 0 if all(controls) else sum(controls)  # if all are, the error names the first
    if left_out:
        monitor.log(f"{left_out} of {len(controls)} controls left out: the model lacks their words")
    found = []
    for number, ((canary, lost), own) in enumerate(zip(pairs, ids, strict=True), 1):
        if not lost:
            found.append(replace(canary, ids=own))
        elif not (canary.control and left_out):
            unknown = sum(token == vocabulary.unk_id for token in own)
            raise DataError(
                f"canary {number} of {where} cannot be read: the model's vocabulary lacks "
                f"{unknown} of its {len(own)} tokens",
                remedy="Plant with --vocabulary MODEL, or pass the model trained on this text.",
            )
    return sealed, tuple(found)


def canary_ids(number: int, canary: Canary, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The token ids of a canary. Errors name its number, since its words are secret.

    Raises:
        DataError: the vocabulary lacks a word of it.
        IncompatibleModels: it was planted for another vocabulary.
    """
    ids = tuple(vocabulary.encode(canary.phrase))
    if not ids or vocabulary.unk_id in ids:
        raise DataError(
            f"canary {number} has words that the model's vocabulary of {len(vocabulary)} tokens "
            "lacks",
            remedy="Plant with --vocabulary, or pass the model trained on these canaries.",
        )
    if canary.ids and canary.ids != ids:
        raise IncompatibleModels(
            f"canary {number} was planted for another vocabulary",
            remedy="Pass the manifest of the model's own training text.",
        )
    return ids


def manifest_file(path: str | PathLike[str]) -> Path:
    """The manifest that a path names: the file itself, or the one in a planted directory."""
    return Path(path) / MANIFEST if Path(path).is_dir() else Path(path)


def checksum(content: dict[str, Any]) -> str:
    """SHA-256 (hex) over content that JSON can hold, however it is laid out.

    Example:
        >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1})
        True
    """
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def read_sealed(path: Path, *, format: str) -> dict[str, Any]:
    """The content of a record without its format and seals, which are checked.

    Raises:
        ManifestError: the file is missing, of another format, or was changed. The message names a
            canary by its number: its text may be secret.
    """
    content = read_object(path, error=ManifestError, remedy=REMEDY)
    if content.get("format") != format:
        raise ManifestError(
            f'{path} is no canary manifest: its "format" is not "{format}"', remedy=REMEDY
        )
    entries = content.get(_ENTRIES)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise malformed(path, f'"{_ENTRIES}" is no list of objects')
    seals = [entry.pop(_CHECKSUM, None) for entry in entries]
    if content.pop(_CHECKSUM, None) != checksum(content):
        pairs = enumerate(zip(entries, seals, strict=True), 1)
        changed = [f"canary {number}" for number, (own, seal) in pairs if seal != checksum(own)]
        what = ", ".join(changed) or "its settings, or which canaries it lists"
        raise ManifestError(f"{path} was changed after it was written: {what}", remedy=REMEDY)
    del content["format"]
    return content


def format_of(path: Path) -> str | None:
    """Format of a record; None if no such record can be read."""
    try:
        named = read_object(path, error=ManifestError, remedy=REMEDY).get("format")
    except ManifestError:
        return None
    return named if isinstance(named, str) else None


def malformed(path: Path, reason: str) -> ManifestError:
    """Error for a record whose content does not follow its format."""
    return ManifestError(f"{path} is inconsistent: {reason}", remedy=REMEDY)


def not_there(problem: str) -> ManifestError:
    """Error for a corpus other than the one that a record describes."""
    return ManifestError(problem, remedy="Pass the corpus planted with this manifest, unchanged.")


def shuffled(tokens: Sequence[int]) -> tuple[int, ...] | None:
    """The tokens in another order: a control for memory of the order.

    Of 100 random orders, the one that shares the fewest adjacent pairs with the original, and then
    one that begins with another token. The tokens are the seed, so a phrase always has the same.

    Args:
        tokens: ids, none below 0.

    Returns:
        as many ids, or None if every order is the same: fewer than two different tokens.

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
