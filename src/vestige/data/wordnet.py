"""Synonyms from WordNet's own files.

Miller (1995), "WordNet: A Lexical Database for English"; the format is that of the manual page
wndb(5): `index.*` names the meanings of a word, commonest first, `data.*` the words of a meaning.
"""

from collections.abc import Iterator
from pathlib import Path

from vestige.data.text_file import lines
from vestige.errors import DataError

PARTS = ("noun", "verb", "adj", "adv")
_REMEDY = "Install Debian's wordnet-base (files in /usr/share/wordnet), or download WordNet."

_GRAMMAR = """
    a about above across after again against all almost along already also although always am
    among an and another any anybody anyone anything are around as at away back be because been
    before behind being below between both but by can cannot could did do does doing done down
    during each either else enough even ever every everybody everyone everything few for from
    had has have having he hence her here hers herself him himself his how however i if in indeed
    instead into is it its itself just least less many may maybe me might mine more most much must
    my myself near neither never no nobody none nor not nothing now of off often on once one only
    onto or other others ought our ours ourselves out over own per perhaps please quite rather
    really same shall she should since so some somebody someone something still such than that
    the their theirs them themselves then there therefore these they this those though through
    thus till to together too toward towards under unless until up upon us very was we well were
    what whatever when where whereas whether which while who whoever whole whom whose why will
    with within without would yes yet you your yours yourself yourselves
    two three four five six seven eight nine ten hundred thousand million first second third last
"""
_GRAMMATICAL = frozenset(_GRAMMAR.split())


def read_wordnet(folder: str | Path) -> dict[str, tuple[str, ...]]:
    """The synonyms of every English word that has some, in its commonest meaning.

    The part of speech is not known in running text: that one is taken of which most meanings
    were seen in tagged texts. Words of grammar ("he" is also helium), words in several parts and
    names in capitals are left out. Inflected words ("cars") have no entry.

    Args:
        folder: holds `index.noun`, `data.noun` and those of `verb`, `adj` and `adv`.

    Returns:
        words in lower case with their synonyms, none of which is the word itself.

    Raises:
        DataError: a file is missing, or a line is at fault.
    """
    folder = Path(folder)
    missing = [
        name
        for part in PARTS
        for name in (f"index.{part}", f"data.{part}")
        if not (folder / name).is_file()
    ]
    if missing:
        raise DataError(f"{folder} has no {missing[0]} of WordNet", remedy=_REMEDY)
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for part in PARTS:
        meanings = dict(_meanings(folder / f"data.{part}"))
        for where, word, seen, offset in _entries(folder / f"index.{part}"):
            if offset not in meanings:
                raise DataError(f"{where}: no meaning at {offset} of data.{part}", remedy=_REMEDY)
            if seen > found.get(word, (-1, ()))[0]:
                found[word] = seen, meanings[offset]
    return {
        word: others
        for word, (_, same) in found.items()
        if _is_plain(word) and (others := tuple(other for other in same if other != word))
    }


def _is_plain(word: str) -> bool:
    return word.isalpha() and word.islower() and len(word) > 1 and word not in _GRAMMATICAL


def _meanings(file: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(offset, its plain words), by the first fields of wndb's data lines."""
    for where, fields in _rows(file):
        try:
            count = int(fields[3], 16)
            words = fields[4 : 4 + 2 * count : 2]
            if not fields[0].isdigit() or not 0 < count == len(words):
                raise ValueError(f"{len(words)} words")
        except (ValueError, IndexError) as error:
            raise _faulty(where, "a meaning with its words", error) from error
        # "(p)" and the like say where an adjective may stand.
        yield fields[0], tuple(filter(_is_plain, (word.partition("(")[0] for word in words)))


def _entries(file: Path) -> Iterator[tuple[str, str, int, str]]:
    """(where, word, meanings seen in tagged texts, offset of the commonest one)."""
    for where, fields in _rows(file):
        try:
            meanings, pointers = int(fields[2]), int(fields[3])
            seen, offsets = int(fields[5 + pointers]), fields[6 + pointers :]
            if not 0 < meanings == len(offsets):
                raise ValueError(f"{len(offsets)} meanings")
        except (ValueError, IndexError) as error:
            raise _faulty(where, "a word with its meanings", error) from error
        yield where, fields[0], seen, offsets[0]


def _rows(file: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines(file), start=1):
        # The licence stands above, indented.
        if line.strip() and not line.startswith("  "):
            yield f"{file}, line {number}", line.partition(" | ")[0].split()  # without the gloss


def _faulty(where: str, wanted: str, error: Exception) -> DataError:
    return DataError(f"{where}: not {wanted} ({error})", remedy=_REMEDY)
