"""Texts of members, others and non-members for an audit of users.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1: Reddit comments, SATED talks and film dialogues; reference users
outside the target's training; for other domains, text of another kind, split among artificial users
if it has none.

Differs from the paper: all users have equally many texts, of lengths in one range, and the
vocabulary is that of yet other users: amount of text or unknown words would reveal membership. Penn
Treebank, WikiText-2 and Ubuntu's chat replace larger corpora.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from reproduction.texts import corpora, documents_of, of_length, sentences, vocabulary_of
from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.encoded import sources_of
from vestige.data.formats.dialogue import read_cornell, read_reddit, read_ubuntu_irc
from vestige.data.formats.parallel import read_sated
from vestige.data.formats.text import read_wikitext
from vestige.data.users import artificial_users, disjoint_groups, users_with
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.training.shadow_jobs import Task

TASKS: dict[str, Task] = {
    "reddit": "next-word",
    "wikitext2": "next-word",
    "grammar": "next-word",
    "sated": "translation",
    "grammar-pairs": "translation",
    "cornell": "dialogue",
    "ubuntu-irc": "dialogue",
}


@dataclass(frozen=True, kw_only=True)
class AuditedText:
    """Which users, and how much text of each.

    Attributes:
        dataset: one of `TASKS`; the grammars are generated for tests.
        members, others: audited users, in and not in the target's training.
        reference: non-members. Shadows are trained on them, and some set the expectation.
        compared: other non-members, with whom p-values compare the audited.
        each: texts of a user.
        shortest, longest: words of a text.
        vocabulary_size: tokens, of sources and of targets.
        seed: of users, texts and groups.
    """

    dataset: str
    members: int
    others: int
    reference: int
    compared: int
    each: int
    shortest: int = 5
    longest: int = 60
    vocabulary_size: int = 5000
    seed: int = 0

    @property
    def task(self) -> Task:
        """The task of a model of these texts."""
        return TASKS[self.dataset]


@dataclass(frozen=True, kw_only=True)
class Audited:
    """An `AuditedText`, read: names in alphabetical order, and documents of each group.

    Attributes:
        audited: the documents of members and others.
        spare: the documents of users in no group, which give the vocabularies.
        source_vocabulary: None for next words.
    """

    members: tuple[str, ...]
    others: tuple[str, ...]
    audited: Corpus
    reference: Corpus
    compared: Corpus
    spare: Corpus
    vocabulary: WordVocabulary
    source_vocabulary: WordVocabulary | None


def read_audited(text: AuditedText, data: Path | None) -> Audited:
    """Read, sample users and their texts, build vocabularies of the rest."""
    corpus = read_users_texts(text.dataset, data)
    length = {"shortest": text.shortest, "longest": text.longest}
    eligible = users_with(corpus, fewest=text.each, **length)
    sizes = (text.members, text.others, text.reference, text.compared)
    groups = disjoint_groups(eligible, sizes, seed=text.seed)
    members, others, reference, compared = groups

    def documents(names: list[str]) -> Corpus:
        return documents_of(corpus, names, each=text.each, seed=text.seed, **length)

    sampled = {name for group in groups for name in group}
    spare = corpus.take(np.flatnonzero([user not in sampled for user in corpus.users or ()]))
    source = None
    if text.task != "next-word":
        source = vocabulary_of(sources_of(spare), size=text.vocabulary_size)
    return Audited(
        members=tuple(sorted(members)),
        others=tuple(sorted(others)),
        audited=documents([*members, *others]),
        reference=documents(reference),
        compared=documents(compared),
        spare=spare,
        vocabulary=vocabulary_of(spare, size=text.vocabulary_size),
        source_vocabulary=source,
    )


def read_other_domain(text: AuditedText, dataset: str, data: Path | None) -> tuple[Corpus, Corpus]:
    """Documents of reference and of compared users of another domain, artificial if it has none."""
    corpus, sizes = read_users_texts(dataset, data), (text.reference, text.compared)
    users, needed = sum(sizes), sum(sizes) * text.each
    if corpus.users is not None:
        eligible = users_with(corpus, fewest=text.each, shortest=3, longest=60)
        (names,) = disjoint_groups(eligible, (users,), seed=0)
        corpus = documents_of(corpus, names, each=text.each, seed=0, shortest=3, longest=60)
    else:
        documents = of_length(corpus, shortest=5, longest=60)
        if len(documents) < needed:
            raise DataError(
                f"{dataset} has {len(documents)} documents where {needed} are wanted",
                remedy="Ask for fewer users or fewer documents of each.",
            )
        sample = np.random.default_rng(0).permutation(len(documents))[:needed]
        corpus = artificial_users(documents.take(np.sort(sample)), users, seed=0)
    reference, compared = disjoint_groups(sorted(set(corpus.users or ())), sizes, seed=0)
    return documents_by(corpus, reference), documents_by(corpus, compared)


def documents_by(corpus: Corpus, users: list[str] | tuple[str, ...]) -> Corpus:
    """The documents of some users, in the order of the corpus."""
    return corpus.take(np.flatnonzero(np.isin(np.array(corpus.users), users)))


def read_users_texts(dataset: str, data: Path | None) -> Corpus:
    """A complete corpus of `TASKS`."""
    _validate.one_of(tuple(TASKS), dataset=dataset)
    if dataset.startswith("grammar"):
        return _generated(pairs=dataset == "grammar-pairs")
    return _read(dataset, corpora(data, dataset, "reddit_college, sated, ..."))


@cache
def _read(dataset: str, data: Path) -> Corpus:
    if dataset == "reddit":
        return read_reddit(data / "reddit_college")
    if dataset == "sated":
        return read_sated(data / "sated")
    if dataset == "cornell":
        return read_cornell(data / "cornell_movie")
    if dataset == "ubuntu-irc":
        return read_ubuntu_irc(data / "ubuntu_irc")
    return _in_sentences(read_wikitext(data / "wikitext2"))


def _in_sentences(corpus: Corpus) -> Corpus:
    """Tokenised paragraphs, split after full stops: about as long as comments."""
    pieces = (piece.strip() for text in corpus for piece in text.split(" . "))
    return Corpus.from_texts(piece for piece in pieces if piece and not piece.startswith("="))


def _generated(*, pairs: bool) -> Corpus:
    """60 users with 20 sentences each; a source is its target backwards."""
    texts = list(sentences(1200, seed=3))
    users = [f"user {number % 60:02}" for number in range(len(texts))]
    sources = [" ".join(reversed(text.split())) for text in texts] if pairs else None
    return Corpus.from_texts(texts, users=users, sources=sources)
