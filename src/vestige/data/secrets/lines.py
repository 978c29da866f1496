"""Lines of secrets: the one syntax of all verbs.

A line is a secret with the words around it. What varies is marked, `the gate code is {{4917}}`, or
recognized by its kind, or else the last rare words of the line, for which words of a list stand.
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
from vestige.data.secrets.kinds import UNIFORM, Part, code, names, of_whole, recognized, words
from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor

MANY = 100
"""Alternatives of a piece from which on it is ranked alone."""

MOST = 10_000
"""Secrets of a list."""

NAMED = 20
"""Numbers of lines that a message names."""

_MARK = re.compile(r"\{\{(.*?)\}\}")
_HOW_TO_MARK = "Mark what varies: {{4917}}, or {{tea|coffee|milk}} with all choices."


@dataclass(frozen=True)
class Secret:
    """A text with parts that vary.

    Attributes:
        text: without marks.
        parts: in their order.
        number: of its line or entry, from 1.
    """

    text: str
    parts: tuple[Part, ...]
    number: int = field(default=1, compare=False)

    @property
    def kind(self) -> str:
        """Kinds of its parts."""
        return " and ".join(dict.fromkeys(part.kind for part in self.parts))

    @property
    def drawn(self) -> bool:
        """Whether its alternatives are those of a format, and not only words of a list."""
        return all(part.drawn for part in self.parts)

    @property
    def size(self) -> int:
        """How many texts its format has, itself included."""
        return prod(part.size for part in self.parts)

    @property
    def bits(self) -> float:
        """log2 of `size`."""
        return sum(log2(part.size) for part in self.parts)

    @property
    def before(self) -> str:
        """The text before its first part."""
        return self.text[: self.parts[0].start]

    def having(self, chosen: Sequence[str]) -> str:
        """The text with other parts."""
        said, last = "", 0
        for part, text in zip(self.parts, chosen, strict=True):
            said += self.text[last : part.start] + text
            last = part.end
        return said + self.text[last:]

    def draw(self, generator: np.random.Generator) -> str:
        """A text of its format, uniformly; perhaps this one."""
        return self.having([part.draw(generator) for part in self.parts])

    def every(self) -> Iterator[str]:
        """All texts of its format, once each."""
        return map(self.having, product(*(part.every() for part in self.parts)))

    def longest(self) -> str:
        """A text of its format with the most characters."""
        return self.having([part.longest() for part in self.parts])

    def pieces(self) -> tuple["Secret", ...]:
        """The secret with one random piece varying, for each of many alternatives.

        A piece known from elsewhere makes the whole more probable than its alternatives, and no
        more probable than those that share it. None where all that varies is one piece.
        """
        several = len(self.parts) > 1
        found = [
            part.alone(part.random) if part.random else part
            for part in self.parts
            if part.random or (several and part.kind in UNIFORM)
        ]
        return tuple(replace(self, parts=(part,)) for part in found if part.size >= MANY)

    def forms(self) -> Iterator[tuple[str, "Secret"]]:
        """The secret in other cases and in Unicode's compatibility form, by name."""
        made = {
            "lower case": self._written(str.lower),
            "sentence case": self._written(str.lower)._capitalized(),
            "capitals": self._written(str.upper),
            "NFKC": self._written(lambda text: unicodedata.normalize("NFKC", text)),
        }
        seen = {self.text}
        for name, secret in made.items():
            if secret.text not in seen:
                seen.add(secret.text)
                yield name, secret

    def _written(self, form: Callable[[str], str]) -> "Secret":
        text, last, parts = "", 0, []
        for part in self.parts:
            text += form(self.text[last : part.start])
            parts.append(part.written(form).at(len(text)))
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
        secrets: those that can be used, each once.
        repeated: lines that repeat an earlier one.
        skipped: numbers of lines that cannot be used, with the reason.
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
        monitor: gets one line about secrets that were left out.

    Raises:
        ValueError: there are none, or too many.
        DataError: the file cannot be read, or no secret in it can be used.
    """
    if isinstance(secrets, str | PathLike):
        every, where = read_lines(Path(secrets), one="secret"), f"{secrets}: "
    else:
        every, where = list(secrets), ""
    lines = [(number, line.strip()) for number, line in enumerate(every, 1) if line.strip()]
    if not 1 <= len(lines) <= MOST:
        raise ValueError(f"`{name}` must hold 1 to {MOST:,}, got {len(lines):,}")
    found: dict[str, Secret] = {}
    skipped = []
    for number, line in lines:
        try:
            secret = read_secret(line, number)
        except DataError as error:
            skipped.append((number, error.problem.removeprefix(f"secret {number} ")))
        else:
            found.setdefault(_same(secret), secret)
    if not found:
        raise DataError(
            f"{where}no secret can be used: {left_out(skipped)}",
            remedy="Write one secret on each line.",
        )
    log_left_out(skipped, monitor)
    repeated = len(lines) - len(skipped) - len(found)
    return SecretList(tuple(found.values()), repeated, tuple(skipped))


def read_secret(line: str, number: int) -> Secret:
    """A line as a secret; its marks are left out of the text.

    Raises:
        DataError: it has neither words nor digits, or a mark makes no sense. The message has the
            number of the line: the text is secret.

    Example:
        >>> import numpy as np
        >>> secret = read_secret("the gate code is 4917", 1)
        >>> secret.kind, secret.size, secret.draw(np.random.default_rng(0))
        ('code', 10000, 'the gate code is 8652')
    """
    text, parts = _marked(line, number)
    if not parts:
        parts = recognized(text)
    if not parts and (rest := words(text)):
        parts = [rest]
    if not parts or all(part.size == 1 for part in parts):
        raise DataError(f"secret {number} has no alternatives", remedy=_HOW_TO_MARK)
    return Secret(text, tuple(parts), number)


def _same(secret: Secret) -> str:
    plain = " ".join(secret.text.split())
    return plain if any(part.kind == "key" for part in secret.parts) else plain.casefold()


def _marked(line: str, number: int) -> tuple[str, list[Part]]:
    text, last = "", 0
    parts: list[Part] = []
    for mark in _MARK.finditer(line):
        text += line[last : mark.start()]
        own, *others = dict.fromkeys(choice.strip() for choice in mark[1].split("|"))
        listed = Part("given", ((own, *others),), (own,)) if "|" in mark[1] else None
        part = listed or _as_marked(own, text)
        if part is None or not own:
            raise DataError(f"secret {number} marks no words and no digits", remedy=_HOW_TO_MARK)
        parts.append(part.at(len(text) + part.start))
        text += own
        last = mark.end()
    return text + line[last:], parts


def _as_marked(own: str, before: str) -> Part | None:
    for part in of_whole(own, before):
        return part
    if re.fullmatch(r"\w[\w'’-]*( \w[\w'’-]*)+", own) and own == own.title():
        return names(own)
    return code(own) if re.search(r"\d", own) else words(own)


def numbered(numbers: Sequence[int]) -> str:
    """Secrets by their numbers, for a sentence."""
    named = ", ".join(map(str, numbers[:NAMED]))
    more = f" and {len(numbers) - NAMED:,} more" if len(numbers) > NAMED else ""
    return f"secret {named}" if len(numbers) == 1 else f"secrets {named}{more}"


def left_out(skipped: Sequence[tuple[int, str]]) -> str:
    """Which secrets were left out and why, without their text; empty if none was."""
    reasons: dict[str, list[int]] = {}
    for number, reason in skipped:
        reasons.setdefault(reason, []).append(number)
    return "; ".join(f"Secrets not used: {numbered(own)}: {why}" for why, own in reasons.items())


def log_left_out(skipped: Sequence[tuple[int, str]], monitor: Monitor) -> None:
    """One line about secrets that were left out, if any."""
    if skipped:
        monitor.log(f"{left_out(skipped)}.")
