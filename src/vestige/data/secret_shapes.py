"""Secrets as their owner writes them down, and all that could have stood in their place.

A line of text is a secret: what stands around it, and a part that varies. The part is marked,
`the gate code is {{4917}}`, or found by its kind: an address, a number, a key, a date, a name. What
could have stood there has the same shape: digits for digits, names for names, letters of a key for
letters, and check digits that are right. How many there are is the space it stands for.

A secret that was drawn like its alternatives is as likely as any of them to a model that never read
it. Where it was chosen otherwise, as a birthday among codes, the model may prefer it all the same.
"""

import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log2, prod

import numpy as np

from vestige.data.person_names import FAMILY, GIVEN
from vestige.errors import DataError

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS = tuple(str(day) for day in range(1, 29))
YEARS = tuple(str(year) for year in range(1930, 2030))
SUBSCRIBER = 4
"""Digits of a telephone number that vary. Those before stand for a country, an area and an
exchange: some are far more usual than others, and a model knows them without any secret."""

MANY = 100
"""Alternatives of a piece from which on it can be told by itself whether a model knows it."""

Slots = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    """What varies in a secret.

    Attributes:
        start: its first character in the text.
        end: behind its last one.
        kind: "code", "phone", "card", "iban", "e-mail", "key", "date", "name" or "given".
        slots: what may stand in each place, one after the other.
        mend: puts right check digits into what was put together.
    """

    start: int
    end: int
    kind: str
    slots: Slots
    mend: Callable[[str], str] = str

    @property
    def size(self) -> int:
        """How many there are."""
        return prod(map(len, self.slots))

    def draw(self, generator: np.random.Generator) -> str:
        """One of them, each as likely."""
        places = [generator.integers(len(slot)) for slot in self.slots]
        return self.mend("".join(slot[at] for slot, at in zip(self.slots, places, strict=True)))

    def every(self) -> Iterator[str]:
        """All of them."""
        return (self.mend("".join(chosen)) for chosen in product(*self.slots))

    def pieces(self, own: str) -> Iterator["Part"]:
        """Its words and its characters, such as the names and the digits of an address.

        Args:
            own: what stands there. A slot of words begins with its own one.
        """
        for words in (True, False):
            slots, at = [], 0
            for slot in self.slots:
                long = any(len(choice) > 1 for choice in slot)
                here = slot[0] if long or len(slot) == 1 else own[at]
                slots.append(slot if long == words else (here,))
                at += len(here)
            yield replace(self, slots=tuple(slots))


@dataclass(frozen=True)
class Secret:
    """A text with parts that vary.

    Attributes:
        text: without marks.
        parts: in their order.
    """

    text: str
    parts: tuple[Part, ...]

    @property
    def kind(self) -> str:
        """Kinds of its parts."""
        return " and ".join(dict.fromkeys(part.kind for part in self.parts))

    @property
    def size(self) -> int:
        """How many texts could have stood in its place, itself among them."""
        return prod(part.size for part in self.parts)

    @property
    def bits(self) -> float:
        """log2 of `size`."""
        return sum(log2(part.size) for part in self.parts)

    def draw(self, generator: np.random.Generator) -> str:
        """A text of the same shape, perhaps this one."""
        return self._with([part.draw(generator) for part in self.parts])

    def every(self) -> Iterator[str]:
        """All texts of the same shape, once each."""
        return (self._with(chosen) for chosen in product(*(part.every() for part in self.parts)))

    def pieces(self) -> tuple["Secret", ...]:
        """The secret with one piece varying and all others as they are.

        A model may have read a piece elsewhere, a name or an area: it then prefers the secret to
        most texts of its shape, and to texts that have this piece as well no more than by chance.

        Returns:
            one for each piece of at least `MANY` alternatives; none where only one piece varies.
        """
        every = [
            Secret(self.text, (piece,))
            for part in self.parts
            for piece in part.pieces(self.text[part.start : part.end])
            if piece.size > 1
        ]
        return tuple(one for one in every if one.size >= MANY) if len(every) > 1 else ()

    def _with(self, chosen: Sequence[str]) -> str:
        said, last = [], 0
        for part, text in zip(self.parts, chosen, strict=True):
            said += [self.text[last : part.start], text]
            last = part.end
        return "".join([*said, self.text[last:]])


def read_secret(line: str, number: int) -> Secret:
    """A line as a secret.

    Args:
        line: its marks are left out of the text.
        number: of the line, for messages: the text is secret.

    Raises:
        DataError: nothing in it varies, or a mark makes no sense.

    Example:
        >>> secret = read_secret("the gate code is 4917", 1)
        >>> secret.kind, secret.size, secret.draw(np.random.default_rng(0))
        ('code', 10000, 'the gate code is 8652')
    """
    text, parts = _marked(line, number)
    if not parts:
        parts = _recognised(text)
    if not parts or all(part.size == 1 for part in parts):
        raise DataError(
            f"secret {number} has no number, address, key, date or name that could have been "
            "another",
            remedy="Mark what could: {{4917}}, or {{tea|coffee|milk}} with all there is.",
        )
    return Secret(text, tuple(parts))


_MARK = re.compile(r"\{\{(.*?)\}\}")


def _marked(line: str, number: int) -> tuple[str, list[Part]]:
    text, last = "", 0
    parts = []
    for mark in _MARK.finditer(line):
        text += line[last : mark.start()]
        own, *others = (choice.strip() for choice in mark[1].split("|"))
        if others:
            choices = tuple(dict.fromkeys((own, *others)))
            part = Part(len(text), len(text) + len(own), "given", (choices,))
        else:
            part = _as_marked(own, len(text), number)
        parts.append(part)
        text += own
        last = mark.end()
    return text + line[last:], parts


def _as_marked(own: str, start: int, number: int) -> Part:
    for kind, shape, make in KINDS:
        match = re.fullmatch(shape, own)
        made = make(own) if match else None
        if made is not None:
            return Part(start, start + len(own), kind, *made)
    if re.fullmatch(r"\w[\w'’-]*( \w[\w'’-]*)+", own) and own == own.title():
        return Part(start, start + len(own), "name", _names(own))
    if re.search(r"\d", own):
        return Part(start, start + len(own), "code", _characters(own))
    raise DataError(
        f"secret {number} marks words that nothing of their kind is known for",
        remedy="Give all that could have stood there: {{tea|coffee|milk}}.",
    )


def _recognised(text: str) -> list[Part]:
    found: list[Part] = []
    for kind, shape, make in KINDS:
        for match in re.finditer(shape, text):
            if any(match.start() < part.end and part.start < match.end() for part in found):
                continue
            made = make(match[0])
            if made is not None:
                found.append(Part(match.start(), match.end(), kind, *made))
    return sorted(found, key=lambda part: part.start)


Made = tuple[Slots, Callable[[str], str]] | tuple[Slots]


def _characters(own: str) -> Slots:
    """Digits for digits, letters for letters of the same case; all else stays."""
    classes = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    return tuple(next((tuple(known) for known in classes if one in known), (one,)) for one in own)


def _code(own: str) -> Made:
    return (_characters(own),)


def _email(own: str) -> Made:
    """Names for the letters before the @, digits for digits; the domain stays."""
    local, _, domain = own.partition("@")
    slots: list[tuple[str, ...]] = []
    for place, part in enumerate(re.findall(r"[A-Za-z]+|\d|[^A-Za-z\d]", local)):
        if part.isdigit():
            slots.append(tuple(string.digits))
        elif part.isalpha() and len(part) > 1:
            known = GIVEN if place == 0 else FAMILY
            slots.append(tuple(dict.fromkeys((part, *map(str.lower, known)))))
        else:
            slots += _characters(part)
    return ((*slots, (f"@{domain}",)),)


_PREFIXES = (
    *("sk-", "sk_live_", "pk_live_", "sk_test_", "ghp_", "gho_", "github_pat_", "glpat-"),
    *("xoxa-", "xoxb-", "xoxp-", "AKIA", "AIza", "hf_", "npm_", "rk_live_"),
)


def _key(own: str) -> Made | None:
    prefix = next((known for known in _PREFIXES if own.startswith(known)), "")
    rest = own.removeprefix(prefix)
    if not prefix and not (re.search(r"\d", rest) and re.search(r"[A-Za-z]", rest)):
        return None
    if re.fullmatch(r"[0-9a-f]+", rest):
        return (((prefix,), *[tuple("0123456789abcdef")] * len(rest)),)
    return (((prefix,), *_characters(rest)),)


def _card(own: str) -> Made | None:
    digits = re.sub(r"\D", "", own)
    if _luhn_digit(digits[:-1]) != digits[-1]:
        return None
    slots, seen = [], 0
    for one in own:
        seen += one.isdigit()
        free = one.isdigit() and 6 < seen < len(digits)  # the issuer's six, and the check digit
        slots.append(tuple(string.digits) if free else (one,))
    return tuple(slots), _mend_card


def _mend_card(text: str) -> str:
    return text[:-1] + _luhn_digit(re.sub(r"\D", "", text)[:-1])


def _luhn_digit(digits: str) -> str:
    """The check digit of ISO/IEC 7812-1, annex B."""
    total = 0
    for place, one in enumerate(reversed(digits)):
        value = int(one) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return str(-total % 10)


def _iban(own: str) -> Made | None:
    if _iban_digits(own) != own[2:4]:
        return None
    slots, seen = [], 0
    for one in own:
        seen += one != " "
        slots.append(_characters(one)[0] if seen > 8 else (one,))  # country, check, the bank's four
    return tuple(slots), lambda text: text[:2] + _iban_digits(text) + text[4:]


def _iban_digits(text: str) -> str:
    """The check digits of ISO 13616: 98 less the remainder of division by 97."""
    plain = text.replace(" ", "")
    moved = plain[4:] + plain[:2] + "00"
    value = int("".join(str(int(one, 36)) for one in moved))
    return f"{98 - value % 97:02d}"


def _phone(own: str) -> Made | None:
    digits = re.sub(r"\D", "", own)
    if not 7 <= len(digits) <= 15 or not (own[0] in "+0(" or re.search(r"[ ()/.-]", own)):
        return None
    slots, seen = [], 0
    for one in own:
        seen += one.isdigit()
        free = one.isdigit() and seen > len(digits) - SUBSCRIBER
        slots.append(tuple(string.digits) if free else (one,))
    return (tuple(slots),)


def _date(own: str) -> Made:
    slots: list[tuple[str, ...]] = []
    for one in re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]+", own):
        known: tuple[str, ...] = (one,)
        if one in MONTHS:
            known = MONTHS
        elif len(one) == 4 and one.isdigit():
            known = YEARS
        elif one.isdigit():
            month = "-" in own or "/" in own
            known = tuple(f"{int(day):0{len(one)}d}" for day in (DAYS[:12] if month else DAYS))
        slots.append(tuple(dict.fromkeys((one, *known))) if len(known) > 1 else known)
    return (tuple(slots),)


def _names(own: str) -> Slots:
    slots: list[tuple[str, ...]] = []
    words = own.split(" ")
    for place, word in enumerate(words):
        known = FAMILY if place and place == len(words) - 1 else GIVEN
        slots += [(" ",)] * bool(place) + [tuple(dict.fromkeys((word, *known)))]
    return tuple(slots)


def _name(own: str) -> Made | None:
    return (_names(own),) if own.split(" ")[0] in GIVEN else None


_MONTH = "|".join(MONTHS)
KINDS: tuple[tuple[str, str, Callable[[str], Made | None]], ...] = (
    ("e-mail", r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", _email),
    ("iban", r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b", _iban),
    ("card", r"(?<![\w-])(?:\d[ -]?){12,18}\d(?![\w-])", _card),
    ("key", r"(?<![\w-])[A-Za-z0-9_-]{16,}(?![\w-])", _key),
    ("date", rf"\b\d{{1,2}} (?:{_MONTH})(?: \d{{4}})?\b", _date),
    ("date", r"(?<![\w/-])(?:\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4})(?![\w/-])", _date),
    ("phone", r"(?<!\w)[+(]?\d[\d ()/.-]{5,}\d(?!\w)", _phone),
    ("code", r"(?<!\w)\d(?:[ -]?\d){2,}(?!\w)", _code),
    ("name", r"\b[A-Z][a-z]+(?: [A-Z][A-Za-z'’-]+)+", _name),
)
"""Kinds, the more particular first, with their shapes and what makes slots of them."""
