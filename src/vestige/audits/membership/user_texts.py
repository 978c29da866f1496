"""Texts of `vestige membership --unit user`: of audited users, and of non-members."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from vestige.attacks.membership.non_members import draw_groups
from vestige.attacks.membership.own_texts import own_texts
from vestige.claims import Check
from vestige.data.corpus import Corpus
from vestige.data.users import artificial_users
from vestige.errors import DataError

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

    def with_sources(self, needed: bool) -> "UserTexts":
        """With the source column if the task needs it, else without.

        Raises:
            DataError: there is none.
        """
        columns = ["text", "user", *(["source"] if needed else [])]
        parts: dict[str, Any] = {}
        for name, part in (("texts", self.texts), ("reference", self.reference)):
            if needed and part.sources is None:
                raise DataError(
                    f"`{name}` has no column with what each text answers or translates",
                    remedy="Name the column (`source`).",
                )
            parts[name] = Corpus(part.table.select(columns))
        return replace(self, **parts)

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
    columns: Mapping[str, Any],
) -> UserTexts:
    """Read both corpora.

    Args:
        run: the session.
        texts: of the audited users.
        reference: of non-members.
        person: whose all of `texts` are.
        random_users: split `reference` at random into this many users.
        columns: format, text, user, source and limit.

    Raises:
        DataError: one cannot be read, or a user is in both.
    """
    parts = (
        _with_users(run, "texts", _audited(run, texts, person, columns)),
        _with_users(run, "reference", _non_members(run, reference, random_users, columns)),
    )
    if both := len(set(parts[0].users or ()) & set(parts[1].users or ())):
        raise DataError(
            f"{both} user{' is' if both == 1 else 's are'} in both `texts` and `reference`",
            remedy="Remove them from `reference`, which must hold non-members only.",
        )
    return _without_duplicates(run, *parts)


def _audited(run: "Session", texts: Any, person: str | None, columns: Mapping[str, Any]) -> Corpus:
    if person is not None:
        if not person.strip():
            raise ValueError("`person` must be a name, got blanks or nothing")
        return _owned_by(_read(run, "texts", texts, columns, user=None), person)
    user = columns["user"]
    try:
        corpus = _read(run, "texts", texts, columns, user=user)
    except DataError as error:
        if user is None or f'has no column "{user}"' not in error.problem:
            raise
        corpus = _read(run, "texts", texts, columns, user=None)
    if corpus.users is None:
        run.log(f"The audited texts have no user column: they count as one person's, {ME!r}.")
        return _owned_by(corpus, ME)
    return corpus


def _non_members(
    run: "Session", reference: Any, random_users: int | None, columns: Mapping[str, Any]
) -> Corpus:
    if random_users is not None:
        corpus = _read(run, "reference", reference, columns, user=None)
        return artificial_users(corpus, random_users, seed=run.seed)
    corpus = _read(run, "reference", reference, columns, user=columns["user"])
    if corpus.users is None:
        name = reference if isinstance(reference, str | PathLike) else "`reference`"
        raise DataError(
            f"{name} has no user column",
            remedy="Name the column (`user`), or split the texts into random users "
            "(`random_users` 100).",
        )
    return corpus


def _read(
    run: "Session", role: str, given: Any, columns: Mapping[str, Any], *, user: str | None
) -> Corpus:
    names = {"format": "format", "text": "text", "source_column": "source", "limit": "limit"}
    settings = {name: columns[column] for name, column in names.items()}
    return run.corpus(role, given, user=user, **settings)


def _owned_by(corpus: Corpus, name: str) -> Corpus:
    return Corpus.from_texts(corpus, users=[name] * len(corpus), sources=corpus.sources)


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


def _without_duplicates(run: "Session", texts: Corpus, reference: Corpus) -> UserTexts:
    """Near-duplicates count once."""
    whole = texts + reference
    read = list(whole)
    if whole.sources is not None:
        read = [f"{source} {text}" for source, text in zip(whole.sources, read, strict=True)]
    own = own_texts(read, whole.users or (), audited=len(texts))
    mine, theirs = own.kept[: len(texts)], own.kept[len(texts) :]
    if left_out := int((~own.kept).sum()):
        run.log(f"{left_out:,} of {len(read):,} texts are near-duplicates and are left out.")
    if not mine.any():
        raise DataError(
            "most texts of every audited user are near-duplicates of each other",
            remedy="Give texts that differ.",
        )
    return UserTexts(
        texts=texts.take(np.flatnonzero(mine)),
        reference=reference.take(np.flatnonzero(theirs)),
        independent=own.check,
    )
