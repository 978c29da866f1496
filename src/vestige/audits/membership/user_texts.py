"""Texts of users: whose each one is, which ones count, and the part of each non-member.

Three groups of non-members at random. Words are counted in the texts of the counted; what to expect
of a word is learned from the fitted; shadow models are trained on both. The compared have no part
in any of this, and neither have the audited: an audited non-member could change places with a
compared one and nothing else would change, so that conformal p-values are exact (Vovk, Gammerman
and Shafer 2005, "Algorithmic Learning in a Random World", section 4.1).

A text that several users have, such as a greeting, says nothing of one of them: near-duplicates
count once, for the first who has them. They join no users. A user most of whose texts are
near-duplicates of earlier users' is left out, as not independent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from vestige.claims import Check, near_duplicates
from vestige.data.corpus import Corpus
from vestige.data.users import artificial_users
from vestige.errors import DataError
from vestige.metrics.tests import FEWEST as FEWEST_UNITS
from vestige.metrics.tests import calibration_needed

if TYPE_CHECKING:
    from vestige.session import Session

ME = "me"
"""The user of texts without a user column."""
FITTED = 60
"""Fitted users at most; 20 are enough."""
FEWEST = 4
"""Users that three groups need."""

User = TypeVar("User", int, str)


@dataclass(frozen=True)
class NonMembers(Generic[User]):
    """Disjoint groups of non-members, by name or by index.

    Attributes:
        fitted: whose words teach the expectation.
        compared: with whom the audited are compared.
        counted: whose words are counted; none if other text is counted.
    """

    fitted: tuple[User, ...] = ()
    compared: tuple[User, ...] = ()
    counted: tuple[User, ...] = ()

    @classmethod
    def drawn(cls, users: Iterable[User], *, seed: int) -> Self:
        """Random groups: half of the users are compared; of the others half are fitted, at most 60.

        Raises:
            DataError: there are fewer than 4 users.

        Example:
            >>> groups = NonMembers.drawn(range(37), seed=0)
            >>> len(groups.counted), len(groups.fitted), len(groups.compared)
            (9, 9, 19)
        """
        ordered = sorted(users)
        if len(ordered) < FEWEST:
            raise DataError(
                f"{len(ordered)} users are non-members; {FEWEST} or more are needed",
                remedy="Pass more users with --reference.",
            )
        shuffled = np.random.default_rng(seed).permutation(len(ordered)).tolist()
        taught = len(ordered) // 2
        fitted = min(FITTED, (taught + 1) // 2)
        return cls(*(
            tuple(sorted(ordered[place] for place in shuffled[begin:end]))
            for begin, end in ((0, fitted), (taught, None), (fitted, taught))
        ))  # fmt: skip

    def among(self, names: Sequence[str]) -> "NonMembers[int]":
        """The same groups as indices of names; whoever has no name there is left out."""
        place = {name: index for index, name in enumerate(names)}
        groups = (self.fitted, self.compared, self.counted)
        return NonMembers(
            *(tuple(place[str(one)] for one in group if str(one) in place) for group in groups)
        )


def users_needed(rate: float) -> int:
    """Non-members that a p-value as small as `rate` needs, if half of them are compared.

    Example:
        >>> users_needed(0.05)
        37
    """
    return max(FEWEST, 2 * calibration_needed(rate) - 1)


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

    def groups(self, *, seed: int) -> NonMembers[str]:
        """Random groups of the users of the reference."""
        return NonMembers.drawn(set(self.reference.users or ()), seed=seed)

    def reference_of(self, *groups: Iterable[str]) -> Corpus:
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
    """Read both corpora, and leave out texts without a user and near-duplicates.

    Options are those of `membership`; with `sources`, the model answers or translates a source.

    Raises:
        DataError: one cannot be read, a column is missing, or a user is in both.
    """
    if person is not None and not person.strip():
        raise ValueError("`person` must be a name, got blanks or nothing")
    lists = {
        "texts": _audited(run, texts, person, columns),
        "reference": _non_members(run, reference, random_users, columns),
    }
    for role, corpus in lists.items():
        named = np.array([user != "" for user in corpus.users or ()])
        if not named.any():
            raise DataError(
                f"`{role}`: every text has an empty user", remedy="Name another column (`user`)."
            )
        if left_out := int((~named).sum()):
            run.log(f"--{role}: {left_out} texts without a user are left out.")
            lists[role] = corpus.take(np.flatnonzero(named))
    if both := len(set(lists["texts"].users or ()) & set(lists["reference"].users or ())):
        raise DataError(
            f"{both} user{' is' if both == 1 else 's are'} in both `texts` and `reference`",
            remedy="Remove them from `reference`, which must hold non-members only.",
        )
    for role, corpus in lists.items():
        if sources and corpus.sources is None:
            raise DataError(
                f"`{role}` has no column with what each text answers or translates",
                remedy="Name the column (`source`).",
            )
    return _without_duplicates(run, lists, ["text", "user", *(["source"] if sources else [])])


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


def _without_duplicates(
    run: "Session", lists: Mapping[str, Corpus], columns: Sequence[str]
) -> UserTexts:
    """Near-duplicates count once; columns that the task does not need are dropped."""
    whole = lists["texts"] + lists["reference"]
    read, first = list(whole), len(lists["texts"])
    if whole.sources is not None:
        read = [f"{source} {text}" for source, text in zip(whole.sources, read, strict=True)]
    kept, check = own_texts(read, whole.users or (), audited=first)
    if left_out := int((~kept).sum()):
        run.log(f"{left_out:,} of {len(read):,} texts are near-duplicates and are left out.")
    if not kept[:first].any():
        raise DataError(
            "most texts of every audited user are near-duplicates of each other",
            remedy="Give texts that differ.",
        )
    left = {
        role: Corpus(lists[role].take(np.flatnonzero(some)).table.select(columns))
        for role, some in (("texts", kept[:first]), ("reference", kept[first:]))
    }
    return UserTexts(**left, independent=check)


def own_texts(
    texts: Sequence[str], users: Sequence[str], *, audited: int
) -> tuple[NDArray[np.bool_], Check]:
    """(t,) the texts that count as evidence, and the check "independent".

    They are chosen by texts alone, which biases no score. The first `audited` of the t texts are of
    audited users.
    """
    _, first, group = np.unique(near_duplicates(texts), return_index=True, return_inverse=True)
    names, user = np.unique(np.asarray(users), return_inverse=True)
    of_user, _ = np.unique(np.stack([user, group]), axis=1)
    different = np.bincount(of_user, minlength=len(names))
    own = np.bincount(user[first], minlength=len(names))
    independent = 2 * own >= different
    kept = np.zeros(len(texts), dtype=bool)
    kept[first] = True
    is_audited = np.isin(np.arange(len(names)), user[:audited])
    own_all, rest_all = int(is_audited.sum()), int((~is_audited).sum())
    mine, others = (int((side & independent).sum()) for side in (is_audited, ~is_audited))
    sentence = (
        f"{mine:,} of {own_all:,} audited users and {others:,} of {rest_all:,} reference users "
        "have mostly texts of their own"
    )
    check = Check("independent", "passed", f"{sentence}.")
    if 2 * mine < own_all or others < FEWEST_UNITS:
        check = Check(
            "independent", "failed",
            f"{sentence}; needed: most of the audited and {FEWEST_UNITS} of the reference. "
            "Near-duplicates are not independent.",
        )  # fmt: skip
    return kept & independent[user], check
