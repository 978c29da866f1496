"""Blocks of a report besides tables and charts: phrases, prose, lists of settings, a file note."""

from dataclasses import dataclass
from typing import ClassVar

from vestige.reports.disclosure import are_words, disclose, running_text
from vestige.reports.numbers import Row
from vestige.reports.words import Facts


@dataclass(frozen=True)
class Token:
    """One token of a phrase: its text, its score, and its shade from 0 to 100."""

    text: str
    score: float
    shade: int


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """One phrase that a search returned.

    Attributes:
        rank: 1 is the first.
        score: of the whole phrase.
        tokens: with their own scores.
        text: the phrase in one line.
        spaced: its tokens are words, with a space between them.
        notes: smaller lines below it.
        verdict: "found", how many null searches reached its score, or "" without null models.
        lead: what was read before it.
    """

    rank: int
    score: float
    tokens: tuple[Token, ...]
    text: str
    spaced: bool
    notes: tuple[str, ...]
    verdict: str
    lead: str = ""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Phrases below a heading.

    Attributes:
        title: the heading.
        key: how to read them.
        groups: similar phrases together; pages fold those after the first.
        folded: not shown on a terminal.
    """

    template: ClassVar[str] = "findings"
    title: str
    key: str
    groups: tuple[tuple[Phrase, ...], ...]
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Paragraphs or a list below a heading.

    Attributes:
        title: the heading.
        lines: sentences, one per paragraph or list entry.
        listed: a list instead of paragraphs.
    """

    template: ClassVar[str] = "prose"
    title: str
    lines: tuple[str, ...]
    listed: bool = False


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Names and values below a heading."""

    template: ClassVar[str] = "listing"
    title: str
    facts: Facts


@dataclass(frozen=True, kw_only=True)
class FileNote:
    """A box for a data-protection officer, see `file_note`.

    Attributes:
        title: its heading.
        key: why it is kept.
        facts: questions and answers.
        unsaid: what the finding does not say.
    """

    template: ClassVar[str] = "file_note"
    title: str = "For a data-protection officer"
    key: str
    facts: Facts
    unsaid: tuple[str, ...]


def phrase(
    row: Row, *, strongest: float, verdict: str, notes: tuple[str, ...], show_secrets: bool
) -> Phrase:
    """A phrase, ready to be shown.

    Args:
        row: rank, score, pieces, token_scores and phrase.
        strongest: the token score with the darkest shade.
        verdict: see `Phrase`.
        notes: see `Phrase`.
        show_secrets: unredacted.
    """
    pieces, text = [str(piece) for piece in row["pieces"]], str(row["phrase"])
    shown = disclose(pieces, show_secrets=show_secrets)
    tokens = tuple(
        Token(piece, float(own), _shade(own, strongest))
        for piece, own in zip(shown, row["token_scores"], strict=True)
    )
    return Phrase(
        rank=int(row["rank"]),
        score=float(row["score"]),
        tokens=tokens,
        text=running_text(pieces, text, show_secrets=show_secrets),
        spaced=are_words(pieces, text),
        notes=notes,
        verdict=verdict,
        lead=disclose([str(row.get("lead") or "").lstrip()], show_secrets=show_secrets)[0],
    )


def _shade(score: float, strongest: float) -> int:
    return round(100 * max(0.0, min(1.0, score / strongest))) if strongest > 0 else 0
