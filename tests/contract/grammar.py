"""Random sentences of one grammar, so lists of them are exchangeable."""

import random
from collections.abc import Mapping, Sequence

Words = Mapping[str, Sequence[str]]

_NAMES = (
    "Anna Boris Clara David Elena Felix Greta Henry Irene Jonas Karin Louis Maria Nadia Oscar "
    "Paula Quentin Rosa Simon Tessa Ulrich Vera Walter Xenia Yusuf Zelda Arthur Bianca Cedric Doris"
)
_ENGLISH = {
    "name": _NAMES,
    "verb": "asked told warned promised reminded begged helped paid called followed met thanked "
    "visited blamed invited praised scolded trusted",
    "kind": "old new green broken heavy cheap silver wooden lost blue tiny famous empty painted "
    "folded dusty narrow golden frozen quiet",
    "thing": "lamp ledger boat clock garden letter bridge piano ticket kettle ladder mirror engine "
    "carpet window basket guitar compass blanket pillow hammer bottle saddle anchor",
    "place": "harbour market library station orchard chapel valley museum bakery stadium village "
    "castle factory airport island kitchen",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "why": "because although while until before after unless since",
    "did": "sold found hid repaired wanted dropped borrowed burned cleaned carried opened measured "
    "counted stole",
}
_GERMAN = {
    "name": _NAMES,
    "verb": "fragte bat warnte traf rief bezahlte besuchte lobte",
    "kind": "alte neue grüne schwere billige hölzerne verlorene blaue",
    "thing": "Lampe Uhr Brücke Leiter Decke Flasche Karte Gitarre Maschine Mauer",
    "place": "Hafen Markt Bahnhof Garten Dorf Schloss Werk Wald",
    "day": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "why": "weil obwohl während bevor nachdem",
    "did": "verkaufte fand versteckte reparierte wollte verlor",
}
ENGLISH: Words = {kind: words.split() for kind, words in _ENGLISH.items()}
GERMAN: Words = {kind: words.split() for kind, words in _GERMAN.items()}

_ABOUT = (
    "{name} {verb} {other} about the {kind} {thing} near the {place} on {day} {why} {who} {did}"
)
_FORMS = {
    id(ENGLISH): f"{_ABOUT} the {{more}} {{last}}",
    id(GERMAN): "{name} {verb} {other} am {day} am {place} {why} {who} die {kind} {thing} {did}",
}


def sentence(generator: random.Random, words: Words = ENGLISH) -> str:
    """One sentence."""
    sampled = {key: generator.choice(values) for key, values in words.items()}
    for key, kind in (("other", "name"), ("who", "name"), ("more", "kind"), ("last", "thing")):
        sampled[key] = generator.choice(words[kind])
    return _FORMS[id(words)].format(**sampled)


def texts(
    generator: random.Random,
    number: int,
    *,
    words: Words = ENGLISH,
    sentences: Sequence[int] = (1, 2, 2, 2),
    used: set[str],
) -> list[str]:
    """Different texts that are not in `used`, to which they are added."""
    result: list[str] = []
    while len(result) < number:
        text = " . ".join(sentence(generator, words) for _ in range(generator.choice(sentences)))
        if text not in used:
            used.add(text)
            result.append(text)
    return result


def near_copies(text: str, number: int, generator: random.Random) -> list[str]:
    """Different texts that each differ from `text` in one word."""
    copies: set[str] = set()
    pool = [*ENGLISH["kind"], *ENGLISH["thing"], *ENGLISH["name"]]
    while len(copies) < number:
        words = text.split()
        words[generator.randrange(len(words))] = generator.choice(pool)
        copies.add(" ".join(words))
    return sorted(copies)
