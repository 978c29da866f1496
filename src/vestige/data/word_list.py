"""Words for phrases that read like English.

Some hundreds of words by part of speech, written for this project, common ones and rare ones,
so that news, forum and encyclopaedia corpora find some in each of their frequency quintiles.
Nouns are plural and verbs are in the simple past, so that any of them agree. Words that make
an insult of a harmless neighbour are left out.
"""

from pathlib import Path


def _read() -> dict[str, tuple[str, ...]]:
    """Words of each part of speech, from sections headed "# noun" and so on."""
    listing = Path(__file__).with_suffix(".txt").read_text("utf-8")
    sections = (section.split() for section in listing.split("#")[1:])
    return {role: tuple(words) for role, *words in sections}


WORDS_BY_ROLE = _read()

TEMPLATES: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("noun", "verb"), ("adjective", "noun")),
    3: (("noun", "verb", "noun"), ("noun", "adverb", "verb")),
    4: (("noun", "verb", "adjective", "noun"), ("noun", "adverb", "verb", "noun")),
    5: (
        ("noun", "adverb", "verb", "adjective", "noun"),
        ("noun", "verb", "adverb", "adjective", "noun"),
        ("adjective", "noun", "adverb", "verb", "noun"),
        ("adjective", "noun", "verb", "adjective", "noun"),
    ),
    6: (
        ("adjective", "noun", "adverb", "verb", "adjective", "noun"),
        ("adjective", "noun", "verb", "adverb", "adjective", "noun"),
    ),
}
