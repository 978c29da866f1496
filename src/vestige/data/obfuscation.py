"""Obfuscation of texts: removed words, synonyms, back-translation.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.4 and
Table 5: comments are translated to another language and back, which changes words and keeps the
sense.

Differs from the paper: the translator is any callable, not a web service; synonyms are a second
way, which keeps the order of the words.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.errors import DataError

Translate = Callable[[list[str]], list[str]]

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def with_synonyms(
    corpus: Corpus, synonyms: Mapping[str, Sequence[str]], *, share: float = 1.0, seed: int
) -> Corpus:
    """The documents with words replaced by others that mean the same.

    Args:
        corpus: its users, labels and sources stay.
        synonyms: of words in lower case, as `wordnet.read_wordnet` gives them. A word that has
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
        there: from texts to as many texts in another language; see `translators`.
        back: from these to as many texts in the first language.
        batch: texts in one call.

    Returns:
        as many documents; where nothing came back for one, it stays as it was. `words_kept`
        says how much of the text did.

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


def words_kept(before: Corpus, after: Corpus) -> float:
    """Share of the words, between blanks, that a document has after as before, in [0, 1].

    A word counts as often as it is in both versions of a document, wherever it stands.

    Raises:
        ValueError: the two have different numbers of documents, or there are no words.

    Example:
        >>> words_kept(Corpus.from_texts(["a b b c"]), Corpus.from_texts(["b a d"]))
        0.5
    """
    if len(before) != len(after):
        raise ValueError(f"after must have {len(before)} documents as before has, got {len(after)}")
    words = kept = 0
    for old, new in zip(before, after, strict=True):
        counted = Counter(old.split())
        words += counted.total()
        kept += (counted & Counter(new.split())).total()
    if not words:
        raise ValueError(f"before must hold words, got {len(before)} documents without any")
    return kept / words


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
