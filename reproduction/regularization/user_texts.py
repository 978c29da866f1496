"""Texts of many users with canaries of their own, split so that every user has test text."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.texts import corpora, of_length, sentences, vocabulary_of
from vestige.data.canaries.coins import user_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.formats.dialogue import read_reddit
from vestige.data.users import users_with
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError


@dataclass(frozen=True, kw_only=True)
class UserText:
    """Whose text, and how much of it.

    Attributes:
        dataset: "reddit" or "grammar", which is made and has users for tests.
        users: drawn at random among those with `fewest` to `most` documents.
        shortest, longest: words of a document.
        held_out: share of documents to test on; the paper's 20 %.
        repetitions: of each user's canaries.
        controls: canaries that are never planted.
    """

    dataset: str
    users: int
    fewest: int
    most: int
    shortest: int = 5
    longest: int = 60
    held_out: float = 0.2
    vocabulary_size: int = 5000
    repetitions: tuple[int, ...] = (1, 2, 5, 6, 20)
    controls: int = 500


@dataclass(frozen=True, kw_only=True)
class Users:
    """A `UserText`, read: the training text with canaries and without, test text of the same users,
    canaries and controls with their ids, and the vocabulary of the training text."""

    planted: Corpus
    original: Corpus
    test: Corpus
    canaries: tuple[Canary, ...]
    vocabulary: WordVocabulary


def read_users(text: UserText, data: Path | None) -> Users:
    """Read, draw the users, split, plant; all from seed 0.

    Raises:
        DataError: there is no such corpus, or too few users have enough documents.
    """
    corpus = _some_users(_read(text.dataset, data), text)
    train, test = corpus.split(text.held_out, seed=0)
    vocabulary = vocabulary_of(text.dataset, train, size=text.vocabulary_size)
    made = user_canaries(
        train, vocabulary, repetitions=text.repetitions, controls=text.controls, seed=0
    )
    planted, manifest = plant(train, made, seed=0, vocabulary=vocabulary)
    texts = {"planted": planted, "original": train, "test": test}
    return Users(**texts, canaries=manifest.canaries, vocabulary=vocabulary)


def _read(dataset: str, data: Path | None) -> Corpus:
    if dataset == "grammar":
        made = sentences(400, seed=0)
        # Users 0 to 11 with more and more sentences each.
        users = np.repeat(np.arange(12), np.arange(12) * 5 + 5)[: len(made)]
        kept = made.take(np.arange(len(users)))
        return Corpus.from_texts(list(kept), users=[f"user {u:02}" for u in users.tolist()])
    return read_reddit(corpora(data, dataset, "reddit_college") / "reddit_college")


def _some_users(corpus: Corpus, text: UserText) -> Corpus:
    right = of_length(corpus, shortest=text.shortest, longest=text.longest)
    fit = users_with(right, fewest=text.fewest, most=text.most)
    if len(fit) < text.users:
        raise DataError(
            f"{len(fit)} users have {text.fewest} to {text.most} documents where {text.users} "
            "are wanted",
            remedy="Ask for fewer users, or for fewer documents of each.",
        )
    drawn = np.random.default_rng(0).choice(fit, text.users, replace=False)
    return right.take(np.flatnonzero(np.isin(np.array(right.users), drawn)))
