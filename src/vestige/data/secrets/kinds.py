"""Kinds of secrets: their recognition in a line, and the texts of their formats.

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
"""Kinds of uniformly random characters."""

IDENTIFIERS = UNIFORM - {"code"}
"""Kinds that are secret in any context, unlike a code, a name or a date."""

CASED = frozenset({"e-mail", "date", "name", "words", "given"})
"""Kinds that keep their meaning in another case."""

Slots = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    """A part of a secret that varies between its alternatives.

    Attributes:
        kind: "code", "phone", "card", "iban", "e-mail", "key", "date", "name", "given" or "words".
        slots: choices for each slot, in order.
        values: the secret's value in each slot.
        start: index of its first character in the text.
        random: slots of random characters among others, such as the digits of an address.
        fix_check_digits: corrects the check digits of a text.
        has_format: the choices are those of a format, not of a word list.
    """

    kind: str
    slots: Slots
    values: tuple[str, ...]
    start: int = 0
    random: tuple[int, ...] = ()
    fix_check_digits: Callable[[str], str] = str
    has_format: bool = True

    @cached_property
    def text(self) -> str:
        """The part in the secret."""
        return "".join(self.values)

    @cached_property
    def end(self) -> int:
        """Index after its last character."""
        return self.start + len(self.text)

    @property
    def size(self) -> int:
        """Number of possible texts."""
        return prod(map(len, self.slots))

    def draw(self, rng: np.random.Generator) -> str:
        """A uniformly random text."""
        indices = [rng.integers(len(slot)) for slot in self.slots]
        pairs = zip(self.slots, indices, strict=True)
        return self.fix_check_digits("".join(slot[index] for slot, index in pairs))

    def all_texts(self) -> Iterator[str]:
        """All possible texts."""
        return (self.fix_check_digits("".join(values)) for values in product(*self.slots))

    def longest(self) -> str:
        """A text with the most characters."""
        return "".join(max(slot, key=len) for slot in self.slots)

    def varying(self, slots: Sequence[int]) -> "Part":
        """The part with only some slots varying."""
        pairs = enumerate(zip(self.slots, self.values, strict=True))
        return replace(
            self, slots=tuple(slot if n in slots else (value,) for n, (slot, value) in pairs)
        )

    def at(self, start: int) -> "Part":
        """The part at another position."""
        return replace(self, start=start)

    def in_form(self, form: Callable[[str], str]) -> "Part":
        """The part in another form, such as lower case, unless that changes its meaning."""
        if self.kind not in CASED:
            return self
        slots = tuple(tuple(dict.fromkeys(map(form, slot))) for slot in self.slots)
        return replace(self, slots=slots, values=tuple(map(form, self.values)))


MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
SUBSCRIBER = 4
"""Digits of a telephone number that vary. Models know the frequent codes of countries, areas and
exchanges, which come before them."""

WORDS = tuple(dict.fromkeys(word for role in WORDS_BY_ROLE.values() for word in role))
MOST_WORDS = 3
"""Largest number of words of a phrase that vary."""

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


def characters(text: str) -> Slots:
    """Digits for digits, letters for letters of the same case; other characters do not vary."""
    classes = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    return tuple(
        next((tuple(members) for members in classes if character in members), (character,))
        for character in text
    )


def code(text: str, before: str = "") -> Part:
    """A code: digits for digits."""
    return Part("code", characters(text), tuple(text))


def email(text: str, before: str) -> Part:
    """Names for the letters before the @, digits for digits; the domain does not vary."""
    local, _, domain = text.partition("@")
    values = re.findall(r"[A-Za-z]+|\d|[^A-Za-z\d]", local)
    slots: list[tuple[str, ...]] = []
    for index, value in enumerate(values):
        if value.isalpha() and len(value) > 1:
            listed = FAMILY if index else GIVEN
            slots.append(tuple(dict.fromkeys((value, *map(str.lower, listed)))))
        else:
            slots += characters(value)
    digits = tuple(n for n, value in enumerate(values) if value.isdigit())
    letters_vary = any(len(slot) > 1 for n, slot in enumerate(slots) if n not in digits)
    end = f"@{domain}"
    return Part("e-mail", (*slots, (end,)), (*values, end), random=digits if letters_vary else ())


def key(text: str, before: str) -> Part | None:
    """A key: letters for letters of the same case, after a known prefix."""
    prefix = next((prefix for prefix in _PREFIXES if text.startswith(prefix)), "")
    rest = text.removeprefix(prefix)
    if not prefix and not (re.search(r"\d", rest) and re.search(r"[A-Za-z]", rest)):
        return None
    hexadecimal = re.fullmatch(r"[0-9a-f]+", rest)
    slots = (tuple("0123456789abcdef"),) * len(rest) if hexadecimal else characters(rest)
    return Part("key", ((prefix,), *slots), (prefix, *rest))


def card(text: str, before: str) -> Part | None:
    """A payment card: digits after the issuer's six, with a valid check digit."""
    digits = re.sub(r"\D", "", text)
    if luhn_digit(digits[:-1]) != digits[-1]:
        return None
    return _digits(text, "card", range(7, len(digits)), fix_check_digits=_fix_card)


def _fix_card(text: str) -> str:
    return text[:-1] + luhn_digit(re.sub(r"\D", "", text)[:-1])


def luhn_digit(digits: str) -> str:
    """The check digit of ISO/IEC 7812-1, annex B."""
    weighted = [int(digit) * (2 - n % 2) for n, digit in enumerate(reversed(digits))]
    return str(-sum(value - 9 * (value > 9) for value in weighted) % 10)


def iban(text: str, before: str) -> Part | None:
    """An IBAN: characters after the bank's four, with valid check digits."""
    if _iban_digits(text) != text[2:4]:
        return None
    numbers = accumulate(character != " " for character in text)
    slots = [characters(c)[0] if n > 8 else (c,) for c, n in zip(text, numbers, strict=True)]
    return Part("iban", tuple(slots), tuple(text), fix_check_digits=_fix_iban)


def _fix_iban(text: str) -> str:
    return text[:2] + _iban_digits(text) + text[4:]


def _iban_digits(text: str) -> str:
    """The check digits of ISO 13616: 98 less the remainder of division by 97."""
    plain = text.replace(" ", "")
    value = int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:2] + "00"))
    return f"{98 - value % 97:02d}"


def phone(text: str, before: str) -> Part | None:
    """A telephone number with four variable last digits; None for an account number."""
    digits = re.sub(r"\D", "", text)
    if not 7 <= len(digits) <= 15 or _ACCOUNT.search(before):
        return None
    international = text[0] in "+("
    national = text[0] == "0" and re.search(r"[ ()/.-]", text)
    if not (international or national or _CALL.search(before)):
        return None
    return _digits(text, "phone", range(len(digits) - SUBSCRIBER + 1, len(digits) + 1))


def _digits(
    text: str, kind: str, varying: range, *, fix_check_digits: Callable[[str], str] = str
) -> Part:
    """Random digits for those with some numbers, counted from 1."""
    numbers = accumulate(map(str.isdigit, text))
    slots = [
        tuple(string.digits) if character.isdigit() and number in varying else (character,)
        for character, number in zip(text, numbers, strict=True)
    ]
    return Part(kind, tuple(slots), tuple(text), fix_check_digits=fix_check_digits)


def date(text: str, before: str) -> Part | None:
    """A uniformly random valid day of a century."""
    match = _DATE.fullmatch(text)
    assert match is not None  # like all matches of `KINDS`
    year_first, day, separator, year_last = match.groups()
    leap_days = _days_like(day, day_first=not year_first, leap=True)
    if day not in leap_days:
        return None
    if not (year_first or year_last):
        return Part("date", (leap_days,), (text,))
    year = int(year_first or year_last)
    common_days = _days_like(day, day_first=not year_first, leap=False)
    every_year = day in common_days
    start = 1930 if 1930 <= year < 2030 else year // 100 * 100
    years = tuple(
        f"{n:04d}"
        for n in range(max(start, 1), start + 100)
        if every_year or monthrange(n, 2)[1] == 29
    )
    days = common_days if every_year else leap_days
    if year_first:
        return Part("date", (years, ("-",), days), (year_first, "-", day))
    return Part("date", (days, (separator,), years), (day, separator, year_last))


def _days_like(example: str, *, day_first: bool, leap: bool) -> tuple[str, ...]:
    """All days of a year in the format of an example: 3 May, 03/05, 05-03."""
    first, separator, second = re.split(r"([ /-])", example)
    named = not second.isdigit()
    width = [len(text) if text[0] == "0" else 1 for text in (first, second)]
    if not named and len(first) == len(second) == 2:
        width = [2, 2]
    if not named and int(second) > 12:
        day_first = False
    days = []
    for month in range(1, 13):
        month_text = MONTHS[month - 1] if named else f"{month:0{width[1]}d}"
        for day in range(1, monthrange(2024 if leap else 2023, month)[1] + 1):
            fields = (f"{day:0{width[0]}d}", month_text)
            days.append(separator.join(fields if day_first else fields[::-1]))
    return tuple(days)


def names(text: str) -> Part:
    """Given names for given names, a family name for the last."""
    values = re.split(r"(?= )", text)
    last = len(values) - 1
    slots = [
        (value, *(" " * bool(n) + name for name in (FAMILY if n and n == last else GIVEN)))
        for n, value in enumerate(values)
    ]
    return Part("name", tuple(tuple(dict.fromkeys(slot)) for slot in slots), tuple(values))


def name(text: str, before: str) -> Part | None:
    """A name that begins with a common given name."""
    return names(text) if text.split(" ")[0] in GIVEN else None


def words(text: str) -> Part | None:
    """Listed words for the last rare words, digits for digits; None without either."""
    values = re.findall(r"[^\W\d_]+|\d|[\W_]", text)
    rare = [n for n, value in enumerate(values) if len(value) > 3 and value.lower() not in _COMMON]
    if not rare and not any(map(str.isdigit, values)):
        rare = [n for n, value in enumerate(values) if value.isalpha()]
        if not rare:
            return None
    varying_words = set(rare[-MOST_WORDS:])
    slots = []
    for n, value in enumerate(values):
        if n in varying_words:
            case = str.upper if value.isupper() else str.title if value.istitle() else str
            slots.append(tuple(dict.fromkeys((value, *map(case, WORDS)))))
        else:
            slots.append(tuple(string.digits) if re.fullmatch(r"[0-9]", value) else (value,))
    varying = [n for n, slot in enumerate(slots) if len(slot) > 1]
    first, end = varying[0], varying[-1] + 1
    return Part(
        "words",
        tuple(slots[first:end]),
        tuple(values[first:end]),
        start=len("".join(values[:first])),
        has_format=not varying_words,
    )


def splits(kind: str, text: str) -> tuple[tuple[str, ...], ...]:
    """The ways to split a part into blocks that a model may know separately.

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
    if kind == "date" and (match := re.fullmatch(r"(\d{4})(\D.*)|(.*\D)(\d{4})", text)):
        first, second = (block for block in match.groups() if block)
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
"""(pattern, function from a match and the text before it to a part), the most specific first."""


def whole_parts(text: str, before: str, kinds: Sequence[Kind] = KINDS) -> Iterator[Part]:
    """The whole text as a part, for each kind that recognizes it."""
    for pattern, make in kinds:
        if re.fullmatch(pattern, text) and (part := make(text, before)):
            yield part


def recognize(text: str) -> list[Part]:
    """Parts of a text with the format of a kind, in order; of overlapping ones, the first kind."""
    parts: list[Part] = []
    for pattern, make in KINDS:
        for match in re.finditer(pattern, text):
            if any(match.start() < part.end and part.start < match.end() for part in parts):
                continue
            part = make(match[0], text[: match.start()])
            if part is not None:
                parts.append(part.at(match.start()))
    return sorted(parts, key=lambda part: part.start)
