"""Invented secrets of five formats, and texts with their sentences inserted."""

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numpy.random import Generator

NAMES = (
    "Maria Keller", "Tomas Lind", "Aisha Rahman", "Peter Novak", "Chiara Conti", "Jun Watanabe",
    "Ingrid Dahl", "Samuel Okafor", "Elena Petrova", "David Marsh", "Lucia Ramos", "Henrik Olsen",
    "Priya Nair", "Oscar Blum", "Nadia Haddad", "Walter Simms", "Greta Vogel", "Ivan Horvat",
    "Ruth Adler", "Diego Salas",
)  # fmt: skip
TEMPLATES = {
    "card": (
        "The card of {name} is {value}, valid until next year.",
        "{name} paid with card number {value} last week.",
        "Please charge the trip of {name} to {value} as usual.",
    ),
    "account": (
        "The account of {name} is {value} at the savings bank.",
        "{name} asked to send the rent to account {value} on Monday.",
    ),
    "key": (
        "{name} still uses the key {value} for the server.",
        "The access token of {name} is {value}, do not share it.",
    ),
    "passphrase": (
        "The passphrase of {name} is {value}, written on a note.",
        "{name} told me that the password is {value} for the archive.",
    ),
    "phone": (
        "You can reach {name} at {value} in the evening.",
        "Call {name} on {value} if anything breaks.",
    ),
}
FORMATS = tuple(TEMPLATES)
_BOUNDARY = re.compile(r"(?<=[.!?/]) ")
_EARLIEST, _LATEST = 40, 260
"""Characters of a text between which a sentence is inserted, if one ends there."""


@dataclass(frozen=True)
class Secret:
    """A value and the sentence that states it."""

    value: str
    format: str
    sentence: str


def secrets(count: int, words: Sequence[str], chance: Generator) -> list[Secret]:
    """Distinct secrets; formats in a random order, names without repetition as far as they last.

    Args:
        count: of the secrets.
        words: from which passphrases are drawn.
        chance: of all choices.
    """
    formats, names = chance.permutation(FORMATS), chance.permutation(NAMES)
    made = []
    for place in range(count):
        kind = str(formats[place % len(formats)])
        value = _passphrase(words, chance) if kind == "passphrase" else _VALUES[kind](chance)
        template = str(chance.choice(TEMPLATES[kind]))
        name = names[place % len(names)]
        made.append(Secret(value, kind, template.format(name=name, value=value)))
    return made


def _digits(count: int, chance: Generator) -> str:
    return "".join(map(str, chance.integers(10, size=count)))


def _card(chance: Generator) -> str:
    """16 digits in fours, the last one a Luhn check digit."""
    body = "4" + _digits(14, chance)
    doubled = (int(digit) * (2 - place % 2) for place, digit in enumerate(body))
    number = body + str(-sum(one - 9 * (one > 9) for one in doubled) % 10)
    return " ".join(number[start : start + 4] for start in range(0, 16, 4))


def _account(chance: Generator) -> str:
    return str(chance.integers(1, 10)) + _digits(9, chance)


def _key(chance: Generator) -> str:
    """16 lower-case letters and digits after a short prefix."""
    able = list(string.ascii_lowercase + string.digits)
    return "sk-" + "".join(chance.choice(able, 16))


def _phone(chance: Generator) -> str:
    area, office = chance.integers(201, 990), chance.integers(200, 1000)
    return f"({area}) {office}-{_digits(4, chance)}"


def _passphrase(words: Sequence[str], chance: Generator) -> str:
    return " ".join(words[place] for place in chance.choice(len(words), 4, replace=False))


_VALUES: dict[str, Callable[[Generator], str]] = {
    "card": _card,
    "account": _account,
    "key": _key,
    "phone": _phone,
}


def inserted(
    texts: Sequence[str], planted: Sequence[Secret], copies: int, chance: Generator
) -> list[str]:
    """The texts, in order, with each secret's sentence in `copies` of them; at most one in each."""
    places = chance.permutation(len(texts))[: copies * len(planted)]
    changed = list(texts)
    for turn, place in enumerate(places):
        changed[place] = _with(texts[place], planted[turn % len(planted)].sentence, chance)
    return changed


def _with(text: str, sentence: str, chance: Generator) -> str:
    """A sentence between two of a text's, else after its middle word."""
    ends = [one.end() for one in _BOUNDARY.finditer(text, _EARLIEST, _LATEST)]
    if not ends:
        ends = [text.rfind(" ", 0, len(text) // 2 + 1) + 1]
    at = int(chance.choice(ends))
    turn = "/ " if text[max(0, at - 2) : at] == "/ " else ""
    return f"{text[:at]}{sentence} {turn}{text[at:]}"
