"""Inputs of an audit of users: texts with users, groups of non-members, and words to query."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.expected_rank import FEWEST_WORDS, WordCounts
from vestige.attacks.membership.non_members import NonMembers, draw_groups, users_needed
from vestige.attacks.membership.own_texts import own_texts
from vestige.attacks.membership.query_answers import Texts
from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.audits.membership.target import Target
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode, encode_pairs
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.users import artificial_users
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.metrics.tests import calibration_needed
from vestige.models.top_k import Context

if TYPE_CHECKING:
    from vestige.session import Session

ME = "me"
"""The user of texts without a user column."""

Names = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UserTexts:
    """Texts with users; no user is in both corpora.

    Attributes:
        texts: of audited users, without near-duplicates.
        reference: of non-members, likewise.
        independent: the check of that name.
    """

    texts: Corpus
    reference: Corpus
    independent: Check

    def groups(self, *, seed: int) -> tuple[Names, Names, Names]:
        """Counted, fitted and compared non-members, see `non_members`."""
        return draw_groups(sorted(set(self.reference.users or ())), seed=seed)

    def reference_of(self, *groups: Names) -> Corpus:
        """The reference texts of some users."""
        wanted = {name for group in groups for name in group}
        inside = [name in wanted for name in self.reference.users or ()]
        return self.reference.take(np.flatnonzero(inside))

    def together(self) -> Corpus:
        """The texts, then the reference."""
        return self.texts + self.reference


def read_user_texts(
    run: "Session",
    texts: Any,
    reference: Any,
    *,
    person: str | None = None,
    random_users: int | None = None,
    sources: bool = False,
    columns: Mapping[str, Any],
) -> UserTexts:
    """Read both corpora.

    Args:
        run: the session.
        texts: of the audited users.
        reference: of non-members.
        person: whose all of `texts` are.
        random_users: split `reference` at random into this many users.
        sources: whether the model answers or translates a source.
        columns: format, text, user, source and limit.

    Raises:
        DataError: one cannot be read, a column is missing, or a user is in both.
    """
    if person is not None and not person.strip():
        raise ValueError("`person` must be a name, got blanks or nothing")
    own = _with_users(run, "texts", _audited(run, texts, person, columns))
    others = _with_users(run, "reference", _non_members(run, reference, random_users, columns))
    if both := len(set(own.users or ()) & set(others.users or ())):
        raise DataError(
            f"{both} user{' is' if both == 1 else 's are'} in both `texts` and `reference`",
            remedy="Remove them from `reference`, which must hold non-members only.",
        )
    return _without_duplicates(run, own, others, sources)


def _audited(run: "Session", texts: Any, person: str | None, columns: Mapping[str, Any]) -> Corpus:
    user = columns["user"] if person is None else None
    try:
        corpus = _read(run, "texts", texts, columns, user)
    except DataError as error:
        if user is None or f'has no column "{user}"' not in error.problem:
            raise
        corpus = _read(run, "texts", texts, columns, None)
    if person is None and corpus.users is not None:
        return corpus
    if person is None:
        run.log(f"The audited texts have no user column: they count as one person's, {ME!r}.")
    return Corpus.from_texts(corpus, users=[person or ME] * len(corpus), sources=corpus.sources)


def _non_members(
    run: "Session", reference: Any, random_users: int | None, columns: Mapping[str, Any]
) -> Corpus:
    if random_users is not None:
        corpus = _read(run, "reference", reference, columns, None)
        return artificial_users(corpus, random_users, seed=run.seed)
    corpus = _read(run, "reference", reference, columns, columns["user"])
    if corpus.users is None:
        name = reference if isinstance(reference, str | PathLike) else "`reference`"
        raise DataError(
            f"{name} has no user column",
            remedy="Name the column (`user`), or split the texts into random users "
            "(`random_users` 100).",
        )
    return corpus


def _read(
    run: "Session", role: str, given: Any, columns: Mapping[str, Any], user: str | None
) -> Corpus:
    settings = {name: columns[name] for name in ("format", "text", "limit")}
    return run.corpus(role, given, user=user, source_column=columns["source"], **settings)


def _with_users(run: "Session", role: str, corpus: Corpus) -> Corpus:
    """Without the texts that have no user."""
    named = np.array([user != "" for user in corpus.users or ()])
    if not named.any():
        raise DataError(
            f"`{role}`: every text has an empty user", remedy="Name another column (`user`)."
        )
    if left_out := int((~named).sum()):
        run.log(f"--{role}: {left_out} texts without a user are left out.")
    return corpus.take(np.flatnonzero(named)) if left_out else corpus


def _without_duplicates(
    run: "Session", texts: Corpus, reference: Corpus, sources: bool
) -> UserTexts:
    """Near-duplicates count once; columns that the task does not need go."""
    whole = texts + reference
    read = list(whole)
    if whole.sources is not None:
        read = [f"{source} {text}" for source, text in zip(whole.sources, read, strict=True)]
    own = own_texts(read, whole.users or (), audited=len(texts))
    if left_out := int((~own.kept).sum()):
        run.log(f"{left_out:,} of {len(read):,} texts are near-duplicates and are left out.")
    if not own.kept[: len(texts)].any():
        raise DataError(
            "most texts of every audited user are near-duplicates of each other",
            remedy="Give texts that differ.",
        )
    parts = {}
    for role, part, kept in (
        ("texts", texts, own.kept[: len(texts)]),
        ("reference", reference, own.kept[len(texts) :]),
    ):
        if sources and part.sources is None:
            raise DataError(
                f"`{role}` has no column with what each text answers or translates",
                remedy="Name the column (`source`).",
            )
        table = part.take(np.flatnonzero(kept)).table
        parts[role] = Corpus(table.select(["text", "user", *(["source"] if sources else [])]))
    return UserTexts(**parts, independent=own.check)


@dataclass(frozen=True, kw_only=True)
class UserInputs:
    """Inputs of an audit of users.

    Attributes:
        target: the audited model.
        texts: as read.
        policy: which words are queried.
        encoded: all texts as token ids, the audited first.
        targets: those whose words are queried; of pairs, without the sources.
        queries: w words that can be queried; none of the counted users.
        counts: word counts of the counted users; with a base, of all users.
        audited: users, as indices of `queries.names`.
        known: non-members by group, likewise.
    """

    target: Target
    texts: UserTexts
    policy: QueryPolicy
    encoded: Texts
    targets: EncodedCorpus
    queries: TokenQueries
    counts: WordCounts
    audited: tuple[int, ...]
    known: NonMembers

    @classmethod
    def of(
        cls, target: Target, texts: UserTexts, policy: QueryPolicy, *, has_base: bool = False
    ) -> "UserInputs":
        """Encode the texts, find the words, and divide the non-members into groups.

        Args:
            target: its vocabulary determines the words.
            texts: of all users.
            policy: its seed is that of the groups.
            has_base: the expectation is learned from all users alike, so that all non-members are
                compared.
        """
        whole, encoded = texts.together(), None
        if target.source_vocabulary is None:
            targets = encode(whole, target.vocabulary)
        else:
            encoded = encode_pairs(whole, target.source_vocabulary, target.vocabulary)
            targets = encoded.targets
        queries = token_queries(targets, target.vocabulary)
        groups = texts.groups(seed=policy.seed)
        if has_base:
            groups = ((), (), tuple(sorted(name for group in groups for name in group)))
        known = NonMembers.named(groups, queries.names)
        counted = range(len(queries.names)) if has_base else known.counted
        audited = set(texts.texts.users or ())
        return cls(
            target=target,
            texts=texts,
            policy=policy,
            encoded=encoded or targets,
            targets=targets,
            queries=queries.take(~np.isin(queries.users, known.counted)),
            counts=WordCounts.of_users(targets, counted, target.vocab_size),
            audited=tuple(n for n, name in enumerate(queries.names) if name in audited),
            known=known,
        )

    @property
    def owners(self) -> NDArray[np.int32]:
        """(t,) the user of each text, as an index of `queries.names`."""
        assert self.targets.users is not None
        return self.targets.users

    def chosen(self, references: Any = None) -> NDArray[np.bool_]:
        """(w,) True for the words that the policy selects."""
        return self.policy.mask(self.queries, self.counts, references)

    @cached_property
    def words(self) -> list[list[str]]:
        """Each text as words, unknown ones included."""
        return [self.split(text) for text in self.texts.together()]

    def split(self, text: str) -> list[str]:
        """A text as the words of a remote model."""
        assert isinstance(self.target.vocabulary, WordVocabulary)
        return self.target.vocabulary.split(text)

    def contexts(self, queries: TokenQueries) -> tuple[list[Context], list[str]]:
        """What a remote model reads before each word; and the words."""
        sources = self.texts.together().sources if self.target.source_vocabulary else None
        contexts, words = [], []
        for text, at in zip(queries.texts.tolist(), queries.positions.tolist(), strict=True):
            source = None if sources is None else sources[text]
            contexts.append(Context(tuple(self.words[text][:at]), source))
            words.append(self.words[text][at])
        return contexts, words

    def key(self, sha256: str, queries: TokenQueries) -> str:
        """A name of ranks: a hash of a model's weights, of the texts and of the words."""
        digest = hashlib.sha256(sha256.encode())
        parts: list[Any] = [self.targets.tokens, self.targets.offsets]
        parts += [queries.texts, queries.positions]
        if not isinstance(self.encoded, EncodedCorpus):
            parts += [self.encoded.sources.tokens, self.encoded.sources.offsets]
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part.tobytes())
        return digest.hexdigest()[:16]

    def check(self, alpha: float) -> None:
        """Refuse an audit that cannot succeed, before anything is trained or queried.

        Raises:
            DataError: there are too few users or words.
        """
        counts, known = self.queries.counts(), self.known
        if not counts[list(self.audited)].any():
            raise DataError(
                "`texts` has no word that the model knows",
                remedy="Give texts in the model's language, split into words as it splits them, "
                "and a reference in that language.",
            )
        compared = int(np.count_nonzero(counts[list(known.compared)]))
        needed = calibration_needed(alpha)
        if compared < needed:
            users = len(known.counted) + len(known.fitted) + len(known.compared)
            people = users_needed(alpha) if known.fitted else needed
            raise DataError(
                f"`reference` has {users} users, which leaves {compared} to compare with; a "
                f"p-value of {alpha:g} needs {needed}",
                remedy=f"Give texts of {people} people or more (`reference`), split a text without "
                "users into more random users (`random_users`), or raise `alpha`.",
            )
        fitted = list(known.fitted or known.compared)
        words = int(self.policy.most(self.queries)[fitted].sum())
        if words < FEWEST_WORDS:
            raise DataError(
                f"{words} words of {len(fitted)} non-members to learn from are too few; "
                f"{FEWEST_WORDS} are needed",
                remedy="Give longer texts or more non-members (`reference`), or raise `queries` "
                "or `calls`.",
            )
