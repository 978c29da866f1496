"""Secrets with the texts of their format: what varies in a line, its pieces, and their links.

A secret that was drawn uniformly from its format is as probable as any other text of it under a
model that never read it. A model may have read a piece elsewhere: a name, a handle, a domain. So a
secret says which of its pieces can be ranked alone, and which follow others: a piece is linked to
what precedes it where it is more probable there than after other beginnings.
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

IDENTIFIERS = frozenset({"e-mail", "phone", "card", "iban", "key"})
"""Kinds that are secret wherever they stand. Another is one only in its context: `link`."""

UNIFORM = frozenset({"code", "phone", "card", "iban", "key"})
"""Kinds of random characters: ranked alone, they need no link to what precedes them."""

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
        pieces: slots of each piece that is ranked alone; empty: all are one piece.
        links: slots with which a piece begins that may be known from elsewhere.
        mend: puts right check digits into a text.
        drawn: the choices are those of a format. Words of a list only stand for others.
    """

    start: int
    end: int
    kind: str
    slots: Slots
    own: tuple[str, ...]
    pieces: tuple[tuple[int, ...], ...] = ()
    links: tuple[int, ...] = ()
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

    def head(self, slot: int) -> "Part":
        """Up to a slot."""
        end = self.start + len("".join(self.own[:slot]))
        return replace(self, end=end, slots=self.slots[:slot], own=self.own[:slot], mend=str)

    def at(self, start: int) -> "Part":
        """The same at another position."""
        return replace(self, start=start, end=start + len("".join(self.own)))

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
        return self._with([part.draw(generator) for part in self.parts])

    def every(self) -> Iterator[str]:
        """All texts of its format, once each."""
        return (self._with(chosen) for chosen in product(*(part.every() for part in self.parts)))

    def longest(self) -> str:
        """A text of its format with the most characters."""
        return self._with([part.longest() for part in self.parts])

    def pieces(self) -> tuple["Secret", ...]:
        """The secret with one piece varying; none where it has only one.

        A piece known from elsewhere makes the whole more probable than its alternatives, and no
        more probable than those that share it.
        """
        every = [
            replace(self, parts=(part.alone(piece),))
            for part in self.parts
            for piece in part.pieces or (tuple(range(len(part.slots))),)
        ]
        found = [one for one in every if one.size > 1]
        return tuple(one for one in found if one.size >= MANY) if len(found) > 1 else ()

    def links(self) -> tuple[tuple["Secret", str], ...]:
        """Beginnings that vary, each with the rest of the text that is read after them.

        Example: the handle of an address varies, and its domain is read. A domain that is known
        from other addresses is as probable after other handles.
        """
        found: list[tuple[Secret, str]] = []
        for number, part in enumerate(self.parts):
            before = self.parts[:number]
            if before and part.kind not in UNIFORM:
                found.append(self._cut(before, part.start))
            for slot in part.links:
                head = part.head(slot)
                found.append(self._cut((*before, head), head.end))
        last = self.parts[-1]
        rest = any(map(str.isalnum, self.text[last.end :]))
        if not found and rest and not self.context and last.kind not in IDENTIFIERS:
            found.append(self._cut(self.parts, last.end))
        return tuple((head, rest) for head, rest in found if head.size > 1)

    @property
    def context(self) -> str:
        """What precedes a part that is secret only in its context; empty where it has none."""
        before = self.text[: self.parts[0].start]
        bound = not IDENTIFIERS.intersection(part.kind for part in self.parts)
        return before if bound and any(map(str.isalnum, before)) else ""

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
            text += "".join(parts[-1].own)
            last = part.end
        return replace(self, text=text + form(self.text[last:]), parts=tuple(parts))

    def _capitalized(self) -> "Secret":
        first = self.text[:1]
        if self.parts[0].start == 0 or first not in string.ascii_lowercase:
            return self
        return replace(self, text=first.upper() + self.text[1:])

    def _cut(self, parts: tuple[Part, ...], end: int) -> tuple["Secret", str]:
        head = self.text[:end].rstrip()
        return replace(self, text=head, parts=parts), self.text[len(head) :]

    def _with(self, chosen: Sequence[str]) -> str:
        said, last = [], 0
        for part, text in zip(self.parts, chosen, strict=True):
            said += [self.text[last : part.start], text]
            last = part.end
        return "".join([*said, self.text[last:]])
