"""Blocks of a report besides charts: tables, phrases, prose, and lists of names and values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from vestige.reports.disclosure import are_words, disclose, printable, running_text
from vestige.reports.words import NOTHING, Facts, Row, whole

LONG = 28
"""A longer text in a cell is broken into lines."""

WHY_NOTED = (
    "For the record of processing. Opinion 28/2024 of the European Data Protection Board names "
    "documented tests such as this one as evidence on whether personal data can be extracted from "
    "a model. This is one such test. It does not show that the model is anonymous or that its use "
    "is lawful."
)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval, its value, a reference line and a band; all in percent of the bar's width."""

    low: float
    middle: float
    high: float
    reference: float | None = None
    band: tuple[float, float] | None = None


def bar(
    row: Row,
    name: str,
    axis: tuple[float, float],
    *,
    reference: float | None = None,
    band: tuple[float, float] | None = None,
) -> Bar | None:
    """The bar of `name` in a row with `name`_low and `name`_high; None without an interval.

    Args:
        row: of a run.
        name: of the value.
        axis: ends that all bars of a column share.
        reference: a line to compare with.
        band: ends of what counts as equal.
    """
    if row[f"{name}_low"] is None:
        return None
    low, high = axis

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 1)

    return Bar(
        low=place(row[f"{name}_low"]),
        middle=place(row[name]),
        high=place(row[f"{name}_high"]),
        reference=None if reference is None else place(reference),
        band=None if band is None else (place(band[0]), place(band[1])),
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A value or a name (bold if it is the row's), with a bar and smaller lines under it.

    `href` links to a place on the same page.
    """

    text: str
    notes: tuple[str, ...] = ()
    bar: Bar | None = None
    name: bool = False
    href: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its title.

    Attributes:
        title: heading, or "".
        columns: their names; empty for a table without a head.
        texts: how many of the first columns hold words; the others are numbers, aligned right.
        rows: cells in the columns' order; a row of one cell begins a group.
        key: how to read it, above the table.
        marked: index of the highlighted row, or None.
        folded: not shown on a terminal.
    """

    template: ClassVar[str] = "table"
    title: str = ""
    columns: tuple[str, ...] = ()
    texts: int = 1
    rows: tuple[tuple[str | Cell, ...], ...]
    key: str = ""
    marked: int | None = None
    folded: bool = False

    def wraps(self, column: int) -> bool:
        """Whether texts of a column are broken into lines; numbers never are."""
        texts = [row[column] for row in self.rows if 1 < len(row) > column < self.texts]
        return any(isinstance(text, str) and len(text) > LONG for text in texts)


Column = Callable[[Any], object]


def table(
    title: str,
    rows: Iterable[Any],
    columns: Mapping[str, Column] | None = None,
    *,
    texts: int = 1,
    key: str = "",
    most: int | None = None,
    drop_empty: bool = False,
    **named: Column,
) -> Table:
    """A table in which each column is a function of a row.

    Args:
        title: heading, or "".
        rows: anything that the functions take.
        columns: functions by the column's name.
        texts: how many of the first columns hold words.
        key: how to read it.
        most: rows that are shown; the title counts the others.
        drop_empty: leave out columns that are None or "" in every row.
        named: more columns; an underscore in a name is shown as a space, and one at its end
            distinguishes two columns of one name.

    Example:
        >>> found = table("T", [{"n": 1200, "p": None}], name=str, tokens_read=lambda r: r["n"])
        >>> found.columns, found.rows[0][1]
        (('name', 'tokens read'), '1,200')
    """
    functions = [*(columns or {}).items(), *((n.replace("_", " "), f) for n, f in named.items())]
    given = list(rows)
    values = [[function(row) for _, function in functions] for row in given[:most]]
    kept = [
        place
        for place in range(len(functions))
        if not drop_empty or any(row[place] not in (None, "") for row in values)
    ]
    more = len(given) - len(values)
    return Table(
        title=f"{title} ({more:,} more in the run folder)" if more else title,
        columns=tuple(functions[place][0].strip() for place in kept),
        texts=sum(place < texts for place in kept),
        rows=tuple(tuple(_cell(row[place]) for place in kept) for row in values),
        key=key,
    )


def _cell(value: object) -> str | Cell:
    """A value as a cell: visible, with thousands separated and two digits after the point."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else printable(str(value))


class Token(NamedTuple):
    """One token of a phrase: its text, its score, and its shade from 0 to 100."""

    text: str
    score: float
    shade: int


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """One phrase that a search returned, in tokens and in one line.

    Attributes:
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


def phrase(
    row: Row, *, strongest: float, verdict: str, notes: tuple[str, ...], show_secrets: bool
) -> Phrase:
    """A phrase, ready to be shown.

    Args:
        row: rank, score, pieces, token_scores and phrase.
        strongest: the token score with the darkest shade.
        verdict: see `Phrase`, as of `notes`.
        show_secrets: unredacted.
    """
    pieces, text = [str(piece) for piece in row["pieces"]], str(row["phrase"])
    visible = disclose(pieces, show_secrets=show_secrets)
    scores = [float(score) for score in row["token_scores"]]
    parts = [max(0.0, min(1.0, s / strongest)) if strongest > 0 else 0.0 for s in scores]
    shades = [round(100 * part) for part in parts]
    return Phrase(
        rank=int(row["rank"]),
        score=float(row["score"]),
        tokens=tuple(map(Token._make, zip(visible, scores, shades, strict=True))),
        text=running_text(pieces, text, show_secrets=show_secrets),
        spaced=are_words(pieces, text),
        notes=notes,
        verdict=verdict,
        lead=disclose([str(row.get("lead") or "").lstrip()], show_secrets=show_secrets)[0],
    )


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Phrases below a heading, in groups; pages fold those after the first of a group."""

    template: ClassVar[str] = "findings"
    title: str
    key: str
    groups: tuple[tuple[Phrase, ...], ...]
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Sentences below a heading, as paragraphs or as a list, and a command to type."""

    template: ClassVar[str] = "prose"
    title: str
    lines: tuple[str, ...]
    listed: bool = False
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Names and values below a heading; of a file note also why, and what it does not say."""

    template: ClassVar[str] = "listing"
    title: str
    facts: Facts
    key: str = ""
    unsaid: tuple[str, ...] = ()


def file_note(
    run: Mapping[str, Any],
    *,
    asked: str,
    models: Mapping[str, str],
    data: Mapping[str, str],
    found: str,
    unsaid: Iterable[str],
) -> Listing:
    """A box for a data-protection officer. It has the full hashes of models and texts.

    Args:
        run: its record.
        asked: the question.
        models: a description of each role among the record's models.
        data: likewise of its lists of texts.
        found: the answer.
        unsaid: what it does not say.
    """
    versions = run.get("versions") or {}
    made = (f"on {str(run['created'])[:10]}" if run.get("created") else "") + (
        f" by Vestige {versions['vestige']}" if versions.get("vestige") else ""
    )
    roles, lists = run.get("models") or {}, run.get("data") or {}
    facts = (
        ("Question", asked),
        *((f"About {name}", _model(roles.get(role))) for role, name in models.items()),
        *((f"With {name}", _texts(lists.get(role))) for role, name in data.items()),
        ("Made", made.strip()),
        ("Finding", found),
    )
    return Listing(
        title="For a data-protection officer",
        key=WHY_NOTED,
        facts=tuple((name, printable(text)) for name, text in facts if text),
        unsaid=tuple(unsaid),
    )


def _model(own: Any) -> str:
    """The name of a model without the path's other parts, and the hash of its weights."""
    if not isinstance(own, Mapping):
        return ""
    path, base = own.get("path"), own.get("base")
    parts = [
        str(path).rstrip("/").rpartition("/")[2] if path else "a model in memory",
        f"{whole(own['parameters'])} weights" if own.get("parameters") else "",
        f"SHA-256 {own.get('sha256') or NOTHING}",
        f"on a base of SHA-256 {base.get('sha256')}" if isinstance(base, Mapping) else "",
    ]
    return ", ".join(filter(None, parts))


def _texts(own: Any) -> str:
    """The number of some texts and their hash."""
    if not isinstance(own, Mapping):
        return ""
    return f"{whole(own['documents'])} texts, SHA-256 {own.get('sha256') or NOTHING}"
