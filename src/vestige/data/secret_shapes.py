"""Secrets with the texts of their format: what varies in a line, and its pieces.

A secret that was drawn uniformly from its format is as probable as any other text of it under a
model that never read it. A model may have read a piece elsewhere: a name, a handle, a domain. So a
secret says which of its pieces are random by themselves, and in which it can be recombined with
pieces that the model knows.
"""

import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import log2, prod

import numpy as np

MANY = 100
"""Alternatives of a piece from which on it is ranked alone."""

UNIFORM = frozenset({"code", "phone", "card", "iban", "key"})
"""Kinds of random characters, each as frequent as another."""

IDENTIFIERS = UNIFORM - {"code"}
"""Kinds that are secret in any context. A code, a name or a date is one only in its own."""

CASED = frozenset({"e-mail", "date", "name", "words", "given"})
"""Kinds that keep their meaning in another case."""

Slots = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    """What varies in a secret.

    Attributes:
        start: its first character in the text.
        end: the character after its last.
        kind: "code", "phone", "card", "iban", "e-mail", "key", "date", "name", "given" or "words".
        slots: choices for each position, in order.
        own: what the secret has there.
        random: slots of random characters beside others, such as the digits of an address.
        mend: puts right check digits into a text.
        drawn: the choices are those of a format. Words of a list only stand for others.
    """

    start: int
    end: int
    kind: str
    slots: Slots
    own: tuple[str, ...]
    random: tuple[int, ...] = ()
    mend: Callable[[str], str] = str
    drawn: bool = True

    @property
    def size(self) -> int:
        """How many texts there are."""
        return prod(map(len, self.slots))

    def draw(self, generator: np.random.Generator) -> str:
        """One of them, uniformly."""
        places = [generator.integers(len(slot)) for slot in self.slots]
        return self.mend("".join(slot[at] for slot, at in zip(self.slots, places, strict=True)))

    def every(self) -> Iterator[str]:
        """All of them."""
        return (self.mend("".join(chosen)) for chosen in product(*self.slots))

    def longest(self) -> str:
        """One with the most characters."""
        return "".join(max(slot, key=len) for slot in self.slots)

    def alone(self, piece: Sequence[int]) -> "Part":
        """With all slots but those of a piece as in the secret."""
        pairs = zip(self.slots, self.own, strict=True)
        kept = tuple(slot if n in piece else (own,) for n, (slot, own) in enumerate(pairs))
        return replace(self, slots=kept)

    @property
    def text(self) -> str:
        """What the secret has there."""
        return "".join(self.own)

    def at(self, start: int) -> "Part":
        """The same at another position."""
        return replace(self, start=start, end=start + len(self.text))

    def written(self, form: Callable[[str], str]) -> "Part":
        """In another form, such as lower case, where that keeps its meaning."""
        if self.kind not in CASED:
            return self
        slots = tuple(tuple(dict.fromkeys(map(form, slot))) for slot in self.slots)
        return replace(self, slots=slots, own=tuple(map(form, self.own)))


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

    def draw(self, generator: np.random.Generator) -> str:
        """A text of its format, uniformly; perhaps this one."""
        return self.having([part.draw(generator) for part in self.parts])

    def every(self) -> Iterator[str]:
        """All texts of its format, once each."""
        return (self.having(chosen) for chosen in product(*(part.every() for part in self.parts)))

    def longest(self) -> str:
        """A text of its format with the most characters."""
        return self.having([part.longest() for part in self.parts])

    def pieces(self) -> tuple["Secret", ...]:
        """The secret with one random piece varying, for each of many alternatives.

        A piece known from elsewhere makes the whole more probable than its alternatives, and no
        more probable than those that share it. None where all that varies is one piece.
        """
        found = []
        for part in self.parts:
            if part.random:
                found.append(part.alone(part.random))
            elif part.kind in UNIFORM and len(self.parts) > 1:
                found.append(part)
        return tuple(replace(self, parts=(part,)) for part in found if part.size >= MANY)

    @property
    def before(self) -> str:
        """The text before its first part."""
        return self.text[: self.parts[0].start]

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

    def having(self, chosen: Sequence[str]) -> str:
        """The text with other parts."""
        said, last = [], 0
        for part, text in zip(self.parts, chosen, strict=True):
            said += [self.text[last : part.start], text]
            last = part.end
        return "".join([*said, self.text[last:]])
