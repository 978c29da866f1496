"""Which secrets do texts contain?

Values with a format (`formats`) and word sequences that three texts repeat (`repeated`). Dates and
names are never secrets by themselves.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vestige.audits.check.formats import Formats, Span
from vestige.audits.check.repeated import LEAST_WORDS, WORD, repeated_sequences

RISK = {
    **{"key": 10, "card": 9, "iban": 9, "ssn": 9, "password": 8, "account": 7, "phone": 6},
    **{"repeated": 5, "e-mail": 4, "code": 3},
}
"""Kinds of secrets with their risk. Where two overlap, the riskier one counts."""

CONTEXT = 300
"""Characters of the text before a value that its place holds at most."""


@dataclass(frozen=True)
class FoundSecret:
    """A value that nobody should be able to extract from a model.

    Attributes:
        value: the secret itself.
        kind: one of `RISK`, or "listed".
        places: for each text that contains it, the number of the text, from 0, and at most 300
            characters of the text before its first occurrence.
    """

    value: str
    kind: str
    places: tuple[tuple[int, str], ...]


def find_secrets(
    texts: Sequence[str], never: Sequence[str] = (), *, most: int | None = None
) -> list[FoundSecret]:
    """Secrets in texts, the riskiest first.

    Args:
        texts: n texts.
        never: values that also occur in these texts are left out.
        most: return at most so many.

    Returns:
        One entry for each value, by the risk of its kind, then by the number of its texts.

    Raises:
        DataError: an optional library is not installed.

    Example:
        >>> found = find_secrets(["The password is hunter2.", "Write to kim@example.org!"])
        >>> [(one.value, one.kind, one.places) for one in found]
        [('hunter2', 'password', ((0, 'The password is '),)), \
('kim@example.org', 'e-mail', ((1, 'Write to '),))]
    """
    formats = Formats()
    repeated: dict[int, set[tuple[int, int]]] = {}
    for places in repeated_sequences(texts, never):
        for number, start, end in places:
            repeated.setdefault(number, set()).add((start, end))
    kinds: dict[str, str] = {}
    found: dict[str, dict[int, int]] = {}
    spelled: dict[tuple[str, ...], str] = {}
    pieces: set[str] = set()  # of sequences; the rest is known to be in no text of `never`
    for number, text in enumerate(texts):
        for start, end, kind in _merged(text, formats.spans(text), repeated.get(number, ())):
            value = text[start:end]
            if kind == "repeated":  # the first spelling stands for all
                words = tuple(word.casefold() for word in WORD.findall(value))
                value = spelled.setdefault(words, value)
                if (start, end) not in repeated[number]:
                    pieces.add(value)
            kinds[value] = max(kinds.get(value, kind), kind, key=RISK.__getitem__)
            places_ = found.setdefault(value, {})
            places_[number] = min(start, places_.get(number, start))
    unsure = [value for value in found if kinds[value] != "repeated" or value in pieces]
    public = _occurring(unsure, never)
    secrets = [
        FoundSecret(value, kinds[value], tuple(_places(places, texts)))
        for value, places in sorted(
            found.items(), key=lambda one: (-RISK[kinds[one[0]]], -len(one[1]), [*one[1]], one[0])
        )[: None if most is None or public else most]
        if value not in public
    ]
    return secrets[:most]


def _places(places: dict[int, int], texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    return (
        (number, texts[number][max(0, start - CONTEXT) : start]) for number, start in places.items()
    )


def _merged(
    text: str, spans: Iterable[Span], repeated: Iterable[tuple[int, int]]
) -> Iterator[Span]:
    """Spans that do not overlap riskier ones, nor longer ones of equal risk.

    A repeated sequence loses the riskier values in it; what is left on either side is one if it
    has enough words.
    """
    taken = bytearray(len(text))
    ranked = sorted(spans, key=lambda span: (-RISK[span[2]], span[0] - span[1], span[0]))
    lesser = next(
        (n for n, span in enumerate(ranked) if RISK[span[2]] < RISK["repeated"]), len(ranked)
    )
    yield from _free(taken, ranked[:lesser])
    pieces = []
    for start, end in sorted(repeated):
        for piece in re.finditer(rb"\0+", taken[start:end]):
            inside = [word.span() for word in WORD.finditer(text, *_moved(piece.span(), start))]
            if len(inside) >= LEAST_WORDS:
                pieces.append((inside[0][0], inside[-1][1], "repeated"))
    yield from pieces
    for start, end, _ in pieces:
        taken[start:end] = b"\1" * (end - start)
    yield from _free(taken, ranked[lesser:])


def _free(taken: bytearray, spans: Iterable[Span]) -> Iterator[Span]:
    for start, end, kind in spans:
        if taken.find(1, start, end) < 0:
            taken[start:end] = b"\1" * (end - start)
            yield start, end, kind


def _moved(span: tuple[int, int], by: int) -> tuple[int, int]:
    return span[0] + by, span[1] + by


def _occurring(values: Iterable[str], texts: Sequence[str]) -> set[str]:
    """Values whose words follow each other in one of the texts, in any case."""
    sought: dict[str, dict[int, dict[tuple[str, ...], list[str]]]] = {}
    for value in values:
        if words := tuple(word.casefold() for word in WORD.findall(value)):
            by_length = sought.setdefault(words[0], {}).setdefault(len(words), {})
            by_length.setdefault(words, []).append(value)
    found: set[str] = set()
    for text in texts if sought else ():
        words_ = [word.casefold() for word in WORD.findall(text)]
        for at, word in enumerate(words_):
            for length, known in sought.get(word, {}).items():
                found.update(known.get(tuple(words_[at : at + length]), ()))
    return found
