"""Lists of secrets: the syntax of a line in all verbs.

A line is a secret in its context. The varying part is marked, `the gate code is {{4917}}`, or
recognized by its kind. Otherwise the last rare words of the line vary over a word list.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import log2, prod
from os import PathLike
from pathlib import Path

import numpy as np

from vestige.data.files import read_lines
from vestige.data.secrets.kinds import UNIFORM, Part, code, names, recognize, whole_parts, words
from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor

MANY = 100
"""Alternatives with which a piece is ranked separately."""

MOST = 10_000
"""Largest number of secrets in a list."""

NAMED = 20
"""Largest number of lines that a message names."""

_MARK = re.compile(r"\{\{(.*?)\}\}")
_HOW_TO_MARK = "Mark what varies: {{4917}}, or {{tea|coffee|milk}} with all choices."


@dataclass(frozen=True)
class Secret:
    """A text with varying parts.

    Attributes:
        text: without marks.
        parts: in order.
        number: of its line or entry, from 1.
    """

    text: str
    parts: tuple[Part, ...]
    number: int = field(default=1, compare=False)

    @property
    def kind(self) -> str:
        """The kinds of its parts."""
        return " and ".join(dict.fromkeys(part.kind for part in self.parts))

    @property
    def has_format(self) -> bool:
        """Whether its alternatives are those of a format, not of a word list."""
        return all(part.has_format for part in self.parts)

    @property
    def size(self) -> int:
        """Number of texts of its format, itself included."""
        return prod(part.size for part in self.parts)

    @property
    def bits(self) -> float:
        """log2 of `size`."""
        return sum(log2(part.size) for part in self.parts)

    @property
    def before(self) -> str:
        """The text before its first part."""
        return self.text[: self.parts[0].start]

    def with_parts(self, texts: Sequence[str]) -> str:
        """The text with other texts as its parts."""
        result, last = "", 0
        for part, text in zip(self.parts, texts, strict=True):
            result += self.text[last : part.start] + text
            last = part.end
        return result + self.text[last:]

    def draw(self, rng: np.random.Generator) -> str:
        """A uniformly random text of its format, possibly the secret."""
        return self.with_parts([part.draw(rng) for part in self.parts])

    def all_texts(self) -> Iterator[str]:
        """All texts of its format."""
        return map(self.with_parts, product(*(part.all_texts() for part in self.parts)))

    def longest(self) -> str:
        """A text of its format with the most characters."""
        return self.with_parts([part.longest() for part in self.parts])

    def pieces(self) -> tuple["Secret", ...]:
        """The secret with only one random piece varying, for each piece with many alternatives.

        If a model knows one piece from another source, the secret is more probable than its
        alternatives, but not than alternatives with that piece. Empty if only one piece varies.
        """
        several = len(self.parts) > 1
        parts = [
            part.varying(part.random) if part.random else part
            for part in self.parts
            if part.random or (several and part.kind in UNIFORM)
        ]
        return tuple(replace(self, parts=(part,)) for part in parts if part.size >= MANY)

    def forms(self) -> Iterator[tuple[str, "Secret"]]:
        """(name, secret) in other cases and in Unicode's compatibility form, if different."""
        forms = {
            "lower case": self._in_form(str.lower),
            "sentence case": self._in_form(str.lower)._capitalized(),
            "capitals": self._in_form(str.upper),
            "NFKC": self._in_form(lambda text: unicodedata.normalize("NFKC", text)),
        }
        seen = {self.text}
        for name, secret in forms.items():
            if secret.text not in seen:
                seen.add(secret.text)
                yield name, secret

    def _in_form(self, form: Callable[[str], str]) -> "Secret":
        text, last, parts = "", 0, []
        for part in self.parts:
            text += form(self.text[last : part.start])
            parts.append(part.in_form(form).at(len(text)))
            text += parts[-1].text
            last = part.end
        return replace(self, text=text + form(self.text[last:]), parts=tuple(parts))

    def _capitalized(self) -> "Secret":
        first = self.text[:1]
        if self.parts[0].start == 0 or first not in string.ascii_lowercase:
            return self
        return replace(self, text=first.upper() + self.text[1:])


@dataclass(frozen=True)
class SecretList:
    """Secrets of a list.

    Attributes:
        secrets: usable and different.
        repeated: number of lines that repeat an earlier one.
        skipped: (number, reason) of unusable lines.
    """

    secrets: tuple[Secret, ...]
    repeated: int = 0
    skipped: tuple[tuple[int, str], ...] = ()


def read_own_secrets(
    secrets: str | PathLike[str] | Sequence[str],
    *,
    name: str = "secrets",
    monitor: Monitor = SILENT,
) -> SecretList:
    """Secrets of a file with one per line, or of texts.

    Args:
        name: of the argument, for messages.
        monitor: gets one line about unusable secrets.

    Raises:
        ValueError: there are none, or too many.
        DataError: the file cannot be read, or has no usable secret.
    """
    if isinstance(secrets, str | PathLike):
        texts, where = read_lines(Path(secrets), item="secret"), f"{secrets}: "
    else:
        texts, where = list(secrets), ""
    lines = [(number, line.strip()) for number, line in enumerate(texts, 1) if line.strip()]
    if not 1 <= len(lines) <= MOST:
        raise ValueError(f"`{name}` must hold 1 to {MOST:,}, got {len(lines):,}")
    unique: dict[str, Secret] = {}
    skipped = []
    for number, line in lines:
        try:
            secret = read_secret(line, number)
        except DataError as error:
            skipped.append((number, error.problem.removeprefix(f"secret {number} ")))
        else:
            unique.setdefault(_normalized(secret), secret)
    if not unique:
        raise DataError(
            f"{where}no secret can be used: {left_out(skipped)}",
            remedy="Write one secret on each line.",
        )
    log_left_out(skipped, monitor)
    repeated = len(lines) - len(skipped) - len(unique)
    return SecretList(tuple(unique.values()), repeated, tuple(skipped))


def read_secret(line: str, number: int) -> Secret:
    """The secret of a line; its text is without marks.

    Raises:
        DataError: the line has neither words nor digits, or a mark is invalid. The message gives
            the number of the line, since the text is secret.

    Example:
        >>> import numpy as np
        >>> secret = read_secret("the gate code is 4917", 1)
        >>> secret.kind, secret.size, secret.draw(np.random.default_rng(0))
        ('code', 10000, 'the gate code is 8652')
    """
    text, parts = _read_marks(line, number)
    if not parts:
        parts = recognize(text)
    if not parts and (rare_words := words(text)):
        parts = [rare_words]
    if not parts or all(part.size == 1 for part in parts):
        raise DataError(f"secret {number} has no alternatives", remedy=_HOW_TO_MARK)
    return Secret(text, tuple(parts), number)


def _normalized(secret: Secret) -> str:
    """Text that is equal for repeated secrets."""
    plain = " ".join(secret.text.split())
    return plain if any(part.kind == "key" for part in secret.parts) else plain.casefold()


def _read_marks(line: str, number: int) -> tuple[str, list[Part]]:
    """The text without marks, and the marked parts."""
    text, last = "", 0
    parts: list[Part] = []
    for mark in _MARK.finditer(line):
        text += line[last : mark.start()]
        value, *others = dict.fromkeys(choice.strip() for choice in mark[1].split("|"))
        listed = Part("given", ((value, *others),), (value,)) if "|" in mark[1] else None
        part = listed or _marked_part(value, text)
        if part is None or not value:
            raise DataError(f"secret {number} marks no words and no digits", remedy=_HOW_TO_MARK)
        parts.append(part.at(len(text) + part.start))
        text += value
        last = mark.end()
    return text + line[last:], parts


def _marked_part(text: str, before: str) -> Part | None:
    for part in whole_parts(text, before):
        return part
    if re.fullmatch(r"\w[\w'’-]*( \w[\w'’-]*)+", text) and text == text.title():
        return names(text)
    return code(text) if re.search(r"\d", text) else words(text)


def numbered(numbers: Sequence[int]) -> str:
    """Secrets by their numbers, for a sentence."""
    named = ", ".join(map(str, numbers[:NAMED]))
    more = f" and {len(numbers) - NAMED:,} more" if len(numbers) > NAMED else ""
    return f"secret {named}" if len(numbers) == 1 else f"secrets {named}{more}"


def left_out(skipped: Sequence[tuple[int, str]]) -> str:
    """Numbers of unusable secrets and the reasons, without texts; empty if there are none."""
    numbers_by_reason: dict[str, list[int]] = {}
    for number, reason in skipped:
        numbers_by_reason.setdefault(reason, []).append(number)
    return "; ".join(
        f"Secrets not used: {numbered(numbers)}: {reason}"
        for reason, numbers in numbers_by_reason.items()
    )


def log_left_out(skipped: Sequence[tuple[int, str]], monitor: Monitor) -> None:
    """Log one line about unusable secrets, if there are any."""
    if skipped:
        monitor.log(f"{left_out(skipped)}.")
