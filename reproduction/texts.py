"""The texts that models learn, by name; random parts of them, and documents of users."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.formats.dialogue import read_reddit
from vestige.data.formats.text import read_newsgroups, read_penn_treebank, read_wikitext
from vestige.data.lexicon import TEMPLATES, WORDS_BY_ROLE
from vestige.data.users import fits_length
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError

NEWSGROUPS = ("rec.sport.hockey", "talk.politics.mideast")
NAMES = ("ptb", "wikitext2", "reddit", "grammar", *NEWSGROUPS, "grammar-topic")
_TOKENISED = ("ptb", "wikitext2", "grammar", "grammar-topic")
_VALIDATION = 0.05  # of Reddit, as in the paper


def read_text(name: str, data: Path | None) -> tuple[Corpus, Corpus]:
    """A text, and a validation text of its kind (empty for a newsgroup).

    Args:
        name: one of `NAMES`.
        data: the folder that holds `ptb`, `wikitext2`, `reddit_college` and `newsgroups`; the
            grammars need none.
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
    """The folder of corpora; DataError if the text `name` needs one and none was given."""
    if data is None:
        raise DataError(
            f"the text {name} needs a folder of corpora",
            remedy=f"Give --data, or set VESTIGE_DATA to a folder with {folders}.",
        )
    return data


def vocabulary_of(corpus: Corpus, *, size: int, name: str = "") -> WordVocabulary:
    """The commonest words of a text, `size` tokens including `<unk>` and `<eos>`.

    Text is split and in lower case, unless its `name` is that of a tokenised text.
    """
    if name in _TOKENISED:
        return WordVocabulary.build(corpus, size=size)
    return WordVocabulary.build(corpus, size=size, lowercase=True, tokenise="words")


def random_parts(corpus: Corpus, words: Sequence[int], *, seed: int) -> list[Corpus]:
    """Disjoint random parts of a corpus with about these numbers of words (between blanks)."""
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
        topic: half of the words are absent from the plain grammar.
        seed: of the words.
    """
    rng = np.random.default_rng(seed)
    common = {role: words[:60] for role, words in WORDS_BY_ROLE.items()}
    special = {role: words[60:66] for role, words in WORDS_BY_ROLE.items()}
    templates = TEMPLATES[5] + TEMPLATES[6]

    def word(role: str) -> str:
        words = special[role] if topic and rng.random() < 0.5 else common[role]
        odds = 1 / np.arange(1, len(words) + 1)
        return str(rng.choice(words, p=odds / odds.sum()))

    chosen = rng.integers(len(templates), size=number)
    return Corpus.from_texts(" ".join(word(role) for role in templates[i]) for i in chosen)


def of_length(corpus: Corpus, *, shortest: int = 1, longest: int | None = None) -> Corpus:
    """The documents of `shortest` to `longest` words between blanks, in order."""
    return corpus.take(np.flatnonzero(fits_length(corpus, shortest, longest)))


def documents_of(
    corpus: Corpus,
    names: Sequence[str],
    *,
    each: int,
    seed: int,
    fewest: int | None = None,
    shortest: int = 1,
    longest: int | None = None,
) -> Corpus:
    """Random documents of every named user, `each` of them, in the order of the corpus.

    The documents of a user do not depend on the other names.

    Args:
        corpus: with users.
        names: different users.
        each: documents per user.
        seed: of the choice.
        fewest: documents that a user must have (None: `each`); a user with fewer than `each` has
            all of them.
        shortest, longest: words of a document; None for any number.
    """
    (users, owner), named = corpus.user_indices(), set(names)
    is_named = np.array([name in named for name in users], dtype=bool)
    eligible = np.flatnonzero(is_named[owner] & fits_length(corpus, shortest, longest))
    counts = np.bincount(owner[eligible], minlength=len(users))
    fewest = each if fewest is None else fewest
    lacking = int((counts[is_named] < fewest).sum()) + len(names) - int(is_named.sum())
    if lacking:
        raise DataError(
            f"{lacking} of {len(names)} users have fewer than {fewest} documents of the right "
            "length",
            remedy="Choose users with more documents, ask for fewer documents or other lengths.",
        )
    random = np.random.default_rng(seed).random(len(corpus))[eligible]
    drawn = eligible[np.lexsort((random, owner[eligible]))]  # by user, in random order within
    starts = np.cumsum(counts) - counts
    rank = np.arange(len(drawn)) - starts[owner[drawn]]  # within the user's documents, from 0
    return corpus.take(np.sort(drawn[rank < each]))
