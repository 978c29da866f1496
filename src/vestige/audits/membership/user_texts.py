"""Texts of users: which texts count, and the groups of non-members.

Non-members are divided at random into three groups. Words are counted in the texts of the counted;
the expectation of a word's score is learned from the fitted; shadow models are trained on both. The
compared have no part in any of this, and neither have the audited: an audited non-member could
change places with a compared one and nothing else would change, so that conformal p-values are
exact (Vovk, Gammerman and Shafer 2005, "Algorithmic Learning in a Random World", section 4.1).

A text of several users, such as a greeting, is no evidence about one of them: near-duplicates
count once, for the first user who has them. A user most of whose texts are near-duplicates of
earlier users' is left out as not independent.
"""

from collections.abc import Iterable, Sequence
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

DEFAULT_USER = "me"
"""The user of texts without a user column."""
MAX_FITTED = 60
"""Most fitted users; 20 are enough."""
MIN_USERS = 4
"""Least number of users that can be divided into three groups."""

User = TypeVar("User", int, str)


@dataclass(frozen=True)
class NonMembers(Generic[User]):
    """Disjoint groups of non-members, by name or by index.

    Attributes:
        fitted: the expectation is learned from the words of these users.
        compared: users that the audited are compared with.
        counted: word frequencies are counted in the texts of these users; empty if other text is
            counted.
    """

    fitted: tuple[User, ...] = ()
    compared: tuple[User, ...] = ()
    counted: tuple[User, ...] = ()

    @classmethod
    def split(cls, users: Iterable[User], *, seed: int) -> Self:
        """Random groups: half of the users are compared; of the others half are fitted, at most 60.

        Raises:
            DataError: there are fewer than 4 users.

        Example:
            >>> groups = NonMembers.split(range(37), seed=0)
            >>> len(groups.counted), len(groups.fitted), len(groups.compared)
            (9, 9, 19)
        """
        ordered = sorted(users)
        if len(ordered) < MIN_USERS:
            raise DataError(
                f"{len(ordered)} users are non-members; {MIN_USERS} or more are needed",
                remedy="Pass more users with --reference.",
            )
        shuffled = np.random.default_rng(seed).permutation(len(ordered)).tolist()
        half = len(ordered) // 2
        fitted = min(MAX_FITTED, (half + 1) // 2)

        def group(indices: Sequence[int]) -> tuple[User, ...]:
            return tuple(sorted(ordered[index] for index in indices))

        return cls(
            fitted=group(shuffled[:fitted]),
            compared=group(shuffled[half:]),
            counted=group(shuffled[fitted:half]),
        )

    def as_indices(self, names: Sequence[str]) -> "NonMembers[int]":
        """The same groups as indices of `names`, without users that have no name there."""
        index = {name: number for number, name in enumerate(names)}
        return NonMembers(
            *(
                tuple(index[str(user)] for user in group if str(user) in index)
                for group in (self.fitted, self.compared, self.counted)
            )
        )


def users_needed(rate: float) -> int:
    """Non-members that a p-value as small as `rate` needs, if half of them are compared.

    Example:
        >>> users_needed(0.05)
        37
    """
    return max(MIN_USERS, 2 * calibration_needed(rate) - 1)


@dataclass(frozen=True, kw_only=True)
class UserTexts:
    """Texts with users; no user is in both corpora.

    Attributes:
        texts: of audited users, without near-duplicates.
        reference: of non-members, without near-duplicates.
        independent: the check of that name.
    """

    texts: Corpus
    reference: Corpus
    independent: Check

    def groups(self, *, seed: int) -> NonMembers[str]:
        """Random groups of the users of the reference."""
        return NonMembers.split(set(self.reference.users or ()), seed=seed)

    def reference_of(self, *groups: Iterable[str]) -> Corpus:
        """The reference texts of some users."""
        names = {name for group in groups for name in group}
        mask = [user in names for user in self.reference.users or ()]
        return self.reference.take(np.flatnonzero(mask))

    def all_texts(self) -> Corpus:
        """The texts, then the reference."""
        return self.texts + self.reference


def read_user_texts(run: "Session", *, need_sources: bool = False) -> UserTexts:
    """Read `texts` and `reference`; leave out texts without a user and near-duplicates.

    With `need_sources`, the model answers or translates a source.

    Raises:
        DataError: one cannot be read, a column is missing, or a user is in both.
    """
    person = run.arguments["person"]
    if person is not None and not person.strip():
        raise ValueError("`person` must be a name, got blanks or nothing")
    lists = {"texts": _read_audited(run, person), "reference": _read_reference(run)}
    for role, corpus in lists.items():
        has_user = np.array([user != "" for user in corpus.users or ()])
        if not has_user.any():
            raise DataError(
                f"`{role}`: every text has an empty user", remedy="Name another column (`user`)."
            )
        if left_out := int((~has_user).sum()):
            run.log(f"--{role}: {left_out} texts without a user are left out.")
            lists[role] = corpus.take(np.flatnonzero(has_user))
    if both := len(set(lists["texts"].users or ()) & set(lists["reference"].users or ())):
        raise DataError(
            f"{both} user{' is' if both == 1 else 's are'} in both `texts` and `reference`",
            remedy="Remove them from `reference`, which must hold non-members only.",
        )
    columns = ["text", "user"]
    if need_sources:
        columns.append("source")
        for role, corpus in lists.items():
            if corpus.sources is None:
                raise DataError(
                    f"`{role}` has no column with what each text answers or translates",
                    remedy="Name the column (`source`).",
                )
    return _without_duplicates(run, lists["texts"], lists["reference"], columns)


def _read_audited(run: "Session", person: str | None) -> Corpus:
    user = run.arguments["user"] if person is None else None
    try:
        corpus = _read(run, "texts", user)
    except DataError as error:
        if user is None or f'has no column "{user}"' not in error.problem:
            raise
        corpus = _read(run, "texts", None)
    if person is None and corpus.users is not None:
        return corpus
    if person is None:
        run.log(
            f"The audited texts have no user column: they count as one person's, {DEFAULT_USER!r}."
        )
    users = [person or DEFAULT_USER] * len(corpus)
    return Corpus.from_texts(corpus, users=users, sources=corpus.sources)


def _read_reference(run: "Session") -> Corpus:
    random_users = run.arguments["random_users"]
    if random_users is not None:
        return artificial_users(_read(run, "reference", None), random_users, seed=run.seed)
    corpus = _read(run, "reference", run.arguments["user"])
    if corpus.users is None:
        data = run.arguments["reference"]
        name = data if isinstance(data, str | PathLike) else "`reference`"
        raise DataError(
            f"{name} has no user column",
            remedy="Name the column (`user`), or split the texts into random users "
            "(`random_users` 100).",
        )
    return corpus


def _read(run: "Session", role: str, user_column: str | None) -> Corpus:
    arguments = run.arguments
    columns: dict[str, Any] = {name: arguments[name] for name in ("format", "text", "limit")}
    return run.corpus(
        role, arguments[role], user=user_column, source_column=arguments["source"], **columns
    )


def _without_duplicates(
    run: "Session", texts: Corpus, reference: Corpus, columns: Sequence[str]
) -> UserTexts:
    """Near-duplicates count once; columns that the task does not need are dropped."""
    corpus, count = texts + reference, len(texts)
    contents = list(corpus)
    if corpus.sources is not None:
        pairs = zip(corpus.sources, contents, strict=True)
        contents = [f"{source} {text}" for source, text in pairs]
    mask, independent = independent_user_texts(contents, corpus.users or (), audited=count)
    if left_out := int((~mask).sum()):
        run.log(f"{left_out:,} of {len(mask):,} texts are near-duplicates and are left out.")
    if not mask[:count].any():
        raise DataError(
            "most texts of every audited user are near-duplicates of each other",
            remedy="Give texts that differ.",
        )
    unique, unique_reference = (
        Corpus(side.take(np.flatnonzero(side_mask)).table.select(columns))
        for side, side_mask in ((texts, mask[:count]), (reference, mask[count:]))
    )
    return UserTexts(texts=unique, reference=unique_reference, independent=independent)


def independent_user_texts(
    texts: Sequence[str], users: Sequence[str], *, audited: int
) -> tuple[NDArray[np.bool_], Check]:
    """(t,) a mask of the texts that count as evidence, and the check "independent".

    The mask depends on texts alone, which biases no score. The first `audited` of the t texts are
    of audited users.
    """
    _, first, group = np.unique(near_duplicates(texts), return_index=True, return_inverse=True)
    names, user = np.unique(np.asarray(users), return_inverse=True)
    of_user, _ = np.unique(np.stack([user, group]), axis=1)
    distinct_texts = np.bincount(of_user, minlength=len(names))
    first_texts = np.bincount(user[first], minlength=len(names))
    independent = 2 * first_texts >= distinct_texts
    is_first = np.zeros(len(texts), dtype=bool)
    is_first[first] = True

    is_audited = np.isin(np.arange(len(names)), user[:audited])
    audited_users, reference_users = int(is_audited.sum()), int((~is_audited).sum())
    good_audited = int((is_audited & independent).sum())
    good_reference = int((~is_audited & independent).sum())
    sentence = (
        f"{good_audited:,} of {audited_users:,} audited users and {good_reference:,} of "
        f"{reference_users:,} reference users have mostly texts of their own"
    )
    if 2 * good_audited >= audited_users and good_reference >= FEWEST_UNITS:
        check = Check("independent", "passed", f"{sentence}.")
    else:
        check = Check(
            "independent",
            "failed",
            f"{sentence}; needed: most of the audited and {FEWEST_UNITS} of the reference. "
            "Near-duplicates are not independent.",
        )
    return is_first & independent[user], check
