"""What a page shows of an update's phrases, already redacted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from vestige.reports.components import charts
from vestige.reports.components.disclosure import are_words, disclose, running_text
from vestige.reports.diff import reached, verdict


@dataclass(frozen=True)
class Token:
    """One token of a phrase: what is shown, its score, and its shade in [0, 100]."""

    text: str
    score: float | None
    shade: int


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """One phrase that a search found.

    Attributes:
        rank: 0 is the first.
        spaced: its tokens are words, which want a space between them.
        copies: near-copies folded into it.
        verdict: "found", how many null searches reached its score, or "" where nobody knows.
        chance: its E-value in words, or "".
    """

    rank: int
    score: float
    tokens: tuple[Token, ...]
    text: str
    spaced: bool
    group: int | None
    copies: int
    verdict: str
    chance: str


def diff_parts(
    rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], *, show_secrets: bool
) -> dict[str, Any]:
    """The parts of a `Section` that are a diff's own."""
    nulls = summary.get("null_searches") or 0
    strongest = max((s for row in rows for s in row["token_scores"]), default=1.0)

    def of(kind: str) -> list[Phrase]:
        return [_phrase(r, strongest, nulls, show_secrets) for r in rows if r["kind"] == kind]

    scored = [row for row in rows if row["kind"] == "phrase"]
    threshold = summary.get("threshold")
    line = summary.get("null_top_score") if threshold is None else threshold
    what = "the best of the null searches" if threshold is None else "the threshold"
    drawn = "" if line is None else f"; the dashed line is {what}, {line:.2f}"
    return {
        "kind": "diff",
        "title": "What did this update reveal?",
        "lede": verdict(summary),
        "phrases": _grouped(of("phrase")),
        "runs": tuple(of("run")),
        "fragments": tuple(of("fragment")),
        # vl-convert escapes every text that it draws; tests/reports holds it to that.
        "chart": Markup(charts.scores(scored, line)) if len(scored) > 1 else None,
        "chart_title": "Score of each phrase" + drawn,
    }


def _phrase(row: Mapping[str, Any], strongest: float, nulls: int, show_secrets: bool) -> Phrase:
    pieces, phrase = [str(piece) for piece in row["pieces"]], str(row["phrase"])
    shown = disclose(pieces, show_secrets=show_secrets)
    tokens = tuple(
        Token(piece, score, _shade(score, strongest))
        for piece, score in zip(shown, row["token_scores"], strict=True)
    )
    by = row.get("reached_by")
    searches = "" if by is None else f"{reached(by, nulls)} null{'' if nulls == 1 else 's'}"
    return Phrase(
        rank=int(row["rank"]),
        score=float(row["score"]),
        tokens=tokens,
        text=running_text(pieces, phrase, show_secrets=show_secrets),
        spaced=are_words(pieces, phrase),
        group=row.get("group"),
        copies=int(row.get("copies") or 0),
        verdict="found" if row.get("found") else searches,
        chance=_chance(row),
    )


def _chance(row: Mapping[str, Any]) -> str:
    counted, beyond = row.get("e_value"), row.get("extrapolated_e_value")
    if counted is None:
        return ""
    told = f"E-value {counted:.2g}"
    return told if beyond is None else f"{told}, {beyond:.1g} extrapolated"


def _grouped(phrases: Sequence[Phrase]) -> tuple[tuple[Phrase, ...], ...]:
    """Phrases of one group together, groups in the order of their best phrase."""
    first = {phrase.group: phrase.rank for phrase in reversed(phrases)}
    ordered = sorted(phrases, key=lambda phrase: (first[phrase.group], phrase.rank))
    return tuple(tuple(found) for _, found in groupby(ordered, key=lambda phrase: phrase.group))


def _shade(score: float, strongest: float) -> int:
    return round(100 * max(0.0, min(1.0, score / strongest))) if strongest > 0 else 0
