"""Texts of `vestige membership --unit user`: of audited users, and of non-members."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    read = {
        "texts": _audited(run, texts, person, columns),
        "reference": _non_members(run, reference, random_users, columns),
    }
    own, others = (_with_users(run, role, corpus) for role, corpus in read.items())
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
    if person is None and corpus.users is None:
        run.log(f"The audited texts have no user column: they count as one person's, {ME!r}.")
        person = ME
    if person is None:
        return corpus
    return Corpus.from_texts(corpus, users=[person] * len(corpus), sources=corpus.sources)


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
    for role, part, kept in zip(
        ("texts", "reference"), (texts, reference), np.split(own.kept, [len(texts)]), strict=True
    ):
        if sources and part.sources is None:
            raise DataError(
                f"`{role}` has no column with what each text answers or translates",
                remedy="Name the column (`source`).",
            )
        table = part.take(np.flatnonzero(kept)).table
        parts[role] = Corpus(table.select(["text", "user", *(["source"] if sources else [])]))
    return UserTexts(**parts, independent=own.check)
