"""Inputs of an audit of users: texts of audited users and of non-members, and queries."""

from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.expected_rank import FEWEST_WORDS, WordCounts
from vestige.attacks.membership.non_members import NonMembers, draw_groups, users_needed
from vestige.attacks.membership.own_texts import own_texts
from vestige.attacks.membership.query_answers import Texts
from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.encoded_pairs import encode_pairs
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.users import artificial_users
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.metrics.conformal import calibration_needed
from vestige.models.top_k import Context
from vestige.monitor import Monitor
from vestige.workflows.audit_options import TextSettings
from vestige.workflows.audit_target import Target
from vestige.workflows.inputs import open_corpus

ME = "me"
"""User of texts without a user."""


@dataclass(frozen=True, kw_only=True)
class AuditTexts:
    """Texts of an audit, with users; nobody is in both parts.

    Attributes:
        texts: of the audited users, without near-duplicates.
        reference: of non-members, likewise.
        independent: the check of that name.
    """

    texts: Corpus
    reference: Corpus
    independent: Check

    def groups(self, *, seed: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Non-members whose words are counted, who are fitted, and who are compared."""
        return draw_groups(sorted(set(self.reference.users or ())), seed=seed)

    def reference_of(self, *groups: tuple[str, ...]) -> Corpus:
        """The reference's texts of some users."""
        wanted = {name for group in groups for name in group}
        inside = [name in wanted for name in self.reference.users or ()]
        return self.reference.take(np.flatnonzero(inside))

    def sourced(self, needed: bool) -> "AuditTexts":
        """With sources where the task has them, and else without.

        Raises:
            DataError: there are none.
        """
        columns = ["text", "user", *(["source"] if needed else [])]
        kept: dict[str, Any] = {}
        for name, part in (("texts", self.texts), ("reference", self.reference)):
            if needed and part.sources is None:
                raise DataError(
                    f"`{name}` does not say what each text answers or translates",
                    remedy="Name the column that does (`source`).",
                )
            kept[name] = Corpus(part.table.select(columns))
        return replace(self, **kept)

    def together(self) -> Corpus:
        """The texts, then the reference."""
        return self.texts + self.reference


def read_texts(
    texts: Any, reference: Any, settings: TextSettings, *, show_secrets: bool, monitor: Monitor
) -> AuditTexts:
    """Read both corpora, by user.

    Raises:
        DataError: one cannot be read, or somebody is in both.
    """
    parts = (
        _with_users("texts", _audited(texts, settings, monitor), monitor),
        _with_users("reference", _non_members(reference, settings), monitor),
    )
    both = sorted(set(parts[0].users or ()) & set(parts[1].users or ()))
    if both:
        shown = f", {both[0]!r} among them" if show_secrets else ""
        raise DataError(
            f"{len(both)} users stand in `texts` and in `reference`{shown}",
            remedy="Take them out of `reference`, which must hold only people who are not in "
            "the training data; `show_secrets` names one.",
        )
    return _without_duplicates(*parts, monitor)


def _without_duplicates(texts: Corpus, reference: Corpus, monitor: Monitor) -> AuditTexts:
    """Only texts that say something of one user."""
    whole = texts + reference
    read = list(whole)
    if whole.sources is not None:
        read = [f"{source} {text}" for source, text in zip(whole.sources, read, strict=True)]
    own = own_texts(read, whole.users or (), audited=len(texts))
    mine, theirs = own.kept[: len(texts)], own.kept[len(texts) :]
    if left_out := int((~own.kept).sum()):
        monitor.log(f"{left_out:,} of {len(read):,} texts are near-duplicates and are left out")
    if not mine.any():
        raise DataError(
            "most texts of every audited user are near-duplicates of each other",
            remedy="Give texts that differ.",
        )
    return AuditTexts(
        texts=texts.take(np.flatnonzero(mine)),
        reference=reference.take(np.flatnonzero(theirs)),
        independent=own.check,
    )


def _audited(texts: Any, settings: TextSettings, monitor: Monitor) -> Corpus:
    if settings.person is not None:
        if not settings.person.strip():
            raise ValueError("`person` must be a name, got blanks or nothing")
        return _owned_by(_read(texts, settings, user=None), settings.person)
    try:
        corpus = _read(texts, settings, user=settings.user)
    except DataError as error:
        if settings.user is None or f'has no column "{settings.user}"' not in error.problem:
            raise
        corpus = _read(texts, settings, user=None)
    if corpus.users is None:
        monitor.log(f"Nothing says whose --texts are: taken for one person's, {ME!r}")
        return _owned_by(corpus, ME)
    return corpus


def _non_members(reference: Any, settings: TextSettings) -> Corpus:
    if settings.artificial is not None:
        corpus = _read(reference, settings, user=None)
        return artificial_users(corpus, settings.artificial, seed=settings.seed)
    corpus = _read(reference, settings, user=settings.user)
    if corpus.users is None:
        name = reference if isinstance(reference, str | PathLike) else "`reference`"
        raise DataError(
            f"{name} does not say whose each text is",
            remedy="Name the column that does (`user`), or split it into artificial users "
            "(`artificial` 100).",
        )
    return corpus


def _read(source: Any, settings: TextSettings, *, user: str | None) -> Corpus:
    return open_corpus(
        source,
        format=settings.format,
        text=settings.text,
        user=user,
        source_column=settings.source,
        limit=settings.limit,
    )


def _owned_by(corpus: Corpus, name: str) -> Corpus:
    return Corpus.from_texts(corpus, users=[name] * len(corpus), sources=corpus.sources)


def _with_users(option: str, corpus: Corpus, monitor: Monitor) -> Corpus:
    """Without the texts that have no user."""
    named = np.array([user != "" for user in corpus.users or ()])
    if not named.any():
        raise DataError(
            f"`{option}`: every text has an empty user", remedy="Name another column (`user`)."
        )
    if left_out := int((~named).sum()):
        monitor.log(f"--{option}: {left_out} texts without a user are left out")
    return corpus.take(np.flatnonzero(named)) if left_out else corpus


@dataclass(frozen=True, kw_only=True)
class AuditInputs:
    """Encoded texts, the words that can be queried, and the role of each user.

    Attributes:
        asked: w words.
        counts: of words of the non-members who play no other part; with a base, of everybody.
        audited: users, as places in `asked.names`.
        known: non-members, likewise.
    """

    texts: Texts
    asked: TokenQueries
    counts: WordCounts
    audited: tuple[int, ...]
    known: NonMembers
    target: Target
    parts: AuditTexts

    @classmethod
    def of(
        cls, target: Target, parts: AuditTexts, *, seed: int, together: bool = False
    ) -> "AuditInputs":
        """Encode, find the words, and draw the groups of non-members.

        Args:
            target: whose vocabulary says which words there are.
            parts: texts.
            seed: of the groups.
            together: everything is learnt from audited and reference users alike, so that all of
                the reference can be compared with.
        """
        whole = parts.together()
        if target.source_vocabulary is None:
            texts: Texts = encode(whole, target.vocabulary)
        else:
            texts = encode_pairs(whole, target.source_vocabulary, target.vocabulary)
        targets = texts if isinstance(texts, EncodedCorpus) else texts.targets
        asked = token_queries(targets, target.vocabulary)
        inside = set(parts.texts.users or ())
        groups = parts.groups(seed=seed)
        if together:
            groups = ((), (), tuple(sorted(name for group in groups for name in group)))
        known = NonMembers.named(groups, asked.names)
        counted = range(len(asked.names)) if together else known.counted
        return cls(
            texts=texts,
            asked=asked.take(~np.isin(asked.users, known.counted)),
            counts=WordCounts.of_users(targets, counted, target.vocab_size),
            audited=tuple(n for n, name in enumerate(asked.names) if name in inside),
            known=known,
            target=target,
            parts=parts,
        )

    @property
    def targets(self) -> EncodedCorpus:
        """The texts whose words are asked about."""
        return self.texts if isinstance(self.texts, EncodedCorpus) else self.texts.targets

    @property
    def owners(self) -> NDArray[np.int32]:
        """(t,) the user of each text, as a place in `asked.names`."""
        assert self.targets.users is not None
        return self.targets.users

    @cached_property
    def words(self) -> list[list[str]]:
        """Every text as the words that its ids stand for, known or not."""
        return [self.split(text) for text in self.parts.together()]

    @cached_property
    def known_words(self) -> frozenset[str]:
        """The words that can be asked about."""
        vocabulary = self.target.vocabulary
        return frozenset(map(vocabulary.piece, range(len(vocabulary))))

    def split(self, text: str) -> list[str]:
        """A text as a service's words."""
        vocabulary = self.target.vocabulary
        if not isinstance(vocabulary, WordVocabulary):
            raise TypeError(f"a service is asked in words, got {type(vocabulary).__name__}")
        return vocabulary.split(text)

    def contexts(self, asked: TokenQueries) -> tuple[list[Context], list[str]]:
        """What a service is shown before each word, in the words of the texts; and the words."""
        sources = self.parts.together().sources if self.target.source_vocabulary else None
        contexts, words = [], []
        for text, place in zip(asked.texts.tolist(), asked.positions.tolist(), strict=True):
            source = None if sources is None else sources[text]
            contexts.append(Context(tuple(self.words[text][:place]), source))
            words.append(self.words[text][place])
        return contexts, words

    def chosen(self, policy: QueryPolicy, references: Any = None) -> NDArray[np.bool_]:
        """(w,) True for the words that a policy selects."""
        return policy.mask(self.asked, self.counts, references)

    def check(self, policy: QueryPolicy, rate: float) -> None:
        """Refuse an audit that cannot succeed, before anything is trained or queried.

        Raises:
            DataError: users or words are too few.
        """
        counts = self.asked.counts()
        if not counts[list(self.audited)].any():
            raise DataError(
                "`texts` hold no word that can be asked about",
                remedy="Give texts in the language of the model, split into words as it splits "
                "them, and a reference in that language.",
            )
        compared = int(np.count_nonzero(counts[list(self.known.compared)]))
        needed = calibration_needed(rate)
        if compared < needed:
            users = len(self.known.counted) + len(self.known.fitted) + len(self.known.compared)
            together = not self.known.fitted
            raise DataError(
                f"the {users} users of `reference` leave {compared} with words to ask about to "
                f"compare with: it takes {needed} before a p-value can be {rate:g}",
                remedy=f"Give texts of {needed if together else users_needed(rate)} people or more "
                "(`reference`), split a text of nobody into more users (`artificial`), or take a "
                "larger `rate`.",
            )
        fitted = list(self.known.fitted or self.known.compared)
        words = int(policy.most(self.asked)[fitted].sum())
        if words < FEWEST_WORDS:
            raise DataError(
                f"{words} words of the {len(fitted)} users of `reference` that the expectation is "
                f"learnt from are too few, it takes {FEWEST_WORDS}",
                remedy="Give longer or more texts of people who are not in the training data "
                "(`reference`), or raise `queries` or `calls`.",
            )
