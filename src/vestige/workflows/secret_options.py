"""Secret patterns and candidate words as options give them; shared by `plant` and `extract-nlu`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.workflows.canary_plan import CONTROLS, COPIES, check_counts
from vestige.workflows.inputs import read_lines

if TYPE_CHECKING:
    from vestige.data.secret_canaries import SecretCanary

Candidates = Sequence[str] | Mapping[str, Sequence[str]]
"""Candidate words by name, or entries such as "name=ann,bob" and "name=@file"."""


def planned_secrets(
    patterns: Sequence[str],
    *,
    intents: Sequence[str] = (),
    slot: str | None = None,
    candidates: Candidates = (),
    copies: int | None = None,
    controls: int | None = None,
    number: int | None = None,
    seed: int,
) -> "list[SecretCanary]":
    """Canaries of labelled utterances, pattern by pattern, with their controls."""
    from vestige.data.secret_canaries import secret_canaries

    check_counts(copies=copies, controls=controls, number=number)
    pairs = with_intents(patterns, intents)
    sets = candidate_sets(candidates)
    require_used(sets, [text for text, _ in pairs], by="a `pattern`")
    return [
        canary
        for text, intent in pairs
        for canary in secret_canaries(
            text,
            intent=intent,
            slot="canary" if slot is None else slot,
            candidates=sets,
            copies=copies or COPIES,
            number=number or 1,
            controls=controls or CONTROLS,
            seed=seed,
        )
    ]


def with_intents(patterns: Sequence[str], intents: Sequence[str]) -> list[tuple[str, str]]:
    """Each pattern's text with its intent.

    Raises:
        ValueError: there is no pattern, an intent too few or too many, or a shorthand is unknown.

    Example:
        >>> with_intents(["pin:2", "call {digit:3}"], ["Call"])
        [('my pin code is {digit:2}', 'PinIntent'), ('call {digit:3}', 'Call')]
    """
    from vestige.data.secret_pattern import paper_pattern

    if not patterns:
        raise ValueError("`pattern` must be given with `task` nlu, such as `pattern` pin:4")
    own = [pattern for pattern in patterns if "{" in pattern]
    if len(intents) not in (len(own), len(patterns)):
        raise ValueError(
            f"`intent` must be given once for each `pattern` that is text of your own "
            f"({len(own)}), got {len(intents)}"
        )
    rest = iter(intents)
    named_all = len(intents) == len(patterns)
    pairs = []
    for pattern in patterns:
        if "{" in pattern:
            pairs.append((pattern, next(rest)))
        else:
            text, intent = paper_pattern(pattern)
            pairs.append((text, next(rest) if named_all else intent))
    return pairs


def candidate_sets(given: Candidates) -> dict[str, tuple[str, ...]]:
    """Sets of candidate words by name.

    Raises:
        ValueError: an entry is not written name=word,word or name=@file, or a name comes twice.
        DataError: a file is no text.

    Example:
        >>> candidate_sets(["name=ann,bob"])
        {'name': ('ann', 'bob')}
    """
    if isinstance(given, Mapping):
        return {name: tuple(words) for name, words in given.items()}
    sets: dict[str, tuple[str, ...]] = {}
    for number, one in enumerate(given, 1):
        name, separator, words = one.partition("=")
        if not (name and separator and words):
            raise ValueError(
                f"`candidates` must be name=word,word or name=@file, number {number} is not"
            )
        if name in sets:
            raise ValueError(f"`candidates` must name each set once, got {name!r} twice")
        sets[name] = _listed(Path(words[1:])) if words[0] == "@" else tuple(words.split(","))
    return sets


def require_used(sets: Mapping[str, object], texts: Sequence[str], *, by: str) -> None:
    """Raise ValueError where no pattern names a set of candidates."""
    from vestige.data.secret_pattern import named_sets

    if unused := set(sets).difference(*map(named_sets, texts)):
        raise ValueError(
            f"`candidates` must be named by {by}, got {min(unused)!r}, which none names"
        )


def _listed(file: Path) -> tuple[str, ...]:
    return tuple(word for line in read_lines(file, one="word") for word in line.split())
