"""The texts that experiments learn, by name, and random parts of them."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.formats.dialogue import read_reddit
from vestige.data.formats.text import read_newsgroups, read_penn_treebank, read_wikitext
from vestige.data.lexicon import TEMPLATES, WORDS_BY_ROLE
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError

NEWSGROUPS = ("rec.sport.hockey", "talk.politics.mideast")
NAMES = ("ptb", "wikitext2", "reddit", "grammar", *NEWSGROUPS, "grammar-topic")
_TOKENISED = ("ptb", "wikitext2", "grammar", "grammar-topic")
_VALIDATION = 0.05  # of Reddit, as in the paper


def read_text(name: str, data: Path | None) -> tuple[Corpus, Corpus]:
    """A text, and text of its kind to validate on (empty for a newsgroup).

    Args:
        name: one of `NAMES`.
        data: the folder that holds `ptb`, `wikitext2`, `reddit_college` and `newsgroups`; the
            grammars need none.

    Raises:
        ValueError: there is no such text.
        DataError: no folder was given, or it lacks the text.
    """
    _validate.one_of(NAMES, name=name)
    if name.startswith("grammar"):
        topic = name == "grammar-topic"
        return sentences(300 if topic else 1200, topic=topic, seed=0), sentences(200, seed=1)
    data = corpora(data, name, "ptb, reddit_college, ...")
    if name == "ptb":
        folder = data / "ptb"
        return read_penn_treebank(folder), read_penn_treebank(folder, split="valid")
    if name == "wikitext2":
        folder = data / "wikitext2"
        return read_wikitext(folder), read_wikitext(folder, split="valid")
    if name == "reddit":
        return read_reddit(data / "reddit_college").split(_VALIDATION, seed=0)
    group = read_newsgroups(data / "newsgroups" / name)
    return group, group.take([])


def corpora(data: Path | None, name: str, folders: str) -> Path:
    """The folder of corpora, or the error that the text of a name needs it."""
    if data is None:
        raise DataError(
            f"the text {name} needs a folder of corpora",
            remedy=f"Give --data, or set VESTIGE_DATA to a folder with {folders}.",
        )
    return data


def vocabulary_of(name: str, corpus: Corpus, *, size: int) -> WordVocabulary:
    """The commonest words of a text; what does not come tokenised is split and put in lower case.

    Args:
        name: of the text, one of `NAMES`.
        corpus: the text, or a part of it.
        size: tokens, `<unk>` and `<eos>` counted.
    """
    if name in _TOKENISED:
        return WordVocabulary.build(corpus, size=size)
    return WordVocabulary.build(corpus, size=size, lowercase=True, tokenise="words")


def random_parts(corpus: Corpus, words: Sequence[int], *, seed: int) -> list[Corpus]:
    """Disjoint random parts of a corpus, of about so many words (between blanks) each.

    Raises:
        DataError: the corpus has fewer words than asked for.
    """
    order = np.random.default_rng(seed).permutation(len(corpus))
    lengths = np.array([len(text.split()) for text in corpus])[order]
    ends = np.searchsorted(np.cumsum(lengths), np.cumsum(words))
    if lengths.sum() < sum(words):
        raise DataError(
            f"the corpus has {lengths.sum()} words where {sum(words)} are needed",
            remedy="Ask for fewer words, or give a larger corpus.",
        )
    bounds = [0, *(ends + 1)]
    return [corpus.take(order[a:b]) for a, b in itertools.pairwise(bounds)]


def sentences(number: int, *, topic: bool = False, seed: int) -> Corpus:
    """Sentences of a small grammar, for tests: templates filled with words of Zipf's frequencies.

    Args:
        number: how many.
        topic: half of the words are some that the plain grammar lacks.
        seed: decides the words.
    """
    generator = np.random.default_rng(seed)
    common = {role: words[:60] for role, words in WORDS_BY_ROLE.items()}
    special = {role: words[60:66] for role, words in WORDS_BY_ROLE.items()}
    templates = TEMPLATES[5] + TEMPLATES[6]

    def word(role: str) -> str:
        words = special[role] if topic and generator.random() < 0.5 else common[role]
        odds = 1 / np.arange(1, len(words) + 1)
        return str(generator.choice(words, p=odds / odds.sum()))

    chosen = generator.integers(len(templates), size=number)
    return Corpus.from_texts(" ".join(word(role) for role in templates[i]) for i in chosen)
