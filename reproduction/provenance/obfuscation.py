"""Obfuscation of texts: synonyms of WordNet, and translation by Apertium and back.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.4 and
Table 5: comments are translated to another language and back, which changes words and keeps the
sense. Differs from the paper: the translator is any callable, not a web service; synonyms are a
second way, which keeps the order of the words.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.files import lines
from vestige.errors import DataError

Translate = Callable[[list[str]], list[str]]
PARTS = ("noun", "verb", "adj", "adv")

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LINE = "\n\n"  # apertium never moves words over an empty line
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


def obfuscation(name: str) -> Callable[[Corpus], Corpus]:
    """A way to change texts: "none", "reversed", "apertium" or "synonyms".

    Raises:
        ValueError: there is no such way.
        DataError: what it needs is not installed.
    """
    _validate.one_of(("none", "reversed", "apertium", "synonyms"), obfuscation=name)
    if name == "none":
        return lambda corpus: corpus
    if name == "reversed":
        return lambda corpus: _with_texts(
            corpus, (" ".join(reversed(text.split())) for text in corpus)
        )
    if name == "apertium":
        if shutil.which("apertium") is None:
            raise DataError(
                "back-translation needs the command apertium, which is not there",
                remedy="Install Debian's apertium and apertium-eng-spa.",
            )
        return partial(back_translated, there=Apertium("eng-spa"), back=Apertium("spa-eng"))
    folder = os.environ.get("WNSEARCHDIR", "/usr/share/wordnet")
    return partial(with_synonyms, synonyms=read_wordnet(folder), seed=0)


def with_synonyms(
    corpus: Corpus, synonyms: Mapping[str, Sequence[str]], *, share: float = 1.0, seed: int
) -> Corpus:
    """The documents with words replaced by others that mean the same.

    Args:
        corpus: its users, labels and sources stay.
        synonyms: of words in lower case, as `read_wordnet` gives them. A word that has
            none stays; a capital at its beginning does too, and capitals throughout.
        share: of the words with synonyms, how many are replaced, in (0, 1].
        seed: decides which, and by which synonym.

    Raises:
        ValueError: the share is out of range.

    Example:
        >>> corpus = Corpus.from_texts(["Cars? My car, a red car."])
        >>> list(with_synonyms(corpus, {"car": ["auto"], "red": ["scarlet"]}, seed=0))
        ['Cars? My auto, a scarlet auto.']
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")
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


def back_translated(
    corpus: Corpus, there: Translate, back: Translate, *, batch: int = 200
) -> Corpus:
    """The documents translated to another language and back.

    Args:
        corpus: its users, labels and sources stay.
        there: from texts to as many texts in another language; such as `Apertium`.
        back: from these to as many texts in the first language.
        batch: texts in one call.

    Returns:
        as many documents; one whose translation is blank stays as it was.

    Raises:
        ValueError: batch is not positive.
        DataError: a translator gives fewer or more texts than it got, or something else.
    """
    _validate.positive(batch=batch)

    def texts() -> Iterator[str]:
        done = 0
        for originals in corpus.batches(batch):
            abroad = _checked(there, originals, "there", done)
            home = _checked(back, abroad, "back", done)
            yield from (
                new if new.strip() else old for old, new in zip(originals, home, strict=True)
            )
            done += len(originals)

    return _with_texts(corpus, texts())


def _with_texts(corpus: Corpus, texts: Iterator[str]) -> Corpus:
    return Corpus.from_texts(
        texts, users=corpus.users, labels=corpus.labels, sources=corpus.sources
    )


def _checked(translate: Translate, texts: list[str], way: str, start: int) -> list[str]:
    made: object = translate(list(texts))
    if not isinstance(made, list) or not all(isinstance(text, str) for text in made):
        raise DataError(
            f"the translator {way} returned no list of texts, from document {start} on",
            remedy="Pass a function from a list of texts to a list of the same length.",
        )
    if len(made) != len(texts):
        raise DataError(
            f"the translator {way} returned {len(made)} texts for {len(texts)}, from document "
            f"{start} on",
            remedy="Pass a function from a list of texts to a list of the same length.",
        )
    return made


@dataclass(frozen=True)
class Apertium:
    """Translation by rules, with the command `apertium` (Forcada et al. 2011).

    Blanks and line breaks inside a text become one blank. Unknown words stay as they are.

    Attributes:
        direction: a mode that is installed, "eng-spa" or "spa-eng" for instance.
        command: the program, where it is not on the path.
        timeout: seconds for one call.
    """

    direction: str
    command: str = "apertium"
    timeout: float = 600

    def __call__(self, texts: list[str]) -> list[str]:
        """As many translations as texts.

        Raises:
            DataError: the command or the direction is not installed, fails, or takes too long.
        """
        given = [" ".join(text.split()) for text in texts]
        written = [text for text in given if text]
        translated = iter(self._lines(written) if written else [])
        return [next(translated) if text else "" for text in given]

    def _lines(self, texts: list[str]) -> list[str]:
        lines = [line.strip() for line in self._run(_LINE.join(texts) + "\n").strip().split(_LINE)]
        if len(lines) == len(texts):
            return lines
        if len(texts) == 1:
            return [" ".join(" ".join(lines).split())]
        middle = len(texts) // 2
        return self._lines(texts[:middle]) + self._lines(texts[middle:])

    def _run(self, text: str) -> str:
        try:
            done = subprocess.run(
                [self.command, "-u", "-f", "txt", self.direction],
                input=text.encode(),
                capture_output=True,
                timeout=self.timeout,
                check=False,
            )
        except FileNotFoundError as error:
            raise DataError(
                f"the command {self.command} is not installed",
                remedy="Install Debian's apertium and a pair such as apertium-eng-spa.",
            ) from error
        except (subprocess.TimeoutExpired, OSError) as error:
            raise DataError(
                f"the command {self.command} did not translate: {type(error).__name__}",
                remedy="Try `apertium -l`, or pass fewer texts at once.",
            ) from error
        if done.returncode or not done.stdout.strip():
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise DataError(
                f"{self.command} {self.direction} failed with code {done.returncode}"
                + (f": {said[0]}" if said else ""),
                remedy="`apertium -l` lists the directions; Debian's apertium-eng-spa has two.",
            )
        return done.stdout.decode(errors="replace")


def read_wordnet(folder: str | Path) -> dict[str, tuple[str, ...]]:
    """The synonyms of every English word that has some, in its commonest meaning.

    Miller (1995), "WordNet: A Lexical Database for English"; the format is that of the manual page
    wndb(5): `index.*` names the meanings of a word, commonest first, `data.*` the words of a
    meaning.

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
