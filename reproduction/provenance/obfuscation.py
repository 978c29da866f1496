"""Obfuscation of texts: synonyms of WordNet, and translation by Apertium and back.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.4 and
Table 5: comments are translated to another language and back, which changes words and keeps the
sense. Differs from the paper: the translator is Apertium (Forcada et al. 2011), not a web service;
synonyms are a second way, which keeps the order of the words.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import lines
from vestige.errors import DataError

T = TypeVar("T")
Translate = Callable[[list[str]], list[str]]
PARTS = ("noun", "verb", "adj", "adv")
BATCH = 200
"""Texts in one translation."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LINE = "\n\n"  # apertium never moves words over an empty line
_INSTALL_WORDNET = "Install Debian's wordnet-base (files in /usr/share/wordnet)."
_INSTALL_APERTIUM = (
    "Install Debian's apertium and apertium-eng-spa; `apertium -l` lists directions."
)
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


def obfuscation(name: str) -> Callable[[Corpus], Corpus]:
    """A way to change texts: "none", "reversed", "apertium" or "synonyms"."""
    _validate.one_of(("none", "reversed", "apertium", "synonyms"), obfuscation=name)
    if name == "none":
        return lambda corpus: corpus
    if name == "reversed":
        return lambda corpus: _with_texts(corpus, (" ".join(text.split()[::-1]) for text in corpus))
    if name == "apertium":
        there, back = (partial(apertium, direction=way) for way in ("eng-spa", "spa-eng"))
        return partial(back_translated, there=there, back=back)
    folder = os.environ.get("WNSEARCHDIR", "/usr/share/wordnet")
    return partial(with_synonyms, synonyms=read_wordnet(folder), seed=0)


def with_synonyms(
    corpus: Corpus, synonyms: Mapping[str, Sequence[str]], *, share: float = 1.0, seed: int
) -> Corpus:
    """The documents with a share of the words that have synonyms replaced by a random one.

    A capital at a word's beginning stays, and so do capitals throughout.

    Example:
        >>> corpus = Corpus.from_texts(["Cars? My car, a red car."])
        >>> list(with_synonyms(corpus, {"car": ["auto"], "red": ["scarlet"]}, seed=0))
        ['Cars? My auto, a scarlet auto.']
    """
    generator = np.random.default_rng(seed)

    def other(match: re.Match[str]) -> str:
        word = match[0]
        choices = synonyms.get(word.lower(), ())
        if not choices or generator.random() >= share:
            return word
        chosen = choices[int(generator.integers(len(choices)))]
        if len(word) > 1 and word.isupper():
            return chosen.upper()
        return chosen[:1].upper() + chosen[1:] if word[0].isupper() else chosen

    return _with_texts(corpus, (_WORD.sub(other, text) for text in corpus))


def back_translated(corpus: Corpus, there: Translate, back: Translate) -> Corpus:
    """The documents translated and back; one whose translation is blank stays as it was."""

    def texts() -> Iterator[str]:
        for originals in corpus.batches(BATCH):
            for old, new in zip(originals, back(there(originals)), strict=True):
                yield new if new.strip() else old

    return _with_texts(corpus, texts())


def apertium(
    texts: list[str], direction: str, *, command: str = "apertium", timeout: float = 600
) -> list[str]:
    """As many translations as texts; blanks and line breaks inside a text become one blank.

    Raises:
        DataError: the command or the direction is not installed, fails, or takes too long.
    """

    def run(text: str) -> str:
        arguments = [command, "-u", "-f", "txt", direction]
        try:
            done = subprocess.run(
                arguments, input=text.encode(), capture_output=True, timeout=timeout, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"{command} {direction} did not translate: {type(error).__name__}"
            raise DataError(problem, remedy=_INSTALL_APERTIUM) from error
        if not done.stdout.strip():
            raise DataError(f"{command} {direction} gave no text", remedy=_INSTALL_APERTIUM)
        return done.stdout.decode(errors="replace")

    def translated(written: list[str]) -> list[str]:
        """Texts that run together are translated in halves."""
        found = [line.strip() for line in run(_LINE.join(written) + "\n").strip().split(_LINE)]
        if len(found) == len(written):
            return found
        if len(written) == 1:
            return [" ".join(" ".join(found).split())]
        middle = len(written) // 2
        return translated(written[:middle]) + translated(written[middle:])

    given = [" ".join(text.split()) for text in texts]
    written = [text for text in given if text]
    results = iter(translated(written) if written else [])
    return [next(results) if text else "" for text in given]


def read_wordnet(folder: str | Path) -> dict[str, tuple[str, ...]]:
    """The synonyms of every English word that has some, in its commonest meaning.

    Miller (1995), "WordNet: A Lexical Database for English"; the format is that of the manual page
    wndb(5): `index.*` names the meanings of a word, commonest first, `data.*` the words of a
    meaning. The part of speech is not known in running text: that one is taken of which most
    meanings were seen in tagged texts. Words of grammar ("he" is also helium), words in several
    parts and names in capitals are left out. Inflected words ("cars") have no entry.

    Raises:
        DataError: a file is missing, or a line is at fault.
    """
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for part in PARTS:
        meanings = dict(_rows(Path(folder) / f"data.{part}", _meaning))
        for word, (seen, offset) in _rows(Path(folder) / f"index.{part}", _entry):
            if seen > found.get(word, (-1, ()))[0]:
                found[word] = seen, meanings.get(offset, ())
    return {
        word: others
        for word, (_, same) in found.items()
        if _is_plain(word) and (others := tuple(other for other in same if other != word))
    }


def _with_texts(corpus: Corpus, texts: Iterable[str]) -> Corpus:
    return Corpus.from_texts(
        texts, users=corpus.users, labels=corpus.labels, sources=corpus.sources
    )


def _is_plain(word: str) -> bool:
    return word.isalpha() and word.islower() and len(word) > 1 and word not in _GRAMMATICAL


def _meaning(fields: list[str]) -> tuple[str, tuple[str, ...]]:
    """(offset, its plain words) of a data line; "(p)" and the like are marks of adjectives."""
    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    return fields[0], tuple(filter(_is_plain, (word.partition("(")[0] for word in words)))


def _entry(fields: list[str]) -> tuple[str, tuple[int, str]]:
    """(word, (meanings seen in tagged texts, offset of the commonest one)) of an index line."""
    pointers = int(fields[3])
    return fields[0], (int(fields[5 + pointers]), fields[6 + pointers])


def _rows(file: Path, read: Callable[[list[str]], T]) -> Iterator[T]:
    """The lines of a file of WordNet, without glosses, behind the indented licence."""
    if not file.is_file():
        raise DataError(f"{file.parent} has no {file.name} of WordNet", remedy=_INSTALL_WORDNET)
    for number, line in enumerate(lines(file), start=1):
        if line.strip() and not line.startswith("  "):
            try:
                yield read(line.partition(" | ")[0].split())
            except (ValueError, IndexError) as error:
                problem = f"{file}, line {number}: not a line of WordNet ({error})"
                raise DataError(problem, remedy=_INSTALL_WORDNET) from error
