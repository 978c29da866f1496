"""The texts of an audit of users: whose text is audited, and who is known to be out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vestige.cli.terminal import say
from vestige.errors import DataError
from vestige.workflows.sources import read_source

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus

ME = "me"
"""Whose texts are that nobody says anything about."""


@dataclass(frozen=True, kw_only=True)
class TextSources:
    """Where the texts are, and whose.

    Attributes:
        texts: DATA that is audited.
        reference: DATA of people who are known to be out.
        format: how both are to be read.
        text: the text's column, in tables.
        user: the user's.
        source: that of what a text answers or translates.
        limit: documents to read of each.
        person: whose all texts are; None: as they say.
        artificial: users to split the reference into; None: as it says.
    """

    texts: str
    reference: str
    format: str
    text: str
    user: str | None
    source: str | None
    limit: int | None
    person: str | None
    artificial: int | None

    def read(self, *, seed: int, show_secrets: bool) -> "AuditTexts":
        """Both, by user.

        Raises:
            DataError: one cannot be read, or somebody stands in both.
        """
        texts = _named("--texts", self._texts())
        reference = _named("--reference", self._reference(seed))
        both = sorted(set(texts.users or ()) & set(reference.users or ()))
        if both:
            shown = f", {both[0]!r} among them" if show_secrets else ""
            raise DataError(
                f"{len(both)} users stand in --texts and in --reference{shown}",
                remedy="Take them out of --reference, which must hold only people who are not in "
                "the training data; --show-secrets names one.",
            )
        _tell_shared(texts, reference)
        return AuditTexts(texts=texts, reference=reference)

    def _texts(self) -> "Corpus":
        if self.person is not None:
            if not self.person.strip():
                raise ValueError("--person must be a name, got blanks or nothing")
            return _owned_by(self._read(self.texts, None), self.person)
        try:
            corpus = self._read(self.texts, self.user)
        except DataError as error:
            if self.user is None or f'has no column "{self.user}"' not in error.problem:
                raise
            corpus = self._read(self.texts, None)
        if corpus.users is None:
            say(f"Nothing says whose --texts are: taken for one person's, {ME!r}")
            return _owned_by(corpus, ME)
        return corpus

    def _reference(self, seed: int) -> "Corpus":
        from vestige.data.users import artificial_users

        if self.artificial is not None:
            corpus = self._read(self.reference, None)
            return artificial_users(corpus, self.artificial, seed=seed)
        corpus = self._read(self.reference, self.user)
        if corpus.users is None:
            raise DataError(
                f"{self.reference} does not say whose each text is",
                remedy="Name the column that does (--user), or split it into artificial users "
                "(--artificial 100).",
            )
        return corpus

    def _read(self, where: str, user: str | None) -> "Corpus":
        return read_source(
            where,
            format=self.format,
            text=self.text,
            user=user,
            source_column=self.source,
            limit=self.limit,
        )


@dataclass(frozen=True, kw_only=True)
class AuditTexts:
    """What was read; nobody stands in both.

    Attributes:
        texts: with users, who are audited.
        reference: with users, who are known to be out.
    """

    texts: "Corpus"
    reference: "Corpus"

    def groups(self, *, seed: int) -> "tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]":
        """Whose words are counted, who is learnt from and who is compared with, by lot.

        Raises:
            DataError: the reference has too few users.
        """
        from vestige.attacks.membership.non_members import draw_groups

        return draw_groups(sorted(set(self.reference.users or ())), seed=seed)

    def reference_of(self, *groups: "tuple[str, ...]") -> "Corpus":
        """The reference's texts of some users."""
        import numpy as np

        wanted = {name for group in groups for name in group}
        return self.reference.take(
            np.flatnonzero([name in wanted for name in self.reference.users or ()])
        )

    def sourced(self, needed: bool) -> "AuditTexts":
        """With sources where the task has them, and else without.

        Raises:
            DataError: there are none.
        """
        from vestige.data.corpus import Corpus

        columns = ["text", "user", *(["source"] if needed else [])]
        kept = []
        for option, part in (("--texts", self.texts), ("--reference", self.reference)):
            if needed and part.sources is None:
                raise DataError(
                    f"{option} does not say what each text answers or translates",
                    remedy="Name the column that does (--source).",
                )
            kept.append(Corpus(part.table.select(columns)))
        return AuditTexts(texts=kept[0], reference=kept[1])

    def together(self) -> "Corpus":
        """The texts, then the reference."""
        return self.texts + self.reference


def _owned_by(corpus: "Corpus", name: str) -> "Corpus":
    from vestige.data.corpus import Corpus

    return Corpus.from_texts(corpus, users=[name] * len(corpus), sources=corpus.sources)


def _named(option: str, corpus: "Corpus") -> "Corpus":
    """Without the documents of nobody."""
    import numpy as np

    mine = np.array([user != "" for user in corpus.users or ()])
    if not mine.any():
        raise DataError(
            f"{option}: every text has an empty user", remedy="Name another column (--user)."
        )
    if left_out := int((~mine).sum()):
        say(f"{option}: {left_out} texts without a user are left out")
    return corpus.take(np.flatnonzero(mine)) if left_out else corpus


def _tell_shared(texts: "Corpus", reference: "Corpus") -> None:
    """Warn of texts on both sides: the shadow models would have learnt what is audited."""
    known = set(reference)
    shared = sum(text in known for text in texts)
    if shared > len(texts) // 20:
        say(
            f"{shared} of {len(texts)} audited texts stand word for word in --reference: shadow "
            "models learn them, too, and the audit gets weaker"
        )
