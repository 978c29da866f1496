"""Secret patterns, their intents and candidate words, as `plant` and `extract` take them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from vestige.data.files import read_lines
from vestige.data.secret_pattern import named_sets, paper_pattern

Candidates = Sequence[str] | Mapping[str, Sequence[str]]
"""Candidate words by name, or entries such as "name=ann,bob" and "name=@file"."""


def with_intents(patterns: Sequence[str], intents: Sequence[str]) -> list[tuple[str, str]]:
    """Each pattern's text with its intent.

    Args:
        patterns: texts with unknown words, or shorthands of a paper such as "pin:4".
        intents: one for each text, or one for each pattern.

    Raises:
        ValueError: there is no pattern, the number of intents is wrong, or a shorthand is unknown.

    Example:
        >>> with_intents(["pin:2", "call {digit:3}"], ["Call"])
        [('my pin code is {digit:2}', 'PinIntent'), ('call {digit:3}', 'Call')]
    """
    if not patterns:
        raise ValueError("`pattern` must be given for utterances, for example `pattern` pin:4")
    own = [pattern for pattern in patterns if "{" in pattern]
    if len(intents) not in (len(own), len(patterns)):
        raise ValueError(
            f"`intent` must be given once for each `pattern` that is a text of yours "
            f"({len(own)}), got {len(intents)}"
        )
    rest = iter(intents)
    every = len(intents) == len(patterns)
    pairs = []
    for pattern in patterns:
        if "{" in pattern:
            pairs.append((pattern, next(rest)))
        else:
            text, intent = paper_pattern(pattern)
            pairs.append((text, next(rest) if every else intent))
    return pairs


def candidate_sets(given: Candidates) -> dict[str, tuple[str, ...]]:
    """Sets of candidate words by name.

    Raises:
        ValueError: an entry is not written name=word,word or name=@file, or a name comes twice.
        DataError: a file cannot be read.

    Example:
        >>> candidate_sets(["name=ann,bob"])
        {'name': ('ann', 'bob')}
    """
    if isinstance(given, Mapping):
        return {name: tuple(words) for name, words in given.items()}
    sets: dict[str, tuple[str, ...]] = {}
    for number, entry in enumerate(given, 1):
        name, _, words = entry.partition("=")
        if not (name and words):
            raise ValueError(
                f"`candidates` must be name=word,word or name=@file; number {number} is not"
            )
        if name in sets:
            raise ValueError(f"`candidates` must name each set once, got {name!r} twice")
        sets[name] = _listed(Path(words[1:])) if words[0] == "@" else tuple(words.split(","))
    return sets


def require_used(sets: Mapping[str, object], texts: Sequence[str], *, by: str) -> None:
    """Raise ValueError for a set of candidates that no pattern names."""
    if unused := set(sets).difference(*map(named_sets, texts)):
        raise ValueError(
            f"`candidates` must be named by {by}, got {min(unused)!r}, which none names"
        )


def _listed(file: Path) -> tuple[str, ...]:
    return tuple(word for line in read_lines(file, one="word") for word in line.split())
