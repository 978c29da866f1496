"""What stands under a heading beside tables: phrases, each token shaded by its score, and prose."""

from dataclasses import dataclass
from typing import ClassVar

from vestige.reports.components.disclosure import are_words, disclose, running_text
from vestige.reports.components.numbers import Row


@dataclass(frozen=True)
class Token:
    """One token of a phrase: what is shown, its score, and its shade in [0, 100]."""

    text: str
    score: float
    shade: int


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """One phrase that a search found.

    Attributes:
        rank: 0 is the first.
        spaced: its tokens are words, which want a space between them.
        lead: what was read before it.
        notes: smaller lines under it.
        verdict: "found", how many null searches reached its score, or "" where nobody knows.
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
    """Phrases under a heading.

    Attributes:
        title: the heading.
        key: how to read them.
        groups: phrases, like ones together; those behind a group's first are folded away.
        folded: the whole list is folded away, under its title.
    """

    template: ClassVar[str] = "findings"
    title: str
    key: str
    groups: tuple[tuple[Phrase, ...], ...]
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Paragraphs or a list under a heading.

    Attributes:
        title: the heading.
        lines: sentences, one paragraph or list entry each.
        listed: a list, not paragraphs.
    """

    template: ClassVar[str] = "prose"
    title: str
    lines: tuple[str, ...]
    listed: bool = False


def phrase(
    row: Row, *, strongest: float, verdict: str, notes: tuple[str, ...], show_secrets: bool
) -> Phrase:
    """A phrase ready to be shown.

    Args:
        row: rank, score, pieces, token_scores and phrase.
        strongest: the token score of the darkest shade.
        verdict: see `Phrase`, as of the notes.
        show_secrets: pieces in the clear.
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
