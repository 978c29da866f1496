"""Kinds of secrets: how each is recognized in a line, and which texts have its format.

`spans` recognizes them in running text, by stricter rules.
"""

import re
import string
from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, product
from math import prod

import numpy as np

from vestige.data.lexicon import FAMILY, GIVEN, WORDS_BY_ROLE

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
        kind: "code", "phone", "card", "iban", "e-mail", "key", "date", "name", "given" or "words".
        slots: choices for each position, in order.
        own: what the secret has there.
        start: its first character in the text.
        random: slots of random characters beside others, such as the digits of an address.
        mend: puts right check digits into a text.
        drawn: the choices are those of a format. Words of a list only stand for others.
    """

    kind: str
    slots: Slots
    own: tuple[str, ...]
    start: int = 0
    random: tuple[int, ...] = ()
    mend: Callable[[str], str] = str
    drawn: bool = True

    @cached_property
    def text(self) -> str:
        """What the secret has there."""
        return "".join(self.own)

    @cached_property
    def end(self) -> int:
        """The character after its last."""
        return self.start + len(self.text)

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
        pairs = enumerate(zip(self.slots, self.own, strict=True))
        return replace(
            self, slots=tuple(slot if n in piece else (own,) for n, (slot, own) in pairs)
        )

    def at(self, start: int) -> "Part":
        """The same at another position."""
        return replace(self, start=start)

    def written(self, form: Callable[[str], str]) -> "Part":
        """In another form, such as lower case, where that keeps its meaning."""
        if self.kind not in CASED:
            return self
        slots = tuple(tuple(dict.fromkeys(map(form, slot))) for slot in self.slots)
        return replace(self, slots=slots, own=tuple(map(form, self.own)))


MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
SUBSCRIBER = 4
"""Digits of a telephone number that vary. Those before are for a country, an area and an exchange:
some are far more usual than others, and a model knows them without any secret."""

WORDS = tuple(dict.fromkeys(word for role in WORDS_BY_ROLE.values() for word in role))
MOST_WORDS = 3
"""Words of a phrase that vary."""

_PREFIXES = (
    *("sk-", "sk_live_", "pk_live_", "sk_test_", "ghp_", "gho_", "github_pat_", "glpat-"),
    *("xoxa-", "xoxb-", "xoxp-", "AKIA", "AIza", "hf_", "npm_", "rk_live_"),
)
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "about also and are been but does for from has have her his into its just last made more "
        "much must name named never number only other our over password said secret she should "
        "some such than that the their them then there these they this those through under was "
        "were what when where which while who whose will with would you your",
    )
)
_DATE = re.compile(r"(?:(\d{4})-)?(\d{1,2}(?: [A-Z][a-z]+|[/-]\d{1,2}))(?:([ /])(\d{4}))?")
_ACCOUNT = re.compile(
    r"(?i)\b(?:account|acct|a/c|konto|sort code|routing|invoice|order|customer|reference|ref|"
    r"policy|member|ticket|case|serial|id)\b[\w .:#/-]{0,24}$"
)
_CALL = re.compile(
    r"(?i)\b(?:call\w*|phone\w*|telephone|tel|mobile|cell|fax|ring|dial\w*|text\w*|whatsapp|"
    r"reach\w*)\b"
)


def characters(own: str) -> Slots:
    """Digits for digits, letters for letters of the same case; the rest stays."""
    classes = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    return tuple(next((tuple(known) for known in classes if one in known), (one,)) for one in own)


def code(own: str, before: str = "") -> Part:
    """A code: digits for digits."""
    return Part("code", characters(own), tuple(own))


def email(own: str, before: str) -> Part:
    """Names for the letters before the @, digits for digits; the domain stays."""
    local, _, domain = own.partition("@")
    said = re.findall(r"[A-Za-z]+|\d|[^A-Za-z\d]", local)
    slots: list[tuple[str, ...]] = []
    for place, text in enumerate(said):
        if text.isalpha() and len(text) > 1:
            known = FAMILY if place else GIVEN
            slots.append(tuple(dict.fromkeys((text, *map(str.lower, known)))))
        else:
            slots += characters(text)
    digits = tuple(n for n, text in enumerate(said) if text.isdigit())
    varied = any(len(slot) > 1 for n, slot in enumerate(slots) if n not in digits)
    rest = f"@{domain}"
    return Part("e-mail", (*slots, (rest,)), (*said, rest), random=digits if varied else ())


def key(own: str, before: str) -> Part | None:
    """A key: letters for letters of the same case, after a known prefix."""
    prefix = next((known for known in _PREFIXES if own.startswith(known)), "")
    rest = own.removeprefix(prefix)
    if not prefix and not (re.search(r"\d", rest) and re.search(r"[A-Za-z]", rest)):
        return None
    hexadecimal = re.fullmatch(r"[0-9a-f]+", rest)
    slots = (tuple("0123456789abcdef"),) * len(rest) if hexadecimal else characters(rest)
    return Part("key", ((prefix,), *slots), (prefix, *rest))


def card(own: str, before: str) -> Part | None:
    """A payment card: digits after the issuer's six, with the right check digit."""
    digits = re.sub(r"\D", "", own)
    if luhn_digit(digits[:-1]) != digits[-1]:
        return None
    return _digits(own, "card", range(7, len(digits)), mend=_mend_card)


def _mend_card(text: str) -> str:
    return text[:-1] + luhn_digit(re.sub(r"\D", "", text)[:-1])


def luhn_digit(digits: str) -> str:
    """The check digit of ISO/IEC 7812-1, annex B."""
    doubled = [int(one) * (2 - place % 2) for place, one in enumerate(reversed(digits))]
    return str(-sum(value - 9 * (value > 9) for value in doubled) % 10)


def iban(own: str, before: str) -> Part | None:
    """An IBAN: characters after the bank's four, with the right check digits."""
    if _iban_digits(own) != own[2:4]:
        return None
    seen = accumulate(one != " " for one in own)
    slots = [characters(c)[0] if n > 8 else (c,) for c, n in zip(own, seen, strict=True)]
    return Part("iban", tuple(slots), tuple(own), mend=_mend_iban)


def _mend_iban(text: str) -> str:
    return text[:2] + _iban_digits(text) + text[4:]


def _iban_digits(text: str) -> str:
    """The check digits of ISO 13616: 98 less the remainder of division by 97."""
    plain = text.replace(" ", "")
    value = int("".join(str(int(one, 36)) for one in plain[4:] + plain[:2] + "00"))
    return f"{98 - value % 97:02d}"


def phone(own: str, before: str) -> Part | None:
    """A telephone number: its last four digits. An account number is none."""
    digits = re.sub(r"\D", "", own)
    if not 7 <= len(digits) <= 15 or _ACCOUNT.search(before):
        return None
    international = own[0] in "+("
    national = own[0] == "0" and re.search(r"[ ()/.-]", own)
    if not (international or national or _CALL.search(before)):
        return None
    return _digits(own, "phone", range(len(digits) - SUBSCRIBER + 1, len(digits) + 1))


def _digits(own: str, kind: str, free: range, *, mend: Callable[[str], str] = str) -> Part:
    """Digits for those of some numbers, counted from 1; the rest stays."""
    seen = accumulate(map(str.isdigit, own))
    varied = [one.isdigit() and number in free for one, number in zip(own, seen, strict=True)]
    slots = [tuple(string.digits) if v else (one,) for one, v in zip(own, varied, strict=True)]
    return Part(kind, tuple(slots), tuple(own), mend=mend)


def date(own: str, before: str) -> Part | None:
    """A day of a century: every valid date is as frequent, and there is no 31 February."""
    found = _DATE.fullmatch(own)
    assert found is not None  # as all matches of `KINDS`
    first, written, between, last = found.groups()
    leap = _days(written, day_first=not first, leap=True)
    if written not in leap:
        return None
    if not (first or last):
        return Part("date", (leap,), (own,))
    year, usual = int(first or last), _days(written, day_first=not first, leap=False)
    common = written in usual
    start = 1930 if 1930 <= year < 2030 else year // 100 * 100
    every = [n for n in range(max(start, 1), start + 100) if common or monthrange(n, 2)[1] == 29]
    days, years = usual if common else leap, tuple(f"{n:04d}" for n in every)
    if first:
        return Part("date", (years, ("-",), days), (first, "-", written))
    return Part("date", (days, (between,), years), (written, between, last))


def _days(written: str, *, day_first: bool, leap: bool) -> tuple[str, ...]:
    """All days of a year, written like a day: 3 May, 03/05, 05-03."""
    one, separator, other = re.split(r"([ /-])", written)
    named = not other.isdigit()
    width = [len(text) if text[0] == "0" else 1 for text in (one, other)]
    if not named and len(one) == len(other) == 2:
        width = [2, 2]
    if not named and int(other) > 12:
        day_first = False
    found = []
    for month in range(1, 13):
        said = MONTHS[month - 1] if named else f"{month:0{width[1]}d}"
        for day in range(1, monthrange(2024 if leap else 2023, month)[1] + 1):
            shown = (f"{day:0{width[0]}d}", said)
            found.append(separator.join(shown if day_first else shown[::-1]))
    return tuple(found)


def names(own: str) -> Part:
    """Given names for given names, a family name for the last."""
    said = re.split(r"(?= )", own)
    last = len(said) - 1
    slots = [
        (text, *(" " * bool(n) + name for name in (FAMILY if n and n == last else GIVEN)))
        for n, text in enumerate(said)
    ]
    return Part("name", tuple(tuple(dict.fromkeys(slot)) for slot in slots), tuple(said))


def name(own: str, before: str) -> Part | None:
    """A name whose first word is a common given name."""
    return names(own) if own.split(" ")[0] in GIVEN else None


def words(own: str) -> Part | None:
    """Words of a list for its last rare ones, digits for digits; None without either."""
    said = re.findall(r"[^\W\d_]+|\d|[\W_]", own)
    places = [n for n, text in enumerate(said) if len(text) > 3 and text.lower() not in _COMMON]
    if not places and not any(map(str.isdigit, said)):
        places = [n for n, text in enumerate(said) if text.isalpha()]
        if not places:
            return None
    varied = set(places[-MOST_WORDS:])
    slots = []
    for n, text in enumerate(said):
        if n in varied:
            like = str.upper if text.isupper() else str.title if text.istitle() else str
            slots.append(tuple(dict.fromkeys((text, *map(like, WORDS)))))
        else:
            slots.append(tuple(string.digits) if re.fullmatch(r"[0-9]", text) else (text,))
    free = [n for n, slot in enumerate(slots) if len(slot) > 1]
    chosen = slice(free[0], free[-1] + 1)
    start = len("".join(said[: free[0]]))
    return Part("words", tuple(slots[chosen]), tuple(said[chosen]), start, drawn=not varied)


def splits(kind: str, text: str) -> tuple[tuple[str, ...], ...]:
    """A part as blocks that can be known apart, in the ways in which it can be split.

    Example:
        >>> splits("name", "Emma Schmidt")
        (('Emma Schmidt',), ('Emma', ' Schmidt'))
    """
    if kind == "e-mail":
        local, _, domain = text.partition("@")
        pieces = re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]+", local)
        return (local, f"@{domain}"), (*pieces, f"@{domain}")
    if kind == "name":
        return (text,), tuple(re.split(r"(?= )", text))
    if kind == "date" and (found := re.fullmatch(r"(\d{4})(\D.*)|(.*\D)(\d{4})", text)):
        first, second = (block for block in found.groups() if block)
        return (text,), (first, second)
    return ((text,),)


_MONTH = "|".join(MONTHS)
NAME = r"\b[A-Z][a-z]+(?: [A-Z][A-Za-z'’-]+)+"
Kind = tuple[str, Callable[[str, str], Part | None]]
KINDS: tuple[Kind, ...] = (
    (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", email),
    (r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b", iban),
    (r"(?<![\w-])(?:\d[ -]?){12,18}\d(?![\w-])", card),
    (r"(?<![\w-])[A-Za-z0-9_-]{16,}(?![\w-])", key),
    (rf"\b\d{{1,2}} (?:{_MONTH})(?: \d{{4}})?\b", date),
    (r"(?<![\w/-])(?:\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4})(?![\w/-])", date),
    (r"(?<!\w)[+(]?\d[\d ()/.-]{5,}\d(?!\w)", phone),
    (r"(?<!\w)\d(?:[ -]?\d){2,}(?!\w)", code),
    (NAME, name),
)
"""Patterns, the most specific first, and what makes a part of a match and the text before it."""


def of_whole(text: str, before: str, kinds: Sequence[Kind] = KINDS) -> Iterator[Part]:
    """The whole text as a part, by each kind that recognizes it."""
    for pattern, make in kinds:
        if re.fullmatch(pattern, text) and (part := make(text, before)):
            yield part


def recognized(text: str) -> list[Part]:
    """Parts of a text that are secrets by their kind, in order."""
    found: list[Part] = []
    for pattern, make in KINDS:
        for match in re.finditer(pattern, text):
            if any(match.start() < part.end and part.start < match.end() for part in found):
                continue
            part = make(match[0], text[: match.start()])
            if part is not None:
                found.append(part.at(match.start()))
    return sorted(found, key=lambda part: part.start)
