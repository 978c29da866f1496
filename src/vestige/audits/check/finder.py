"""Which secrets do texts contain?

Values with a format (`vestige.data.secrets.spans`) and word sequences that three texts repeat
(`repeated`). Dates and names are never secrets by themselves.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from vestige.audits.check.repeated import LEAST_WORDS, WORD, repeated_sequences
from vestige.data.secrets.alternatives import FoundSecret
from vestige.data.secrets.spans import Span, require_libraries, spans

RISK = {
    **{"key": 10, "card": 9, "iban": 9, "ssn": 9, "password": 8, "account": 7, "phone": 6},
    **{"repeated": 5, "e-mail": 4, "code": 3},
}
"""Kinds of secrets with their risk. Where two overlap, the riskier one counts."""

CONTEXT = 300  # characters of the text before a value that its place holds at most


def find_secrets(texts: Sequence[str], never: Sequence[str] = ()) -> list[FoundSecret]:
    """Secrets in texts, the riskiest first, then those of most texts.

    Values that also occur in the texts of `never` are left out.

    Raises:
        DataError: an optional library is not installed.

    Example:
        >>> found = find_secrets(["The password is hunter2.", "Write to kim@example.org!"])
        >>> [(one.value, one.kind, one.places) for one in found]
        [('hunter2', 'password', ((0, 'The password is '),)), \
('kim@example.org', 'e-mail', ((1, 'Write to '),))]
    """
    require_libraries()
    repeated: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for number, start, end in (
        place for places in repeated_sequences(texts, never) for place in places
    ):
        repeated[number].add((start, end))
    kinds: dict[str, str] = {}
    found: dict[str, dict[int, int]] = {}
    spelled: dict[tuple[str, ...], str] = {}
    unsure: set[str] = set()  # a whole sequence is known to be in no text of `never`
    for number, text in enumerate(texts):
        for start, end, kind in _merged(text, spans(text), repeated.get(number, ())):
            value = text[start:end]
            if kind == "repeated":  # the first spelling stands for all
                value = spelled.setdefault(_folded(value), value)
            if kind != "repeated" or (start, end) not in repeated[number]:
                unsure.add(value)
            kinds[value] = max(kinds.get(value, kind), kind, key=RISK.__getitem__)
            places = found.setdefault(value, {})
            places[number] = min(start, places.get(number, start))
    public = _occurring(unsure, never)

    def order(value: str) -> tuple[int, int, list[int], str]:
        return -RISK[kinds[value]], -len(found[value]), [*found[value]], value

    return [
        FoundSecret(value, kinds[value], tuple(
            (number, texts[number][max(0, start - CONTEXT) : start])
            for number, start in found[value].items()
        ))
        for value in sorted(found.keys() - public, key=order)
    ]  # fmt: skip


def _folded(text: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in WORD.findall(text))


def _merged(
    text: str, values: Iterable[Span], repeated: Collection[tuple[int, int]]
) -> Iterator[Span]:
    """Spans that do not overlap riskier ones, nor longer ones of equal risk.

    A repeated sequence loses the riskier values in it; what is left on either side is one if it
    has enough words.
    """
    taken = bytearray(len(text))

    def free(ranked: Iterable[Span]) -> Iterator[Span]:
        for start, end, kind in ranked:
            if taken.find(1, start, end) < 0:
                taken[start:end] = b"\1" * (end - start)
                yield start, end, kind

    ranked = sorted(values, key=lambda span: (-RISK[span[2]], span[0] - span[1], span[0]))
    yield from free([span for span in ranked if RISK[span[2]] >= RISK["repeated"]])
    pieces = [
        (inside[0].start(), inside[-1].end(), "repeated")
        for start, end in sorted(repeated)
        for piece in re.finditer(rb"\0+", taken[start:end])
        for inside in [[*WORD.finditer(text, start + piece.start(), start + piece.end())]]
        if len(inside) >= LEAST_WORDS
    ]
    yield from pieces
    for start, end, _ in pieces:
        taken[start:end] = b"\1" * (end - start)
    yield from free([span for span in ranked if RISK[span[2]] < RISK["repeated"]])


def _occurring(values: Iterable[str], texts: Sequence[str]) -> set[str]:
    """Values whose words follow each other in one of the texts, in any case."""
    sought: dict[str, dict[int, dict[tuple[str, ...], list[str]]]] = {}
    for value in values:
        if words := _folded(value):
            by_length = sought.setdefault(words[0], {}).setdefault(len(words), {})
            by_length.setdefault(words, []).append(value)
    found: set[str] = set()
    for text in texts if sought else ():
        read = _folded(text)
        for at, word in enumerate(read):
            for length, known in sought.get(word, {}).items():
                found.update(known.get(read[at : at + length], ()))
    return found
