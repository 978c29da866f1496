"""Which secrets do texts contain?

Values with a known format (`vestige.data.secrets.spans`), and word sequences that occur in three
texts (`repeated`). Dates and names alone are no secrets.
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
"""Kinds of secrets with their risk. Of two that overlap, the riskier one counts."""

CONTEXT = 300  # most characters of the text before a value


def find_secrets(texts: Sequence[str], never: Sequence[str] = ()) -> list[FoundSecret]:
    """Secrets in texts, by risk and then by the number of texts.

    Values that also occur in the texts of `never` are excluded.

    Raises:
        DataError: an optional library is not installed.

    Example:
        >>> found = find_secrets(["The password is hunter2.", "Write to kim@example.org!"])
        >>> [(secret.value, secret.kind, secret.occurrences) for secret in found]
        [('hunter2', 'password', ((0, 'The password is '),)), \
('kim@example.org', 'e-mail', ((1, 'Write to '),))]
    """
    require_libraries()
    repeated: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for occurrences in repeated_sequences(texts, never):
        for number, start, end in occurrences:
            repeated[number].add((start, end))
    kinds: dict[str, str] = {}
    starts: dict[str, dict[int, int]] = {}  # by value: first character in each text
    spellings: dict[tuple[str, ...], str] = {}
    candidates: set[str] = set()  # may occur in `never`; a complete sequence does not
    for number, text in enumerate(texts):
        for start, end, kind in _merged(text, spans(text), repeated.get(number, ())):
            value = text[start:end]
            if kind == "repeated":
                value = spellings.setdefault(_folded(value), value)
            if kind != "repeated" or (start, end) not in repeated[number]:
                candidates.add(value)
            kinds[value] = max(kinds.get(value, kind), kind, key=RISK.__getitem__)
            of_value = starts.setdefault(value, {})
            of_value[number] = min(start, of_value.get(number, start))
    public = _occurring(candidates, never)

    def order(value: str) -> tuple[int, int, list[int], str]:
        return -RISK[kinds[value]], -len(starts[value]), [*starts[value]], value

    return [
        FoundSecret(value, kinds[value], tuple(
            (number, texts[number][max(0, start - CONTEXT) : start])
            for number, start in starts[value].items()
        ))
        for value in sorted(starts.keys() - public, key=order)
    ]  # fmt: skip


def _folded(text: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in WORD.findall(text))


def _merged(
    text: str, values: Iterable[Span], repeated: Collection[tuple[int, int]]
) -> Iterator[Span]:
    """Spans that overlap no riskier span, and no longer span of equal risk.

    A repeated sequence is cut at the riskier values in it; a piece of it counts if it has enough
    words.
    """
    covered = bytearray(len(text))

    def uncovered(ranked: Iterable[Span]) -> Iterator[Span]:
        for start, end, kind in ranked:
            if covered.find(1, start, end) < 0:
                covered[start:end] = b"\1" * (end - start)
                yield start, end, kind

    ranked = sorted(values, key=lambda span: (-RISK[span[2]], span[0] - span[1], span[0]))
    yield from uncovered([span for span in ranked if RISK[span[2]] >= RISK["repeated"]])
    pieces = []
    for start, end in sorted(repeated):
        for gap in re.finditer(rb"\0+", covered[start:end]):
            words = [*WORD.finditer(text, start + gap.start(), start + gap.end())]
            if len(words) >= LEAST_WORDS:
                pieces.append((words[0].start(), words[-1].end(), "repeated"))
    yield from pieces
    for start, end, _ in pieces:
        covered[start:end] = b"\1" * (end - start)
    yield from uncovered([span for span in ranked if RISK[span[2]] < RISK["repeated"]])


def _occurring(values: Iterable[str], texts: Sequence[str]) -> set[str]:
    """Values whose sequence of words occurs in a text, in any case."""
    by_first_word: dict[str, dict[int, dict[tuple[str, ...], list[str]]]] = {}
    for value in values:
        if words := _folded(value):
            by_length = by_first_word.setdefault(words[0], {}).setdefault(len(words), {})
            by_length.setdefault(words, []).append(value)
    result: set[str] = set()
    for text in texts if by_first_word else ():
        words = _folded(text)
        for position, word in enumerate(words):
            for length, by_words in by_first_word.get(word, {}).items():
                result.update(by_words.get(words[position : position + length], ()))
    return result
