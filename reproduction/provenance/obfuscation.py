"""Obfuscation of texts: synonyms of WordNet, and translation by Apertium and back.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.4 and
Table 5: comments are translated to another language and back, which changes words and keeps the
meaning. Differs from the paper: the translator is Apertium (Forcada et al. 2011), not a web
service; synonyms are a second obfuscation, which keeps the order of the words.
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
from vestige.data.formats.reading import lines as lines_of
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
_FUNCTION_WORDS = frozenset(_GRAMMAR.split())


def obfuscation(name: str) -> Callable[[Corpus], Corpus]:
    """A change of texts: "none", "reversed", "apertium" or "synonyms"."""
    _validate.one_of(("none", "reversed", "apertium", "synonyms"), obfuscation=name)
    if name == "none":
        return lambda corpus: corpus
    if name == "reversed":
        return lambda corpus: _with_texts(corpus, (" ".join(text.split()[::-1]) for text in corpus))
    if name == "apertium":
        forth, back = (partial(apertium, direction=d) for d in ("eng-spa", "spa-eng"))
        return partial(back_translated, forth=forth, back=back)
    folder = os.environ.get("WNSEARCHDIR", "/usr/share/wordnet")
    return partial(with_synonyms, synonyms=read_wordnet(folder), seed=0)


def with_synonyms(
    corpus: Corpus, synonyms: Mapping[str, Sequence[str]], *, share: float = 1.0, seed: int
) -> Corpus:
    """The documents with a share of the words that have synonyms replaced by a random one.

    Initial capitals and words in capitals stay so.

    Example:
        >>> corpus = Corpus.from_texts(["Cars? My car, a red car."])
        >>> list(with_synonyms(corpus, {"car": ["auto"], "red": ["scarlet"]}, seed=0))
        ['Cars? My auto, a scarlet auto.']
    """
    rng = np.random.default_rng(seed)

    def replacement(match: re.Match[str]) -> str:
        word = match[0]
        choices = synonyms.get(word.lower(), ())
        if not choices or rng.random() >= share:
            return word
        synonym = choices[int(rng.integers(len(choices)))]
        if len(word) > 1 and word.isupper():
            return synonym.upper()
        return synonym[:1].upper() + synonym[1:] if word[0].isupper() else synonym

    return _with_texts(corpus, (_WORD.sub(replacement, text) for text in corpus))


def back_translated(corpus: Corpus, forth: Translate, back: Translate) -> Corpus:
    """The documents translated and back; documents with a blank translation are unchanged."""

    def texts() -> Iterator[str]:
        for originals in corpus.batches(BATCH):
            for old, new in zip(originals, back(forth(originals)), strict=True):
                yield new if new.strip() else old

    return _with_texts(corpus, texts())


def apertium(
    texts: list[str], direction: str, *, command: str = "apertium", timeout: float = 600
) -> list[str]:
    """A translation of each text; white space inside a text becomes one blank."""

    def run(text: str) -> str:
        arguments = [command, "-u", "-f", "txt", direction]
        try:
            process = subprocess.run(
                arguments, input=text.encode(), capture_output=True, timeout=timeout, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"{command} {direction} did not translate: {type(error).__name__}"
            raise DataError(problem, remedy=_INSTALL_APERTIUM) from error
        if not process.stdout.strip():
            raise DataError(f"{command} {direction} gave no text", remedy=_INSTALL_APERTIUM)
        return process.stdout.decode(errors="replace")

    def translated(batch: list[str]) -> list[str]:
        """Batches in which texts were merged are translated again in halves."""
        output = run(_LINE.join(batch) + "\n").strip().split(_LINE)
        if len(output) == len(batch):
            return [text.strip() for text in output]
        if len(batch) == 1:
            return [" ".join(" ".join(output).split())]
        middle = len(batch) // 2
        return translated(batch[:middle]) + translated(batch[middle:])

    lines = [" ".join(text.split()) for text in texts]
    nonempty = [line for line in lines if line]
    results = iter(translated(nonempty) if nonempty else [])
    return [next(results) if line else "" for line in lines]


def read_wordnet(folder: str | Path) -> dict[str, tuple[str, ...]]:
    """The synonyms of English words, in their commonest meaning.

    Miller (1995), "WordNet: A Lexical Database for English"; the format is that of the manual page
    wndb(5): `index.*` lists the meanings of a word, commonest first, `data.*` the words of a
    meaning. The part of speech is unknown in running text; the one with most meanings in tagged
    texts is used. Function words ("he" is also helium), words in several parts and names in
    capitals are left out. Inflected words ("cars") have no entry.
    """
    entries: dict[str, tuple[int, tuple[str, ...]]] = {}
    for part in PARTS:
        meanings = dict(_rows(Path(folder) / f"data.{part}", _meaning))
        for word, (count, offset) in _rows(Path(folder) / f"index.{part}", _entry):
            if count > entries.get(word, (-1, ()))[0]:
                entries[word] = count, meanings.get(offset, ())
    return {
        word: synonyms
        for word, (_, words) in entries.items()
        if _is_plain(word) and (synonyms := tuple(other for other in words if other != word))
    }


def _with_texts(corpus: Corpus, texts: Iterable[str]) -> Corpus:
    return Corpus.from_texts(
        texts, users=corpus.users, labels=corpus.labels, sources=corpus.sources
    )


def _is_plain(word: str) -> bool:
    return word.isalpha() and word.islower() and len(word) > 1 and word not in _FUNCTION_WORDS


def _meaning(fields: list[str]) -> tuple[str, tuple[str, ...]]:
    """(offset, its plain words) of a data line; "(p)" and the like are marks of adjectives."""
    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    return fields[0], tuple(filter(_is_plain, (word.partition("(")[0] for word in words)))


def _entry(fields: list[str]) -> tuple[str, tuple[int, str]]:
    """(word, (meanings seen in tagged texts, offset of the commonest one)) of an index line."""
    pointers = int(fields[3])
    return fields[0], (int(fields[5 + pointers]), fields[6 + pointers])


def _rows(file: Path, read: Callable[[list[str]], T]) -> Iterator[T]:
    """The lines of a file of WordNet after the indented licence, without glosses."""
    if not file.is_file():
        raise DataError(f"{file.parent} has no {file.name} of WordNet", remedy=_INSTALL_WORDNET)
    for number, line in enumerate(lines_of(file), start=1):
        if line.strip() and not line.startswith("  "):
            try:
                yield read(line.partition(" | ")[0].split())
            except (ValueError, IndexError) as error:
                problem = f"{file}, line {number}: not a line of WordNet ({error})"
                raise DataError(problem, remedy=_INSTALL_WORDNET) from error
