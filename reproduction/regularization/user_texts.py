"""Texts of many users with planted canaries, split so that every user has test text; and each
user's natural canary, the most perplexing training text.

Mireshghallah et al. (2021), arXiv:2103.07567, appendix A.5, "real canaries": the training text
of each user that an undefended model finds most perplexing, which most probably contains something
specific to this user.

Differs from the paper: natural canaries have a given length, since attacks compare texts of similar
length; texts with words outside the vocabulary are left out, since no model can generate them; and
no text is the canary of two users.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from reproduction.texts import corpora, of_length, sentences, vocabulary_of
from vestige.data.canaries.coins import user_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus
from vestige.data.formats.dialogue import read_reddit
from vestige.data.users import users_with
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError


@dataclass(frozen=True, kw_only=True)
class UserText:
    """Which users, and how much of their text.

    Attributes:
        dataset: "reddit" or "grammar", which is generated for tests.
        users: sampled among those with `fewest` to `most` documents.
        shortest, longest: words of a document.
        held_out: share of documents for the test; the paper's 20 %.
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
    """Read, sample the users, split and plant, with seed 0."""
    corpus = _sample_users(_read(text.dataset, data), text)
    train, test = corpus.split(text.held_out, seed=0)
    vocabulary = vocabulary_of(train, size=text.vocabulary_size, name=text.dataset)
    canaries = user_canaries(
        train, vocabulary, repetitions=text.repetitions, controls=text.controls, seed=0
    )
    planted, manifest = plant(train, canaries, seed=0, vocabulary=vocabulary)
    return Users(
        planted=planted,
        original=train,
        test=test,
        canaries=manifest.canaries,
        vocabulary=vocabulary,
    )


def _read(dataset: str, data: Path | None) -> Corpus:
    if dataset == "grammar":
        texts = sentences(400, seed=0)
        # Users 0 to 11 with more and more sentences each.
        users = np.repeat(np.arange(12), np.arange(12) * 5 + 5)[: len(texts)]
        names = [f"user {user:02}" for user in users.tolist()]
        return Corpus.from_texts(list(texts)[: len(users)], users=names)
    return read_reddit(corpora(data, dataset, "reddit_college") / "reddit_college")


def _sample_users(corpus: Corpus, text: UserText) -> Corpus:
    documents = of_length(corpus, shortest=text.shortest, longest=text.longest)
    eligible = users_with(documents, fewest=text.fewest, most=text.most)
    if len(eligible) < text.users:
        raise DataError(
            f"{len(eligible)} users have {text.fewest} to {text.most} documents where "
            f"{text.users} are wanted",
            remedy="Ask for fewer users, or for fewer documents of each.",
        )
    sample = np.random.default_rng(0).choice(eligible, text.users, replace=False)
    return documents.take(np.flatnonzero(np.isin(np.array(documents.users), sample)))


def natural_canaries(
    data: EncodedCorpus,
    vocabulary: Vocabulary,
    *,
    loss: ArrayLike,
    tokens: ArrayLike,
    shortest: int = 5,
    longest: int = 20,
) -> tuple[Canary, ...]:
    """For each user with a text of the right length, that with the highest exp(loss / tokens).

    `loss` and `tokens` are (d,) summed nats of the documents under an undefended model, and the
    tokens over which they were summed (`score_documents`). Lengths are without the end of the text.

    Example:
        >>> from vestige import Corpus, WordVocabulary
        >>> from vestige.data.encoded import encode
        >>> corpus = Corpus.from_texts(["to be", "or not"], users=["ann", "ann"])
        >>> data = encode(corpus, words := WordVocabulary.build(corpus))
        >>> natural_canaries(data, words, loss=[3, 9], tokens=[3, 3], shortest=2)[0].phrase
        'or not'
    """
    assert data.users is not None
    mean_loss = np.asarray(loss, np.float64) / np.asarray(tokens, np.float64)
    lengths = np.diff(data.offsets) - 1
    texts = {
        document: tuple(
            data.tokens[data.offsets[document] : data.offsets[document + 1] - 1].tolist()
        )
        for document in np.flatnonzero((lengths >= shortest) & (lengths <= longest)).tolist()
    }
    chosen: dict[int, tuple[int, ...]] = {}
    for document in sorted(texts, key=lambda document: (-mean_loss[document], document)):
        user, text = int(data.users[document]), texts[document]
        is_free = user not in chosen and text not in chosen.values()
        if is_free and data.names[user] and vocabulary.unk_id not in text:
            chosen[user] = text
    copies, counts = Counter(texts.values()), np.bincount(data.tokens)
    return tuple(
        Canary(
            phrase=vocabulary.decode(list(text)),
            pattern="real",
            frequencies=tuple(counts[list(text)].tolist()),
            copies=copies[text],
            ids=text,
            user=data.names[user],
        )
        for user, text in sorted(chosen.items())
    )
